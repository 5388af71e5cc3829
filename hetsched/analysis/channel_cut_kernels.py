"""Kernels that look for narrow boundaries: cheapest series of places, minimum cuts, distances."""

from __future__ import annotations

import numpy as np

from hetsched.compiled import builder

EDGE, CHANNEL, NEVER = 1, 1000, 2**40
"""What the arcs of a minimum cut carry: edges only decide between boundaries of as many channels."""


@builder
def choose(places, cost, largest, excess):  # type: ignore[no-untyped-def]
    """Return the ends of modules, chosen among ascending `places`, the first and the last of them always.

    They have the least sum of what the places cost, the squares of the modules' sizes over `largest`,
    and `excess` for each task that a module is too large by.
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
def stretch(order, module, pred_ptr, pred):  # type: ignore[no-untyped-def]
    """Return the sum over modules of the number of tasks on their longest paths; `module` is that of each task."""
    depth = np.ones(len(order), np.int64)
    longest = np.zeros(module.max() + 1, np.int64)
    for i in order:
        for p in pred[pred_ptr[i] : pred_ptr[i + 1]]:
            if module[p] == module[i]:
                depth[i] = max(depth[i], depth[p] + 1)
        longest[module[i]] = max(longest[module[i]], depth[i])
    return longest.sum()


@builder
def far_apart(succ_ptr, succ, pred_ptr, pred):  # type: ignore[no-untyped-def]
    """Return the piece of each task, its distance from one end of the piece, edges going both ways, and the ends.

    The ends [pieces, 2] are tasks about as far apart as any two: from anywhere to the farthest, from
    there to the farthest, and once more.
    """
    n = len(succ_ptr) - 1
    piece, distance = np.full(n, -1), np.full(n, -1)
    queue, ends = np.empty(n, np.int64), np.empty((n, 2), np.int64)
    pieces = 0
    for first in range(n):
        if piece[first] >= 0:
            continue
        start, end = first, first
        for sweep in range(3):
            start = end
            piece[start], distance[start] = pieces, 0
            queue[0] = start
            head, tail = 0, 1
            while head < tail:
                i = queue[head]
                head += 1
                for near in (succ[succ_ptr[i] : succ_ptr[i + 1]], pred[pred_ptr[i] : pred_ptr[i + 1]]):
                    for j in near:
                        if distance[j] < 0:
                            piece[j], distance[j] = pieces, distance[i] + 1
                            queue[tail] = j
                            tail += 1
            end = queue[tail - 1]
            if sweep < 2:
                distance[queue[:tail]] = -1
        ends[pieces, 0], ends[pieces, 1] = start, end
        pieces += 1
    return piece, distance, ends[:pieces]


@builder
def potentials(succ_ptr, succ, pred_ptr, pred, current, guess, steps, precision):  # type: ignore[no-untyped-def]
    """Return about the electric potentials at which `current` flows out of each task, every edge a wire of one ohm.

    Conjugate gradients, scaled by the degrees, from `guess` on: at most so many steps, or until the
    error in the currents is `precision`.
    """
    n = len(current)
    potential = guess.copy()
    degree = np.empty(n)
    for i in range(n):
        degree[i] = max(1, succ_ptr[i + 1] - succ_ptr[i] + pred_ptr[i + 1] - pred_ptr[i])
    missing = current - _flow(succ_ptr, succ, pred_ptr, pred, potential)
    scaled = missing / degree
    direction, product = scaled.copy(), (missing * scaled).sum()
    for _ in range(steps):
        if np.abs(missing).max() <= precision:
            break
        flow = _flow(succ_ptr, succ, pred_ptr, pred, direction)
        energy = (direction * flow).sum()
        if energy <= 0.0:
            break
        potential += product / energy * direction
        missing -= product / energy * flow
        scaled = missing / degree
        before, product = product, (missing * scaled).sum()
        direction = scaled + product / before * direction
    return potential


@builder
def _flow(succ_ptr, succ, pred_ptr, pred, potential):  # type: ignore[no-untyped-def]
    """Return the current that flows out of each task at given potentials."""
    flow = np.zeros(len(potential))
    for i in range(len(potential)):
        for j in succ[succ_ptr[i] : succ_ptr[i + 1]]:
            flow[i] += potential[i] - potential[j]
        for j in pred[pred_ptr[i] : pred_ptr[i + 1]]:
            flow[i] += potential[i] - potential[j]
    return flow


@builder
def narrowest(succ_ptr, succ, pred_ptr, pred, order, place, low, high, wanted, node):  # type: ignore[no-untyped-def]
    """Return which of ``order[low:high]`` lie before the narrowest boundary between places `low` and `high`.

    A minimum cut: a task before it that is read behind it costs a channel (an arc to a node of its
    own, from which all that read it are reached), each edge over it a little, and no edge leads back.
    Of the first and the last such boundary it is the one with about `wanted` of the tasks before it.
    `node` [n] holds -1 and is left so.
    """
    size = high - low
    room = 4
    for at in range(low, high):
        i = order[at]
        room += 1 + 3 * (succ_ptr[i + 1] - succ_ptr[i]) + 3 * (pred_ptr[i + 1] - pred_ptr[i])
    before, behind, nodes = size, size + 1, size + 2  # the first two stand for all before `low` and from `high` on
    tail, head, spare = np.empty(2 * room, np.int64), np.empty(2 * room, np.int64), np.zeros(2 * room, np.int64)
    arcs = 0
    for at in range(low, high):
        i = order[at]
        if succ_ptr[i + 1] > succ_ptr[i]:
            own = nodes
            nodes += 1
            arcs = _arc(tail, head, spare, arcs, at - low, own, CHANNEL)
            for j in succ[succ_ptr[i] : succ_ptr[i + 1]]:
                reader = place[j] - low if place[j] < high else behind
                arcs = _arc(tail, head, spare, arcs, at - low, reader, EDGE)
                arcs = _arc(tail, head, spare, arcs, own, reader, NEVER)
                if reader != behind:
                    arcs = _arc(tail, head, spare, arcs, reader, at - low, NEVER)
        for p in pred[pred_ptr[i] : pred_ptr[i + 1]]:
            if place[p] >= low:
                continue
            arcs = _arc(tail, head, spare, arcs, before, at - low, EDGE)
            if node[p] == -1:
                anyway = False  # read from `high` on: a channel wherever the boundary is
                for j in succ[succ_ptr[p] : succ_ptr[p + 1]]:
                    anyway |= place[j] >= high
                node[p] = -2 if anyway else nodes
                if not anyway:
                    arcs = _arc(tail, head, spare, arcs, before, nodes, CHANNEL)
                    nodes += 1
            if node[p] >= 0:
                arcs = _arc(tail, head, spare, arcs, node[p], at - low, NEVER)
    for at in range(low, high):
        i = order[at]
        node[pred[pred_ptr[i] : pred_ptr[i + 1]]] = -1
    first, last = _minimum_cut(tail[:arcs], head[:arcs], spare[:arcs], nodes, before, behind)
    if abs(first[:size].sum() - wanted) <= abs(last[:size].sum() - wanted):
        return first[:size]
    return last[:size]


@builder
def _arc(tail, head, spare, arcs, a, b, capacity):  # type: ignore[no-untyped-def]
    """Add an arc and the way back; return the number of arcs."""
    tail[arcs], head[arcs], spare[arcs] = a, b, capacity
    tail[arcs + 1], head[arcs + 1], spare[arcs + 1] = b, a, 0
    return arcs + 2


@builder
def _minimum_cut(tail, head, spare, nodes, source, target):  # type: ignore[no-untyped-def]
    """Return the smallest and the largest set of nodes with `source` and without `target` of least capacity out of it.

    Arcs stand in pairs, there and back; a flow is pushed along shortest paths until none is left.
    """
    ptr = np.zeros(nodes + 1, np.int64)
    for a in tail:
        ptr[a + 1] += 1
    ptr = np.cumsum(ptr)
    out, fill = np.empty(len(tail), np.int64), ptr.copy()
    for arc in range(len(tail)):
        out[fill[tail[arc]]] = arc
        fill[tail[arc]] += 1
    by, queue = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    while True:
        count = _reached(ptr, out, head, spare, source, target, by, queue)
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
    smallest[queue[:count]] = True
    largest = np.ones(nodes, np.bool_)  # all but what still reaches the target
    largest[target] = False
    queue[0] = target
    done, count = 0, 1
    while done < count:
        at = queue[done]
        done += 1
        for arc in out[ptr[at] : ptr[at + 1]]:
            if largest[head[arc]] and spare[arc ^ 1] > 0:
                largest[head[arc]] = False
                queue[count] = head[arc]
                count += 1
    return smallest, largest


@builder
def _reached(ptr, out, head, spare, source, target, by, queue):  # type: ignore[no-untyped-def]
    """Put into `queue` what arcs with capacity to spare lead to, up to the target, and into `by` over which; return how many."""
    by[:] = -1
    by[source] = len(head)
    queue[0] = source
    done, count = 0, 1
    while done < count:
        at = queue[done]
        done += 1
        for arc in out[ptr[at] : ptr[at + 1]]:
            if by[head[arc]] < 0 and spare[arc] > 0:
                by[head[arc]] = arc
                queue[count] = head[arc]
                count += 1
                if head[arc] == target:
                    return count
    return count
