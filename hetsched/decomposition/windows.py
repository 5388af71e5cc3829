"""Windows of a schedule: some of its tasks arranged again, while the decisions of all others are kept."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hetsched.arguments import check_indices, checked
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.decomposition.parts import subproblem
from hetsched.errors import UnsupportedFeature
from hetsched.problem.problem import Problem, stated
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule


class Window(NamedTuple):
    """Some tasks of a schedule of one input, and the tasks about the same time, as a problem of their own.

    The other tasks of the schedule come before or after. A task that is before and read later, or is the last on its device,
    is in the problem too, with the time until its end as its duration; the tasks after are likewise, with the time
    from their start to the end of the schedule. So the makespan is that of the complete schedule where transfers do not
    contend.
    """

    problem: Problem
    tasks: IntArray
    """The tasks of the window's problem, by their numbers in the complete problem."""
    middle: BoolArray
    """Which of these are neither before nor after."""
    before: IntArray
    """The tasks before, in the order of the schedule."""
    after: IntArray
    """The tasks after, in the order of the schedule."""
    device: IntArray
    """The device of each task of the complete problem in the schedule."""
    start: Decision
    """The decision of the schedule, for the window's problem."""

    @checked
    def joined(self, decision: Decision) -> Decision:
        """Return the decision of the complete problem for one of the window's problem."""
        kept = self.middle[decision.task]
        task = np.concatenate([self.before, self.tasks[decision.task[kept]], self.after])
        device = np.concatenate([self.device[self.before], decision.device[kept], self.device[self.after]])
        return Decision(task, device)


@checked
def window(problem: Problem, schedule: Schedule, tasks: IntArray) -> Window:
    """Return the window of some tasks: their devices and orders are free, those of all others are as in the schedule.

    A free task that shares a co-location label with one that is not keeps its device.
    Tasks of the schedule farther from the free ones than these take together are before or after them.

    Parameters
    ----------
    problem : Problem
    schedule : Schedule
        A schedule of the problem.
    tasks : int array
        The free tasks.

    Raises
    ------
    UnsupportedFeature
        The problem has several inputs.
    """
    if problem.inputs > 1:
        raise UnsupportedFeature(f"the problem has {problem.inputs} inputs; a window is of a schedule of one input")
    return _Split(problem, schedule, check_indices(tasks, "tasks", problem.n_tasks)).window()


class _Split:
    """The tasks of a schedule by their place: free, before, after, and those in between."""

    def __init__(self, problem: Problem, schedule: Schedule, free: IntArray) -> None:
        self.problem, self.makespan = problem, schedule.makespan
        n, batches = problem.n_tasks, schedule.batches
        self.device, self.begin, self.end = np.empty(n, np.int64), np.empty(n), np.empty(n)
        self.device[batches.task], self.begin[batches.task], self.end[batches.task] = batches.device, batches.start, batches.finish
        self.real = self.end > self.begin
        self.free = np.zeros(n, bool)
        self.free[free] = True
        low, high = self.begin[free].min(initial=np.inf), self.end[free].max(initial=0.0)
        reach = high - low
        self.before = ~self.free & (self.end <= low - reach) & (self.begin < low)
        self.after = ~self.free & (self.begin >= high + reach) & (self.end > high)
        self.sequence = schedule.decision.task  # by device, then in its order

    def window(self) -> Window:
        """Return the window."""
        problem, graph = self.problem, self.problem.graph
        source, target = graph.source, graph.target
        first, last = np.zeros((2, problem.n_tasks), bool)  # those before and after that are in the window's problem
        first[source[self.before[source] & ~self.before[target]]] = True
        last[target[self.after[target] & ~self.after[source]]] = True
        for k in range(problem.n_devices):
            here = self.sequence[(self.device[self.sequence] == k) & self.real[self.sequence]]
            first[here[self.before[here]][-1:]] = True
            last[here[self.after[here]][:1]] = True
        middle = ~(self.before | self.after)
        chosen = middle | first | last
        tasks = np.flatnonzero(chosen)
        durations = stated(problem.usable_durations[tasks])
        fixed = np.zeros(problem.n_units, bool)
        fixed[problem.unit[~self.free]] = True
        pinned = np.flatnonzero(fixed[problem.unit[tasks]])
        elsewhere = np.arange(problem.n_devices) != self.device[tasks[pinned], None]
        durations[pinned] = np.where(elsewhere[:, :, None], np.nan, durations[pinned])
        place = np.full(problem.n_tasks, -1)
        place[tasks] = np.arange(len(tasks))
        order: list[tuple[int, int]] = []
        rows = []
        tail = self._tails() if last.any() else self.begin
        for k in range(problem.n_devices):
            heads = self._row(k, first, self.end)
            ends = self._row(k, last, tail)[::-1]
            _lengthen(durations, place[heads], k, np.diff(self.end[heads], prepend=0.0))
            _lengthen(durations, place[ends], k, -np.diff(tail[ends], append=0.0))
            here = self.sequence[(self.device[self.sequence] == k) & self.real[self.sequence]]
            between = here[middle[here] & ~self.free[here]]
            rows += [heads, self.sequence[(self.device[self.sequence] == k) & middle[self.sequence]], ends]
            order += pairwise(np.concatenate([heads, between, ends]).tolist())
        both = chosen[source] & chosen[target] & ~(self.before[source] & self.before[target]) & ~(self.after[source] & self.after[target])
        omitted = ~chosen
        claim = np.bincount(self.device[omitted], problem.static_bytes[omitted].sum(axis=1), problem.n_devices).astype(np.float64)
        alone = subproblem(
            problem,
            tasks,
            edges=np.flatnonzero(both),
            durations=durations,
            order=place[np.array(order, np.int64).reshape(-1, 2)],
            claim=claim,
        )
        kept = np.concatenate(rows)
        return Window(
            alone,
            tasks,
            middle[tasks],
            self.sequence[self.before[self.sequence]],
            self.sequence[self.after[self.sequence]],
            self.device,
            Decision(place[kept], self.device[kept]),
        )

    def _row(self, k: int, chosen: BoolArray, key: FloatArray) -> IntArray:
        """Return the chosen tasks on a device by ascending key."""
        here = np.flatnonzero(chosen & (self.device == k))
        return here[np.argsort(key[here], kind="stable")]

    def _tails(self) -> FloatArray:
        """Return the time from the start of each task after to the end of the schedule, if it starts as late as it can."""
        problem, graph = self.problem, self.problem.graph
        lag = problem.transfer_times(np.arange(graph.n_edges), self.device[graph.source], self.device[graph.target])
        tail = np.zeros(problem.n_tasks)
        following = np.zeros(problem.n_devices)
        here = np.flatnonzero(self.after)
        for i in here[np.lexsort((graph.rank[here], self.end[here], self.begin[here]))][::-1].tolist():
            row = slice(graph.succ_ptr[i], graph.succ_ptr[i + 1])
            longest = (lag[graph.succ_edge[row]] + tail[graph.succ[row]]).max(initial=0.0)
            if self.real[i]:
                longest = max(longest, following[self.device[i]])
            tail[i] = longest + self.end[i] - self.begin[i]
            if self.real[i]:
                following[self.device[i]] = tail[i]
        return tail


def _lengthen(durations: FloatArray, rows: IntArray, k: int, seconds: FloatArray) -> None:
    """Set the durations of tasks on a device."""
    durations[rows, k] = np.where(np.isfinite(durations[rows, k]), np.maximum(seconds, 0.0)[:, None], np.nan)
