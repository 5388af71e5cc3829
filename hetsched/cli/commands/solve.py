"""`solve`: a schedule for a problem."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from hetsched.cli import completion
from hetsched.cli.answers import News, facts, outcome, summary
from hetsched.cli.executors import executor
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
    time_option,
)
from hetsched.cli.pictures import Pictures, draw
from hetsched.cli.solver_options import choose
from hetsched.cli.terminal import Working, say_json, say_rows, warn
from hetsched.problem.units import seconds


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
    time_limit: Annotated[float | None, time_option()] = None,
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
    """Schedule a problem; every answer is verified and has a bound.

    The independent check must find no broken rule, and a lower bound limits the distance from the optimum.
    Ctrl-C or SIGTERM stops the search and keeps the best schedule found. Exit code 1 if there is no schedule.

    Example: [bold]hetsched solve problem.json -o schedule.json --report report.html[/bold]

    To prove an optimum, or to stop near it, name a solver:

    Example: [bold]hetsched solve problem.json --solver scip --gap 1% --time-limit 10[/bold]
    """
    from hetsched import solve

    if show and json:
        raise typer.BadParameter("a drawing is not JSON; leave out one of --show and --json", param_hint="--show")
    pictures = Pictures(report, trace, gantt, colour_by)
    check_writable(output, solution, *pictures.paths, sources=[problem])
    pictures.check()
    named = None if method is None else [name.strip() for text in method for name in text.split(",") if name.strip()]
    options = dict(map(_option, option or []))
    names = choose(named, options, objective=objective, solver=solver, gap=gap, threads=threads, workers=workers)
    instance = read_problem(problem)
    first = None if start is None else read_answer(start)
    news = News(names, objective)
    clock = time.perf_counter()
    with Working(f"solving with {', '.join(names)}") as working, executor(names, workers, scheduler) as pool:
        result = solve(
            instance,
            names,
            objective=objective,
            time_limit=time_limit,
            evaluations=evaluations,
            seed=seed,
            threads=threads,
            executor=pool,
            start=first,
            options=options,
            in_process=in_process,
            on_progress=lambda event: working.update(*news(event)),
        )
    spent = time.perf_counter() - clock
    outputs = Outputs()
    outputs.write(output, None if result.schedule is None else result.schedule.write)
    outputs.write(solution, result.write)
    pictures.write(instance, result, outputs)
    if json:
        say_json({**facts(result), "seconds": spent, "written": outputs.written})
    else:
        say_rows(
            [*summary(instance, result), ("method", f"{result.method}, {seconds(spent)}"), *(("wrote", name) for name in outputs.written)]
        )
        for message in result.messages:
            warn(message, "note")
        if show and result.schedule is not None:
            draw(instance, result.schedule, f"the schedule of {result.method}")
    outputs.finish()
    raise typer.Exit(outcome(result))


def _option(text: str) -> tuple[str, Any]:
    """Return the name and value in ``name=value``; a value that is not a Python literal is text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not of the form KEY=VALUE", param_hint="--option")
    from hetsched.experiments import sources

    return name, sources.value(value)
