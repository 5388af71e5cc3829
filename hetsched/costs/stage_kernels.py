"""Numba kernels over all stages of a block."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import builder

Indices = npt.NDArray[np.int32]


class Neighbours(NamedTuple):
    """The tasks ``near[ptr[i]:ptr[i + 1]]`` that task i reads or that read it."""

    ptr: IntArray
    near: IntArray


class Launches(NamedTuple):
    """The constants of `hetsched.costs.Contention`, in seconds but for the last."""

    launch: float
    host: float
    synchronisation: float
    interference: float


@builder
def groups_and_sums(
    parent: Indices, last: IntArray, neighbours: Neighbours, body: FloatArray, amounts: FloatArray
) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Return the seconds of the longest group of each stage, from `body`; whether it has only one; sums of `amounts`, [S, k].

    Stage s is stage ``parent[s] < s`` and the task ``last[s]``. All groups of a stage but that of the new task are groups of the parent.
    """
    stages, n, k = len(parent), len(body), amounts.shape[1]
    longest, single, total = np.zeros(stages), np.ones(stages, np.bool_), np.zeros((stages, k))
    inside, met, todo = np.full(n, -1), np.full(n, -1), np.empty(n, np.int64)
    for s in range(1, stages):
        at, size = s, 0
        while at:
            inside[last[at]] = s
            at = parent[at]
            size += 1
        todo[0], count, seconds, reached = last[s], 1, 0.0, 0
        met[last[s]] = s
        while count:
            count -= 1
            reached += 1
            i = todo[count]
            seconds += body[i]
            for e in range(neighbours.ptr[i], neighbours.ptr[i + 1]):
                j = neighbours.near[e]
                if inside[j] == s and met[j] != s:
                    met[j] = s
                    todo[count] = j
                    count += 1
        longest[s] = max(longest[parent[s]], seconds)
        single[s] = reached == size
        for x in range(k):
            total[s, x] = total[parent[s], x] + amounts[last[s], x]
    return longest, single, total


@builder
def seconds(
    chosen: IntArray, parent: Indices, last: IntArray, neighbours: Neighbours, kernels: FloatArray, constants: Launches
) -> FloatArray:
    """Return the seconds of some stages, [len(chosen)], by the rules of `hetsched.costs.Contention`.

    `kernels` [n, 4] are body, work, move and whether there is a kernel, of each task; stage s is stage ``parent[s] < s`` and the task
    ``last[s]``.
    """
    n, made = len(kernels), np.empty(len(chosen))
    place, tasks, group, todo = np.full(n, -1), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    order, ready, left = np.empty(n, np.int64), np.empty(n), np.empty(n)  # by group; a negative length is a kernel that does not run
    at, end = np.empty(n, np.int64), np.empty(n, np.int64)  # of each group, its next kernel, and the one after its last
    for c in range(len(chosen)):
        s, size = chosen[c], 0
        while s:
            size += 1
            tasks[n - size] = last[s]
            s = parent[s]
        own = tasks[n - size :]
        for x in range(size):
            place[own[x]], group[x] = x, -1
        groups, placed = 0, 0
        launches = 0.0
        for first in range(size):
            if group[first] >= 0:
                continue
            group[first], todo[0], count = groups, first, 1
            while count:
                count -= 1
                i = own[todo[count]]
                for e in range(neighbours.ptr[i], neighbours.ptr[i + 1]):
                    x = place[neighbours.near[e]]
                    if x >= 0 and group[x] < 0:
                        group[x], todo[count] = groups, x
                        count += 1
            at[groups] = placed
            for x in range(first, size):
                if group[x] == groups:
                    launches += kernels[own[x], 3]
                    order[placed], ready[placed] = own[x], constants.host * launches
                    placed += 1
            end[groups] = placed
            groups += 1
        for x in range(size):
            place[own[x]] = -1
        now = 0.0
        if groups == 1:
            for x in range(size):
                now += constants.launch * kernels[own[x], 3] + kernels[own[x], 0]
            made[c] = now
            continue
        left[:groups] = -1.0
        waiting = groups
        while waiting:
            work, move, least, coming = 0.0, 0.0, np.inf, np.inf
            for g in range(groups):
                if at[g] == end[g]:
                    continue
                i = order[at[g]]
                if left[g] < 0 and ready[at[g]] <= now:
                    left[g] = kernels[i, 0]
                if left[g] < 0:
                    coming = min(coming, ready[at[g]])
                else:
                    least = min(least, left[g])
                    if kernels[i, 0] > 0:
                        work += kernels[i, 1] / kernels[i, 0]
                        move += kernels[i, 2] / kernels[i, 0]
            slower = max(1.0, work, move)
            slower *= 1.0 + constants.interference * (1.0 - 1.0 / slower)
            before, now = now, min(now + least * slower, coming)
            for g in range(groups):
                if at[g] < end[g] and left[g] >= 0:
                    left[g] -= (now - before) / slower
                    if left[g] <= 1e-12 * now:
                        left[g] = -1.0
                        at[g] += 1
                        waiting -= at[g] == end[g]
        made[c] = now + constants.synchronisation
    return made


@builder
def alike(parent: Indices, last: Indices, sort: IntArray) -> BoolArray:
    """Return whether each stage, [S], has at least two tasks, all of the same sort, which is not -1."""
    stages = len(parent)
    common, result = np.full(stages, -1), np.zeros(stages, np.bool_)
    for s in range(1, stages):
        own = sort[last[s]]
        if own >= 0 and (parent[s] == 0 or common[parent[s]] == own):
            common[s] = own
            result[s] = parent[s] != 0
    return result
