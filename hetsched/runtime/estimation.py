"""Durations of large batches in two steps: from small ones, then from running the large one placed."""

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
    """What `two_step` made."""

    regression: Regression
    """The estimates of the first step."""
    first: Problem
    """With estimated durations."""
    solution: Solution
    """Of `first`: where its tasks are placed."""
    placement: dict[str, str]
    """The device of each task."""
    measured: Measured
    """The large batch under that placement."""
    second: Problem
    """As `first`, what was measured in the place of its estimate."""
    before: Deviations
    """The first estimates against a later measurement under the same placement."""
    after: Deviations
    """What was measured in the second step against that later measurement: what repeating it changes."""
    memory: Deviations
    """The bytes foretold by the first step against those measured in the second."""


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
    """Return problems whose tasks take one batch of `inputs` each, estimated from small batches and then measured.

    First step: all tasks run on each device with the small `batch_sizes`, and lines through the times foretell those of the large
    batch, which need not fit on any one device. Second step: the problem is solved, the large batch run under the placement found,
    and each duration that was so measured replaces its estimate. The large batch is run once more to tell how exact both are.

    Memory likewise: where a task takes more bytes than its graph says, its `input_bytes` in the problems are so much larger, so that
    no device is given more than it holds. (Under ``memory="peak"`` these count only for tasks that read no other.)

    Parameters
    ----------
    profiler : Profiler
    batch_sizes : iterable of int
        Two or more, small enough for every device.
    inputs : int
        The large batch.
    cluster : Cluster, optional
        Of the profiler's devices; by default its links are measured.
    method, time_limit, seed
        Of ``hetsched.solve``.
    **rules
        Further arguments of `Problem`: `communication`, `memory`, `transfers`.

    Raises
    ------
    HetschedError
        No valid schedule of the first problem was found; or as `Regression`, `Problem` and the profiler do.

    References
    ----------
    Celeritas, section 4.2 (Standard Evaluation).
    """
    regression = Regression(Samples.measured(profiler, batch_sizes))
    cluster = Links.measured(profiler).cluster() if cluster is None else cluster
    foretold = regression.memory_bytes(profiler.graph, cluster, [inputs])[:, :, 0]
    graph = _with_memory(profiler.graph, np.fmax.reduce(foretold, axis=1), inputs)
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
        known = np.flatnonzero(np.isfinite(estimated) & np.isfinite(actual))
        names = [first.graph.names[i] for i in known]
        return Deviations.between(names, [placement[name] for name in names], [inputs] * len(known), estimated[known], actual[known])

    each = np.arange(first.n_tasks)
    return TwoStep(
        regression,
        first,
        solution,
        placement,
        measured,
        second,
        compared(first.durations[each, device, 0], later.seconds),
        compared(measured.seconds, later.seconds),
        compared(foretold[each, device], measured.memory_bytes),
    )


def _with_memory(graph: TaskGraph, measured: FloatArray, inputs: int) -> TaskGraph:
    """Return the graph whose tasks hold for each input, beside their weights, at least a share of what a batch was measured to take."""
    beside = np.nan_to_num(measured) / inputs - graph.output_bytes
    return graph.replace(input_bytes=np.maximum(graph.input_bytes, beside))
