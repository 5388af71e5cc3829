"""Time and memory of each stage on clusters of 4 to 4,096 devices, with durations by kind of device.

    python benchmarks/many_devices.py [--quick] [--sizes 4 16 ...]

Nodes of 16 equal devices, of up to 20 kinds: make the problem, write and read its document, HEFT, verify, the bound. Each size
runs in a process of its own, after one of a few tasks that loads or compiles the kernels.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import figures
import numpy as np
import scale

import hetsched as hs
from hetsched.compiled import interpreter

REGION = "many_devices"
SIZES = (4, 16, 64, 256, 1_024, 4_096)
TASKS, MOST = 10_000, (100_000, 1_024)
"""Tasks of the curve; tasks and devices of the largest problem."""
KINDS, NODE = 20, 16
SECONDS, MEGABYTES = 10.0, 2048.0
"""Targets of the largest problem: HEFT, with its simulation and verification, and `verify` again; memory of all stages."""
STAGES = ("problem", "write problem", "read problem", "heft", "verify", "bound")


class Run(NamedTuple):
    """One run of all stages."""

    tasks: int
    edges: int
    devices: int
    kinds: int
    base: float
    """Memory of the process before the first stage, MiB."""
    document: float
    """MiB."""
    gap: float
    stages: list[scale.Stage]


def problem_of(graph: hs.TaskGraph, devices: int) -> hs.Problem:
    """Return a problem on nodes of equal devices: 300 GB/s within a node, 25 GB/s between nodes."""
    host = np.arange(devices) // NODE
    rack = [hs.Device(f"d{k}", kind=f"kind{node % KINDS}", node=f"node{node}") for k, node in enumerate(host.tolist())]
    cluster = hs.Cluster(rack, bandwidth=np.where(host[:, None] == host, 300e9, 25e9), latency=5e-6)
    rng = np.random.default_rng(0)
    seconds = rng.uniform(1e-4, 1e-3, (graph.n_tasks, 1)) * rng.uniform(1.0, 4.0, KINDS)[: len(cluster.kinds)]
    return hs.Problem(graph, cluster, durations=seconds, kinds=cluster.kinds)


def stages(tasks: int, devices: int, path: Path) -> Run:
    """Run all stages."""
    graph = scale.generated(tasks).graph
    stage, base = scale.Watch(STAGES), scale.resident("VmRSS")
    problem: Any = stage(lambda: problem_of(graph, devices))
    stage(lambda: problem.write(path))
    del problem
    problem = stage(lambda: hs.read(path))
    solution = stage(lambda: hs.solve(problem, "heft"))
    if stage(lambda: hs.verify(problem, solution.schedule)):
        raise SystemExit("the schedule breaks a rule")
    stage(lambda: solution.bound)
    size = path.stat().st_size / scale.MIB
    return Run(tasks, graph.n_edges, devices, len(problem.cluster.kinds), base, size, solution.gap, stage.taken)


def measured(tasks: int, devices: int) -> Run:
    """Return the run of all stages in this process, after a small one."""
    with tempfile.TemporaryDirectory() as folder:
        with interpreter(False):
            stages(100, 64, Path(folder) / "problem.json")
        run = stages(tasks, devices, Path(folder) / "problem.json")
    print(f"{tasks:,} tasks, {devices:,} devices: {sum(stage.cpu for stage in run.stages):.3g} s of CPU time", flush=True)
    return run


def text(runs: Sequence[Run], largest: Run) -> str:
    """Return the text for the page."""

    def fits(value: float, goal: float) -> str:
        shown = figures.number(value)
        return f"**{shown}**" if (largest.tasks, largest.devices) == MOST and value > goal else shown

    sizes = [f"{run.devices:,}" for run in runs]
    times = [[name, *(figures.number(run.stages[x].cpu) for run in runs)] for x, name in enumerate(STAGES)]
    held = [[name, *(figures.number(run.stages[x].peak) for run in runs)] for x, name in enumerate(STAGES)]
    taken = {stage.name: stage for stage in largest.stages}
    found = taken["heft"].cpu + taken["verify"].cpu
    peak = max(stage.peak for stage in largest.stages)
    return "\n\n".join(
        [
            f"Taken on: {figures.machine()}.",
            f"{largest.tasks:,} tasks and {largest.edges:,} edges on {largest.devices:,} devices of {largest.kinds} kinds: HEFT and "
            f"verification {fits(found, SECONDS)} s of CPU time, all stages at most {fits(peak, MEGABYTES)} MiB, the document "
            f"{figures.number(largest.document)} MiB; the gap is {largest.gap:.1%}.",
            f"{runs[0].tasks:,} tasks, by the number of devices:",
            figures.table(["CPU seconds, by devices", *sizes], times),
            figures.table(["peak memory, MiB", *sizes], held),
        ]
    )


def main(words: Sequence[str] | None = None) -> None:
    """Measure every size and publish the tables."""
    parser = figures.parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", help=f"numbers of devices (default: {SIZES}; with --quick the first three)")
    arguments = figures.parse(parser, words, region=REGION)
    quick = arguments.quick
    cases = [(300 if quick else TASKS, size) for size in sorted(arguments.sizes or (SIZES[:3] if quick else SIZES))]
    cases.append((300, 64) if quick else MOST)
    runs = []
    for case in cases:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            runs.append(pool.submit(measured, *case).result())
    kept = [{**run._asdict(), "stages": [stage._asdict() for stage in run.stages]} for run in runs]
    figures.publish(arguments, REGION, text(runs[:-1], runs[-1]), kept)


if __name__ == "__main__":
    main()
