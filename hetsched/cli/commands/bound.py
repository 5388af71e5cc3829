"""`bound`: lower bounds alone."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from hetsched.cli.files import read_problem
from hetsched.cli.options import JSON, Objective, ProblemFile, time_option
from hetsched.cli.terminal import INTERRUPTED, Working, say_json, say_rows
from hetsched.problem.units import seconds
from hetsched.stopping import Deadline, reason


def bound(
    problem: ProblemFile, objective: Objective = "makespan", time_limit: Annotated[float | None, time_option()] = None, json: JSON = False
) -> None:
    """Print lower bounds on the makespan (or another objective), the best first.

    No schedule has a smaller value; each bound is printed with its evidence. Ctrl-C or SIGTERM ends the command
    with the bounds found so far. Exit code 1 if a bound proves that there is no schedule.

    Example: [bold]hetsched bound problem.json --time-limit 5[/bold]
    """
    from hetsched.bounds import best
    from hetsched.search import Budget

    instance = read_problem(problem)
    best_of, code = {}, 0
    with Working("bounding"):
        try:
            for lower in best.every(instance, objective=objective, deadline=Deadline.after(Budget(time_limit).time_limit)):
                best_of[lower.name] = lower
        except KeyboardInterrupt as interruption:
            code = INTERRUPTED[reason(interruption)]
    if not best_of:
        raise typer.Exit(code)
    bounds = list(best_of.values())
    bounds.sort(key=lambda bound: -bound.value)
    strongest = bounds[0]
    if json:
        say_json({**vars(strongest), "all": [vars(lower) for lower in bounds]})
    else:
        say_rows((seconds(lower.value), f"by {lower.name}: {lower.evidence}") for lower in bounds)
    raise typer.Exit(code or int(math.isinf(strongest.value)))
