"""`prepare`: compile the kernels before they are needed."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched.cli.terminal import Working, say


def prepare(
    jobs: Annotated[
        int | None, typer.Option(help="Number of processes; default one for each core.", metavar="NUMBER", min=1, show_default=False)
    ] = None,
) -> None:
    """Compile the kernels of bounds and heuristics.

    Otherwise each is compiled at its first use, which takes seconds to a minute. Compiled kernels are kept
    on disk, beside the package or in the folder NUMBA_CACHE_DIR, until the package changes.

    Example: [bold]hetsched prepare --jobs 2[/bold]
    """
    from hetsched.portfolio.prepare import prepare as compile_all
    from hetsched.search import cores

    with Working("compiling kernels") as working:
        for name, seconds in compile_all(cores() if jobs is None else jobs):
            working.update(f"compiling kernels: {name} done")
            say(f"{name}: {seconds:.1f} s")
