"""Numba kernels over all stages of a block."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import builder

Indices = npt.NDArray[np.int32]


@builder
def longest_and_sum(
    parent: Indices, last: Indices, ptr: IntArray, near: IntArray, alone: FloatArray, body: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the seconds of the longest group of each stage, from `alone`, and the sum of `body` over its tasks, [S] each.

    Stage s is stage ``parent[s] < s`` and the task ``last[s]``; ``near[ptr[i]:ptr[i + 1]]`` are the neighbours of task i. All
    groups of a stage but that of the new task are groups of the parent.
    """
    stages, n = len(parent), len(alone)
    longest, total = np.zeros(stages), np.zeros(stages)
    inside, met, todo = np.full(n, -1), np.full(n, -1), np.empty(n, np.int64)
    for s in range(1, stages):
        at = s
        while at:
            inside[last[at]] = s
            at = parent[at]
        todo[0], count, seconds = last[s], 1, 0.0
        met[last[s]] = s
        while count:
            count -= 1
            i = todo[count]
            seconds += alone[i]
            for e in range(ptr[i], ptr[i + 1]):
                j = near[e]
                if inside[j] == s and met[j] != s:
                    met[j] = s
                    todo[count] = j
                    count += 1
        longest[s] = max(longest[parent[s]], seconds)
        total[s] = total[parent[s]] + body[last[s]]
    return longest, total


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
