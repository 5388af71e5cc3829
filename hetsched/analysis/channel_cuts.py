"""Narrow boundaries in a graph: places in a topological order that few tensors pass over.

In three steps. *Order*: tasks are put in topological orders that keep together what belongs together.
One is the order in which they were given, which is a program's and mostly goes module by module. One
is that of electric potentials, each edge a wire of one ohm and a current led in at one end of the
graph and out at the other: all of a module, loose ends included, has about one potential, which drops
where few edges lead on. And one is breadth first. *Tighten*: a dynamic program takes the boundaries of
fewest channels that leave no module too large, and a minimum cut replaces each of them by the narrowest
one between the middles of the modules beside it. *Choose*: the dynamic program once more, of the places
that the channels asked for suffice for.

All steps but the potentials (a conjugate gradient of at most 1000 steps) take time in proportion to the
edges, times the size of a module.
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
_TOO_LARGE = 1e6  # what a task beyond the largest module costs; the unit is a channel
_EDGE = 1e-3  # an edge beside its channel
_TENTH_MORE = 1.1


class _Part(NamedTuple):
    """What lies between two clean cuts, as a graph of its own."""

    graph: TaskGraph
    """Its tasks, behind the cut before them if there is one."""
    tasks: IntArray
    """Which those are."""
    first: int
    """How many of them are that cut: 0 or 1."""


class NarrowOrder(NamedTuple):
    """A part of a graph, its tasks in orders with narrow places."""

    part: _Part
    orders: list[IntArray]
    largest: int

    def cut(self, channels: int) -> tuple[IntArray, IntArray]:
        """Return (the tasks in order, the ends of the modules in it).

        Of the orders it is one in which the fewest tasks are too many for their modules, and of those the
        first whose sum of longest paths through modules is within a tenth of the least: what can run
        side by side should lie in one module, not in two that come one after the other.
        """
        graph, first = self.part.graph, self.part.first
        found = []
        for order in self.orders:
            places, edges = crossings(graph, order)
            ends = _choose(places + _EDGE * edges, places <= channels, first, self.largest)
            found.append((_excess(ends, first, self.largest), _stretch(graph, order, ends), order, ends))
        least = min(excess for excess, *_ in found)
        shortest = min(stretch for excess, stretch, *_ in found if excess == least)
        order, ends = next((order, ends) for excess, stretch, order, ends in found if excess == least and stretch <= _TENTH_MORE * shortest)
        return self.part.tasks[order[first:]], ends - first


def narrowest_order(graph: TaskGraph, tasks: IntArray, cut: int | None, largest: int, deadline: Deadline = NEVER) -> NarrowOrder:
    """Find narrow places among `tasks`, all there are between the clean cut `cut` and the next, for modules up to `largest`.

    Raises `OutOfTime` past the deadline.
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
    """Return the channels and the edges over the boundary behind the first 0, 1, ..., n tasks of an order, [n + 1] each."""
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
    """Return how many tasks are too many for their modules."""
    return int(np.maximum(np.diff(ends, prepend=first) - largest, 0).sum())


def _stretch(graph: TaskGraph, order: IntArray, ends: IntArray) -> int:
    """Return the sum over modules of the number of tasks on their longest paths."""
    from hetsched.analysis.channel_cut_kernels import neighbours, stretch

    module = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))[_inverse(order)]
    return int(stretch(neighbours(graph), order, module, len(ends)))


# ---------------------------------------------------------------------- orders


def _order(part: _Part, priority: FloatArray) -> IntArray:
    """Return the topological order that always takes the task of least priority; the cut comes first."""
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
    """Return the potential of each task, from 0 to 1 in each piece of the graph, rising along more edges than not."""
    from hetsched.analysis.channel_cut_kernels import far_apart, neighbours, potentials

    rows = neighbours(graph)
    piece, distance, ends = far_apart(rows)
    current = np.zeros(graph.n_tasks)
    current[ends[:, 0]] -= 1.0
    current[ends[:, 1]] += 1.0  # the same task where it is a piece of its own
    steps = distance[graph.target] - distance[graph.source]
    guess = distance * (current @ distance / max(1, np.square(steps).sum()))  # what the distances are worth at best
    potential = potentials(rows, current, guess, _STEPS, _PRECISION)
    rising = np.bincount(piece[graph.source], potential[graph.target] - potential[graph.source], len(ends)) >= 0
    potential = np.where(rising[piece], potential, -potential)
    low, high = np.full(len(ends), np.inf), np.full(len(ends), -np.inf)
    np.minimum.at(low, piece, potential)
    np.maximum.at(high, piece, potential)
    return np.asarray((potential - low[piece]) / np.where(high > low, high - low, 1.0)[piece])


# ---------------------------------------------------------------------- boundaries


def _choose(cost: FloatArray, allowed: BoolArray, first: int, largest: int) -> IntArray:
    """Return the ends of modules, the last one n, at allowed places of least cost, balanced among equals.

    `cost` and `allowed` [n + 1] are of the boundary behind so many tasks. A module is too large only
    where no place within reach is allowed.
    """
    from hetsched.analysis.channel_cut_kernels import choose

    n = len(cost) - 1
    usable = allowed.copy()
    usable[:first], usable[[first, n]] = False, True
    places = np.flatnonzero(usable)
    return np.asarray(choose(places, 1.0 + cost[places], largest, _TOO_LARGE))


def _tightened(part: _Part, order: IntArray, largest: int, deadline: Deadline) -> IntArray:
    """Return the order with its boundaries for modules up to `largest` replaced by the narrowest near them."""
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
