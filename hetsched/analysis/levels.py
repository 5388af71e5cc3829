"""Heads, tails, windows and the critical path: bounds from precedence alone, communication included.

All values are underestimates: batches take their shortest duration, transfers carry one input,
devices are never busy. Only unavoidable communication counts: a level belongs to a (task, device)
pair, and the transfer from a parent is that from the parent's best device.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from hetsched.analysis.merging import merged
from hetsched.arguments import check_array, checked
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.errors import InvalidArgument
from hetsched.problem.problem import Problem, sums_by_unit

# `verify` has a tolerance of 1e-9 of the capacity, so a proof that something does not fit needs a larger one.
CAPACITY = 1.0 + 2e-9


class CriticalPath(NamedTuple):
    """The longest path of shortest durations and unavoidable transfers."""

    length: float
    """Seconds; a lower bound on the makespan."""
    tasks: IntArray
    """Task indices from the first to the last of the path."""


class Windows(NamedTuple):
    """Possible devices and times of tasks in schedules of at most a given makespan; all arrays are [n, K]."""

    start: FloatArray
    """Earliest start in seconds, inf where the task cannot run."""
    finish: FloatArray
    """Latest finish in seconds, -inf where the task cannot run."""
    possible: BoolArray
    """Whether the task can run on the device; a row without True proves that there is no such schedule."""


class Merged(NamedTuple):
    """The levels of a problem with one device for each class of equal devices; see `hetsched.analysis.merging`."""

    levels: Levels
    members: IntArray
    """Number of devices of each class."""


class Levels:
    """Bounds from precedence, memory and durations of a problem, each computed at its first use.

    Shared by bounds, formulations and searches. Its arrays must not be modified.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @cached_property
    def batch_durations(self) -> FloatArray:
        """Seconds of a batch, [n, K, B]; inf where it cannot run or cannot fit the memory, see `batch_durations`."""
        problem = self.problem
        durations = problem.usable_durations
        weights = unit_sums(problem, problem.graph.weight_bytes)[problem.unit][:, None, None]
        size = problem.batch_sizes
        if problem.memory == "static":
            needed = weights + unit_sums(problem, problem.static_bytes[:, 1])[problem.unit][:, None, None] * size
        else:
            # A batch of zero duration may hold its data for no time.
            held = np.where(durations > 0, (_read_bytes(problem) + problem.graph.output_bytes)[:, None, None] * size, 0.0)
            needed = weights + held
        return np.asarray(np.where(needed <= problem.cluster.memory_bytes[:, None] * CAPACITY, durations, np.inf))

    @cached_property
    def least(self) -> FloatArray:
        """The shortest batch of each task on each device in seconds, [n, K]; inf = cannot run."""
        return np.asarray(self.batch_durations.min(axis=2))

    @cached_property
    def work(self) -> FloatArray:
        """The minimum seconds that a device needs for all inputs of a task, [n, K]; inf = cannot run."""
        return least_work(self.problem, self.batch_durations)

    @cached_property
    def starts(self) -> FloatArray:
        """The earliest start of a batch of each task on each device, [n, K] seconds; see `earliest_starts`."""
        return earliest_starts(self.problem, self.least)

    @cached_property
    def tails(self) -> FloatArray:
        """The minimum time from the finish of each task on each device to the makespan, [n, K] seconds; see `tails`."""
        return tails(self.problem, self.least)

    @cached_property
    def merged(self) -> Merged:
        """The levels of the problem with equal devices merged, which are as good for bounds; small clusters are left as they are."""
        problem, members = merged(self.problem)
        return Merged(self if problem is self.problem else Levels(problem), members)

    @cached_property
    def critical_path(self) -> CriticalPath:
        """The longest path through any task on its best device, and its tasks.

        The length is at least that of every path of least durations; unavoidable transfers count.
        """
        problem, least, start, tail = self.problem, self.least, self.starts, self.tails
        if not problem.n_tasks:
            return CriticalPath(0.0, np.zeros(0, np.int64))
        through = start + least + tail
        middle = int(through.min(axis=1).argmax())
        k = int(through[middle].argmin())
        before = _follow(problem, middle, k, start + least, forward=False)
        after = _follow(problem, middle, k, least + tail, forward=True)
        return CriticalPath(float(through[middle, k]), np.concatenate([before[::-1], [middle], after]))

    @checked
    def windows(self, horizon: float) -> Windows:
        """Return the possible devices and times of each task if the makespan is at most `horizon` seconds.

        Devices on which the head, duration and tail of a task exceed the horizon are removed until
        nothing changes.
        """
        from hetsched.analysis import level_kernels

        problem, w = self.problem, level_kernels.heads_and_tails(self.least)
        level_kernels.narrow(problem.arrays, problem.graph.topological_order, problem.unit, w, horizon)
        possible = np.isfinite(w.least)
        return Windows(np.where(possible, w.start, np.inf), np.where(possible, horizon - w.tail, -np.inf), possible)


@checked
def batch_durations(problem: Problem) -> FloatArray:
    """Return seconds of a batch, [n, K, B]; inf where it cannot run or cannot fit the memory.

    Besides the eligibility of the problem, a lower bound on the memory of a batch is compared with the
    capacity: under ``static`` the weights of its co-location unit, and input and output of its inputs;
    under ``peak`` those weights, the outputs of the batch and the tensors that it reads.
    """
    return Levels(problem).batch_durations


def _read_bytes(problem: Problem) -> FloatArray:
    """Return a lower bound on the bytes that a running task reads per input, [n]: for each parent its output
    (same device) or the transferred tensor; for tasks without parents their input."""
    graph = problem.graph
    read = np.bincount(graph.target, np.minimum(graph.edge_bytes, graph.output_bytes[graph.source]), graph.n_tasks)
    return np.asarray(np.where(np.diff(graph.pred_ptr) == 0, graph.input_bytes, read))


@checked
def least_durations(problem: Problem) -> FloatArray:
    """Return the shortest batch of each task on each device in seconds, [n, K]; inf = cannot run."""
    return Levels(problem).least


@checked
def least_work(problem: Problem, durations: FloatArray | None = None) -> FloatArray:
    """Return the minimum seconds that a device needs for all inputs of a task, [n, K]; inf = cannot run.

    The best seconds per input over the batch sizes of `durations` ([n, K, B], default
    `batch_durations`), times the number of inputs.
    """
    durations = batch_durations(problem) if durations is None else check_array(durations, "durations", problem.durations.shape)
    return np.asarray((durations * (problem.inputs / problem.batch_sizes)).min(axis=2))


@checked
def unit_sums(problem: Problem, amounts: FloatArray) -> FloatArray:
    """Return the sum of `amounts` [n] or [n, K] over each co-location unit, [units] or [units, K]."""
    if not amounts.ndim or len(amounts) != problem.n_tasks:
        raise InvalidArgument(f"amounts has shape {list(amounts.shape)}; its first axis must be the {problem.n_tasks} tasks")
    if problem.n_units == problem.n_tasks:
        return amounts
    return sums_by_unit(problem, amounts)


@checked
def earliest_starts(problem: Problem, least: FloatArray | None = None, release: FloatArray | None = None) -> FloatArray:
    """Return the earliest start of a batch of each task on each device, [n, K] seconds.

    The device-indexed recursion: ``EF[i, k] = least[i, k] + max over parents p of min over devices
    h of (EF[p, h] + transfer of one input from h to k)``, with h = k where both carry one
    co-location label; this is EF without ``least``.

    Parameters
    ----------
    least : array [n, K], optional
        Seconds of the shortest batch, inf where a task cannot run; default `least_durations`.
    release : array [n, K], optional
        Known lower bounds on start times, default 0.
    """
    from hetsched.analysis import level_kernels

    shape = problem.durations.shape[:2]
    least = least_durations(problem) if least is None else check_array(least, "least", shape)
    release = None if release is None else check_array(release, "release", shape)
    w = level_kernels.heads_and_tails(least, release)
    level_kernels.earliest_starts(problem.arrays, problem.graph.topological_order, problem.unit, w)
    return w.start


@checked
def tails(problem: Problem, least: FloatArray | None = None, delivery: FloatArray | None = None) -> FloatArray:
    """Return the minimum time from the finish of each task on each device to the makespan, [n, K] seconds.

    The mirror image of `earliest_starts`.
    """
    from hetsched.analysis import level_kernels

    shape = problem.durations.shape[:2]
    least = least_durations(problem) if least is None else check_array(least, "least", shape)
    delivery = None if delivery is None else check_array(delivery, "delivery", shape)
    w = level_kernels.heads_and_tails(least, delivery=delivery)
    level_kernels.tails(problem.arrays, problem.graph.topological_order, problem.unit, w)
    return w.tail


@checked
def top_levels(problem: Problem) -> FloatArray:
    """Return the earliest start of each task on any device, [n] seconds."""
    return np.asarray(earliest_starts(problem).min(axis=1))


@checked
def bottom_levels(problem: Problem) -> FloatArray:
    """Return the minimum time from the start of each task to the makespan, [n] seconds."""
    levels = Levels(problem)
    return np.asarray((levels.least + levels.tails).min(axis=1))


@checked
def critical_path(problem: Problem) -> CriticalPath:
    """Return the longest path through any task on its best device, and its tasks.

    The length is at least that of every path of least durations; unavoidable transfers count.
    """
    return Levels(problem).critical_path


def _follow(problem: Problem, i: int, k: int, level: FloatArray, *, forward: bool) -> IntArray:
    """Return the chain of children, or of parents, that determine the level of task i on device k."""
    from hetsched.analysis import level_kernels

    path = np.empty(problem.n_tasks, np.int64)
    return path[: level_kernels.follow(problem.arrays, problem.unit, level, i, k, forward, path)]


@checked
def windows(problem: Problem, horizon: float) -> Windows:
    """Return the possible devices and times of each task if the makespan is at most `horizon` seconds.

    Devices on which the head, duration and tail of a task exceed the horizon are removed until
    nothing changes.
    """
    return Levels(problem).windows(horizon)
