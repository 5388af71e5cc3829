"""Numba kernels of intervals: the tasks on all paths from one task to another."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder, kernel
from hetsched.problem.problem import ProblemArrays

LOOKS = 48
"""The most ancestors of a task that are looked at, those that come last in the topological order; a mask of them has 63 bits."""


@builder
def intervals(arrays: ProblemArrays, order: IntArray, rank: IntArray, seconds: FloatArray, ends: IntArray, most: int) -> IntArray:
    """Return the tasks of an interval up to each end, its first task last, [ends, most]; -1 follows them, or fills the row.

    Of the intervals with at most `most` tasks, among the last `LOOKS` ancestors, it is the one whose seconds exceed its longest path
    most. `order` is topological, `rank` the position of each task in it.
    """
    found = np.full((len(ends), most), -1)
    pending, place = np.empty(len(order), np.int64), np.full(len(order), -1)  # of a task: its place among the members, n while it waits
    member, within, path = np.empty(LOOKS, np.int64), np.empty(LOOKS, np.int64), np.empty(LOOKS)
    for row in range(len(ends)):
        pending[0], waiting, count = ends[row], 1, 0
        place[ends[row]] = len(order)
        while waiting > 0 and count < LOOKS:
            last = 0
            for y in range(1, waiting):
                if rank[pending[y]] > rank[pending[last]]:
                    last = y
            i = pending[last]
            waiting -= 1
            pending[last] = pending[waiting]
            member[count], place[i] = i, count
            within[count], path[count] = np.int64(1) << count, seconds[i]
            count += 1
            for x in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
                if place[arrays.pred[x]] < 0:
                    pending[waiting], place[arrays.pred[x]] = arrays.pred[x], len(order)
                    waiting += 1
        excess, best = 0.0, -1
        for a in range(count):  # all children of a member that lead to the end come before it
            size, total = 0, 0.0
            for b in range(a + 1):
                if within[a] >> b & 1:
                    size += 1
                    total += seconds[member[b]]
            if size <= most and total - path[a] > excess * (1.0 + 1e-9):
                excess, best = total - path[a], a
            for x in range(arrays.pred_ptr[member[a]], arrays.pred_ptr[member[a] + 1]):
                b = place[arrays.pred[x]]
                if b < count:
                    within[b] |= within[a]
                    path[b] = max(path[b], path[a] + seconds[member[b]])
        size = 0
        for b in range(best + 1):
            if within[best] >> b & 1:
                found[row, size] = member[b]
                size += 1
        for y in range(waiting):
            place[pending[y]] = -1
        for a in range(count):
            place[member[a]] = -1
    return found


@kernel
def longest(
    arrays: ProblemArrays, order: IntArray, least: FloatArray, most: FloatArray, first: IntArray, seconds: FloatArray, scratch: FloatArray
) -> float:
    """Return the longest path of tasks and intervals.

    Task i takes from ``least[i]`` to ``most[i]``. From the start of ``first[i]``, if that is not -1, to the end of i there are at
    least ``seconds[i]``. `scratch` is [2, n].
    """
    length, start, end = 0.0, scratch[0], scratch[1]
    for i in order:
        start[i] = 0.0
        for x in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
            start[i] = max(start[i], end[arrays.pred[x]])
        end[i] = start[i] + least[i]
        if first[i] >= 0:
            end[i] = max(end[i], start[first[i]] + seconds[i])
            start[i] = max(start[i], end[i] - most[i])
        length = max(length, end[i])
    return length
