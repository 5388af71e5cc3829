"""Durations of large batches in two steps: extrapolated from small ones, then measured under a placement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hetsched.arguments import checked
from hetsched.costs.communication import Links
from hetsched.costs.deviations import Deviations
from hetsched.costs.memory import with_workspace
from hetsched.costs.profile import Profile
from hetsched.costs.protocol import Measured, Profiler
from hetsched.costs.recording import Recorder, measure
from hetsched.costs.regression import Regression
from hetsched.problem.cluster import Cluster
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule
from hetsched.search.solution import Solution
from hetsched.solving import solve


class TwoStep(NamedTuple):
    """The result of `two_step`."""

    regression: Regression
    """Estimates of the first step."""
    first: Problem
    """The problem with estimated durations."""
    solution: Solution
    """The solution of `first`; the schedule is None if no placement fits into the memory."""
    schedule: Schedule
    """That of the solution, or its best effort, which gives the placement."""
    bytes_over: float
    """Bytes of `first` over the memory, summed over devices; 0 if the schedule is valid."""
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
    profile: Profile
    """All measurements, from which `two_step` can be repeated without the devices."""


@checked
def two_step(
    profiler: Profiler | Profile,
    batch_sizes: Iterable[int],
    inputs: int,
    *,
    cluster: Cluster | None = None,
    method: str | Sequence[str] = "auto",
    time_limit: float | None = 10.0,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    best_effort: bool = True,
    whole: bool = False,
    **rules: Any,
) -> TwoStep:
    """Return problems whose tasks each run one batch of `inputs`, estimated from small batches and then measured.

    First step: all tasks run on each device with the small `batch_sizes`, and lines through the times estimate those of the large
    batch, which need not fit on any one device. Second step: the problem is solved, the large batch runs under the placement of
    the schedule, and each measured duration replaces its estimate. A second measurement gives the deviations of both.

    The measured bytes of tasks are in the problems too, estimated in the first and measured in the second, so that no device exceeds
    its memory: see `hetsched.costs.memory`. Where no placement fits, the best effort of the method is run, or that of ``celeritas`` if it
    has none, as in the paper.

    Parameters
    ----------
    profiler : Profiler or Profile
        What measures; or all measurements of a former result, `TwoStep.profile`.
    batch_sizes : iterable of int
        Two or more, small enough for every device.
    inputs : int
        The large batch.
    cluster : Cluster, optional
        Default: the profiler's devices, with measured links.
    method, time_limit, seed, options
        As for ``hetsched.solve``.
    best_effort : bool
        Whether a placement over the memory is run where none fits; otherwise that is an error.
    whole : bool
        Whether the profiler's graph is that of the large batch, as a `TrainingProfiler`'s is; the batch is then one input of the
        problems. Otherwise the graph is that of one input.
    **rules
        Further arguments of `Problem`: `communication`, `memory`, `transfers`.

    Raises
    ------
    HetschedError
        No schedule of the first problem was found; or an error of `Regression`, `Problem`, `Recorder` or the profiler.

    References
    ----------
    Celeritas, section 4.2 (Standard Evaluation).
    """
    recorder = (
        profiler if isinstance(profiler, Recorder) else Recorder(profile=profiler) if isinstance(profiler, Profile) else Recorder(profiler)
    )
    regression = Regression(measure(recorder, batch_sizes))
    cluster = Links.measured(recorder).cluster() if cluster is None else cluster
    graph, size = recorder.graph, 1 if whole else inputs
    estimated = regression.durations(graph, cluster, [inputs])
    plain = Problem(graph, cluster, durations=estimated, batch_sizes=[size], inputs=size, **rules)
    estimated_bytes = regression.memory_bytes(graph, cluster, [inputs])
    first = with_workspace(plain, estimated_bytes)
    solution = solve(first, method=method, time_limit=time_limit, seed=seed, options=options)
    schedule, bytes_over = _to_run(first, solution, best_effort, time_limit, seed)
    device = np.empty(first.n_tasks, np.int64)
    device[schedule.batches.task] = schedule.batches.device
    placement = {task: cluster.names[k] for task, k in zip(first.graph.names, device.tolist(), strict=True)}
    measured, later = recorder.measure(inputs, placement), recorder.measure(inputs, placement)

    durations = plain.durations.copy()
    here = np.flatnonzero(np.isfinite(measured.seconds))
    durations[here, device[here], 0] = measured.seconds[here]
    held = np.broadcast_to(measured.memory_bytes[:, None, None], durations.shape)
    second = with_workspace(plain.replace(durations=durations, batch_sizes=[size]), held)

    def compared(estimated: Any, actual: Any) -> Deviations:
        finite = np.flatnonzero(np.isfinite(estimated) & np.isfinite(actual))
        names = [first.graph.names[i] for i in finite]
        return Deviations.between(names, [placement[name] for name in names], [inputs] * len(finite), estimated[finite], actual[finite])

    every = np.arange(first.n_tasks)
    return TwoStep(
        regression,
        first,
        solution,
        schedule,
        bytes_over,
        placement,
        measured,
        second,
        compared(first.durations[every, device, 0], later.seconds),
        compared(measured.seconds, later.seconds),
        compared(estimated_bytes[every, device, 0], measured.memory_bytes),
        recorder.profile,
    )


def _to_run(problem: Problem, solution: Solution, best_effort: bool, time_limit: float | None, seed: int) -> tuple[Schedule, float]:
    """Return the schedule to run, and the bytes by which it exceeds the memory."""
    if solution.schedule is not None:
        return solution.schedule, 0.0
    if best_effort and solution.best_effort is not None:
        return solution.best_effort.schedule, solution.best_effort.bytes_over
    if best_effort:
        again = solve(problem, method="celeritas", time_limit=time_limit, seed=seed)
        if again.schedule is not None:
            return again.schedule, 0.0
        if again.best_effort is not None:
            return again.best_effort.schedule, again.best_effort.bytes_over
    solution.raise_for_status()
    raise AssertionError("a solution without a schedule raises")
