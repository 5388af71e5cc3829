"""`show`: a schedule from a document, verified and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hetsched.cli.answers import broken_rules, facts, run_facts, run_summary, summary
from hetsched.cli.files import Outputs, check_writable, read_problem, read_result
from hetsched.cli.options import JSON, ColourBy, Gantt, ProblemFile, Report, ResultFile, Trace
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
    schedule: ResultFile,
    report: Report = None,
    trace: Trace = None,
    gantt: Gantt = None,
    colour_by: ColourBy = "op",
    json: JSON = False,
) -> None:
    """Draw a schedule, or the run of a timeline, in the terminal or as a picture.

    It is verified first; exit code 1 if it breaks a rule. Pictures of a timeline are of the run nearest the median.

    Example: [bold]hetsched show problem.json schedule.json --gantt gantt.svg[/bold]
    """
    from hetsched.costs.timeline import Timeline

    pictures = Pictures(report, trace, gantt, colour_by)
    check_writable(*pictures.paths, sources=[problem, schedule])
    pictures.check()
    instance, result = read_problem(problem), read_result(schedule)
    with Working("checking"):
        shown = result if isinstance(result, Timeline) else _solution(instance, result, schedule)
        final = shown.schedule
        assert final is not None
        violations = broken_rules(instance, result)
        if isinstance(shown, Timeline):
            instance = shown.problem(instance)
    outputs = Outputs()
    pictures.write(instance, final if isinstance(shown, Timeline) else shown, outputs, valid=not violations)
    if json:
        told = run_facts(shown) if isinstance(shown, Timeline) else {**facts(shown), **({"status": "invalid"} if violations else {})}
        say_json({**told, "valid": not violations, "written": outputs.written})
    else:
        broken = violations[0].message if violations else ""
        rows = run_summary(instance, shown, broken) if isinstance(shown, Timeline) else summary(instance, shown, broken)
        say_rows([*rows, *(("wrote", name) for name in outputs.written)])
        draw(instance, final, f"the {'run' if isinstance(shown, Timeline) else 'schedule'} in {schedule}")
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
