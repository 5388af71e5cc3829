"""Numba kernels for narrow boundaries between modules: cheapest sequence of positions, minimum cuts, distances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import builder, inner
from hetsched.problem.graph import TaskGraph

EDGE, CHANNEL, NEVER = 1, 1000, 2**40
"""Capacities of the arcs of a minimum cut: edges only break ties between boundaries with equally many channels."""
SWEEPS = 3
"""Number of breadth-first searches of `far_apart`, each from the task farthest from the previous start."""
UNKNOWN, ANYWAY = -1, -2
"""Marks of a task before a window: not visited yet; read after the window, so a channel for every boundary."""


class Neighbours(NamedTuple):
    """Successors and predecessors of each task, as in `TaskGraph`; see `neighbours`."""

    succ_ptr: IntArray
    succ: IntArray
    pred_ptr: IntArray
    pred: IntArray


class Arcs(NamedTuple):
    """The arcs of a flow network, [A] each; each arc is followed by its reverse arc."""

    tail: IntArray
    head: IntArray
    spare: IntArray
    """Residual capacity."""


def neighbours(graph: TaskGraph) -> Neighbours:
    """Return the successors and predecessors of a graph."""
    return Neighbours(graph.succ_ptr, graph.succ, graph.pred_ptr, graph.pred)


@builder
def choose(places: IntArray, cost: FloatArray, largest: int, excess: float) -> IntArray:
    """Return the ends of modules of least cost, chosen among ascending `places`; the first and the last are always included.

    The cost is the sum of the costs of the places, of (size / `largest`) squared over the modules, and of
    `excess` for each task by which a module exceeds `largest`.
    """
    count = len(places)
    best, before = np.zeros(count), np.zeros(count, np.int64)
    near = 0
    for i in range(1, count):
        while near < i - 1 and places[i] - places[near] > largest:
            near += 1
        best[i] = np.inf
        for j in range(near, i):
            size = places[i] - places[j]
            total = best[j] + cost[i] + (size / largest) ** 2 + excess * max(size - largest, 0)
            if total < best[i]:
                best[i], before[i] = total, j
    ends = np.empty(count, np.int64)
    used, i = count, count - 1
    while i > 0:
        used -= 1
        ends[used] = places[i]
        i = before[i]
    return ends[used:]


@builder
def stretch(graph: Neighbours, order: IntArray, module: IntArray, modules: int) -> int:
    """Return the sum over modules of the number of tasks on the longest path within the module; `module` [n] is that of each task."""
    _, _, pred_ptr, pred = graph
    depth, longest = np.ones(len(order), np.int64), np.zeros(modules, np.int64)
    for i in order:
        for x in range(pred_ptr[i], pred_ptr[i + 1]):
            p = pred[x]
            if module[p] == module[i]:
                depth[i] = max(depth[i], depth[p] + 1)
        longest[module[i]] = max(longest[module[i]], depth[i])
    total = 0
    for m in range(modules):
        total += longest[m]
    return total


@builder
def far_apart(graph: Neighbours) -> tuple[IntArray, IntArray, IntArray]:
    """Return the connected component of each task, its distance from one end of the component, and the ends.

    Edges are undirected. The ends [components, 2] are approximately the two tasks farthest apart, found by
    repeated breadth-first searches, each from the farthest task of the previous one.
    """
    succ_ptr, succ, pred_ptr, pred = graph
    n = len(succ_ptr) - 1
    piece, distance = np.full(n, -1), np.full(n, -1)
    queue, ends = np.empty(n, np.int64), np.empty((n, 2), np.int64)
    pieces = 0
    for first in range(n):
        if piece[first] >= 0:
            continue
        start, end = first, first
        for sweep in range(SWEEPS):
            start = end
            piece[start], distance[start] = pieces, 0
            queue[0] = start
            head, tail = 0, 1
            while head < tail:
                i = queue[head]
                head += 1
                for forward in (True, False):
                    ptr, near = (succ_ptr, succ) if forward else (pred_ptr, pred)
                    for x in range(ptr[i], ptr[i + 1]):
                        j = near[x]
                        if distance[j] < 0:
                            piece[j], distance[j] = pieces, distance[i] + 1
                            queue[tail] = j
                            tail += 1
            end = queue[tail - 1]
            if sweep < SWEEPS - 1:
                for x in range(tail):
                    distance[queue[x]] = -1
        ends[pieces, 0], ends[pieces, 1] = start, end
        pieces += 1
    return piece, distance, ends[:pieces]


@builder
def potentials(graph: Neighbours, current: FloatArray, guess: FloatArray, steps: int, precision: float) -> FloatArray:
    """Return approximate electric potentials, [n], at which `current` flows out of each task; every edge has a resistance of 1.

    Conjugate gradients, preconditioned by the degrees, start from `guess` and end after `steps` steps,
    or when the largest error of a current is at most `precision`.
    """
    n = len(current)
    potential, degree, flow = guess.copy(), np.empty(n), np.empty(n)
    missing, direction = np.empty(n), np.empty(n)
    _flow(graph, potential, flow)
    product = 0.0
    for i in range(n):
        degree[i] = max(1, graph.succ_ptr[i + 1] - graph.succ_ptr[i] + graph.pred_ptr[i + 1] - graph.pred_ptr[i])
        missing[i] = current[i] - flow[i]
        direction[i] = missing[i] / degree[i]
        product += missing[i] * direction[i]
    for _ in range(steps):
        most = 0.0
        for i in range(n):
            most = max(most, abs(missing[i]))
        if most <= precision:
            break
        _flow(graph, direction, flow)
        energy = 0.0
        for i in range(n):
            energy += direction[i] * flow[i]
        if energy <= 0.0:
            break
        before, product = product, 0.0
        step = before / energy
        for i in range(n):
            potential[i] += step * direction[i]
            missing[i] -= step * flow[i]
            product += missing[i] * (missing[i] / degree[i])
        for i in range(n):
            direction[i] = missing[i] / degree[i] + product / before * direction[i]
    return potential


@inner
def _flow(graph: Neighbours, potential: FloatArray, flow: FloatArray) -> None:
    """Write into `flow` [n] the current out of each task for the given potentials."""
    succ_ptr, succ, pred_ptr, pred = graph
    for i in range(len(potential)):
        total = 0.0
        for x in range(succ_ptr[i], succ_ptr[i + 1]):
            total += potential[i] - potential[succ[x]]
        for x in range(pred_ptr[i], pred_ptr[i + 1]):
            total += potential[i] - potential[pred[x]]
        flow[i] = total


@builder
def narrowest(graph: Neighbours, order: IntArray, place: IntArray, low: int, high: int, wanted: int, node: IntArray) -> BoolArray:
    """Return which of ``order[low:high]`` are before the narrowest boundary between positions `low` and `high`.

    The boundary is a minimum cut. Each task before it with readers after it costs `CHANNEL`: it has an
    arc to a node of its own, with arcs to all its readers. Each edge across the boundary costs `EDGE`,
    and no edge may cross it backwards. Of the first and the last minimum cut, the one whose number of
    tasks before it is closer to `wanted` is returned. `node` [n] is filled with `UNKNOWN` before and
    after the call.
    """
    succ_ptr, succ, pred_ptr, pred = graph
    size = high - low
    room = 4
    for at in range(low, high):
        i = order[at]
        room += 1 + 3 * (succ_ptr[i + 1] - succ_ptr[i]) + 3 * (pred_ptr[i + 1] - pred_ptr[i])
    before, behind, nodes = size, size + 1, size + 2  # nodes for all tasks before `low`, and for all from `high` on
    cut = Arcs(np.empty(2 * room, np.int64), np.empty(2 * room, np.int64), np.zeros(2 * room, np.int64))
    arcs = 0
    for at in range(low, high):
        i = order[at]
        if succ_ptr[i + 1] > succ_ptr[i]:
            own = nodes
            nodes += 1
            arcs = _arc(cut, arcs, at - low, own, CHANNEL)
            for x in range(succ_ptr[i], succ_ptr[i + 1]):
                reader = place[succ[x]] - low if place[succ[x]] < high else behind
                arcs = _arc(cut, arcs, at - low, reader, EDGE)
                arcs = _arc(cut, arcs, own, reader, NEVER)
                if reader != behind:
                    arcs = _arc(cut, arcs, reader, at - low, NEVER)
        for x in range(pred_ptr[i], pred_ptr[i + 1]):
            p = pred[x]
            if place[p] >= low:
                continue
            arcs = _arc(cut, arcs, before, at - low, EDGE)
            if node[p] == UNKNOWN:
                node[p] = nodes
                for y in range(succ_ptr[p], succ_ptr[p + 1]):
                    if place[succ[y]] >= high:
                        node[p] = ANYWAY
                if node[p] == nodes:
                    arcs = _arc(cut, arcs, before, nodes, CHANNEL)
                    nodes += 1
            if node[p] >= 0:
                arcs = _arc(cut, arcs, node[p], at - low, NEVER)
    for at in range(low, high):
        i = order[at]
        for x in range(pred_ptr[i], pred_ptr[i + 1]):
            node[pred[x]] = UNKNOWN
    first, last = _minimum_cut(cut, arcs, nodes, before, behind)
    fewest, most = 0, 0
    for x in range(size):
        fewest += first[x]
        most += last[x]
    nearest: BoolArray = first if abs(fewest - wanted) <= abs(most - wanted) else last
    return nearest[:size]


@inner
def _arc(cut: Arcs, arcs: int, a: int, b: int, capacity: int) -> int:
    """Add an arc and its reverse arc; return the number of arcs."""
    cut.tail[arcs], cut.head[arcs], cut.spare[arcs] = a, b, capacity
    cut.tail[arcs + 1], cut.head[arcs + 1], cut.spare[arcs + 1] = b, a, 0
    return arcs + 2


@builder
def _minimum_cut(cut: Arcs, arcs: int, nodes: int, source: int, target: int) -> tuple[BoolArray, BoolArray]:
    """Return the source sides of the first and the last minimum cut between `source` and `target`, [nodes] each.

    The maximum flow is found by shortest augmenting paths (Edmonds and Karp).
    """
    tail, head, spare = cut
    ptr = np.zeros(nodes + 1, np.int64)
    for arc in range(arcs):
        ptr[tail[arc] + 1] += 1
    for i in range(nodes):
        ptr[i + 1] += ptr[i]
    out, fill = np.empty(arcs, np.int64), ptr.copy()
    for arc in range(arcs):
        out[fill[tail[arc]]] = arc
        fill[tail[arc]] += 1
    by, queue = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    while True:
        count = _reached(cut, ptr, out, source, target, by, queue)
        if by[target] < 0:
            break
        amount, at = NEVER, target
        while at != source:
            amount = min(amount, spare[by[at]])
            at = tail[by[at]]
        at = target
        while at != source:
            spare[by[at]] -= amount
            spare[by[at] ^ 1] += amount
            at = tail[by[at]]
    smallest = np.zeros(nodes, np.bool_)
    for x in range(count):
        smallest[queue[x]] = True
    largest = np.ones(nodes, np.bool_)  # all nodes without a residual path to the target
    largest[target] = False
    queue[0] = target
    done, count = 0, 1
    while done < count:
        at = queue[done]
        done += 1
        for x in range(ptr[at], ptr[at + 1]):
            arc = out[x]
            if largest[head[arc]] and spare[arc ^ 1] > 0:
                largest[head[arc]] = False
                queue[count] = head[arc]
                count += 1
    return smallest, largest


@inner
def _reached(cut: Arcs, ptr: IntArray, out: IntArray, source: int, target: int, by: IntArray, queue: IntArray) -> int:
    """Search breadth-first over residual arcs from `source` until `target` is reached; return the number of nodes reached.

    Writes the nodes into `queue` and the arc that reached each node into `by`, -1 for the others.
    """
    _, head, spare = cut
    for i in range(len(by)):
        by[i] = -1
    by[source] = len(head)
    queue[0] = source
    done, count = 0, 1
    while done < count:
        at = queue[done]
        done += 1
        for x in range(ptr[at], ptr[at + 1]):
            arc = out[x]
            if by[head[arc]] < 0 and spare[arc] > 0:
                by[head[arc]] = arc
                queue[count] = head[arc]
                count += 1
                if head[arc] == target:
                    return count
    return count
