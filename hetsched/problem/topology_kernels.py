"""Numba kernels over the arcs of a directed graph in compressed form."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import builder, linear, nearly_linear


@linear
@builder
def breadth_first_order(succ_ptr: IntArray, succ: IntArray, indegree: IntArray) -> IntArray:
    """Return Kahn's topological order with a first-in first-out queue.

    Sources enter in index order. The result is shorter than the number of tasks iff the graph has a
    cycle; it then holds the tasks that neither are on a cycle nor have an ancestor on one.
    """
    n = len(indegree)
    waiting = indegree.copy()
    order = np.empty(n, np.int64)
    tail = 0
    for i in range(n):
        if waiting[i] == 0:
            order[tail] = i
            tail += 1
    head = 0
    while head < tail:
        i = order[head]
        head += 1
        for position in range(succ_ptr[i], succ_ptr[i + 1]):
            j = succ[position]
            waiting[j] -= 1
            if waiting[j] == 0:
                order[tail] = j
                tail += 1
    return order[:tail]


@nearly_linear
@builder
def widths(bandwidth: FloatArray, source: int) -> FloatArray:
    """Return the largest bottleneck bandwidth of a path from `source` to each device, [K]; 0 without a path, inf to itself."""
    size = len(bandwidth)
    width = np.zeros(size)
    width[source] = np.inf
    done = np.zeros(size, np.bool_)
    for _ in range(size):
        h = -1
        for k in range(size):
            if not done[k] and width[k] > 0 and (h < 0 or width[k] > width[h]):
                h = k
        if h < 0:
            break
        done[h] = True
        for k in range(size):
            width[k] = max(width[k], min(width[h], bandwidth[h, k]))
    return width


@nearly_linear
@builder
def shortest(latency: FloatArray, bandwidth: FloatArray, bottleneck: float, source: int) -> tuple[FloatArray, IntArray]:
    """Return (lowest total latency from `source` to each device, device before it on its path), [K] each; inf and -1 without a path.

    Only links of at least the bandwidth `bottleneck` are used; ties go to fewer hops.
    """
    size = len(latency)
    distance = np.full(size, np.inf)
    distance[source] = 0.0
    hops = np.zeros(size, np.int64)
    before = np.full(size, -1)
    done = np.zeros(size, np.bool_)
    for _ in range(size):
        h = -1
        for k in range(size):
            nearer = h < 0 or distance[k] < distance[h] or (distance[k] == distance[h] and hops[k] < hops[h])
            if nearer and not done[k] and distance[k] < np.inf:
                h = k
        if h < 0:
            break
        done[h] = True
        for k in range(size):
            if not done[k] and bandwidth[h, k] >= bottleneck:
                through = distance[h] + latency[h, k]
                if through < distance[k] or (through == distance[k] and hops[h] + 1 < hops[k]):
                    distance[k], hops[k], before[k] = through, hops[h] + 1, h
    return distance, before


@nearly_linear
@builder
def drop_unreachable(usable: BoolArray, ptr: IntArray, other: IntArray, edge: IntArray, leaving: BoolArray, paths: BoolArray) -> None:
    """Remove from `usable`, [units, K], each device of a unit without a path to, or from, any usable device of some neighbour.

    ``ptr[u] <= x < ptr[u + 1]`` are the edge ends at unit u: `other` is the unit at the other end, `edge` the edge, `leaving`
    whether the edge leaves u. `paths` is [1, K, K] if all edges are alike, else [E, K, K]. Units that change are queued again
    (arc consistency), so each device of a unit is removed at most once.
    """
    units, size = usable.shape
    queue, waiting = np.arange(units), np.ones(units, np.bool_)
    reached = np.zeros((2, size), np.bool_)
    first, count = 0, units
    while count:
        u = queue[first]
        first = (first + 1) % units
        count -= 1
        waiting[u] = False
        for x in range(ptr[u], ptr[u + 1]):
            if x == ptr[u] or len(paths) > 1:
                path = paths[edge[x] if len(paths) > 1 else 0]
                for k in range(size):
                    reached[0, k] = reached[1, k] = False
                    for h in range(size):
                        if usable[u, h]:
                            reached[1, k] |= path[h, k]
                            reached[0, k] |= path[k, h]
            v, changed = other[x], False
            for k in range(size):
                if usable[v, k] and not reached[int(leaving[x]), k]:
                    usable[v, k] = False
                    changed = True
            if changed and not waiting[v]:
                waiting[v] = True
                queue[(first + count) % units] = v
                count += 1
