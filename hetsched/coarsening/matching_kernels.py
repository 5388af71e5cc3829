"""Numba kernels that pair tasks without creating a cycle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder, inner
from hetsched.problem.problem import ProblemArrays


class Tasks(NamedTuple):
    """Columns that decide whether two tasks may be paired, [n] each."""

    part: IntArray
    """Only tasks of the same part are paired."""
    level: IntArray
    """The number of edges on the longest path to the task."""
    work: FloatArray
    """Mean duration in seconds; of edges of equal cost, the one to the task of less work is chosen."""
    claim: FloatArray
    """Bytes."""
    able: IntArray
    """Devices that can run the task, as bits; a pair must have one in common."""


class Limits(NamedTuple):
    """Maximum work in seconds, and maximum claim in bytes, of a pair."""

    work: float
    claim: float


@builder
def levels(arrays: ProblemArrays, order: IntArray) -> IntArray:
    """Return the number of edges on the longest path to each task, [n]; `order` is topological."""
    level = np.zeros(len(order), np.int64)
    for i in order:
        for x in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
            level[i] = max(level[i], level[arrays.pred[x]] + 1)
    return level


@inner
def _fits(i: int, j: int, tasks: Tasks, limits: Limits) -> bool:
    """Return whether two tasks together are within the limits and can run on one device."""
    return bool(
        tasks.work[i] + tasks.work[j] <= limits.work
        and tasks.claim[i] + tasks.claim[j] <= limits.claim
        and tasks.able[i] & tasks.able[j] != 0
    )


@inner
def _joined(i: int, wanted: int, ptr: IntArray, near: IntArray, level: IntArray, partner: IntArray) -> bool:
    """Return whether task i has a neighbour of level `wanted` whose partner is of the level of i."""
    for x in range(ptr[i], ptr[i + 1]):
        j = near[x]
        if level[j] == wanted and partner[j] >= 0 and level[partner[j]] == level[i]:
            return True
    return False


@inner
def _pair_along_edges(arrays: ProblemArrays, order: IntArray, cost: FloatArray, tasks: Tasks, limits: Limits, partner: IntArray) -> None:
    """Pair tasks, in the given order, along the heaviest edge to a free neighbour of an adjacent level."""
    level, part, work = tasks.level, tasks.part, tasks.work
    for i in order:
        if partner[i] >= 0:
            continue
        best, heaviest, least = -1, -1.0, 0.0
        for forward in (True, False):
            ptr, near, edge = (
                (arrays.succ_ptr, arrays.succ, arrays.succ_edge) if forward else (arrays.pred_ptr, arrays.pred, arrays.pred_edge)
            )
            step = 1 if forward else -1
            for x in range(ptr[i], ptr[i + 1]):
                j = near[x]
                if partner[j] >= 0 or part[j] != part[i] or level[j] != level[i] + step or not _fits(i, j, tasks, limits):
                    continue
                if cost[edge[x]] > heaviest or (cost[edge[x]] == heaviest and work[j] < least):
                    low, high = (i, j) if forward else (j, i)
                    on, back = level[low] + 1, level[high] - 1
                    if not _joined(low, on, arrays.succ_ptr, arrays.succ, level, partner) and not _joined(
                        high, back, arrays.pred_ptr, arrays.pred, level, partner
                    ):
                        best, heaviest, least = j, cost[edge[x]], work[j]
        if best >= 0:
            partner[i], partner[best] = best, i


@inner
def _pair_siblings(ptr: IntArray, near: IntArray, tasks: Tasks, limits: Limits, partner: IntArray) -> None:
    """Pair free tasks of one level and part among ``near[ptr[p]:ptr[p + 1]]``, for each task p."""
    level, part = tasks.level, tasks.part
    none = len(partner)
    for p in range(len(partner)):
        waiting = none
        for x in range(ptr[p], ptr[p + 1]):
            i = near[x]
            if partner[i] >= 0:
                continue
            if waiting < none and level[i] == level[waiting] and part[i] == part[waiting] and _fits(i, waiting, tasks, limits):
                partner[i], partner[waiting] = waiting, i
                waiting = none
            else:
                waiting = i


@inner
def _root(parent: IntArray, i: int) -> int:
    """Return the root of i, and shorten the path to it."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@builder
def join(order: IntArray, ends: IntArray, tasks: Tasks, limits: Limits) -> IntArray:
    """Return a number for each task, [n], equal for those joined along edges ``ends[e]``, in the given order, within the limits.

    A cluster has the work, the claim and the devices of its members in the row of its root; `tasks` is changed.
    """
    parent = np.arange(len(tasks.work))
    for e in order:
        i, j = _root(parent, ends[e, 0]), _root(parent, ends[e, 1])
        if i != j and tasks.part[i] == tasks.part[j] and _fits(i, j, tasks, limits):
            parent[j] = i
            tasks.work[i] += tasks.work[j]
            tasks.claim[i] += tasks.claim[j]
            tasks.able[i] &= tasks.able[j]
    for i in range(len(parent)):
        parent[i] = _root(parent, i)
    return parent


@builder
def match(arrays: ProblemArrays, order: IntArray, cost: FloatArray, tasks: Tasks, limits: Limits) -> IntArray:
    """Return the partner of each task, or -1, [n]; `cost` [E] is that of edges.

    Tasks are matched in the given order along the heaviest edge to a free neighbour of an adjacent level. The
    unmatched ones are paired with tasks of their level that have a parent or a child in common.
    """
    partner = np.full(len(order), -1)
    _pair_along_edges(arrays, order, cost, tasks, limits, partner)
    _pair_siblings(arrays.succ_ptr, arrays.succ, tasks, limits, partner)
    _pair_siblings(arrays.pred_ptr, arrays.pred, tasks, limits, partner)
    return partner
