"""Time and memory of each stage, from a hundred tasks to a million.

    python benchmarks/scale.py [--quick] [--sizes 100 1000 ...] [--repeats 3]

Generate a graph and its problem, write and read the document, HEFT, verify, the bound, write and read the solution, draw the
chart. Every size runs in processes of its own, which first run all stages on a hundred tasks, so that kernels are loaded or compiled.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import figures
import numpy as np

import hetsched as hs
from hetsched.compiled import interpreter

REGION = "scale"
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
FIRST = 10_000
"""The least number of tasks that a slope counts; below it, a call costs more than its tasks."""
MODULE, NEIGHBOURS = 100, 6
SECONDS, MEGABYTES = 60.0, 4096.0
"""Targets for all stages of a million tasks."""
STAGES = ("generate", "write problem", "read problem", "heft", "verify", "bound", "write solution", "read solution", "draw")
MIB = 2**20
Result = TypeVar("Result")


class Stage(NamedTuple):
    """What one stage took."""

    name: str
    cpu: float
    wall: float
    """Seconds."""
    peak: float
    """The most memory of the process during the stage, MiB."""


class Run(NamedTuple):
    """One run of all stages."""

    tasks: int
    edges: int
    transfers: int
    base: float
    """Memory of the process before the first stage, MiB."""
    gap: float
    problem: float
    solution: float
    """Sizes of the documents, MiB."""
    stages: list[Stage]


def resident(field: str) -> float:
    """Return ``VmRSS`` or ``VmHWM`` of this process in MiB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024


def generated(tasks: int) -> hs.Problem:
    """Return a randomly wired network of modules of a hundred tasks, three edges a task, on DiviML's devices without memory limits."""
    graph = hs.workloads.rwnn("ws", min(tasks, MODULE), modules=max(1, tasks // MODULE), neighbours=NEIGHBOURS, dependence="wdep")
    cluster = hs.workloads.clusters.diviml()
    devices = [dataclasses.replace(device, memory_bytes=math.inf) for device in cluster.devices]
    return hs.Problem(graph, hs.Cluster(devices, cluster.bandwidth, cluster.latency), costs=hs.costs.Roofline())


class Watch:
    """Runs stages one after another and records what each takes."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.taken: list[Stage] = []

    def __call__(self, call: Callable[[], Result]) -> Result:
        """Run the next stage."""
        Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is resident now
        wall, cpu = time.perf_counter(), time.process_time()
        result = call()
        name = self.names[len(self.taken)]
        self.taken.append(Stage(name, time.process_time() - cpu, time.perf_counter() - wall, resident("VmHWM")))
        return result


def stages(tasks: int, folder: Path) -> Run:
    """Run all stages; a value is dropped as soon as no later stage needs it."""
    stage = Watch(STAGES)
    base = resident("VmRSS")
    paths = [folder / name for name in ("problem.json", "solution.json", "chart.png")]
    problem: Any = stage(lambda: generated(tasks))
    stage(lambda: problem.write(paths[0]))
    del problem
    problem = stage(lambda: hs.read(paths[0]))
    solution: Any = stage(lambda: hs.solve(problem, "heft"))
    if stage(lambda: hs.verify(problem, solution.schedule)):
        raise SystemExit("the schedule breaks a rule")
    stage(lambda: solution.bound)
    gap, transfers = solution.gap, len(solution.schedule.transfers)
    stage(lambda: solution.write(paths[1]))
    del solution
    solution = stage(lambda: hs.read(paths[1]))
    stage(lambda: hs.report.write_gantt(problem, solution, paths[2]))
    sizes = [path.stat().st_size / MIB for path in paths[:2]]
    return Run(problem.n_tasks, problem.graph.n_edges, transfers, base, gap, *sizes, stage.taken)


def measured(tasks: int) -> Run:
    """Return the run of all stages in this process after one of a hundred tasks, for which every kernel is loaded or compiled."""
    with tempfile.TemporaryDirectory() as folder:
        with interpreter(False):
            stages(SIZES[0], Path(folder))
        return stages(tasks, Path(folder))


def least(runs: Sequence[Run]) -> Run:
    """Return the least times and memory of several runs, stage by stage."""
    best = []
    for same in zip(*(run.stages for run in runs), strict=True):
        cpu, wall, peak = (min(column) for column in zip(*(stage[1:] for stage in same), strict=True))
        best.append(Stage(same[0].name, cpu, wall, peak))
    return runs[0]._replace(base=min(run.base for run in runs), stages=best)


def curves(sizes: Sequence[int], repeats: int) -> Iterator[Run]:
    """Yield the least of several runs of each size, each in a process of its own, ascending."""
    spawn = multiprocessing.get_context("spawn")
    for tasks in sorted(sizes):
        runs = []
        for _ in range(repeats):
            with ProcessPoolExecutor(1, spawn) as pool:
                runs.append(pool.submit(measured, tasks).result())
        run = least(runs)
        print(f"{tasks:,} tasks: {sum(stage.cpu for stage in run.stages):.3g} s of CPU time", flush=True)
        yield run


def slope(runs: Sequence[Run], values: Sequence[float]) -> float:
    """Return the exponent of the power of the number of tasks that fits values from `FIRST` tasks on; NaN for a single size."""
    points = [(run.tasks, value) for run, value in zip(runs, values, strict=True) if run.tasks >= FIRST and value > 0]
    if len(points) < 2:
        return math.nan
    size, value = np.log(np.array(points)).T
    return float(np.polyfit(size, value, 1)[0])


def rows(runs: Sequence[Run]) -> dict[str, tuple[list[float], list[float], list[float]]]:
    """Return CPU seconds, wall seconds and peak memory of each stage and of all, by size."""
    by_stage = {
        name: ([run.stages[x].cpu for run in runs], [run.stages[x].wall for run in runs], [run.stages[x].peak for run in runs])
        for x, name in enumerate(STAGES)
    }
    every = zip(*by_stage.values(), strict=True)
    cpu, wall, peak = (list(zip(*columns, strict=True)) for columns in every)
    by_stage["all"] = ([sum(column) for column in cpu], [sum(column) for column in wall], [max(column) for column in peak])
    return by_stage


def text(runs: Sequence[Run]) -> str:
    """Return the text for the page."""
    made, last = rows(runs), runs[-1]
    sizes = [f"{run.tasks:,}" for run in runs]

    def fits(value: float, goal: float) -> str:
        shown = figures.number(value)
        return f"**{shown}**" if last.tasks >= SIZES[-1] and value > goal else shown

    def power(values: Sequence[float]) -> str:
        exponent = slope(runs, values)
        return "" if math.isnan(exponent) else f"{exponent:.2f}"

    times = [[name, *map(figures.number, cpu), power(cpu)] for name, (cpu, _, _) in made.items()]
    times.append(["all, wall time", *map(figures.number, made["all"][1]), power(made["all"][1])])
    held = [
        [name, *map(figures.number, peak), power([value - run.base for value, run in zip(peak, runs, strict=True)])]
        for name, (*_, peak) in made.items()
    ]
    total = f"{fits(made['all'][0][-1], SECONDS)} s of CPU time ({figures.number(made['all'][1][-1])} s of wall time) and "
    return "\n\n".join(
        [
            f"Taken on: {figures.machine()}.",
            f"{last.tasks:,} tasks and {last.edges:,} edges: {total}{fits(made['all'][2][-1], MEGABYTES)} MiB, with documents of "
            f"{figures.number(last.problem)} and {figures.number(last.solution)} MiB; the schedule has {last.transfers:,} transfers, "
            f"and its gap is {last.gap:.1%}.",
            f"![CPU time and memory of each stage over the number of tasks, both axes logarithmic](images/{REGION}.svg)",
            figures.table(["CPU seconds, by tasks", *sizes, "slope"], times),
            figures.table(["peak memory, MiB", *sizes, "slope"], held),
        ]
    )


def plot(runs: Sequence[Run], path: Path) -> None:
    """Draw time and memory of each stage over the number of tasks."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    sizes = [run.tasks for run in runs]
    styles = [(colour, line) for line in ("-", "--") for colour in figures.COLOURS]
    for (name, (cpu, _, peak)), (colour, line) in zip(rows(runs).items(), styles, strict=False):
        width = 2.4 if name == "all" else 1.2
        above = [value - run.base for value, run in zip(peak, runs, strict=True)]
        for ax, values in zip(axes, (cpu, above), strict=True):
            shown = [value if value > 0 else math.nan for value in values]
            ax.plot(sizes, shown, line, color=colour, linewidth=width, marker="o", markersize=3, label=name)
    for ax, title, goal in zip(axes, ("CPU time, seconds", "memory above that of the process, MiB"), (SECONDS, MEGABYTES), strict=True):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.axhline(goal, color="0.6", linewidth=0.8, linestyle=":")
        ax.set_title(title, loc="left", fontsize=10)
        ax.set_xlabel("tasks")
        ax.grid(color="0.9", linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=5, bbox_to_anchor=(0.5, 0.02), frameon=False)
    figure.tight_layout()
    figures.save(figure, path)
    plt.close(figure)


def main(words: Sequence[str] | None = None) -> None:
    """Measure every size and publish table and picture."""
    parser = figures.parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", help=f"numbers of tasks (default: {SIZES}; with --quick the first three)")
    parser.add_argument("--repeats", type=int, default=3, help="processes for each size, of which the least counts (default: %(default)s)")
    arguments: argparse.Namespace = figures.parse(parser, words, region=REGION, plot=True)
    sizes = arguments.sizes or (SIZES[:3] if arguments.quick else SIZES)
    runs = list(curves(sizes, 1 if arguments.quick else arguments.repeats))
    if arguments.docs is not None:
        plot(runs, arguments.docs / "images" / f"{REGION}.svg")
    kept = [{**run._asdict(), "stages": [stage._asdict() for stage in run.stages]} for run in runs]
    figures.publish(arguments, REGION, text(runs), kept)


if __name__ == "__main__":
    main()
