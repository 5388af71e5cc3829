"""`demo`: a network on three devices, solved by list schedulers and a short search, drawn and verified."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hetsched.cli import completion
from hetsched.cli.answers import outcome
from hetsched.cli.files import Outputs, check_writable
from hetsched.cli.options import JSON, ColourBy, Gantt, Report, Trace
from hetsched.cli.pictures import Pictures, draw
from hetsched.cli.terminal import INTERRUPTED, Working, console, say, say_json, warn
from hetsched.problem.units import percent, seconds

if TYPE_CHECKING:
    from hetsched.problem.problem import Problem
    from hetsched.search.solution import Solution

SECONDS = 3.0
"""Time limit of the search, the first of those in `auto`."""
BASELINE = "best-device"


def demo(
    network: Annotated[
        str, typer.Option(help="inception_v3 or googlenet.", metavar="NAME", autocompletion=completion.networks)
    ] = "inception_v3",
    out: Annotated[Path, typer.Option(help="Folder for problem.json and schedule.json.", metavar="FOLDER")] = Path(),
    report: Report = None,
    trace: Trace = None,
    gantt: Gantt = None,
    colour_by: ColourBy = "op",
    json: JSON = False,
) -> None:
    """Schedule a network on three devices by every list scheduler and a short search.

    Schedules Inception-v3 on a CPU, a T4 and an A100. Prints a table of methods, draws the best
    schedule, and writes problem.json and schedule.json, checked by the independent verifier; files
    of these names are overwritten. The report compares all methods.

    Example: [bold]hetsched demo --out demo --report report.html[/bold]
    """
    from hetsched import HetschedError, Problem, solve
    from hetsched.costs import Roofline
    from hetsched.report import method_table
    from hetsched.search import Kind, select
    from hetsched.workloads import clusters, networks

    pictures = Pictures(report, trace, gantt, colour_by)
    pictures.check()
    out.mkdir(parents=True, exist_ok=True)
    files = [out / "problem.json", out / "schedule.json"]
    check_writable(*files, *pictures.paths)
    problem = Problem(networks.load(network), clusters.diviml(), costs=Roofline())
    # The same methods with and without solvers, and none whose kernels take long to compile on the first run.
    chosen = select(objective="makespan", auto=True, problem=problem)
    searches = [method for method in chosen if method.kind is Kind.SEARCH][:1]
    members = [method.name for method in chosen if method in searches or method.kind in (Kind.CONSTRUCTIVE, Kind.BOUND)]
    search = {"members": members, "workers": 0, "seconds": SECONDS}
    with Working("scheduling (the first run compiles the kernels)") as working:
        solution = solve(problem, options=search, on_progress=lambda event: working.update(f"scheduling: {event.source}"))
    if solution.schedule is None:
        if solution.stopped in INTERRUPTED:
            raise typer.Exit(INTERRUPTED[solution.stopped])
        raise HetschedError(f"no method found a schedule of {network}")
    outputs = Outputs()
    outputs.write(files[0], problem.write)
    outputs.write(files[1], solution.schedule.write)
    pictures.write(problem, solution, outputs)
    if json:
        rows = [{"method": row["method"], "makespan": row["makespan"]} for row in method_table(solution)]
        facts = {"network": network, "best": solution.method, "bound": solution.bound, "bound_name": solution.proof.name}
        say_json({**facts, "methods": rows, "written": outputs.written})
    else:
        _show(problem, solution, network)
        draw(problem, solution.schedule, f"the schedule of {solution.method}")
        say("", "verified: the independent check finds no broken rule")
        say(*(f"wrote {file}" for file in outputs.written), f"next: hetsched show {files[0]} {files[1]}")
    outputs.finish()
    raise typer.Exit(outcome(solution))


def _show(problem: Problem, solution: Solution, network: str) -> None:
    """Print the table of methods, best first."""
    from rich.table import Table

    from hetsched.report import method_table

    alone = next((row["makespan"] for row in method_table(solution) if row["method"] == BASELINE), math.inf)
    table = Table("method", "makespan", "speed-up", "gap to bound", show_edge=False, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in method_table(solution):
        if math.isinf(row["makespan"]):
            table.add_row(row["method"], "nothing found", "", "")
            continue
        speed_up = f"{alone / row['makespan']:.3f}" if math.isfinite(alone) else "-"
        style = "bold" if row["method"] == solution.method else ""
        table.add_row(row["method"], seconds(row["makespan"]), speed_up, percent(row["gap"]), style=style)
    say(
        f"{network}: {problem.n_tasks} tasks, {problem.graph.n_edges} edges, on {', '.join(problem.cluster.names)}",
        f"no schedule can be shorter than {seconds(solution.bound)}; speed-up: over the best single device",
        "",
    )
    console().print(table)
    for message in solution.messages:
        warn(message, "note")
