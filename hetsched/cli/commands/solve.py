"""`solve`: a problem goes in, a schedule comes out."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from hetsched.cli import completion
from hetsched.cli.answers import News, facts, outcome, summary
from hetsched.cli.executors import distributing, executor
from hetsched.cli.files import Outputs, check_writable, read_answer, read_problem
from hetsched.cli.options import (
    JSON,
    ColourBy,
    Gantt,
    Gap,
    InProcess,
    Objective,
    ProblemFile,
    Report,
    Scheduler,
    Seed,
    Solver,
    Threads,
    Trace,
    Workers,
)
from hetsched.cli.pictures import Pictures, draw
from hetsched.cli.solver_options import choose
from hetsched.cli.terminal import Working, say_json, say_rows, warn
from hetsched.report.units import seconds

_WORDS = {"true": True, "false": False, "none": None}


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
