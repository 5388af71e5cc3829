"""`coarsen`: a smaller problem of merged tasks, and its schedule lifted to the fine problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hetsched.cli import completion
from hetsched.cli.files import Outputs, check_writable, read_answer, read_problem
from hetsched.cli.options import JSON, ProblemFile
from hetsched.cli.terminal import Working, say_json, say_rows
from hetsched.errors import InvalidSchedule, UnsupportedFeature
from hetsched.problem.units import seconds

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
    depth: Annotated[int, typer.Option(help="module: number of leading parts of a name, separated by dots.", metavar="NUMBER", min=1)] = 1,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the coarse problem here.", metavar="FILE")] = None,
    lift: Annotated[
        Path | None, typer.Option(help="A schedule of the coarse problem, to lift to the fine problem.", metavar="SCHEDULE")
    ] = None,
    lifted: Annotated[Path | None, typer.Option(help="Write the lifted schedule here.", metavar="FILE")] = None,
    json: JSON = False,
) -> None:
    """Merge tasks into clusters, for a problem small enough for expensive methods.

    Prints the numbers of tasks and edges and the CCR, the mean transfer time of an edge divided by the mean duration of a
    task, before and after. The same options with --lift turn a schedule of the coarse problem into one of the fine
    problem, with new times: a task of a cluster no longer waits for inputs that only other tasks of the cluster need.

    Example: [bold]hetsched coarsen problem.json --by celeritas -o coarse.json[/bold]
    """
    from hetsched.coarsening import ccr

    check_writable(output, lifted, sources=[problem, lift])
    if (lift is None) != (lifted is None):
        raise UnsupportedFeature("--lift and --lifted go together: the coarse schedule, and the file for the lifted one")
    instance = read_problem(problem)
    with Working("coarsening"):
        coarsening = _coarsened(instance, by, tasks, window, depth)
    facts = {
        "tasks": instance.n_tasks,
        "edges": instance.graph.n_edges,
        "ccr": ccr(instance),
        "coarse_tasks": coarsening.coarse.n_tasks,
        "coarse_edges": coarsening.coarse.graph.n_edges,
        "coarse_ccr": ccr(coarsening.coarse),
    }
    outputs = Outputs()
    outputs.write(output, coarsening.coarse.write)
    rows = [
        ("problem", f"{facts['tasks']} tasks, {facts['edges']} edges, CCR {facts['ccr']:.4g}"),
        ("coarse", f"{facts['coarse_tasks']} tasks, {facts['coarse_edges']} edges, CCR {facts['coarse_ccr']:.4g}"),
    ]
    if lift is not None and lifted is not None:
        facts |= _lift(instance, coarsening, lift, lifted, outputs, rows)
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
    problem: Problem, coarsening: Coarsening, source: Path, target: Path, outputs: Outputs, rows: list[tuple[str, str]]
) -> dict[str, float]:
    from hetsched import Solution, simulate, verify
    from hetsched.problem.graph import plural

    answer = read_answer(source)
    small = answer.schedule if isinstance(answer, Solution) else answer
    if small is None:
        raise InvalidSchedule(f"{source} holds a solution without a schedule; there is nothing to lift")
    expected = coarsening.coarse.graph.names, problem.cluster.names, problem.inputs
    if (small.tasks, small.devices, small.n_inputs) != expected:
        raise InvalidSchedule(
            f"{source} is a schedule of other tasks, devices or inputs than those of the coarse problem; coarsen with the same options"
        )
    schedule = simulate(problem, coarsening.lift(small.decision))
    violations = verify(problem, schedule)
    if violations:
        raise InvalidSchedule(
            f"the lifted schedule breaks {plural(len(violations), 'rule')}, first: {violations[0].message}; "
            "operators fused by rules need less memory than their parts"
        )
    outputs.write(target, schedule.write)
    rows.append(("makespan", f"{seconds(schedule.makespan)}, {seconds(small.makespan)} in the coarse problem"))
    return {"makespan": schedule.makespan, "coarse_makespan": small.makespan}
