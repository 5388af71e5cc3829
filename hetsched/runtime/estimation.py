"""Durations of large batches in two steps: extrapolated from small ones, then measured under a placement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.costs.communication import Links
from hetsched.costs.deviations import Deviations
from hetsched.costs.protocol import Measured, Profiler
from hetsched.costs.regression import Regression
from hetsched.costs.samples import Samples
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.search.solution import Solution
from hetsched.solving import solve


class TwoStep(NamedTuple):
    """The result of `two_step`."""

    regression: Regression
    """Estimates of the first step."""
    first: Problem
    """The problem with estimated durations."""
    solution: Solution
    """The schedule of `first`, which gives the placement."""
    placement: dict[str, str]
    """The device of each task."""
    measured: Measured
    """Measurement of the large batch under that placement."""
    second: Problem
    """The problem `first` with measured durations in place of their estimates."""
    before: Deviations
    """Deviations of the first estimates from a second measurement under the same placement."""
    after: Deviations
    """Deviations of the measurement from that second measurement, which show its repeatability."""
    memory: Deviations
    """Deviations of the bytes estimated by the first step from those measured in the second."""


@checked
def two_step(
    profiler: Profiler,
    batch_sizes: Iterable[int],
    inputs: int,
    *,
    cluster: Cluster | None = None,
    method: str | Sequence[str] = "auto",
    time_limit: float | None = 10.0,
    seed: int = 0,
    **rules: Any,
) -> TwoStep:
    """Return problems whose tasks each run one batch of `inputs`, estimated from small batches and then measured.

    First step: all tasks run on each device with the small `batch_sizes`, and lines through the times estimate those of the large
    batch, which need not fit on any one device. Second step: the problem is solved, the large batch runs under the placement of
    the schedule, and each measured duration replaces its estimate. A second measurement gives the deviations of both.

    Memory likewise: if a task needs more bytes than in its graph, its `input_bytes` in the problems are larger by the difference,
    so that no device exceeds its memory. (Under ``memory="peak"`` these count only for tasks that read no other.)

    Parameters
    ----------
    profiler : Profiler
    batch_sizes : iterable of int
        Two or more, small enough for every device.
    inputs : int
        The large batch.
    cluster : Cluster, optional
        Default: the profiler's devices, with measured links.
    method, time_limit, seed
        As for ``hetsched.solve``.
    **rules
        Further arguments of `Problem`: `communication`, `memory`, `transfers`.

    Raises
    ------
    HetschedError
        No valid schedule of the first problem was found; or an error of `Regression`, `Problem` or the profiler.

    References
    ----------
    Celeritas, section 4.2 (Standard Evaluation).
    """
    regression = Regression(Samples.measured(profiler, batch_sizes))
    cluster = Links.measured(profiler).cluster() if cluster is None else cluster
    estimated_bytes = regression.memory_bytes(profiler.graph, cluster, [inputs])[:, :, 0]
    graph = _with_memory(profiler.graph, np.fmax.reduce(estimated_bytes, axis=1), inputs)
    first = Problem(graph, cluster, costs=regression, batch_sizes=[inputs], inputs=inputs, **rules)
    solution = solve(first, method=method, time_limit=time_limit, seed=seed)
    solution.raise_for_status()
    assert solution.schedule is not None
    batches = solution.schedule.batches
    device = np.empty(first.n_tasks, np.int64)
    device[batches.task] = batches.device
    placement = {task: cluster.names[k] for task, k in zip(first.graph.names, device.tolist(), strict=True)}
    measured, later = profiler.measure(inputs, placement), profiler.measure(inputs, placement)

    durations = first.durations.copy()
    here = np.flatnonzero(np.isfinite(measured.seconds))
    durations[here, device[here], 0] = measured.seconds[here]
    second = first.replace(graph=_with_memory(profiler.graph, measured.memory_bytes, inputs), durations=durations, batch_sizes=[inputs])

    def compared(estimated: Any, actual: Any) -> Deviations:
        finite = np.flatnonzero(np.isfinite(estimated) & np.isfinite(actual))
        names = [first.graph.names[i] for i in finite]
        return Deviations.between(names, [placement[name] for name in names], [inputs] * len(finite), estimated[finite], actual[finite])

    every = np.arange(first.n_tasks)
    return TwoStep(
        regression,
        first,
        solution,
        placement,
        measured,
        second,
        compared(first.durations[every, device, 0], later.seconds),
        compared(measured.seconds, later.seconds),
        compared(estimated_bytes[every, device], measured.memory_bytes),
    )


def _with_memory(graph: TaskGraph, measured: FloatArray, inputs: int) -> TaskGraph:
    """Return the graph with memory of at least the `measured` bytes of a batch, in addition to the weights, for each task."""
    needed = np.nan_to_num(measured) / inputs - graph.output_bytes
    return graph.replace(input_bytes=np.maximum(graph.input_bytes, needed))
