"""`solve`, `verify` and `bound`: a problem goes in, an answer comes out."""

from __future__ import annotations

import ast
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli.files import check_writable, read_answer, read_problem
from hetsched.cli.options import JSON, ProblemFile, TimeLimit
from hetsched.cli.terminal import Working, one_line, percent, say, say_json, seconds, warn
from hetsched.errors import InvalidSchedule

if TYPE_CHECKING:
    from hetsched.problem.problem import Problem
    from hetsched.search import Event
    from hetsched.solution import Solution

_WORDS = {"true": True, "false": False, "none": None}


def solve(
    problem: ProblemFile,
    method: Annotated[list[str] | None, typer.Option(help="A name from 'hetsched methods'; repeat it or use commas for several.")] = None,
    option: Annotated[list[str] | None, typer.Option(help="An option of the method; repeatable.", metavar="KEY=VALUE")] = None,
    time_limit: TimeLimit = None,
    evaluations: Annotated[int | None, typer.Option(help="How many schedules to evaluate at most.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
    start: Annotated[Path | None, typer.Option(help="A schedule or solution document to start from.", metavar="FILE")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the schedule here.", metavar="FILE")] = None,
    solution: Annotated[Path | None, typer.Option(help="Write the solution here: schedule, bound, history.", metavar="FILE")] = None,
    json: JSON = False,
) -> None:
    """Schedule a problem; the answer is checked and comes with a lower bound.

    Ctrl-C stops the search and keeps the best schedule found. Exit code 1 if there is no schedule.

    Example: [bold]hetsched solve problem.json --method heft,peft -o schedule.json[/bold]
    """
    from hetsched import solve

    check_writable(output, solution, sources=[problem])
    names = [name.strip() for given in method or ["auto"] for name in given.split(",") if name.strip()]
    options = dict(map(_option, option or []))
    asked = read_problem(problem)
    first = None if start is None else read_answer(start)
    began = time.perf_counter()
    with Working(f"solving with {', '.join(names)}") as working:
        found = solve(
            asked, names, time_limit=time_limit, evaluations=evaluations, seed=seed, start=first, options=options,
            on_progress=lambda event: working.update(_news(event)),
        )  # fmt: skip
    took = time.perf_counter() - began
    written: list[str] = []
    failures: list[OSError] = []
    for value, path in ((found.schedule, output), (found, solution)):
        if value is not None and path is not None:
            try:
                value.write(path)
                written.append(str(path))
            except OSError as failure:  # the answer is told all the same
                failures.append(failure)
    if json:
        say_json({**_facts(found), "seconds": took, "written": written})
    else:
        _summary(asked, found, took, written)
    if failures:
        raise failures[0]
    raise typer.Exit(outcome(found))


def outcome(found: Solution) -> int:
    """Return the exit code of a solution: 0 with a schedule, 1 without, 130 if interrupted."""
    if found.stopped == "interrupted":
        return 130
    return 0 if found.schedule is not None else 1


def _option(text: str) -> tuple[str, Any]:
    """Return the name and value in ``name=value``; what is no Python literal is text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not of the form KEY=VALUE", param_hint="--option")
    if value.lower() in _WORDS:
        return name, _WORDS[value.lower()]
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _news(event: Event) -> str:
    return f"{event.source}: makespan {seconds(event.incumbent)}, bound {seconds(event.bound)}, gap {percent(event.gap)}"


def _facts(found: Solution) -> dict[str, Any]:
    return {
        "status": str(found.status), "makespan": found.makespan, "throughput": found.throughput,
        "bound": found.bound, "bound_name": found.proof.name, "bound_evidence": found.proof.evidence, "gap": found.gap,
        "method": found.method, "seed": found.seed, "stopped": found.stopped, "messages": list(found.messages),
    }  # fmt: skip


def _summary(problem: Problem, found: Solution, took: float, written: list[str]) -> None:
    size = f"{problem.n_tasks} tasks, {problem.graph.n_edges} edges, {problem.n_devices} devices"
    why = "" if found.stopped == found.status else f" ({found.stopped})"
    rows = [("problem", f"{size}, {problem.communication} communication"), ("status", f"{found.status}{why}")]
    if found.schedule is not None:
        inputs = "" if problem.inputs == 1 else f" for {problem.inputs} inputs"
        rows.append(("makespan", f"{seconds(found.makespan)}{inputs}, {found.throughput:.4g} inputs/s"))
        rows.append(("verified", "yes, by the independent check"))
        rows.append(("gap", percent(found.gap)))
    rows.append(("bound", f"{seconds(found.bound)} by {found.proof.name}: {found.proof.evidence}"))
    rows.append(("method", f"{found.method}, {seconds(took)}"))
    rows += [("wrote", name) for name in written]
    say(*(f"{label:<9} {one_line(value)}" for label, value in rows))
    for message in found.messages:
        warn(message, "note")


def verify(
    problem: ProblemFile,
    schedule: Annotated[Path, typer.Argument(help="A schedule or solution document.", metavar="SCHEDULE")],
    json: JSON = False,
) -> None:
    """Check a schedule against its problem, by code that shares nothing with the schedulers.

    Exit code 0 if it is valid, 1 with one line per broken rule if not.

    Example: [bold]hetsched verify problem.json schedule.json[/bold]
    """
    from hetsched import Solution, verify

    asked, answer = read_problem(problem), read_answer(schedule)
    given = answer.schedule if isinstance(answer, Solution) else answer
    if given is None:
        raise InvalidSchedule(f"{schedule} holds a solution without a schedule; there is nothing to verify")
    with Working("checking"):
        violations = verify(asked, given)
    if json:
        fields = ("rule", "message", "amount", "tasks", "devices")
        records = [{name: getattr(violation, name) for name in fields} for violation in violations]
        say_json({"valid": not violations, "makespan": given.makespan, "violations": records})
    elif violations:
        say(*(f"{violation.rule}: {one_line(violation.message)}" for violation in violations))
    else:
        say(f"valid: {len(given.batches)} batches and {len(given.transfers)} transfers keep every rule, makespan {seconds(given.makespan)}")
    raise typer.Exit(1 if violations else 0)


def bound(problem: ProblemFile, time_limit: TimeLimit = None, json: JSON = False) -> None:
    """Print the best lower bound on the makespan and what it rests on, then the others.

    Exit code 1 if it proves that there is no schedule.

    Example: [bold]hetsched bound problem.json --time-limit 5[/bold]
    """
    from hetsched.bounds import best

    asked = read_problem(problem)
    with Working("bounding"):
        found = list({each.name: each for each in best.every(asked, time_limit=time_limit)}.values())
    found.sort(key=lambda bound: -bound.value)
    strongest = found[0]
    if json:
        say_json({**vars(strongest), "all": [vars(each) for each in found]})
    else:
        say(f"{seconds(strongest.value)} by {strongest.name}: {one_line(strongest.evidence)}")
        say(*(f"  {seconds(each.value)} by {each.name}: {one_line(each.evidence)}" for each in found[1:]))
    raise typer.Exit(1 if math.isinf(strongest.value) else 0)
