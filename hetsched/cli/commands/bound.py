"""`bound`: lower bounds alone."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from hetsched.cli.files import read_problem
from hetsched.cli.options import JSON, Objective, ProblemFile
from hetsched.cli.terminal import INTERRUPTED, Working, say_json, say_rows
from hetsched.report.units import seconds
from hetsched.stopping import Deadline, reason


def bound(
    problem: ProblemFile,
    objective: Objective = "makespan",
    time_limit: Annotated[float | None, typer.Option(help="Stop looking for better ones after it.", metavar="SECONDS")] = None,
    json: JSON = False,
) -> None:
    """Print lower bounds on the makespan (or another objective), the best first.

    No schedule can be shorter; each bound says what it rests on. Ctrl-C or SIGTERM ends with the bounds
    found. Exit code 1 if it proves that there is no schedule.

    Example: [bold]hetsched bound problem.json --time-limit 5[/bold]
    """
    from hetsched.bounds import best
    from hetsched.search import Budget

    asked = read_problem(problem)
    best_of, code = {}, 0
    with Working("bounding"):
        try:
            for each in best.every(asked, objective=objective, deadline=Deadline.after(Budget(time_limit).time_limit)):
                best_of[each.name] = each
        except KeyboardInterrupt as interruption:
            code = INTERRUPTED[reason(interruption)]
    if not best_of:
        raise typer.Exit(code)
    found = list(best_of.values())
    found.sort(key=lambda bound: -bound.value)
    strongest = found[0]
    if json:
        say_json({**vars(strongest), "all": [vars(each) for each in found]})
    else:
        say_rows((seconds(each.value), f"by {each.name}: {each.evidence}") for each in found)
    raise typer.Exit(code or int(math.isinf(strongest.value)))
