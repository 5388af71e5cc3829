"""`show`: a schedule from a document, verified and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hetsched.cli.answers import facts, summary
from hetsched.cli.files import Outputs, check_writable, read_answer, read_problem
from hetsched.cli.options import JSON, ColourBy, Gantt, ProblemFile, Report, ScheduleFile, Trace
from hetsched.cli.pictures import Pictures, draw
from hetsched.cli.terminal import Working, say_json, say_rows
from hetsched.errors import InvalidSchedule

if TYPE_CHECKING:
    from hetsched.problem.problem import Problem
    from hetsched.schedule.schedule import Schedule
    from hetsched.search.solution import Solution

BOUND_SECONDS = 3.0


def show(
    problem: ProblemFile,
    schedule: ScheduleFile,
    report: Report = None,
    trace: Trace = None,
    gantt: Gantt = None,
    colour_by: ColourBy = "op",
    json: JSON = False,
) -> None:
    """Draw a schedule in the terminal or as a picture.

    The schedule is verified first; exit code 1 if it breaks a rule.

    Example: [bold]hetsched show problem.json schedule.json --gantt gantt.svg[/bold]
    """
    from hetsched import verify

    pictures = Pictures(report, trace, gantt, colour_by)
    check_writable(*pictures.paths, sources=[problem, schedule])
    pictures.check()
    instance, answer = read_problem(problem), read_answer(schedule)
    with Working("checking"):
        solution = _solution(instance, answer, schedule)
        assert solution.schedule is not None
        violations = verify(instance, solution.schedule)
    outputs = Outputs()
    pictures.write(instance, solution, outputs, valid=not violations)
    if json:
        valid = {"status": "invalid"} if violations else {}
        say_json({**facts(solution), **valid, "valid": not violations, "written": outputs.written})
    else:
        broken = violations[0].message if violations else ""
        say_rows([*summary(instance, solution, broken), *(("wrote", name) for name in outputs.written)])
        draw(instance, solution.schedule, f"the schedule in {schedule}")
    outputs.finish()
    raise typer.Exit(1 if violations else 0)


def _solution(problem: Problem, answer: Schedule | Solution, path: Path) -> Solution:
    """Return `answer` if it is a solution, or the solution of a schedule and a bound computed in `BOUND_SECONDS`."""
    from hetsched.bounds import best
    from hetsched.search import Budget, Monitor
    from hetsched.search.solution import Solution

    if isinstance(answer, Solution):
        if answer.schedule is None:
            raise InvalidSchedule(f"{path} holds a solution without a schedule; there is nothing to show")
        return answer
    empty = Monitor(problem, Budget()).solution(path.name)
    proof = best.bound(problem, time_limit=BOUND_SECONDS)
    return Solution(answer, proof, method=path.name, seed=0, history=empty.history, methods=empty.methods)
