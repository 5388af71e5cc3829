"""CPU time that methods take after their time limit, by method and size of the graph.

    python benchmarks/punctual.py [--quick] [--methods milp ...]

Every registered method solves layered graphs under short limits, warm: kernels compiled, solvers imported,
their processes started; and cold: in a new process with an empty kernel cache. The figure is the CPU time of the
process and its children from the limit until `solve` has returned; wall-clock time would include other load of the
machine. Linux only, for /proc. Results are stored, so that a run may be interrupted and continued.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import cases
import figures
import instances
import numpy as np

import hetsched as hs
from hetsched.experiments import Results
from hetsched.experiments.results import Case
from hetsched.processes import in_process

REGION = "punctual"
SIZES = (10, 300, 3000, 20_000)
LIMITS = (0.1, 1.0, 5.0)
TARGET = 0.5
"""CPU seconds after the limit."""
WIDTH = 50
"""The most tasks of a layer."""
COLD = "cold"
FEATURES = {
    "plain": LIMITS,
    "side by side": LIMITS[:2],
    "port": LIMITS[:2],
    "several inputs": LIMITS[:2],
    "memory": LIMITS[:2],
    COLD: LIMITS[1:2],
}
"""Additional features of a problem, and its limits; `COLD` is a plain one with nothing compiled or imported."""
WARM, TRIES = (10, 300), 5
"""Tasks of the problems that are solved before measurements, and their largest number."""


@functools.lru_cache(maxsize=8)
def problem_of(tasks: int, feature: str, pair: bool) -> hs.Problem:
    """Return a layered graph on four devices, or on a `pair` joined by channels."""
    speeds = (1.0, 2.0) if pair else (1.0, 1.5, 2.0, 3.0)
    width = tasks // 3 if feature == "side by side" else max(2, min(WIDTH, tasks // 5))
    plain = instances.peer(instances.layered(tasks, width, speeds=speeds))
    plain = plain.replace(communication="channel") if pair else plain
    if feature == "port":
        return plain.replace(communication="port")
    if feature == "several inputs":
        growth = np.array([1.0, 1.7, 3.0])
        return plain.replace(durations=plain.durations * growth, batch_sizes=[1, 2, 4], inputs=4)
    if feature == "memory":
        graph, cluster = plain.graph, plain.cluster
        weight = np.random.default_rng(0).uniform(1, 10, tasks)
        heavy = hs.TaskGraph(graph.names, graph.edges, edge_bytes=graph.edge_bytes, weight_bytes=weight)
        room = 1.1 * weight.sum() / cluster.n_devices + weight.max()
        small = hs.Cluster([hs.Device(name, memory_bytes=room) for name in cluster.names], bandwidth=cluster.bandwidth)
        return hs.Problem(heavy, small, durations=plain.durations[:, :, 0])
    return plain


def run(method: str, tasks: int, feature: str, limit: float) -> hs.Solution:
    """Solve a case, the methods of the period for that objective, in one thread."""
    problem = problem_of(tasks, feature, method == "pesto")
    objective = "makespan" if "makespan" in hs.methods()[method].objectives else "period"
    return hs.solve(problem, method, time_limit=limit, threads=1, objective=objective)


@functools.cache
def warm(method: str, feature: str) -> None:
    """Solve small problems until they keep a limit, so that later solves compile, import and start nothing."""
    for tasks in WARM:
        for _ in range(TRIES):
            start = time.monotonic()
            run(method, tasks, feature, LIMITS[1])
            if time.monotonic() - start < LIMITS[1] + TARGET:
                break


def measure(case: Case) -> dict[str, Any]:
    """Measure one solve; a refusal has no figure."""
    in_process.set(False)  # solvers work in processes of their own, as they do for users
    if case["feature"] == COLD:
        with tempfile.TemporaryDirectory() as folder:
            words, environment = [sys.executable, __file__, "--cold", json.dumps(case)], {**os.environ, "NUMBA_CACHE_DIR": folder}
            return dict(json.loads(subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout))
    try:
        warm(case["method"], case["feature"])
    except hs.HetschedError as refusal:
        return {"refused": str(refusal), "says": f"refused: {refusal}"}
    return lateness(case)


def lateness(case: Case) -> dict[str, Any]:
    """Return the time that one solve in this process takes after its limit."""
    method, tasks, feature, limit = (case[name] for name in ("method", "tasks", "feature", "limit"))
    problem_of(tasks, feature, method == "pesto")
    watch = _watch()
    start = time.monotonic()
    watch.stdin.write(f"{limit}\n")
    watch.stdin.flush()
    try:
        solution = run(method, tasks, feature, limit)
        end = f"{solution.status}, {solution.stopped}"
    except hs.UnsupportedFeature as refusal:
        end = f"refused: {refusal}"
    wall = time.monotonic() - start - limit
    watch.stdin.write("done\n")
    watch.stdin.flush()
    late = float(watch.stdout.readline())
    return {"late_s": late, "wall_late_s": wall, "end": end, "says": f"{late:.2f} s of CPU time late, {wall:+.2f} s of wall time, {end}"}


# ---------------------------------------------------------------- CPU time measured by another process


@functools.cache
def _watch() -> Any:
    """Start a process that reports the CPU time that this one, with its children, uses after a limit."""
    return subprocess.Popen(
        [sys.executable, __file__, "--watch", str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def watch(process: int) -> None:
    """For every limit on standard input, and the line that follows at the end of the work, print the CPU seconds between them."""
    with open(0, "rb", buffering=0) as standard_input:  # unbuffered, because select ignores buffers
        for line in standard_input:
            early, _, _ = select.select([standard_input], [], [], float(line))
            before = cpu_seconds(process)
            standard_input.readline()
            print(0.0 if early else cpu_seconds(process) - before, flush=True)


def cpu_seconds(root: int) -> float:
    """Return the CPU seconds of a process and all its children except this process.

    A process that ends between the readings of its parent and of itself is in neither, so the larger of two readings counts.
    """
    return max(_cpu_seconds(root) for _ in range(2))


def _cpu_seconds(root: int) -> float:
    parent, used = dict[int, int](), dict[int, int]()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parent[int(name)], used[int(name)] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {root}
    while more := {child for child, of in parent.items() if of in family} - family - {os.getpid()}:
        family |= more
    return sum(used.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------- cases and tables


def wanted(arguments: argparse.Namespace) -> list[Case]:
    """Return the requested cases."""
    return [
        {"method": method, "tasks": tasks, "feature": feature, "limit": limit}
        for tasks in arguments.sizes
        for feature in FEATURES
        for method in arguments.methods
        for limit in FEATURES[feature]
        if limit in arguments.limits
    ]


def cell(late: Sequence[float]) -> str:
    """Return median, 99th percentile and maximum."""
    if not len(late):
        return ""
    text_of_values = " / ".join(f"{value:.2f}" for value in (np.median(late), np.percentile(late, 99), max(late)))
    return f"**{text_of_values}**" if max(late) > TARGET else text_of_values


def text(results: Results, arguments: argparse.Namespace) -> str:
    """Return the text for the page: all requested results."""
    requested = wanted(arguments)
    rows = [row for row in results.rows(lambda case: case in requested) if "late_s" in row]
    sizes = [f"{tasks:,} tasks" for tasks in arguments.sizes]

    def late(method: str | None, tasks: int, cold: bool) -> list[float]:
        return [
            row["late_s"] for row in rows if method in (None, row["method"]) and row["tasks"] == tasks and (row["feature"] == COLD) == cold
        ]

    def part(cold: bool) -> list[str]:
        solves = [row for row in rows if (row["feature"] == COLD) == cold]
        if not solves:
            return []
        worst = max(solves, key=lambda row: row["late_s"])
        lines = [
            [method or "all", *(cell(late(method, tasks, cold)) for tasks in arguments.sizes)] for method in (None, *arguments.methods)
        ]
        where = f"{worst['tasks']:,} tasks" if cold else f"{worst['tasks']:,} tasks, {worst['feature']}"
        said = (
            f"{'Cold' if cold else 'Warm'}: {len(solves)} solves; {sum(row['late_s'] > TARGET for row in solves)} of them took more than "
            f"{TARGET:g} s; the most took `{worst['method']}`, {worst['late_s']:.2f} s beyond {worst['limit']:g} s ({where})."
        )
        return [said, figures.table(["median / 99th percentile / maximum", *sizes], lines)]

    return "\n\n".join([f"Taken on: {results.taken(lambda case: case in requested)}.", *part(False), *part(True)])


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = figures.parser(__doc__)
    parser.add_argument("--methods", nargs="+", choices=[*hs.methods()], help="default: all; with --quick heft, annealing and milp")
    parser.add_argument("--sizes", nargs="+", type=int, choices=SIZES, help="tasks; default: all, with --quick the first two")
    parser.add_argument("--limits", nargs="+", type=float, choices=LIMITS, help="seconds; default: all, with --quick the first")
    cases.options(parser, REGION)
    arguments = cases.parse(parser, words, region=REGION)
    quick = arguments.quick
    arguments.methods = arguments.methods or (["heft", "annealing", "milp"] if quick else [*hs.methods()])
    arguments.sizes = arguments.sizes or list(SIZES[: 2 if quick else None])
    arguments.limits = arguments.limits or list(LIMITS[: 1 if quick else None])
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measure the requested cases and publish all results."""
    arguments = options(words)
    results = Results(arguments.results)
    requested = wanted(arguments)
    cases.measure(requested, measure, results, jobs=arguments.jobs, fresh=arguments.fresh)
    shown = arguments if arguments.quick else options([])
    every = wanted(shown)
    figures.publish(arguments, REGION, text(results, shown), results.rows(lambda case: case in every))


if __name__ == "__main__":
    if "--watch" in sys.argv[1:2]:
        watch(int(sys.argv[2]))
    elif "--cold" in sys.argv[1:2]:
        print(json.dumps(lateness(json.loads(sys.argv[2]))))
    else:
        import punctual  # whose functions other processes can import

        punctual.main()
