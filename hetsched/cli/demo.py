"""`demo`: a real network on three devices, every list scheduler, the best answer drawn and proven."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hetsched.cli.files import check_writable
from hetsched.cli.options import JSON
from hetsched.cli.terminal import Working, console, percent, say, say_json, seconds, warn

if TYPE_CHECKING:
    from hetsched.problem.problem import Problem
    from hetsched.solution import Bound, Solution

BOUND_SECONDS = 15.0  # on the first run most of it is compiling
BASELINE = "best-device"


def demo(
    network: Annotated[str, typer.Option(help="inception_v3 or googlenet.")] = "inception_v3",
    out: Annotated[Path, typer.Option(help="Folder for problem.json and schedule.json.", metavar="DIR")] = Path(),
    json: JSON = False,
) -> None:
    """Schedule Inception-v3 on a CPU, a T4 and an A100 with every list scheduler.

    Prints a table of methods, draws the best schedule, and writes problem.json and schedule.json,
    checked by the independent verifier.

    Example: [bold]hetsched demo --out /tmp[/bold]
    """
    from hetsched import HetschedError, Problem, bound, verify
    from hetsched.costs import Roofline
    from hetsched.workloads import clusters, networks

    out.mkdir(parents=True, exist_ok=True)
    files = [out / "problem.json", out / "schedule.json"]
    check_writable(*files)
    problem = Problem(networks.load(network), clusters.diviml(), costs=Roofline())
    with Working("bounding"):
        proof = bound(problem, time_limit=BOUND_SECONDS)
    found, interrupted = _solve_all(problem)
    answers = [solution for solution in found.values() if solution.schedule is not None]
    if not answers:
        raise typer.Exit(130) if interrupted else HetschedError(f"no method found a schedule of {network}")
    best = min(answers, key=lambda solution: solution.makespan)
    assert best.schedule is not None
    violations = verify(problem, best.schedule)
    problem.write(files[0])
    best.schedule.write(files[1])
    if json:
        rows = [{"method": name, "makespan": solution.makespan} for name, solution in found.items()]
        facts = {"network": network, "best": best.method, "bound": proof.value, "bound_name": proof.name, "valid": not violations}
        say_json({**facts, "methods": rows, "written": [str(file) for file in files]})
    else:
        _show(problem, found, best, network, proof)
        say("", f"{best.method}'s schedule is {'NOT VALID: ' + violations[0].message if violations else 'verified: it keeps every rule'}")
        say(*(f"wrote {file}" for file in files), f"next: hetsched verify {files[0]} {files[1]}")
    if interrupted:
        raise typer.Exit(130)
    if violations:
        raise typer.Exit(1)


def _solve_all(problem: Problem) -> tuple[dict[str, Solution], bool]:
    """Return the solution of each method in turn, and whether Ctrl-C cut it short."""
    from hetsched.portfolio import LIST_SCHEDULERS, solve

    found: dict[str, Solution] = {}
    with Working("scheduling") as working:
        for name in LIST_SCHEDULERS:
            working.update(f"scheduling with {name} (the first run compiles the kernels)")
            found[name] = solve(problem, name)
            if found[name].stopped == "interrupted":
                return found, True
    return found, False


def _show(problem: Problem, found: dict[str, Solution], best: Solution, network: str, proof: Bound) -> None:
    """Print the table of methods and the best schedule."""
    from rich.table import Table

    from hetsched.cli.gantt import gantt
    from hetsched.solution import relative_gap

    alone = found[BASELINE].makespan
    devices = ", ".join(problem.cluster.names)
    table = Table("method", "makespan", "speed-up", "gap to bound", show_edge=False, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, solution in sorted(found.items(), key=lambda item: item[1].makespan):
        if solution.schedule is None:
            table.add_row(name, "nothing found", "", "")
            for message in solution.messages:
                warn(message, "note")
            continue
        speed_up = f"{alone / solution.makespan:.3f}" if alone < float("inf") else "-"
        table.add_row(
            name, seconds(solution.makespan), speed_up, percent(relative_gap(solution.makespan, proof.value)),
            style="bold" if name == best.method else "",
        )  # fmt: skip
    screen = console()
    say(
        f"{network}: {problem.n_tasks} tasks, {problem.graph.n_edges} edges, on {devices}",
        f"no schedule can be shorter than {seconds(proof.value)}; speed-up is over the best single device", "",
    )  # fmt: skip
    screen.print(table)
    say("", f"the schedule of {best.method} ({seconds(best.makespan)}); below each device, what arrives from the others", "")
    assert best.schedule is not None
    for line in gantt(best.schedule, screen, problem.graph.op):
        screen.print(line, soft_wrap=True)
