"""Windows of a schedule: some of its tasks arranged again, while the decisions of all others are kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hetsched.analysis import levels
from hetsched.analysis.task_subsets import GivenTasks, RefutationBudget, TaskSubset
from hetsched.arrays import BoolArray, FloatArray, IntArray, row_starts
from hetsched.problem.problem import Problem
from hetsched.schedule.arcs import of_schedule
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule

if TYPE_CHECKING:
    from hetsched.decomposition.window_kernels import ScheduleRows

BETTER = 1e-9
"""Relative difference of makespans that counts."""
MOST_AT_ONCE = 500
"""The most batches of a window: the work of propagation grows with their square."""
_STEP = 1e-7
"""Relative step to the next horizon below a schedule found."""


class Window(NamedTuple):
    """Batches at about the same time in a schedule, each a task of one input, in topological order.

    All other batches of the schedule come before or after. What comes before is given by the earliest starts, what comes
    after by the time from a finish to the end; so the makespan is that of the complete schedule where transfers do not contend.
    """

    batches: GivenTasks
    """Those that are not free have one device."""
    source: IntArray
    """[arcs]: the sending batch of each arc between them, by ascending receiving batches."""
    target: IntArray
    """[arcs]: the receiving batch."""
    lag: FloatArray
    """[arcs, K, K]: transfer times in seconds."""
    release: FloatArray
    """[m, K]: the earliest start of each batch on each device, in seconds."""
    delivery: FloatArray
    """[m, K]: the least seconds from the finish of each batch on each device to the end of the schedule."""
    order: IntArray
    """[o, 2]: pairs of batches that are not free, in the order of the schedule."""

    def shorter(self, horizon: float, budget: RefutationBudget) -> tuple[IntArray, FloatArray] | None:
        """Return devices and starts of the shortest schedule found of less than `horizon` seconds, or None.

        It is the shortest of all, and None means that there is none, if ``budget.open`` is still 0 and transfers do not contend.
        """
        subset = TaskSubset.of_given(self.batches, self.source, self.target, self.lag)
        subset.before[self.order[:, 0], self.order[:, 1]] = True
        found: list[tuple[IntArray, FloatArray]] = []
        budget.found = lambda subset: found.append(subset.schedule())
        node, answer = subset._node(self.release, self.delivery, ()), horizon
        divisor = subset._divisor(node)
        while True:
            answer = subset._refute(node, answer * (1 - _STEP), budget, divisor)
            if isinstance(answer, bool) or answer <= 0.0:
                return found[-1] if found else None


class Batches:
    """The batches of a schedule in the order of their starts.

    Parameters
    ----------
    problem : Problem
    schedule : Schedule
        A schedule of the problem.

    Attributes
    ----------
    task, device : int array [B]
    start, finish : array [B]
        Seconds.
    tail : array [B]
        Seconds from the start of a batch to the end of the schedule, if it starts as late as it can.
    inputs : bool array [B, L]
        Whether a batch has an input.
    """

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        rows, ends = schedule.batches, np.diff(schedule.item_ptr)
        order = np.lexsort((problem.graph.rank[rows.task], rows.start))
        self.problem, self.schedule = problem, schedule
        self.task, self.device, self.start, self.finish = (column[order] for column in (rows.task, rows.device, rows.start, rows.finish))
        inputs = np.zeros((len(rows), problem.inputs), bool)
        inputs[np.repeat(np.arange(len(rows)), ends), schedule.items] = True
        self.inputs = inputs[order]
        self.labelled = np.bincount(problem.unit, minlength=problem.n_units)[problem.unit] > 1
        """[n]: whether a task is co-located with another."""
        everything = np.where(problem.eligible, (problem.static_bytes @ [1.0, problem.inputs])[:, None], 0.0).sum(axis=0)
        self.scarce = problem.memory == "static" and bool((everything > problem.cluster.memory_bytes).any())
        """Whether memory may be exceeded."""
        self.tail = self._tails(order)

    @cached_property
    def rows(self) -> ScheduleRows:
        """The batches as the kernels take them."""
        from hetsched.decomposition.window_kernels import ScheduleRows

        n, columns = self.problem.n_tasks, (self.task, self.device, self.start, self.finish, self.tail, self.inputs)
        pointer = row_starts(np.bincount(self.task, minlength=n))
        members = np.argsort(self.task, kind="stable")
        return ScheduleRows(*columns, pointer, members, np.empty(len(self.task), np.int64), np.full(n, -1))

    def _tails(self, order: IntArray) -> FloatArray:
        arcs = of_schedule(self.problem, self.schedule)[1]
        place = np.argsort(order)
        by_source = np.argsort(place[arcs.source], kind="stable")
        first = np.searchsorted(place[arcs.source][by_source], np.arange(len(order) + 1)).tolist()
        target, seconds = place[arcs.target][by_source].tolist(), arcs.seconds[by_source].tolist()
        tail, following = [0.0] * len(order), [0.0] * self.problem.n_devices
        device, length = self.device.tolist(), (self.finish - self.start).tolist()
        for b in range(len(order) - 1, -1, -1):
            longest = following[device[b]] if length[b] > 0 else 0.0
            for a in range(first[b], first[b + 1]):
                longest = max(longest, seconds[a] + tail[target[a]])
            tail[b] = longest + length[b]
            if length[b] > 0:
                following[device[b]] = tail[b]
        return np.array(tail)

    def tasks_by_start(self) -> IntArray:
        """Return the tasks in the order of their first batches."""
        tasks, first = np.unique(self.task, return_index=True)
        return tasks[np.argsort(first)]

    def window(self, tasks: IntArray, divisions: Mapping[int, BoolArray] | None = None) -> WindowOfBatches | None:
        """Return the window of some tasks, which may have other batches than in the schedule; None if it has over `MOST_AT_ONCE`.

        The devices of batches of several inputs with a co-location label are kept.

        Parameters
        ----------
        tasks : int array
            The free tasks.
        divisions : mapping of task to bool array [batches, L], optional
            The batches of free tasks without a co-location label, by their inputs. Default: as in the schedule.
        """
        from hetsched.decomposition import window_kernels as kernels

        chosen = np.zeros(self.problem.n_tasks, bool)
        chosen[tasks] = True
        free = chosen[self.task]
        if kernels.classify(self.rows, free) > MOST_AT_ONCE:
            return None
        return WindowOfBatches(self, free, {} if divisions is None else divisions)


class WindowOfBatches:
    """A window, and the batches of the schedule that it belongs to.

    Attributes
    ----------
    window : Window
    task : int array [m]
        The task of each batch of the window.
    inputs : bool array [m, L]
        Their inputs.
    """

    def __init__(self, batches: Batches, free: BoolArray, divisions: Mapping[int, BoolArray]) -> None:
        from hetsched.decomposition import window_kernels as kernels

        self.batches, problem, where = batches, batches.problem, batches.rows.where
        self.before, self.after = np.flatnonzero(where == kernels.BEFORE), np.flatnonzero(where == kernels.AFTER)
        inside = where >= kernels.FREE
        for divided in divisions:
            inside[batches.task == divided] = False
        self.kept = np.flatnonzero(inside)
        new = np.repeat(np.array(list(divisions), np.int64), [len(division) for division in divisions.values()])
        task = np.concatenate([batches.task[self.kept], new])
        by_rank = np.argsort(problem.graph.rank[task], kind="stable")
        self.task, self.inputs = task[by_rank], np.concatenate([batches.inputs[self.kept], *divisions.values()])[by_rank]
        self.place = np.argsort(by_rank)[: len(self.kept)]
        """The places of the batches kept among those of the window."""
        self.window = self._window(free)

    def _window(self, free: BoolArray) -> Window:
        from hetsched.decomposition import window_kernels as kernels

        batches, size = self.batches, self.batches.problem.n_devices
        place = np.empty(len(batches.task), np.int64)
        place[self.kept] = self.place
        rows = kernels.WindowRows(self.task, self.inputs, place)
        arcs = orders = 0
        for _ in range(2):  # first to count the arcs
            limits = kernels.new_limits(len(self.task), arcs, size)
            arcs, orders = kernels.connect(batches.problem.arrays, batches.rows, rows, limits)
        given = self._given(free, np.concatenate([self.before, self.after]))
        return Window(given, limits.source, limits.target, limits.lag, limits.release, limits.delivery, limits.order[:orders])

    def _given(self, free: BoolArray, rows: IntArray) -> GivenTasks:
        """Return the batches of the window; `rows` are the others."""
        batches, kept = self.batches, self.kept
        problem = batches.problem
        sizes = self.inputs.sum(axis=1)
        least = problem.usable_durations[self.task, :, np.searchsorted(problem.batch_sizes, sizes)]
        labelled = batches.labelled[batches.task[kept]]
        fixed = ~free[kept]
        if problem.inputs > 1:
            fixed |= labelled
        elif labelled.any():  # a task that shares a label with one that is not free keeps its device
            held = np.zeros(problem.n_units, bool)
            held[problem.unit[batches.task[~free]]] = True
            fixed |= held[problem.unit[batches.task[kept]]]
        pinned = self.place[fixed]
        least[pinned] = np.where(np.arange(problem.n_devices) == batches.device[kept[fixed], None], least[pinned], np.inf)
        unit = problem.unit[self.task] if problem.inputs == 1 else np.arange(len(self.task))
        weight, activation = problem.static_bytes.T
        room = np.full(problem.n_devices, np.inf)
        if batches.scarce:
            claim = weight[batches.task[rows]] + activation[batches.task[rows]] * batches.inputs[rows].sum(axis=1)
            left = problem.cluster.memory_bytes - np.bincount(batches.device[rows], claim, problem.n_devices)
            room = np.maximum(left, 0.0) * levels.CAPACITY
        return GivenTasks(least, unit, weight[self.task] + activation[self.task] * sizes, room)

    def joined(self, device: IntArray, start: FloatArray) -> Decision | None:
        """Return the decision of the complete problem for devices and starts of the window's batches.

        Batches of a task on one device become one where the problem permits only one; None if it has no batch of that size.
        """
        batches, problem = self.batches, self.batches.problem
        order = np.lexsort((problem.graph.rank[self.task], start))
        rows = [(batches.task, batches.device, batches.inputs, row) for row in (self.before, self.after)]
        parts = [rows[0], (self.task, device, self.inputs, order), rows[1]]
        task, devices, inputs = (np.concatenate([part[column][part[3]] for part in parts]) for column in range(3))
        if problem.batching == "once" and problem.inputs > 1:
            pair = task * problem.n_devices + devices
            last = len(pair) - 1 - np.unique(pair[::-1], return_index=True, return_inverse=True)[1]
            which = np.unique(pair, return_inverse=True)[1]
            merged = np.zeros((len(last), problem.inputs), bool)
            np.logical_or.at(merged, which, inputs)
            kept = np.argsort(last)
            task, devices, inputs = task[last[kept]], devices[last[kept]], merged[kept]
            sizes = inputs.sum(axis=1)
            if not np.isin(sizes, problem.batch_sizes).all():
                return None
            if np.isinf(problem.usable_durations[task, devices, np.searchsorted(problem.batch_sizes, sizes)]).any():
                return None
        return Decision(task, devices, row_starts(inputs.sum(axis=1)), np.nonzero(inputs)[1])
