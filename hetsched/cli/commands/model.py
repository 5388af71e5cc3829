"""`model`: the exact formulation of a problem, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hetsched.cli.files import check_writable, read_problem
from hetsched.cli.options import ProblemFile
from hetsched.cli.terminal import Working, say


def model(
    problem: ProblemFile,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the model here.", metavar="FILE.lp|mps")] = None,
    faithful: Annotated[bool, typer.Option("--faithful", help="Use the paper's literal form instead of the tightened one.")] = False,
) -> None:
    """Write the exact formulation of a problem as a file.

    It is DiviML's batched MILP, or Moirai's where transfers contend. Prints the columns by name and the rows by
    tag, the equation number in the paper; -o writes a file that other solvers read.

    Example: [bold]hetsched model problem.json -o model.lp[/bold]
    """
    from hetsched.modeling.model import FORMATS

    check_writable(output, sources=[problem])
    if output is not None and output.suffix.lower() not in FORMATS:
        raise typer.BadParameter(f"{str(output)!r} does not end in {' or '.join(FORMATS)}", param_hint="--output")
    from hetsched.models import formulate

    instance = read_problem(problem)
    with Working("formulating"):
        formulation = formulate(instance, faithful=faithful).model
    say(*formulation.describe().splitlines())
    if output is not None:
        with Working(f"writing {output}"):
            formulation.write(output)
        say(f"wrote {output}")
