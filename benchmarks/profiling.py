"""Deviations of durations that are estimated from small batches, and then measured under a placement.

    python benchmarks/profiling.py [--quick] [--networks squeezenet googlenet]

Celeritas' Table 5 and Figure 5 for several networks, run on two worker threads of the CPU: the average deviation of time and
memory of all tasks, and its distribution. Needs torch.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import figures

from hetsched.costs import Deviations, Regression, measure
from hetsched.runtime import ModuleProfiler, TwoStep, two_step

REGION = "profiling"
SIZE = {"squeezenet": 112, "googlenet": 112, "inception_v3": 128}
"""Height and width of the images."""
NETWORKS = (*SIZE, "transformer")
TOKENS, WIDTH, BLOCKS = 64, 256, 4
"""Sizes of the transformer."""
SMALL, LARGE = (1, 2, 4), 16
THROUGH = ((1, 2), (1, 2, 4), (2, 4, 8), (4, 8))
"""Batch sizes of the lines that estimate the large one."""
PAPER = {"Inception-v3": (1.54, 7.99), "NMT": (3.93, 10.85), "Transformer": (6.02, 14.16), "Tensor Holography": (2.92, 11.32)}
"""Table 5: percent of memory and time."""
LIMITS = (0.05, 0.1, 0.2, 0.3)


KEEPING = {-8: 1, -3: 32 << 20, -1: 2**31 - 1}
"""M_ARENA_MAX, M_MMAP_THRESHOLD (32 MiB is the most) and M_TRIM_THRESHOLD of glibc's mallopt."""


class Found(NamedTuple):
    """The measurements of a network."""

    steps: TwoStep
    alone: list[Deviations]
    """Deviations of the large batch on one device, by the sizes of `THROUGH`."""
    seconds: float


def keep_memory() -> None:
    """Make glibc keep the memory that tensors release, as GPU allocators do; no effect for other C libraries.

    Otherwise it returns large pieces to the system and allocates them again, depending on the batch: a relu of 12 MB then takes
    eight times as long.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in KEEPING.items():
            assert mallopt(parameter, value) == 1, f"mallopt({parameter}, {value}) is refused"


def network(name: str) -> tuple[Any, Any]:
    """Return a module and an example of one item."""
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    if name != "transformer":
        vision = importlib.import_module("hetsched.workloads.vision")
        return getattr(vision, name)(), torch.randn(1, 3, SIZE[name], SIZE[name])
    language = importlib.import_module("hetsched.workloads.language")
    blocks = [language.Block(WIDTH, WIDTH // 64) for _ in range(BLOCKS)]
    return torch.nn.Sequential(*blocks).eval(), torch.randn(1, TOKENS, WIDTH)


def measured(name: str, repeats: int, warmup: int) -> Found:
    """Profile a network in two steps, and the large batch on one device alone."""
    module, example = network(name)
    profiler = ModuleProfiler(module, example, devices={"core0": 1, "core1": 1}, warmup=warmup, repeats=repeats, clock="cpu")
    start = time.perf_counter()
    steps = two_step(profiler, SMALL, LARGE, method="heft", time_limit=None)
    spent = time.perf_counter() - start
    sizes = sorted({size for some in THROUGH for size in some})
    small, large = (measure(profiler, some, devices=["core0"]) for some in (sizes, [LARGE]))
    return Found(steps, [Regression(small.only(batch_sizes=some)).deviations(large) for some in THROUGH], spent)


def averages(results: dict[str, Found]) -> str:
    """Return Table 5: average deviations, with those of the paper."""
    rows = [
        ("memory, estimated", lambda steps: steps.memory.mean),
        ("time, estimated", lambda steps: steps.before.mean),
        ("time, estimated, weighted", lambda steps: steps.before.weighted_mean),
        ("time, measured", lambda steps: steps.after.mean),
        ("time, measured, weighted", lambda steps: steps.after.weighted_mean),
        ("time of all tasks, estimated", lambda steps: abs(ratio(steps.before) - 1)),
        ("time of all tasks, measured", lambda steps: abs(ratio(steps.after) - 1)),
    ]
    lines = [[what, *(figures.percent(mean(one.steps)) for one in results.values())] for what, mean in rows]
    lines += [
        ["tasks", *(str(one.steps.first.n_tasks) for one in results.values())],
        ["measuring, s", *(figures.number(one.seconds, 2) for one in results.values())],
    ]
    return figures.table(["average deviation", *results], lines)


def ratio(deviations: Deviations) -> float:
    """Return the sum of the estimated durations divided by that of the measured ones."""
    return float(deviations.estimated.sum() / deviations.actual.sum())


def distribution(results: dict[str, Found]) -> str:
    """Return Figure 5 (b): the share of tasks within a deviation of the time, estimated and, after the slash, measured."""
    lines = [
        [name, *(f"{figures.percent(one.steps.before.within(most))} / {figures.percent(one.steps.after.within(most))}" for most in LIMITS)]
        for name, one in results.items()
    ]
    return figures.table(["share of tasks, estimated / measured", *(f"within {100 * most:.0f} %" for most in LIMITS)], lines)


def extrapolation(results: dict[str, Found]) -> str:
    """Return the average deviations on one device alone by the batch sizes that the lines are fitted to."""
    lines = [
        [name, *(f"{figures.percent(deviations.mean)} ({figures.percent(deviations.weighted_mean)})" for deviations in one.alone)]
        for name, one in results.items()
    ]
    return figures.table(["mean (weighted)", *(f"batches {', '.join(map(str, some))}" for some in THROUGH)], lines)


def paper() -> str:
    """Return the paper's Table 5."""
    lines = [[what, *(f"{row[place]} %" for row in PAPER.values())] for place, what in enumerate(("memory, estimated", "time, estimated"))]
    return figures.table(["Celeritas' Table 5, on V100s, training", *PAPER], lines)


def main(words: Sequence[str] | None = None) -> None:
    """Make every table and publish them."""
    parser = figures.parser(__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, help="default: all; with --quick squeezenet")
    parser.add_argument("--warmup", type=int, default=5, help="runs that do not count (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=20, help="runs that do, of which the median is taken (default: %(default)s)")
    arguments: argparse.Namespace = figures.parse(parser, words, region=REGION)
    keep_memory()
    results = {}
    for name in arguments.networks or (NETWORKS[:1] if arguments.quick else NETWORKS):
        results[name] = measured(name, arguments.repeats, arguments.warmup)
        print(f"{name}: {results[name].steps.before}", flush=True)
    text = "\n\n".join(
        [
            f"Taken on: {figures.where('torch')}, {figures.machine().rpartition(', ')[2]}.",
            averages(results),
            paper(),
            distribution(results),
            "### One device alone",
            extrapolation(results),
        ]
    )
    numbers = {
        name: {"memory": one.steps.memory.mean, "estimated": one.steps.before.mean, "measured": one.steps.after.mean}
        for name, one in results.items()
    }
    figures.publish(arguments, REGION, text, numbers)


if __name__ == "__main__":
    main()
