"""`coarsen`: a smaller problem whose tasks are clusters, and a schedule of it carried back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hetsched.cli import completion
from hetsched.cli.files import Outputs, check_writable, read_answer, read_problem
from hetsched.cli.options import JSON, ProblemFile
from hetsched.cli.terminal import Working, say_json, say_rows
from hetsched.errors import InvalidSchedule, UnsupportedFeature
from hetsched.report.units import seconds

if TYPE_CHECKING:
    from hetsched.coarsening.coarse import Coarsening
    from hetsched.problem.problem import Problem


def coarsen(
    problem: ProblemFile,
    by: Annotated[
        str,
        typer.Option(
            help="celeritas: pieces of a topological order, by optimal break points; heavy-edges: pairs, level by level; degree-one: "
            "along edges that are the only one out of or into a task; module: the leading part of names; or rules that fuse operators: "
            "moirai, cudnn or onnxruntime.",
            metavar="celeritas|heavy-edges|degree-one|module|RULES",
            autocompletion=completion.coarsenings,
        ),
    ] = "celeritas",
    tasks: Annotated[int, typer.Option(help="heavy-edges: the size of graph at which to end.", metavar="NUMBER", min=1)] = 200,
    window: Annotated[int, typer.Option(help="celeritas: the most tasks of a cluster.", metavar="NUMBER", min=1)] = 200,
    depth: Annotated[int, typer.Option(help="module: how many names between dots.", metavar="NUMBER", min=1)] = 1,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the coarse problem here.", metavar="FILE")] = None,
    lift: Annotated[
        Path | None, typer.Option(help="A schedule of the coarse problem, to be carried back to the fine one.", metavar="SCHEDULE")
    ] = None,
    lifted: Annotated[Path | None, typer.Option(help="Write the schedule carried back here.", metavar="FILE")] = None,
    json: JSON = False,
) -> None:
    """Merge tasks into clusters: a problem small enough to solve whole.

    Tells tasks and CCR, the mean transfer times of all edges by the mean durations of all tasks, before and after. A schedule
    found for the coarse problem is carried back with the same options and --lift: it is timed anew, for within a cluster
    tasks no longer wait for what only others of it need.

    Example: [bold]hetsched coarsen problem.json --by celeritas -o coarse.json[/bold]
    """
    from hetsched.coarsening import ccr

    check_writable(output, lifted, sources=[problem, lift])
    if (lift is None) != (lifted is None):
        raise UnsupportedFeature("--lift and --lifted go together: the schedule to carry back, and where to write it")
    asked = read_problem(problem)
    with Working("coarsening"):
        found = _coarsened(asked, by, tasks, window, depth)
    facts = {
        "tasks": asked.n_tasks,
        "edges": asked.graph.n_edges,
        "ccr": ccr(asked),
        "coarse_tasks": found.coarse.n_tasks,
        "coarse_edges": found.coarse.graph.n_edges,
        "coarse_ccr": ccr(found.coarse),
    }
    outputs = Outputs()
    outputs.write(output, found.coarse.write)
    rows = [
        ("problem", f"{facts['tasks']} tasks, {facts['edges']} edges, CCR {facts['ccr']:.4g}"),
        ("coarse", f"{facts['coarse_tasks']} tasks, {facts['coarse_edges']} edges, CCR {facts['coarse_ccr']:.4g}"),
    ]
    if lift is not None and lifted is not None:
        facts |= _lift(asked, found, lift, lifted, outputs, rows)
    if json:
        say_json({**facts, "written": outputs.written})
    else:
        say_rows([*rows, *(("wrote", name) for name in outputs.written)])
    outputs.finish()


def _coarsened(problem: Problem, by: str, tasks: int, window: int, depth: int) -> Coarsening:
    from hetsched import coarsening

    if by == "celeritas":
        return coarsening.operation_fusion(problem, window=window)
    if by == "degree-one":
        return coarsening.degree_one(problem)
    if by == "module":
        return coarsening.by_module(problem, depth)
    if by in coarsening.RULES:
        return coarsening.fuse(problem, by)
    if by != "heavy-edges":
        raise UnsupportedFeature(f"--by is {by!r}; choose one of celeritas, heavy-edges, degree-one, module, {', '.join(coarsening.RULES)}")
    return coarsening.Coarsening.through(problem, coarsening.hierarchy(problem, tasks=tasks))


def _lift(
    problem: Problem, found: Coarsening, source: Path, target: Path, outputs: Outputs, rows: list[tuple[str, str]]
) -> dict[str, float]:
    from hetsched import Solution, simulate, verify
    from hetsched.problem.graph import plural

    answer = read_answer(source)
    small = answer.schedule if isinstance(answer, Solution) else answer
    if small is None:
        raise InvalidSchedule(f"{source} holds a solution without a schedule; there is nothing to carry back")
    ours = found.coarse.graph.names, problem.cluster.names, problem.inputs
    if (small.tasks, small.devices, small.n_inputs) != ours:
        raise InvalidSchedule(
            f"{source} is a schedule of other tasks, devices or inputs than those of the coarse problem; coarsen with the same options"
        )
    schedule = simulate(problem, found.lift(small.decision))
    violations = verify(problem, schedule)
    if violations:
        raise InvalidSchedule(
            f"carried back, the schedule breaks {plural(len(violations), 'rule')}, first: {violations[0].message}; "
            "operators that are fused by rules hold less than their parts"
        )
    outputs.write(target, schedule.write)
    rows.append(("makespan", f"{seconds(schedule.makespan)}, as {seconds(small.makespan)} of the coarse problem"))
    return {"makespan": schedule.makespan, "coarse_makespan": small.makespan}
