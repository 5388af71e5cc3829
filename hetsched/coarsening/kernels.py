"""Numba kernels that cluster task graphs and sequences of tasks."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import builder, inner, linear, repeated


@linear
@builder
def phases(order: IntArray, pred_ptr: IntArray, pred: IntArray, cluster: IntArray, ring: IntArray) -> IntArray:
    """Return the largest number of changes of cluster on a path to each task within its ring of clusters, [n]."""
    phase = np.zeros(len(order), np.int64)
    for i in order:
        for x in range(pred_ptr[i], pred_ptr[i + 1]):
            j = pred[x]
            if ring[j] == ring[i]:
                phase[i] = max(phase[i], phase[j] + (cluster[i] != cluster[j]))
    return phase


@linear
@builder
def depth_first(succ_ptr: IntArray, succ: IntArray, indegree: IntArray, sources: IntArray) -> IntArray:
    """Return Kahn's topological order with a last-in first-out queue.

    Sources and children enter in the order in which they are listed, so the last ones leave first.
    """
    n = len(indegree)
    waiting = indegree.copy()
    stack, size = np.empty(n, np.int64), 0
    for i in sources:
        stack[size] = i
        size += 1
    order = np.empty(n, np.int64)
    for step in range(n):
        size -= 1
        i = stack[size]
        order[step] = i
        for x in range(succ_ptr[i], succ_ptr[i + 1]):
            j = succ[x]
            waiting[j] -= 1
            if waiting[j] == 0:
                stack[size] = j
                size += 1
    return order


@repeated
@builder
def break_points(
    place: IntArray,
    pred_ptr: IntArray,
    pred_cost: FloatArray,
    out: FloatArray,
    claim: FloatArray,
    able: IntArray,
    window: int,
    limit: float,
) -> IntArray:
    """Cut a sequence into clusters so that the edges between them have least cost; return the cluster of each position, [n].

    Kernighan's dynamic program. All arrays but `place` are indexed by position in the sequence.

    Parameters
    ----------
    place : int64 array [E]
        Positions of the predecessors in the rows of `pred_ptr`; each is less than the row's position.
    pred_cost, out : float64 arrays [E], [n]
        Cost of the edge from each predecessor; sum of the costs of the outgoing edges.
    claim : float64 array [n]
        Bytes; a cluster of several positions claims at most `limit`.
    able : int64 array [n]
        Devices that can run the task, as bits; those of a cluster have one in common.
    window : int
        Maximum number of positions in a cluster.
    """
    n = len(out)
    best, begin = np.full(n + 1, np.inf), np.zeros(n + 1, np.int64)
    best[0] = 0.0
    cost, into = np.zeros(n), np.zeros(n)
    for j in range(1, n + 1):
        last = j - 1
        for x in range(pred_ptr[last], pred_ptr[last + 1]):
            into[place[x]] += pred_cost[x]
        inside, held, common = 0.0, 0.0, able[last]
        i = last
        while i >= 0 and i >= j - window:
            held += claim[i]
            common &= able[i]
            if i < last and (held > limit or common == 0):
                break
            inside += into[i]
            cost[i] += out[last] - inside
            if best[i] + cost[i] <= best[j]:
                best[j], begin[j] = best[i] + cost[i], i
            i -= 1
        for x in range(pred_ptr[last], pred_ptr[last + 1]):
            into[place[x]] = 0.0
    cluster = np.empty(n, np.int64)
    j, clusters = n, 0
    while j > 0:
        j = begin[j]
        clusters += 1
    j, number = n, clusters
    while j > 0:
        number -= 1
        for i in range(begin[j], j):
            cluster[i] = number
        j = begin[j]
    return cluster


@linear
@builder
def met_first(succ_ptr: IntArray, succ: IntArray, sources: IntArray) -> IntArray:
    """Return all tasks in preorder of a depth-first search from the sources."""
    n = len(succ_ptr) - 1
    met = np.zeros(n, np.bool_)
    order, used = np.empty(n, np.int64), 0
    stack = np.empty(len(succ) + 1, np.int64)
    for source in sources:
        stack[0], size = source, 1
        while size > 0:
            size -= 1
            i = stack[size]
            if met[i]:
                continue
            met[i] = True
            order[used] = i
            used += 1
            for x in range(succ_ptr[i + 1] - 1, succ_ptr[i] - 1, -1):
                if not met[succ[x]]:
                    stack[size] = succ[x]
                    size += 1
    return order


@linear
@builder
def cut_by_claims(order: IntArray, cluster: IntArray, unit: IntArray, claim: FloatArray, most: float) -> IntArray:
    """Cut clusters into pieces so that units on one device claim at most `most` bytes; return the piece of each task, [n].

    The units of a cluster share a device, and so do those of clusters with a unit in common. In the given order, each task joins
    the open piece of its cluster unless the units joined would claim more than `most`. `claim` [n_units] is in bytes.
    """
    n = len(order)
    root, total = np.arange(len(claim)), claim.copy()
    piece, open_piece, first, count = np.empty(n, np.int64), np.full(n, -1), np.empty(n, np.int64), 0
    for i in order:
        mine = unit[i]
        while root[mine] != mine:
            root[mine] = root[root[mine]]
            mine = root[mine]
        at = open_piece[cluster[i]]
        if at >= 0:
            theirs = first[at]
            while root[theirs] != theirs:
                root[theirs] = root[root[theirs]]
                theirs = root[theirs]
            if theirs != mine:
                if total[theirs] + total[mine] <= most:
                    root[mine] = theirs
                    total[theirs] += total[mine]
                else:
                    at = -1
        if at < 0:
            at = open_piece[cluster[i]] = count
            first[count] = mine
            count += 1
        piece[i] = at
    return piece


@inner
def _share(one: BoolArray, a: int, other: BoolArray, b: int) -> bool:
    """Return whether row a of `one` and row b of `other` have a true entry in the same column."""
    for x in range(one.shape[1]):
        if one[a, x] and other[b, x]:
            return True
    return False


@inner
def _equal(table: BoolArray, a: int, b: int) -> bool:
    """Return whether two rows of a table are equal."""
    for x in range(table.shape[1]):
        if table[a, x] != table[b, x]:
            return False
    return True


@linear
@builder
def cut_by_ability(order: IntArray, cluster: IntArray, usable: BoolArray, able: BoolArray, alike: bool) -> IntArray:
    """Cut clusters into pieces with a usable device in common, tasks in the given order; return the piece of each task, [n].

    Parameters
    ----------
    usable : bool array [n, M]
        All tasks of a piece have a true column in common.
    able : bool array [n, N]
        If `alike`, all tasks of a piece have equal rows.
    """
    n = len(order)
    piece, open_piece, last, count = np.empty(n, np.int64), np.full(n, -1), np.empty(n, np.int64), 0
    common = np.empty(usable.shape, np.bool_)
    for i in order:
        at = open_piece[cluster[i]]
        if at >= 0 and _share(common, at, usable, i) and (not alike or _equal(able, i, last[at])):
            for x in range(usable.shape[1]):
                common[at, x] = common[at, x] and usable[i, x]
        else:
            at = open_piece[cluster[i]] = count
            for x in range(usable.shape[1]):
                common[at, x] = usable[i, x]
            count += 1
        last[at] = i
        piece[i] = at
    return piece
