"""`prepare`: compile the kernels before they are needed."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched.cli.terminal import Working, say


def prepare(
    jobs: Annotated[
        int | None,
        typer.Option(help="Processes that compile side by side; default one a core.", metavar="NUMBER", min=1, show_default=False),
    ] = None,
) -> None:
    """Compile the kernels of bounds and heuristics, once for all.

    Without it each is compiled when it is first needed, which takes seconds to a minute. Compiled kernels are kept
    on disk, beside the package or where NUMBA_CACHE_DIR says, until the package changes.

    Example: [bold]hetsched prepare --jobs 2[/bold]
    """
    from hetsched.portfolio.prepare import prepare as compile_all
    from hetsched.search import cores

    with Working("compiling kernels") as working:
        for name, seconds in compile_all(cores() if jobs is None else jobs):
            working.update(f"compiling kernels: {name} done")
            say(f"{name}: {seconds:.1f} s")
