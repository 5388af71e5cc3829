"""Large graphs: training steps of more than 50,000 tasks.

    python benchmarks/large.py [--quick] [--models "nmt, 180 words" ...] [--seconds 60]

Tasks and CCR before and after coarsening; the time of a step under every method of placement, and under `multilevel` and `auto`;
the time of placement; time and memory of Celeritas' method in a separate process. Ports of devices contend, as in the paper.
Needs torch to capture the graphs.
"""

from __future__ import annotations

import argparse
import functools
import math
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import figures
import training_graphs

import hetsched as hs
from hetsched import coarsening
from hetsched.papers.celeritas import fusion, testbed

REGION = "large"
METHODS = (
    "best-device",
    "heft",
    "metis",
    "m-topo",
    "m-etf",
    "m-sct",
    "block",
    "repartition",
    "linear-clustering",
    "dsc",
    "order-place",
    "celeritas",
)
GIVEN_TIME = ("multilevel", "auto")
FRESH = """
import pickle, sys, time
import hetsched as hs
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
before = peak()
problem = pickle.load(open(sys.argv[1], "rb"))
from hetsched.heuristics.placement.celeritas import celeritas
took = []
for _ in range(3):
    began = time.perf_counter()
    monitor = hs.Monitor(problem.replace())
    celeritas(monitor.problem, monitor)
    took.append(time.perf_counter() - began)
print(min(took), peak(), before, monitor.incumbent)
"""
"""The program of a new process: three runs, of which the first may compile."""


@functools.cache
def training_problem(name: str) -> hs.Problem:
    """Return the problem of a training step on four V100 with little memory."""
    if name not in training_graphs.LARGEST:
        return testbed.problem(name)
    return testbed.placed(training_graphs.larger()[name].capture())


def coarsened(names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return tasks and CCR before and after each way to coarsen, and the seconds that it takes."""
    lines, rows = [], {}
    for name in names:
        problem = training_problem(name)
        rows[name] = {how: [level.coarse.n_tasks, coarsening.ccr(level.coarse), spent] for how, level, spent in fusion.coarsened(problem)}
        cells = [f"{tasks:,}, {ratio:.3g} ({spent:.2f} s)" for tasks, ratio, spent in rows[name].values()]
        lines.append([name, f"{problem.n_tasks:,}, {coarsening.ccr(problem):.3g}", *cells])
    return figures.table(["tasks, CCR (seconds)", "original", "celeritas", *fusion.OTHERS.values()], lines), rows


def steps(names: Sequence[str], seconds: float, methods: Sequence[str]) -> tuple[str, str, str, dict[str, Any]]:
    """Return seconds of a step and of placement by method, and the comparison of multilevel with the others."""
    times: dict[str, list[str]] = {method: [] for method in (*methods, *GIVEN_TIME)}
    placed: dict[str, list[str]] = {method: [] for method in methods}
    bounds, rows, verdict = [], {}, []
    for name in names:
        problem, best, rows[name] = training_problem(name), {}, {}
        for method in (*methods, *GIVEN_TIME):
            limit = seconds if method in GIVEN_TIME else None
            if limit is None:
                hs.solve(problem, method)  # compiles kernels
            solution = hs.solve(problem, method, time_limit=limit)
            spent = dict(zip(solution.methods.method.tolist(), solution.methods.seconds.tolist(), strict=True)).get(method, math.nan)
            over = solution.best_effort
            nearest = "none" if over is None else f"{figures.number(over.schedule.makespan)}, {over.bytes_over / 1e9:.3g} GB over"
            best[method] = solution.makespan
            times[method].append(figures.number(solution.makespan) if solution.schedule is not None else f"({nearest})")
            if method in placed:
                placed[method].append(figures.number(spent))
            rows[name][method] = {"makespan": solution.makespan, "seconds": spent, "by": solution.method, "bound": solution.bound}
            print(f"{name}: {method} {times[method][-1]} {solution}", flush=True)
        bound = max(row["bound"] for row in rows[name].values())
        bounds.append(figures.number(bound))
        rest = min((method for method in best if method not in GIVEN_TIME), key=best.__getitem__)
        gain, gap = 1 - best["multilevel"] / best[rest], 1 - bound / best["multilevel"]
        reached = "yes" if gain >= 0.1 or gap <= 0.05 else "no"
        verdict.append([name, rest, f"{100 * gain:.1f} %", f"{100 * gap:.1f} %", reached])
        rows[name]["verdict"] = {"best other": rest, "gain": gain, "gap": gap}
    head = ["seconds of a step", *names]
    return (
        figures.table(head, [*([method, *cells] for method, cells in times.items()), ["best bound", *bounds]]),
        figures.table(["seconds of placement", *names], [[method, *cells] for method, cells in placed.items()]),
        figures.table(["graph", "best other method", "multilevel's gain on it", "gap to the bound", "10 % better, or within 5 %"], verdict),
        rows,
    )


def fresh(names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return seconds and memory of Celeritas' method in a separate process."""
    lines, rows = [], {}
    for name in names:
        problem = training_problem(name)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "problem.pickle"
            path.write_bytes(pickle.dumps(problem))
            done = subprocess.run([sys.executable, "-c", FRESH, str(path)], capture_output=True, text=True, check=True)
        spent, peak, before, makespan = map(float, done.stdout.split())
        lines.append([name, f"{problem.n_tasks:,}", f"{problem.graph.n_edges:,}", figures.number(spent), f"{peak:.0f}", f"{before:.0f}"])
        rows[name] = {"tasks": problem.n_tasks, "seconds": spent, "peak_mb": peak, "makespan": makespan}
    head = ["graph", "tasks", "edges", "seconds (target 1)", "peak memory, MB (target 500)", "of that before, MB"]
    return figures.table(head, lines), rows


def main(words: Sequence[str] | None = None) -> None:
    """Make every table and publish them."""
    parser = figures.parser(__doc__)
    parser.add_argument(
        "--models", nargs="+", choices=[*training_graphs.LARGEST, *testbed.COLUMNS], help="default: the largest; with --quick holography"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="for multilevel and auto on a training graph (default: %(default)s)")
    arguments: argparse.Namespace = figures.parse(parser, words, region=REGION)
    names = arguments.models or (["holography"] if arguments.quick else training_graphs.LARGEST)
    seconds = 2.0 if arguments.quick else arguments.seconds
    methods = [method for method in METHODS if method in hs.methods()]
    ratios, coarse = coarsened(names)
    times, placed, verdict, solutions = steps(names, seconds, methods)
    alone, processes = fresh(names)
    text = [
        f"Taken on: {figures.machine()}.",
        "### Tasks and CCR",
        ratios,
        "### Step time",
        f"`multilevel` and `auto` had {seconds:g} s.",
        times,
        verdict,
        "### Placement time",
        placed,
        "### Celeritas' method in a process of its own",
        alone,
    ]
    rows = {"fusion": coarse, "steps": solutions, "processes": processes}
    figures.publish(arguments, REGION, "\n\n".join(text), rows)


if __name__ == "__main__":
    main()
