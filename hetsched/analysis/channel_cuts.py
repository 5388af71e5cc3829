"""Narrow boundaries of a graph: places in a topological order that few tensors cross.

Three steps. *Order*: tasks are sorted in three topological orders that keep the tasks of a module together.
The first is the order in which the tasks are listed, which for a program mostly goes module by module. The
second is by electric potentials: each edge is a wire of one ohm, and a current enters at one end of the
graph and leaves at the other; all tasks of a module, dangling ends included, have about the same potential,
which drops at places with few edges. The third is breadth first. *Tighten*: a dynamic program chooses the
boundaries with the fewest channels such that no module is too large, and a minimum cut replaces each of
them by the narrowest one between the middles of the two adjacent modules. *Choose*: the dynamic program is
run again, on the boundaries that have at most the requested number of channels.

All steps but the potentials (a conjugate gradient of at most 1000 steps) take time proportional to the number of
edges times the size of a module.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.problem.graph import TaskGraph
from hetsched.stopping import NEVER, Deadline

CUTTING = "the cutting of the graph"
_ROUNDS = 3
_STEPS, _PRECISION = 1000, 1e-6  # of the conjugate gradient
_TOO_LARGE = 1e6  # cost of a task over the largest module; the unit is a channel
_EDGE = 1e-3  # cost of an edge in addition to its channel
_TENTH_MORE = 1.1


class _Part(NamedTuple):
    """The subgraph between two clean cuts."""

    graph: TaskGraph
    """The induced graph; the preceding cut, if there is one, is its first task."""
    tasks: IntArray
    """Indices of its tasks in the whole graph."""
    first: int
    """1 if the first task is the preceding cut, else 0."""


class NarrowOrder(NamedTuple):
    """A part of a graph, with orders of its tasks that have narrow boundaries."""

    part: _Part
    orders: list[IntArray]
    largest: int

    def cut(self, channels: int) -> tuple[IntArray, IntArray]:
        """Return (the tasks in order, the ends of the modules in it).

        The order is one with the fewest tasks in excess of the largest module size; of those, the first
        whose sum of longest paths through modules is within a tenth of the minimum, because tasks that
        can run in parallel should be in one module, not in two successive ones.
        """
        graph, first = self.part.graph, self.part.first
        candidates = []
        for order in self.orders:
            places, edges = crossings(graph, order)
            ends = _choose(places + _EDGE * edges, places <= channels, first, self.largest)
            candidates.append((_excess(ends, first, self.largest), _stretch(graph, order, ends), order, ends))
        smallest = min(excess for excess, *_ in candidates)
        shortest = min(stretch for excess, stretch, *_ in candidates if excess == smallest)
        limit = _TENTH_MORE * shortest
        order, ends = next((order, ends) for excess, stretch, order, ends in candidates if excess == smallest and stretch <= limit)
        return self.part.tasks[order[first:]], ends - first


def narrowest_order(graph: TaskGraph, tasks: IntArray, cut: int | None, largest: int, deadline: Deadline = NEVER) -> NarrowOrder:
    """Return orders with narrow boundaries of `tasks`, those between the clean cut `cut` and the next, for modules up to `largest`.

    Raises `OutOfTime` after the deadline.
    """
    deadline.check(CUTTING)
    inside = tasks if cut is None else np.concatenate([[cut], tasks])
    local = np.full(graph.n_tasks, -1)
    local[inside] = np.arange(len(inside))
    edges = local[graph.edges]
    within = TaskGraph(map(str, range(len(inside))), edges[(edges >= 0).all(axis=1)])
    part = _Part(within, inside, 0 if cut is None else 1)
    orders = [_order(part, inside.astype(np.float64)), _order(part, _potentials(within)), within.topological_order.copy()]
    return NarrowOrder(part, [_tightened(part, order, largest, deadline) for order in orders], largest)


def crossings(graph: TaskGraph, order: IntArray) -> tuple[IntArray, IntArray]:
    """Return the numbers of channels and edges across the boundary after the first 0, 1, ..., n tasks of an order, [n + 1] each."""
    n, place = graph.n_tasks, _inverse(order)
    last = place.copy()
    np.maximum.at(last, graph.source, place[graph.target])
    spans = ((place, last), (place[graph.source], place[graph.target]))
    channels, edges = (np.cumsum(np.bincount(a + 1, minlength=n + 1) - np.bincount(b + 1, minlength=n + 1)) for a, b in spans)
    return channels, edges


def _inverse(order: IntArray) -> IntArray:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


def _excess(ends: IntArray, first: int, largest: int) -> int:
    """Return the number of tasks in excess of the largest module size, summed over modules."""
    return int(np.maximum(np.diff(ends, prepend=first) - largest, 0).sum())


def _stretch(graph: TaskGraph, order: IntArray, ends: IntArray) -> int:
    """Return the sum over modules of the number of tasks on their longest paths."""
    from hetsched.analysis.channel_cut_kernels import neighbours, stretch

    module = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))[_inverse(order)]
    return int(stretch(neighbours(graph), order, module, len(ends)))


# ---------------------------------------------------------------------- orders


def _order(part: _Part, priority: FloatArray) -> IntArray:
    """Return the topological order that always takes the ready task with the smallest priority value; the cut comes first."""
    graph = part.graph
    priorities = priority.tolist()
    priorities[: part.first] = [-np.inf] * part.first
    waiting, pointer, succ = np.diff(graph.pred_ptr).tolist(), graph.succ_ptr.tolist(), graph.succ.tolist()
    ready = [(priorities[i], i) for i, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        i = heapq.heappop(ready)[1]
        order.append(i)
        for j in succ[pointer[i] : pointer[i + 1]]:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(ready, (priorities[j], j))
    return np.array(order)


def _potentials(graph: TaskGraph) -> FloatArray:
    """Return the potential of each task, from 0 to 1 in each connected component, increasing along edges in sum."""
    from hetsched.analysis.channel_cut_kernels import far_apart, neighbours, potentials

    rows = neighbours(graph)
    piece, distance, ends = far_apart(rows)
    current = np.zeros(graph.n_tasks)
    current[ends[:, 0]] -= 1.0
    current[ends[:, 1]] += 1.0  # the same task in a component of one task
    steps = distance[graph.target] - distance[graph.source]
    guess = distance * (current @ distance / max(1, np.square(steps).sum()))  # the least-squares multiple of the distances
    potential = potentials(rows, current, guess, _STEPS, _PRECISION)
    rising = np.bincount(piece[graph.source], potential[graph.target] - potential[graph.source], len(ends)) >= 0
    potential = np.where(rising[piece], potential, -potential)
    low, high = np.full(len(ends), np.inf), np.full(len(ends), -np.inf)
    np.minimum.at(low, piece, potential)
    np.maximum.at(high, piece, potential)
    return np.asarray((potential - low[piece]) / np.where(high > low, high - low, 1.0)[piece])


# ---------------------------------------------------------------------- boundaries


def _choose(cost: FloatArray, allowed: BoolArray, first: int, largest: int) -> IntArray:
    """Return the ends of modules, the last one n, at allowed boundaries of minimum total cost; ties favour balance.

    Entry i of `cost` and `allowed` [n + 1] is the boundary after i tasks. A module is too large only
    if no boundary within reach is allowed.
    """
    from hetsched.analysis.channel_cut_kernels import choose

    n = len(cost) - 1
    usable = allowed.copy()
    usable[:first], usable[[first, n]] = False, True
    places = np.flatnonzero(usable)
    return np.asarray(choose(places, 1.0 + cost[places], largest, _TOO_LARGE))


def _tightened(part: _Part, order: IntArray, largest: int, deadline: Deadline) -> IntArray:
    """Return the order with its boundaries for modules up to `largest` replaced by the narrowest ones nearby."""
    from hetsched.analysis.channel_cut_kernels import UNKNOWN, narrowest, neighbours

    graph = part.graph
    rows, scratch = neighbours(graph), np.full(graph.n_tasks, UNKNOWN)
    for _ in range(_ROUNDS):
        channels, edges = crossings(graph, order)
        ends = [part.first, *_choose(channels + _EDGE * edges, np.ones(len(channels), bool), part.first, largest).tolist()]
        tighter, place = order.copy(), _inverse(order)
        for j in deadline.watch(range(1, len(ends) - 1), CUTTING, every=20):
            low, high = (ends[j - 1] + ends[j] + 1) // 2, (ends[j] + ends[j + 1]) // 2
            up_to = narrowest(rows, tighter, place, low, high, ends[j] - low, scratch)
            window = tighter[low:high]
            tighter[low:high] = np.concatenate([window[up_to], window[~up_to]])
            place[tighter[low:high]] = np.arange(low, high)
            ends[j] = low + int(up_to.sum())
        if np.array_equal(tighter, order):
            break
        order = tighter
    return order
