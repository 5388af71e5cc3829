"""GPT-3's decoder on six nodes of four GPUs, as in DiviML's Table V: the schedule of one node repeated, or MILP-SPLIT over all.

    python benchmarks/gpt3.py [--quick] [--jobs 2]

Two parts: `stack` schedules the decoder; `half` solves the largest module, the attention half of a block
between two devices, and measures the time of the proof with each criterion for symmetries. Results are stored,
so that a run may be interrupted and continued.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Sequence
from typing import Any

import cases
import figures
import numpy as np
from cases import Case, Results
from exact import CpuLimit

import hetsched as hs
from hetsched.arrays import row_starts
from hetsched.decomposition.series import cut
from hetsched.modeling.settings import SolveSettings
from hetsched.models.methods import formulate
from hetsched.workloads import clusters

REGION = "gpt3"
SOLVERS = {"scip": "milp", "cpsat": "cpsat"}
"""The methods that solve a problem by one model, by solver."""
NODES, INPUTS, LIMIT = 6, (1, 2), 60.0
PARTS = ("stack", "half")
CRITERIA: dict[str, str | None] = {"no symmetries": None, "by batches": "batches", "by tasks": "tasks", "by time": "time"}
MULTI = {f"multi node, split, {name}": criterion for name, criterion in CRITERIA.items()}
SCHEDULES = ("list schedulers", "single node, MILP", "single node, split", *MULTI)
PAPER = dict(zip(SCHEDULES, ("", "4.8", "5.7", "5.0", "5.6", "6.3", "6.3"), strict=True)) | {"upper bound": "9.9"}
"""Table V, inputs a second."""
ENDS = {"the same": "n0.a100.0", "its twin": "n0.a100.1", "the other kind": "n0.t4.0", "another node": "n1.a100.0"}
"""The device at the end of half a block that begins on the first device."""
BEGIN = "n0.a100.0"
AGREE = 1e-6
"""Relative tolerance between a bound and a makespan."""
Row = dict[str, Any]


def solve(case: Case) -> Row:
    """Measure one case of either part."""
    return half(case) if "ends" in case else stack(case)


def problem_of(model: str, layers: int | None, nodes: int, inputs: int) -> hs.Problem:
    """Return a stack of blocks on some of the nodes, costed by the roofline in float16."""
    graph = hs.workloads.gpt3(model, layers=layers)
    return hs.Problem(graph, clusters.diviml_nodes(nodes=nodes), costs=hs.costs.Roofline(dtype="float16"), inputs=inputs)


# The complete stack


def stack(case: Case) -> Row:
    """Schedule the complete stack in one of the ways of `SCHEDULES`, in one thread."""
    layers, nodes, inputs, solver, limit = (case[name] for name in ("layers", "nodes", "inputs", "solver", "limit"))
    problem = problem_of(case["model"], layers, nodes, inputs)
    way = case["schedule"]
    prepare(solver)
    if way in MULTI:
        options = {"solver": solver, "symmetry": MULTI[way], "workers": 1}
        solution, spent = cases.timed(lambda: hs.solve(problem, "split", time_limit=limit, options=options))
        schedule, bound = solution.schedule, solution.bound
    elif way == "list schedulers":
        solution, spent = cases.timed(lambda: hs.solve(problem, ["heft", "bheft", "greedy", "bgreedy"]))
        schedule, bound = solution.schedule, solution.bound
    else:
        part = problem_of(case["model"], layers // nodes, 1, inputs)
        method, options = (SOLVERS[solver], {"threads": 1}) if "MILP" in way else ("split", {"solver": solver, "workers": 1})
        solution, spent = cases.timed(lambda: hs.solve(part, method, time_limit=limit, options=options))
        schedule = None if solution.schedule is None else hs.simulate(problem, repeated(solution.schedule.decision, part, nodes))
        bound = 0.0
    if schedule is not None:
        broken = hs.verify(problem, schedule)
        assert not broken, broken[0].message
    makespan = None if schedule is None else schedule.makespan
    text = f"{solution.status}, gap {solution.gap:.2%}" + ("" if makespan is None else f", {inputs / makespan:.4g} inputs/s")
    return {"makespan": makespan, "bound": bound, "gap": solution.gap, **spent, "says": f"{text}, {spent['wall_s']:.1f} s"}


def repeated(decision: hs.Decision, part: hs.Problem, nodes: int) -> hs.Decision:
    """Return the decision for a stack of which each node has a part: that of the first node repeated on the others.

    The first task of the part represents its input, which for other nodes is the output of the part before.
    """
    own, devices = part.n_tasks - 1, part.n_devices
    kept = np.flatnonzero(decision.task > 0)
    size = np.diff(decision.item_ptr)
    rows = [np.arange(decision.n_batches), *[kept] * (nodes - 1)]
    items = [decision.items[decision.item_ptr[b] : decision.item_ptr[b + 1]] for row in rows for b in row.tolist()]
    counts = np.concatenate([size[row] for row in rows])
    return hs.Decision(
        np.concatenate([decision.task[row] + node * own for node, row in enumerate(rows)]),
        np.concatenate([decision.device[row] + node * devices for node, row in enumerate(rows)]),
        row_starts(counts),
        np.concatenate(items),
    )


# Half a block


def half(case: Case) -> Row:
    """Solve the attention half of a block between two devices, in one thread and with a limit of CPU seconds."""
    problem = half_problem(case["model"], case["nodes"], case["inputs"], case["ends"])
    prepare(case["solver"])
    monitor = CpuLimit(problem, case["limit"])
    criterion = CRITERIA[case["criterion"]]
    _, spent = cases.timed(
        lambda: formulate(problem, symmetry=criterion).run(monitor, case["solver"], SolveSettings(monitor.deadline, threads=1))
    )
    solution = monitor.solution(case["solver"])
    proven = solution.status == hs.Status.OPTIMAL
    makespan = None if solution.schedule is None else solution.makespan
    text = f"{solution.status}, gap {solution.gap:.2%}, {spent['cpu_s']:.1f} s"
    return {"makespan": makespan, "bound": solution.bound, "gap": solution.gap, "proven": proven, **spent, "says": text}


def half_problem(model: str, nodes: int, inputs: int, ends: str) -> hs.Problem:
    """Return the attention half of a block with its input on the first device and its output on another."""
    block_problem = problem_of(model, 1, nodes, inputs)
    index = block_problem.cluster.names.index
    module = next(candidate for candidate in cut(block_problem) if not candidate.plain)
    problem = module.between(block_problem, np.array([index(BEGIN)]), np.array([index(ENDS[ends])]))
    assert problem is not None
    return problem


@functools.cache
def prepare(solver: str) -> None:
    """Import modules and compile kernels before the first measurement."""
    hs.solve(problem_of("125M", 1, 1, 1), "split", time_limit=10.0, options={"solver": solver, "workers": 1})


# Cases and tables


def wanted(arguments: argparse.Namespace) -> list[Case]:
    """Return the requested cases."""
    base = {"model": arguments.model, "nodes": arguments.nodes}
    stacks = [
        {**base, "layers": arguments.layers, "inputs": inputs, "schedule": way, "solver": solver, "limit": arguments.time_limit}
        for inputs in arguments.inputs
        for solver in arguments.solvers
        for way in SCHEDULES
    ]
    halves = [
        {**base, "inputs": inputs, "ends": ends, "criterion": criterion, "solver": solver, "limit": arguments.time_limit}
        for inputs in arguments.inputs
        for solver in arguments.solvers
        for ends in (ENDS if arguments.nodes > 1 else list(ENDS)[:-1])
        for criterion in CRITERIA
    ]
    return [*(stacks if "stack" in arguments.parts else []), *(halves if "half" in arguments.parts else [])]


def check(results: Results, case: Case) -> None:
    """Stop if a bound on the case's instance is above any of its makespans."""
    names = [name for name in ("model", "nodes", "layers", "inputs", "ends") if name in case]
    rows = results.rows(lambda other: all(other.get(name) == case[name] for name in names) and ("ends" in other) == ("ends" in case))
    highest = max(row["bound"] for row in rows)
    shortest = min((row["makespan"] for row in rows if row["makespan"] is not None), default=math.inf)
    if highest > shortest * (1 + AGREE):
        description = ", ".join(f"{name} {case[name]}" for name in names)
        raise SystemExit(f"one is wrong on {description}: a bound of {highest!r} s is proven, a makespan of {shortest!r} s found")


def stacks_table(rows: Sequence[Row]) -> str:
    """Return the table of throughputs, a column for each number of inputs and solver."""
    columns = sorted({(row["inputs"], row["solver"]) for row in rows}, key=lambda pair: (pair[0], list(SOLVERS).index(pair[1])))
    lines = [[name, PAPER[name]] for name in (*SCHEDULES, "upper bound")]
    for inputs, solver in columns:
        by = {row["schedule"]: row for row in rows if (row["inputs"], row["solver"]) == (inputs, solver)}
        for line in lines[:-1]:
            row = by.get(line[0])
            line.append("" if row is None else "-" if row["makespan"] is None else f"{inputs / row['makespan']:.3f}")
        bound = max(row["bound"] for row in rows if row["inputs"] == inputs)
        lines[-1].append(f"{inputs / bound:.3f}" if bound > 0 else "-")
    heads = [f"{_inputs(inputs)}, {solver}" for inputs, solver in columns]
    return figures.table(["schedule", "paper", *heads], lines)


def halves_table(rows: Sequence[Row], inputs: int, limit: float) -> str:
    """Return the table of CPU times to the proof, or the gaps left, a column for each criterion."""
    lines = []
    for solver in SOLVERS:
        for ends in ENDS:
            by = {row["criterion"]: row for row in rows if (row["inputs"], row["solver"], row["ends"]) == (inputs, solver, ends)}
            if by:
                lines.append([f"{solver}, {ends}", *(_proof(by.get(criterion), limit) for criterion in CRITERIA)])
    return figures.table(["solver, end", *CRITERIA], lines)


def _proof(row: Row | None, limit: float) -> str:
    if row is None:
        return ""
    if row["proven"]:
        return f"{figures.number(row['cpu_s'])} s"
    return f"> {limit:g} s ({'no schedule' if row['makespan'] is None else figures.percent(row['gap'])})"


def text(results: Results, arguments: argparse.Namespace) -> str:
    """Return the text for the page: all results with the given model, nodes and limit."""

    def ours(case: Case) -> bool:
        fitting = all(case[name] == getattr(arguments, name) for name in ("model", "nodes"))
        return fitting and case["limit"] == arguments.time_limit and case.get("layers", arguments.layers) == arguments.layers

    rows, limit = results.rows(ours), arguments.time_limit
    stacks, halves = ([row for row in rows if ("ends" in row) == part] for part in (False, True))
    problem = problem_of(arguments.model, arguments.layers, arguments.nodes, 1)
    what = f"GPT-3 {arguments.model}, {arguments.layers} layers: {problem.n_tasks} tasks on {problem.n_devices} devices"
    parts = [f"Taken on: {results.taken(ours)}. {what}; {limit:g} s a solve, in one thread."]
    if stacks:
        parts += [f"### Inputs a second, {arguments.model}", stacks_table(stacks)]
    for inputs in sorted({row["inputs"] for row in halves}):
        parts += [f"### CPU time for half a block, {_inputs(inputs)}", halves_table(halves, inputs, limit)]
    return "\n\n".join(parts)


def _inputs(count: int) -> str:
    return "1 input" if count == 1 else f"{count} inputs"


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = figures.parser(__doc__)
    parser.add_argument("--model", choices=hs.workloads.transformers.names(), help="default: 175B, with --quick 125M")
    parser.add_argument("--layers", type=int, help="a multiple of the nodes; default: the model's, with --quick 2")
    parser.add_argument("--nodes", type=int, help=f"default: {NODES}, with --quick 2")
    parser.add_argument("--inputs", nargs="+", type=int, help=f"inputs at once; default: {cases.spans(INPUTS)}, with --quick 1")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--solvers", nargs="+", choices=tuple(SOLVERS), default=tuple(SOLVERS))
    parser.add_argument(
        "--time-limit", type=float, help=f"seconds for one solve, of half a block CPU seconds (default: {LIMIT:g}, with --quick 2)"
    )
    cases.options(parser, REGION)
    arguments = cases.parse(parser, words, region=REGION)
    quick = arguments.quick
    arguments.model = arguments.model or ("125M" if quick else "175B")
    arguments.nodes = arguments.nodes or (2 if quick else NODES)
    arguments.layers = arguments.layers or (2 if quick else hs.workloads.transformers.MODELS[arguments.model].layers)
    arguments.inputs = arguments.inputs or INPUTS[: 1 if quick else None]
    arguments.time_limit = arguments.time_limit or (2.0 if quick else LIMIT)
    if arguments.nodes < 1 or arguments.layers % arguments.nodes:
        parser.error(f"{arguments.layers} layers cannot be shared out evenly to {arguments.nodes} nodes; choose --layers and --nodes so")
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measure the requested cases and publish all results."""
    arguments = options(words)
    results = Results(arguments.results, fresh=arguments.fresh)
    requested = wanted(arguments)
    cases.measure(requested, solve, results, jobs=arguments.jobs, done=lambda case: check(results, case))
    for case in requested:
        check(results, case)
    figures.publish(arguments, REGION, text(results, arguments), results.rows(lambda case: case in requested))


if __name__ == "__main__":
    main()
