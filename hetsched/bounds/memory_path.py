"""A path through more tasks than one device can hold: the transfers that capacities force on it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hetsched.analysis.levels import CAPACITY, Levels, unit_sums
from hetsched.arguments import checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.problem.graph import plural
from hetsched.problem.problem import Problem
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline

_LOOKS = 1000
"""The number of steps between two looks at the clock."""


@checked
def scarce(problem: Problem) -> bool:
    """Return whether some of several devices cannot hold all tasks, with one input each."""
    return problem.n_devices > 1 and bool((_unit_bytes(problem).sum() > problem.cluster.memory_bytes * CAPACITY).any())


@checked
def path_within_memory(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the least time of the tasks of the critical path, one after another, where no device holds more of them than fit.

    Take one input. The tasks of a path run one after another, and an edge of it between two devices takes the time of a
    transfer, at least the shortest between any two devices. The path is divided into steps from node to node. If all tasks of
    successive steps are on one device, it holds their units: the weights and, under ``static``, inputs and outputs of one input. So
    of successive steps with more than fits a device, at least one is *mixed*, that is, its tasks are not all on one device. The
    least sum of durations, and of transfers in mixed steps, over all choices of mixed steps and of devices for what is between
    them, is a lower bound; it is found by dynamic programming over the nodes.

    In one division each edge is a step, and a mixed step has one transfer. In the other the path is folded, for that of a training
    step goes forward and back through co-located tasks: nodes are nested pairs of co-located tasks, a[1] < a[2] < ... < b[2] < b[1]
    in the order of the path, and a step has two stretches, from a[r] to a[r + 1] and from b[r + 1] to b[r]. If the nodes of a
    mixed step are on different devices, both stretches have a transfer. If they are on one, another task of the step is
    elsewhere, and its stretch has two, there and back. The lesser of these sums counts. Before a[1], and between the
    innermost pair, each edge is a step; tasks after b[1] add their shortest durations. The better division counts.
    """
    levels = Levels(problem) if levels is None else levels
    path = levels.merged.levels.critical_path
    if math.isinf(path.length) or len(path.tasks) < 2:
        return Bound(path.length, "path within memory", "as the critical path")
    table = _Table(problem, levels, path.tasks)
    divisions = [list(_steps(len(path.tasks), pairs)) for pairs in ([], _nested(table.unit))]
    value = max(table.least(steps, deadline) for steps in divisions if steps)
    names = problem.graph.names
    return Bound(
        value,
        "path within memory",
        f"{plural(len(path.tasks), 'task')} one after another, from {names[path.tasks[0]]!r} to {names[path.tasks[-1]]!r}, which take "
        f"{table.shortest.sum():.6g} s, and transfers, because no device has the memory for all",
    )


class _Step(NamedTuple):
    """The part of a path between two nodes; positions on the path."""

    start: tuple[int, ...]
    """The tasks of its first node: one, or two that are co-located."""
    stretches: tuple[tuple[int, int], ...]
    """First and last position of each stretch."""
    end: tuple[int, ...]

    @property
    def inside(self) -> list[int]:
        """Return the positions between the nodes."""
        return [position for first, last in self.stretches for position in range(first + 1, last)]


def _nested(unit: IntArray) -> list[tuple[int, int]]:
    """Return the longest nested pairs among the first and the last positions of each unit on the path, outermost first."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, u in enumerate(unit.tolist()):
        first.setdefault(u, position)
        last[u] = position
    pairs = [(first[u], last[u]) for u in first if first[u] < last[u]]
    tops: list[int] = []  # patience sorting: -(last) of the best sequence of each length, and its last pair
    ends: list[int] = []
    before: list[int] = []
    for number, (_, b) in enumerate(pairs):
        length = bisect_left(tops, -b)
        tops[length : length + 1], ends[length : length + 1] = [-b], [number]
        before.append(ends[length - 1] if length else -1)
    chosen, number = [], ends[-1] if ends else -1
    while number >= 0:
        chosen.append(pairs[number])
        number = before[number]
    return chosen[::-1]


def _steps(size: int, pairs: list[tuple[int, int]]) -> Iterator[_Step]:
    """Yield the steps of a path of `size` tasks folded at nested pairs; without pairs those of its edges."""
    outer, inner = (pairs[0][0], pairs[-1]) if pairs else (size - 1, (0, 0))
    nodes: list[tuple[int, ...]] = [(position,) for position in range(outer)]
    nodes += pairs if pairs else [(size - 1,)]
    for start, end in pairwise(nodes):
        yield _Step(start, ((start[0], end[0]), *([(end[1], start[1])] if len(start) > 1 else [])), end)
    if pairs:
        for position in range(inner[0], inner[1] - 1):
            yield _Step(pairs[-1] if position == inner[0] else (position,), ((position, position + 1),), (position + 1,))


class _Table:
    """Durations, memory and transfers of the tasks of a path.

    Parameters
    ----------
    problem : Problem
    levels : Levels
    tasks : array [m]
    """

    def __init__(self, problem: Problem, levels: Levels, tasks: IntArray) -> None:
        small = levels.merged.levels
        self.unit: IntArray = problem.unit[tasks]
        share = _unit_bytes(problem)[self.unit, None] / np.maximum(small.problem.cluster.memory_bytes, np.finfo(float).tiny)
        seconds = small.least[tasks]
        share = np.where(np.isfinite(seconds), np.minimum(share, 2.0), 2.0)
        columns = {(seconds[:, k].tobytes(), share[:, k].tobytes()): k for k in range(seconds.shape[1])}  # equal devices need one column
        self.shortest = seconds.min(axis=1)
        """Shortest seconds of each task on any device, [m]."""
        self.columns = [(np.where(np.isfinite(seconds[:, k]), seconds[:, k], 0.0).tolist(), share[:, k].tolist()) for k in columns.values()]
        """Seconds of each task on a device, and the share of its memory that the task's unit takes, at most 2; 2 where it cannot run."""
        self.transfer: list[float] = _shortest_transfers(problem, tasks).tolist()

    def least(self, steps: list[_Step], deadline: Deadline) -> float:
        """Return the least time of the path over all choices of mixed steps and of devices between them."""
        nodes = [steps[0].start, *(step.end for step in steps)]
        inside = [step.inside for step in steps]
        unit = self.unit.tolist()
        columns = [_Segments(unit, *column, nodes, inside) for column in self.columns]
        before = 0.0
        for q, step in enumerate(steps):
            if q % _LOOKS == 0:
                deadline.check("a path within memory")
            between = float(self.shortest[inside[q]].sum()) if inside[q] else 0.0
            before = min(column.add(q, before) for column in columns) + between + self._mixed(step)
        return min(column.add(len(steps), before) for column in columns) + float(self.shortest[max(map(max, nodes)) + 1 :].sum())

    def _mixed(self, step: _Step) -> float:
        """Return the least transfers of a step whose tasks are not all on one device."""
        sides = [sorted(self.transfer[first:last])[:2] for first, last in step.stretches]
        return min(sum(side[0] for side in sides), *(sum(side) if len(side) > 1 else math.inf for side in sides))


class _Segments:
    """The segments of successive nodes and steps that one device can hold, and the least time until the end of one.

    Parameters
    ----------
    unit : list [m]
    seconds, share : lists [m]
        A column of the table.
    nodes : list of tuple of int
        Positions of the tasks of each node.
    inside : list of list of int
        Positions of the tasks inside each step, one step fewer than nodes.
    """

    def __init__(
        self, unit: list[int], seconds: list[float], share: list[float], nodes: list[tuple[int, ...]], inside: list[list[int]]
    ) -> None:
        self._unit, self._seconds, self._share, self._nodes, self._inside = unit, seconds, share, nodes, inside
        self._held: Counter[int] = Counter()
        self._first, self._filled, self._spent = 0, 0.0, 0.0
        self._starts: deque[tuple[float, int]] = deque()

    def add(self, q: int, before: float) -> float:
        """Return the least time until the end of node q on this device, if the segment's step before begins after `before` seconds."""
        between = self._inside[q - 1] if q else []
        start = before - self._spent - sum(self._seconds[i] for i in between)
        while self._starts and self._starts[-1][0] >= start:
            self._starts.pop()
        self._starts.append((start, q))
        self._spent += sum(self._seconds[i] for i in (*between, *self._nodes[q]))
        for i in (*(between if self._first < q else []), *self._nodes[q]):
            self._filled += 0.0 if self._held[self._unit[i]] else self._share[i]
            self._held[self._unit[i]] += 1
        while self._filled > CAPACITY and self._first <= q:
            for i in [*self._nodes[self._first], *(self._inside[self._first] if self._first < q else [])]:
                self._held[self._unit[i]] -= 1
                self._filled -= 0.0 if self._held[self._unit[i]] else self._share[i]
            self._first += 1
        while self._starts and self._starts[0][1] < self._first:
            self._starts.popleft()
        return self._starts[0][0] + self._spent if self._starts else math.inf


def _shortest_transfers(problem: Problem, tasks: IntArray) -> FloatArray:
    """Return the shortest transfer of one input along each edge of a path between any two devices, inf between co-located tasks."""
    graph = problem.graph
    into = [graph.pred_edge[graph.pred_ptr[j] : graph.pred_ptr[j + 1]] for j in tasks[1:]]
    edges = np.array([own[graph.source[own] == i][0] for i, own in zip(tasks, into, strict=False)], np.int64)
    h, k = np.nonzero(~np.eye(problem.n_devices, dtype=bool))
    if problem.transfers is None:
        links = np.column_stack([problem.cluster.route_latency[h, k], problem.cluster.route_bandwidth[h, k]])
        distinct = np.unique(links, axis=0, return_index=True)[1]
        h, k = h[distinct], k[distinct]
    seconds = problem.transfer_times(edges[:, None], h, k).min(axis=1, initial=np.inf)
    return np.where(problem.unit[tasks[1:]] == problem.unit[tasks[:-1]], np.inf, seconds)


def _unit_bytes(problem: Problem) -> FloatArray:
    """Return the bytes that a unit claims with one input: its weights, and under ``static`` inputs and outputs, [units]."""
    weights, activations = problem.static_bytes.T
    return unit_sums(problem, weights + (activations if problem.memory == "static" else 0.0))
