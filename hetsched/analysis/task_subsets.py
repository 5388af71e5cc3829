"""Task subsets: a few tasks of a problem, and the least time of one input through them, by branch and bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hetsched.analysis import levels
from hetsched.analysis.time_divisor import common_divisor, rounded_up
from hetsched.arguments import check_array, check_count, check_indices, check_rows, checked, shown
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.errors import InvalidArgument
from hetsched.problem.problem import Problem
from hetsched.stopping import NEVER, Deadline

if TYPE_CHECKING:
    from hetsched.analysis.branch_and_bound_kernels import Stack, Subset

_STEP = 0.02
_CLOSE = 1e-7
"""Relative improvement of a schedule below which the search ends."""
_NEAR = 5e-3
"""Relative distance of a bound and a schedule at which the interval between them is refuted in one step."""
_COARSE = 2e-3
"""The same if refutations end open, relative to the time from the first start."""
_PRICES = 4
"""Improvements of the prices of devices, unless a budget has another number; more cost more than they gain."""
_ROWS = 5
_DEPTH = 4
"""Nodes that the stack of a search has room for at first."""
_WORK = 20_000
"""Work of a search between two looks at the time: some 2 ms."""
_MOST_AT_ONCE = 256
"""The most nodes between two looks."""


class SingleInputProblem:
    """The relaxation of a problem to one input: shortest batches, transfers without contention, all memory for one task.

    Attributes
    ----------
    problem : Problem
    least : array [n, K]
        Seconds of the shortest batch, inf where a task cannot run.
    rank : int array [n]
        Positions of the tasks in the topological order.
    unit : int array [n]
        Co-location unit of each task.
    n_devices : int
    bytes : array [n]
        Bytes of a task in the memory of its device in every schedule.
    room : array [K]
        Capacities; inf where they do not matter.
    """

    @checked
    def __init__(self, problem: Problem, least: FloatArray | None = None) -> None:
        self.problem = problem
        self.unit, self.n_devices = problem.unit, problem.n_devices
        self.least = levels.least_durations(problem) if least is None else check_array(least, "least", problem.durations.shape[:2])
        self.rank = problem.graph.rank
        self.bytes = problem.graph.weight_bytes if problem.memory == "peak" else problem.static_bytes.sum(axis=1)
        room = problem.cluster.memory_bytes * levels.CAPACITY
        self.room = np.where(np.where(np.isfinite(self.least), self.bytes[:, None], 0.0).sum(axis=0) > room, room, np.inf)

    @checked
    def lag(self, edges: IntArray) -> FloatArray:
        """Return the transfer times of edges between devices in seconds, [e, K, K]; inf = impossible."""
        problem, graph = self.problem, self.problem.graph
        edges = check_indices(edges, "edges", graph.n_edges)
        device = np.arange(problem.n_devices)
        seconds = problem.transfer_times(edges[:, None, None], device[:, None], device)
        together = problem.unit[graph.source[edges]] == problem.unit[graph.target[edges]]
        seconds[together] = np.where(device[:, None] == device, 0.0, np.inf)
        return seconds


@checked
@dataclass
class RefutationBudget:
    """Limits and counts of the work of refutations."""

    nodes: int = 1
    """The most nodes of one refutation."""
    deadline: Deadline = NEVER
    most: float = math.inf
    """The most work in total."""
    work: float = 0.0
    """Sum over nodes of the square of the tasks times the devices: some ten million per second."""
    open: int = 0
    """Number of refutations that ended without an answer."""
    stop: Callable[[], bool] | None = None
    """Returns True to stop for another reason."""
    found: Callable[[TaskSubset], object] | None = None
    """Called with the subset for every schedule found."""
    log: list[tuple[int, int, int, int]] | None = None
    """If given, every node of a refutation is appended, first branches first: what `choose` returned, (NOTHING, 0, 0) for one that
    was refuted, and the device of the task."""
    prices: int = _PRICES
    """Improvements of the prices of devices in each node."""

    @property
    def over(self) -> bool:
        """Whether to stop."""
        return self.work >= self.most or self.deadline.over or (self.stop is not None and self.stop())


class GivenTasks(NamedTuple):
    """Tasks of one input that are given by their numbers alone; like those of a `SingleInputProblem`, in topological order."""

    least: FloatArray
    """[n, K]: seconds, inf where a task cannot run."""
    unit: IntArray
    """[n]: tasks of one number run on one device."""
    bytes: FloatArray
    """[n]: bytes of a task in the memory of its device."""
    room: FloatArray
    """[K]: bytes of each device; inf where they do not matter."""

    @property
    def n_devices(self) -> int:
        """Number of devices."""
        return len(self.room)


class TaskSubset:
    """Some tasks of a problem, in topological order, with edges between them.

    Every schedule of the problem contains a schedule of these tasks, so a time too short for them is too short
    for the problem. The proof in `hetsched.bounds.modular` calls such a subset a window.

    Parameters
    ----------
    single_input : SingleInputProblem
    tasks : int array [m]
    edges : int array
        Edges between the tasks, or some of them.
    """

    single_input: SingleInputProblem | GivenTasks

    @checked
    def __init__(self, single_input: SingleInputProblem, tasks: IntArray, edges: IntArray) -> None:
        self.single_input = single_input
        tasks, edges = (
            check_indices(tasks, "tasks", single_input.problem.n_tasks),
            check_indices(edges, "edges", single_input.problem.graph.n_edges),
        )
        if not np.isin(single_input.problem.graph.edges[edges], tasks).all() or len(np.unique(tasks)) < len(tasks):
            raise InvalidArgument(f"edges is {shown(edges.tolist())}; they must join the tasks of the subset, each named once")
        self.tasks = tasks[np.argsort(single_input.rank[tasks])]
        graph = single_input.problem.graph
        by_task = np.argsort(self.tasks)
        source, target = (by_task[np.searchsorted(self.tasks, ends[edges], sorter=by_task)] for ends in (graph.source, graph.target))
        by_target = np.argsort(target, kind="stable")
        self.edges = edges[by_target]
        self._connect(source[by_target], target[by_target], single_input.lag(self.edges))

    @classmethod
    def of_given(cls, given: GivenTasks, source: IntArray, target: IntArray, lag: FloatArray) -> TaskSubset:
        """Return the subset of all given tasks, with edges between them and their transfer times, [e, K, K]; not checked."""
        new = cls.__new__(cls)
        new.single_input, new.tasks = given, np.arange(len(given.least))
        new.edges = np.argsort(target, kind="stable")
        new._connect(source[new.edges], target[new.edges], np.ascontiguousarray(lag[new.edges]))
        return new

    def _connect(self, source: IntArray, target: IntArray, lag: FloatArray) -> None:
        """Set the edges, which are sorted by their targets, their transfer times, and what the kernels take and write."""
        from hetsched.analysis import branch_and_bound_kernels as kernels

        self._shape = m, size = len(self.tasks), self.single_input.n_devices
        self._ends, self.before = (source, target), np.empty((m, m), bool)
        self._pointer, self._arcs = np.empty((2, m + 1), np.int64), np.empty((2, 2, len(source)), np.int64)
        kernels.connect(source, target, self._pointer, self._arcs, self.before)
        self.lag, self.unit, self._ways = lag, self.single_input.unit[self.tasks], np.stack([lag, lag.transpose(0, 2, 1)])
        chain, ints = np.empty((2, size), np.int64), np.tile(np.arange(m), (_ROWS, 1))
        self._scratch = kernels.Scratch(np.empty((2, m, size)), chain, ints, np.empty((5, m)), np.empty((7, size)))

    @cached_property
    def place(self) -> dict[int, int]:
        """The position of each task."""
        return {i: x for x, i in enumerate(self.tasks.tolist())}

    @cached_property
    def _lags(self) -> FloatArray:
        return np.unique(self.lag)

    @cached_property
    def _searched(self) -> Subset:
        """The tasks as the kernels take them."""
        from hetsched.analysis import branch_and_bound_kernels as kernels

        given, alike = self.single_input, np.empty(self.single_input.n_devices, np.int64)
        kernels.exchangeable(given.least[self.tasks], self.lag, given.room, alike)
        weight = self._weight(alike)
        return kernels.Subset(self._pointer, self._arcs, self._ways, self.unit, weight, alike, given.bytes[self.tasks], given.room)

    @cached_property
    def _stack(self) -> Stack:
        from hetsched.analysis import branch_and_bound_kernels as kernels

        m, size = self._shape
        return kernels.Stack(np.empty((_DEPTH, 3, m, size)), np.empty((_DEPTH, m, m), bool), np.empty((_MOST_AT_ONCE, 4), np.int64))

    @property
    def weight(self) -> FloatArray:
        """Seconds that the transfers of a task take at least in all, if each leads to another device, [m]; 0 if no two devices are alike.

        Where devices are equal, transfers are what the place of a task decides; else it is durations.
        """
        return self._searched.weight

    def _weight(self, alike: IntArray) -> FloatArray:
        m, size = self._shape
        if (alike == np.arange(size)).all():
            return np.zeros(m)
        apart = np.where(np.eye(size, dtype=bool), np.inf, self.lag).min(axis=(1, 2))
        apart[np.isinf(apart)] = 0.0
        edge, end = self._arcs.transpose(1, 0, 2).reshape(2, -1)
        weight: FloatArray = np.bincount(end, apart[edge], m).astype(np.float64)
        return weight

    @checked
    def ancestry(self, tasks: Sequence[int]) -> TaskSubset:
        """Return the subset of some of its tasks and their ancestors."""
        places = [self.place[i] for i in tasks if i in self.place]
        if len(places) < len(tasks):
            raise InvalidArgument(f"tasks is {shown(tasks)}; it must be tasks of the subset, which are {shown(self.tasks.tolist())}")
        chosen = np.asarray(self.before[:, places].any(axis=1))
        chosen[places] = True
        if chosen.all():
            return self
        new = TaskSubset.__new__(TaskSubset)
        new.single_input, new.tasks = self.single_input, self.tasks[chosen]
        number, (source, target) = np.cumsum(chosen) - 1, self._ends
        kept = chosen[source] & chosen[target]
        new.edges = self.edges[kept]
        new._connect(number[source[kept]], number[target[kept]], np.ascontiguousarray(self.lag[kept]))
        return new

    @checked
    def node(
        self, release: FloatArray | None = None, delivery: FloatArray | None = None, pins: Iterable[tuple[int, int]] = ()
    ) -> FloatArray:
        """Return lower bounds for all schedules, [3, m, K]: durations, releases, deliveries.

        Releases (earliest starts) and deliveries (times from the finish to the end) are those of all tasks of
        the problem, [n, K]; a pin is a task and its only device.
        """
        return self._node(release, delivery, self._check_limits(release, delivery, pins))

    def _check_limits(
        self, release: FloatArray | None, delivery: FloatArray | None, pins: Iterable[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Return the pins as rows; refuse wrong arguments of `node`."""
        rows = check_rows(pins, "pins", "task", "device")
        for task, device in rows:
            if task not in self.place:
                raise InvalidArgument(f"pins has task {shown(task)}; it must be one of the subset")
            check_count(device, "a pin's device", 0, self.single_input.n_devices - 1)
        for name, given in (("release", release), ("delivery", delivery)):
            if given is not None:
                check_array(given, name, self.single_input.least.shape)
        return rows

    def _node(self, release: FloatArray | None, delivery: FloatArray | None, pins: Iterable[tuple[int, int]]) -> FloatArray:
        lower = np.zeros((3, *self._shape))
        lower[0] = self.single_input.least[self.tasks]
        for task, device in pins:
            mates, others = self.unit == self.unit[self.place[task]], np.arange(self._shape[1]) != device
            lower[0][np.ix_(mates, others)] = np.inf
        if release is not None:
            lower[1] = release[self.tasks]
        if delivery is not None:
            lower[2] = delivery[self.tasks]
        lower[0][np.isinf(lower[1:]).any(axis=0)] = np.inf
        lower[1:, np.isinf(lower[0])] = 0.0
        return lower

    @checked
    def starts(self, node: FloatArray) -> FloatArray:
        """Return the earliest starts, [m, K]; inf = never."""
        self._check(node)
        return self._starts(node)

    def _starts(self, node: FloatArray) -> FloatArray:
        from hetsched.analysis import branch_and_bound_kernels as kernels

        start: FloatArray = np.empty_like(node[0])
        kernels.levels(self._pointer[0], self._arcs[0], self._ways[0], node[0], node[1], start, self._scratch.tasks[2:], True)
        return start

    @checked
    def path(self, node: FloatArray) -> float:
        """Return the longest path from release to delivery; inf if some task has no device."""
        self._check(node)
        return self._path(node)

    def _path(self, node: FloatArray) -> float:
        from hetsched.analysis import branch_and_bound_kernels as kernels

        tail = np.empty_like(node[0])
        kernels.levels(self._pointer[1], self._arcs[1], self._ways[1], node[0], node[2], tail, self._scratch.tasks[2:], False)
        return float((self._starts(node) + node[0] + tail).min(axis=1).max(initial=0.0))

    @checked
    def least(self, nodes: list[FloatArray], budget: RefutationBudget, known: float = 0.0, best: float = math.inf) -> float:
        """Return a lower bound of the time in which all of it is done and delivered; inf if it is impossible.

        Without branching it is the largest time that is refuted; with enough nodes it is the optimum.

        Parameters
        ----------
        nodes : list of arrays [3, m, K]
            Alternatives (see `node`); in every schedule one of them holds.
        budget : RefutationBudget
        known : float
            A valid lower bound, perhaps of a schedule of more than these tasks.
        best : float
            The largest useful bound.
        """
        for node in nodes:
            self._check(node)
        return self._least(nodes, budget, known, best)

    def _least(self, nodes: list[FloatArray], budget: RefutationBudget, known: float = 0.0, best: float = math.inf) -> float:
        paths = [self._path(node) for node in nodes]
        for x in sorted(range(len(nodes)), key=lambda x: max(paths[x], known)):
            if max(paths[x], known) >= best:
                break
            best = self._climb(nodes[x], paths[x], known, best, budget)
        return best

    def _climb(self, node: FloatArray, path: float, known: float, best: float, budget: RefutationBudget) -> float:
        """Return the largest time up to `best` that is refuted, at least `path`, which the node takes, and `known`."""
        divisor = self._divisor(node)
        low = max(rounded_up(path, divisor), known)  # `known` may be of more than these tasks, so it is not rounded
        if low == 0.0 and not divisor:  # no multiple of 0 is larger: a positive time is at least the shortest of all
            times = np.concatenate([column[(column > 0.0) & np.isfinite(column)] for column in (*node, self.lag)])
            if not len(times) or self._refute(node, times.min() * (1 - _CLOSE), budget, divisor) is not True:
                return 0.0
            low = min(times.min() * (1 - _CLOSE), best)
        if low >= best or (math.isfinite(best) and self._refute(node, math.nextafter(best, 0.0), budget, divisor) is True):
            return best
        high, tight = best, True  # whether `high` is below `best` because of an open refutation
        begin = np.where(np.isfinite(node[0]), node[1], np.inf).min()
        step = _STEP
        while low < high and not budget.over:
            near = tight and high - low <= max(_NEAR * high, divisor)
            middle = high * (1 - _CLOSE) if near else min((low + high) / 2, low * (1 + step))
            middle = math.floor(middle / divisor) * divisor if divisor and math.isfinite(middle) else middle
            if middle <= low - divisor or (not tight and high - low <= _COARSE * (low - begin)):
                break
            answer = self._refute(node, middle, budget, divisor)
            if answer is True:
                low, step = middle + divisor, 2 * step
            else:
                tight = answer is not False
                high = min(middle, answer) if tight else middle
        return low

    @checked
    def refute(self, node: FloatArray, horizon: float, budget: RefutationBudget) -> bool | float:
        """Return True if no schedule has at most `horizon` seconds, False if that is open, or the length of a schedule."""
        self._check(node)
        return self._refute(node, horizon, budget, self._divisor(node))

    def _divisor(self, node: FloatArray) -> float:
        """Return the common divisor of all times of a node."""
        return common_divisor(*node, self._lags)

    def _refute(self, node: FloatArray, horizon: float, budget: RefutationBudget, divisor: float) -> bool | float:
        from hetsched.analysis import branch_and_bound_kernels as kernels

        self._scratch.ints[3:] = np.arange(len(self.tasks))
        if divisor and math.isfinite(horizon):
            horizon = math.floor(horizon / divisor) * divisor
        stack = self._stack
        stack.nodes[0], stack.before[0] = node, self.before
        depth, left, work = 1, budget.nodes, len(self.tasks) ** 2 * self.single_input.n_devices
        at_once = min(max(1, _WORK // max(1, work)), _MOST_AT_ONCE)
        while depth:
            if left == 0 or budget.over:
                budget.open += 1
                return False
            most = min(left, at_once)
            if math.isfinite(budget.most):
                most = min(most, max(1, math.ceil((budget.most - budget.work) / max(1, work))))
            depth, done, length = kernels.search(self._searched, self._scratch, stack, depth, most, float(horizon), divisor, budget.prices)
            left -= done
            budget.work += work * done
            if budget.log is not None:
                budget.log += map(tuple, stack.log[:done].tolist())
            if length >= 0.0:
                if budget.found is not None:
                    budget.found(self)
                return float(length)
            if depth == len(stack.nodes):
                nodes, before = (np.concatenate([rows, np.empty_like(rows)]) for rows in (stack.nodes, stack.before))
                stack = self._stack = stack._replace(nodes=nodes, before=before)
        return True

    def _contradicts(self, node: FloatArray, before: BoolArray, horizon: float, divisor: float = 0.0) -> bool:
        """Propagate a node, orders and a horizon, the former two in place; return whether they contradict one another.

        The earliest starts and the tails are then the bounds in `_scratch`.
        """
        from hetsched.analysis import branch_and_bound_kernels as kernels

        refuted: bool = kernels.contradicts(self._searched, self._scratch, node, before, float(horizon), divisor, _PRICES)
        return refuted

    def _choose(self, before: BoolArray, node: FloatArray) -> tuple[int, int, int]:
        """Return the branching of a node that has just been propagated."""
        from hetsched.analysis import branch_and_bound_kernels as kernels

        start, tail = self._scratch.bounds
        chosen: tuple[int, int, int] = kernels.choose(before, node[0], self._scratch.ints[2], start, tail, self.weight)
        return chosen

    def _check(self, node: FloatArray) -> None:
        check_array(node, "node", (3, *self._shape))

    def schedule(self) -> tuple[IntArray, FloatArray]:
        """Return devices [m] and starts [m] of the schedule that `refute` has just found."""
        place = self._scratch.ints[2].copy()
        return place, self._scratch.bounds[0][np.arange(len(place)), place]
