"""`solve`, `verify` and `bound`: a problem goes in, an answer comes out."""

from __future__ import annotations

import ast
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli import completion
from hetsched.cli.executors import distributing, executor
from hetsched.cli.files import Outputs, check_writable, read_answer, read_problem
from hetsched.cli.options import (
    JSON,
    ColourBy,
    Gantt,
    Gap,
    InProcess,
    ProblemFile,
    Report,
    ScheduleFile,
    Scheduler,
    Seed,
    Solver,
    Threads,
    Trace,
    Workers,
)
from hetsched.cli.pictures import Pictures, draw
from hetsched.cli.solver_options import choose
from hetsched.cli.terminal import INTERRUPTED, Working, say, say_json, say_rows, warn
from hetsched.errors import InvalidSchedule, one_line
from hetsched.report.units import percent, seconds, size
from hetsched.stopping import Deadline, reason

if TYPE_CHECKING:
    from hetsched.problem.problem import Problem
    from hetsched.search import Event
    from hetsched.search.solution import Solution

_WORDS = {"true": True, "false": False, "none": None}
Objective = Annotated[
    str,
    typer.Option(
        help="What to minimise: makespan; period, the largest load per input of a device or channel when inputs stream "
        "through; max-load, the same of a device that computes and moves tensors in turn.",
        metavar="NAME",
        autocompletion=completion.objectives,
    ),
]


def solve(
    problem: ProblemFile,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Methods to run in turn, from 'hetsched methods'; auto if none is named.",
            metavar="NAME[,NAME]",
            autocompletion=completion.methods,
        ),
    ] = None,
    objective: Objective = "makespan",
    option: Annotated[list[str] | None, typer.Option(help="Set an option of the methods; repeatable.", metavar="KEY=VALUE")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Stop after this many seconds.", metavar="SECONDS")] = None,
    evaluations: Annotated[int | None, typer.Option(help="Stop after evaluating this many schedules.", metavar="NUMBER")] = None,
    seed: Seed = 0,
    solver: Solver = None,
    gap: Gap = None,
    threads: Threads = None,
    in_process: InProcess = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    start: Annotated[Path | None, typer.Option(help="Start from this schedule or solution document.", metavar="FILE")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the schedule here.", metavar="FILE")] = None,
    solution: Annotated[Path | None, typer.Option(help="Write the schedule, bound and history here.", metavar="FILE")] = None,
    report: Report = None,
    trace: Trace = None,
    gantt: Gantt = None,
    colour_by: ColourBy = "op",
    show: Annotated[bool, typer.Option("--show", help="Draw the schedule in the terminal.", rich_help_panel="Pictures")] = False,
    json: JSON = False,
) -> None:
    """Schedule a problem; every answer is checked and bounded.

    The independent check must find nothing wrong, and a lower bound tells how far from optimal the
    schedule can be. Ctrl-C or SIGTERM stops the search and keeps the best schedule found. Exit code 1 if
    there is no schedule.

    Example: [bold]hetsched solve problem.json -o schedule.json --report report.html[/bold]

    To prove an optimum, or to stop near it, name a solver:

    Example: [bold]hetsched solve problem.json --solver scip --gap 1% --time-limit 10[/bold]
    """
    from hetsched import solve

    if show and json:
        raise typer.BadParameter("a drawing is no JSON; leave one of --show and --json out", param_hint="--show")
    pictures = Pictures(report, trace, gantt, colour_by)
    check_writable(output, solution, *pictures.paths, sources=[problem])
    pictures.check()
    named = None if method is None else [name.strip() for given in method for name in given.split(",") if name.strip()]
    options = dict(map(_option, option or []))
    if scheduler is not None and named is None:
        named = distributing()[:1]
    names = choose(named, options, objective=objective, solver=solver, gap=gap, threads=threads, workers=workers)
    asked = read_problem(problem)
    first = None if start is None else read_answer(start)
    news = News(names, objective)
    began = time.perf_counter()
    with Working(f"solving with {', '.join(names)}") as working, executor(names, workers, scheduler) as elsewhere:
        found = solve(
            asked,
            names,
            objective=objective,
            time_limit=time_limit,
            evaluations=evaluations,
            seed=seed,
            threads=threads,
            executor=elsewhere,
            start=first,
            options=options,
            in_process=in_process,
            on_progress=lambda event: working.update(*news(event)),
        )
    took = time.perf_counter() - began
    outputs = Outputs()
    outputs.write(output, None if found.schedule is None else found.schedule.write)
    outputs.write(solution, found.write)
    pictures.write(asked, found, outputs)
    if json:
        say_json({**facts(found), "seconds": took, "written": outputs.written})
    else:
        say_rows([*summary(asked, found), ("method", f"{found.method}, {seconds(took)}"), *(("wrote", name) for name in outputs.written)])
        for message in found.messages:
            warn(message, "note")
        if show and found.schedule is not None:
            draw(asked, found.schedule, f"the schedule of {found.method}")
    outputs.finish()
    raise typer.Exit(outcome(found))


def outcome(found: Solution) -> int:
    """Return the exit code of a solution: 0 with a schedule, 1 without, another if interrupted."""
    if found.stopped in INTERRUPTED:
        return INTERRUPTED[found.stopped]
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


class News:
    """What a live line says of a solve: value, bound and gap, and of several methods which of them found the two."""

    def __init__(self, names: list[str], objective: str = "makespan") -> None:
        self.objective = objective
        self.alone = len(names) == 1 and names[0] != "auto"
        self.title = f"{names[0]}: " if len(names) == 1 else ""
        self.incumbent, self.bound = math.inf, 0.0
        self.found_by = self.proved_by = ""

    def __call__(self, event: Event) -> tuple[str, ...]:
        """Return the line in full, and for narrower terminals."""
        if event.incumbent < self.incumbent:
            self.incumbent, self.found_by = event.incumbent, event.source
        if event.bound > self.bound:
            self.bound, self.proved_by = event.bound, event.source
        found, proved = ("", "") if self.alone else (f" ({self.found_by})", f" ({self.proved_by})" if self.proved_by else "")
        makespan = "" if math.isinf(event.incumbent) else seconds(event.incumbent)
        gap = f", gap {percent(event.gap)}" if makespan else ""
        nodes = f", {event.nodes:,} node{'s' if event.nodes > 1 else ''}" if event.nodes and self.alone else ""
        bound = f"bound {seconds(event.bound)}"
        return (
            f"{self.title}{f'{self.objective} {makespan}{found}' if makespan else 'no schedule yet'}, {bound}{proved}{gap}{nodes}",
            f"{self.title}{f'{makespan}{found}' if makespan else 'none yet'}, {bound}{gap}{nodes}",
            f"{makespan or 'none yet'}, {bound}{gap}",
        )


def facts(found: Solution) -> dict[str, Any]:
    """Return what a machine is told about a solution."""
    return {
        "status": str(found.status),
        "objective": found.objective,
        "value": found.value,
        "makespan": found.makespan,
        "period": found.period,
        "throughput": found.throughput,
        "bound": found.bound,
        "bound_name": found.proof.name,
        "bound_evidence": found.proof.evidence,
        "gap": found.gap,
        "method": found.method,
        "seed": found.seed,
        "stopped": found.stopped,
        "messages": list(found.messages),
        "best_effort_bytes_over": None if found.best_effort is None else found.best_effort.bytes_over,
    }


def summary(problem: Problem, found: Solution, broken: str = "") -> list[tuple[str, str]]:
    """Return what is to be said about a solution: labels and facts; `broken` is the first rule its schedule breaks."""
    extent = f"{problem.n_tasks} tasks, {problem.graph.n_edges} edges, {problem.n_devices} devices"
    why = "" if str(found.stopped) == str(found.status) else f" ({found.stopped})"
    status = f"NOT VALID: {broken}" if broken else f"{found.status}{why}"
    rows = [("problem", f"{extent}, {problem.communication} communication"), ("status", status)]
    if found.schedule is not None:
        inputs = "" if problem.inputs == 1 else f" for {problem.inputs} inputs"
        if found.objective == "makespan":
            rows.append(("makespan", f"{seconds(found.makespan)}{inputs}, {found.throughput:.4g} inputs/s"))
        else:
            rows.append((found.objective, f"{seconds(found.value)} per input, {found.throughput:.4g} inputs/s"))
            rows.append(("makespan", f"{seconds(found.makespan)}{inputs}"))
        if not broken:
            rows += [("verified", "yes, by the independent check"), ("gap", percent(found.gap))]
    if found.best_effort is not None:
        effort = found.best_effort
        rows.append(("nearest", f"{seconds(effort.schedule.makespan)}, but {size(effort.bytes_over)} over the memory there is"))
    rows.append(("bound", f"{seconds(found.bound)} by {found.proof.name}: {found.proof.evidence}"))
    return rows


def verify(problem: ProblemFile, schedule: ScheduleFile, json: JSON = False) -> None:
    """Check a schedule against its problem, independently.

    The check shares no code with the schedulers. Exit code 0 if it is valid, 1 with one line per broken rule if not.

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
