"""Kernels over all stages of a block at once."""

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
    """Return of each stage the seconds of its longest group, tasks alone, and the sum of its bodies, [S] each.

    Stage s is stage ``parent[s] < s`` and the task ``last[s]``; ``near[ptr[i]:ptr[i + 1]]`` are the tasks that an edge joins
    to task i. A group that is not the new task's has been in the parent.
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
    """Return of each stage whether it has two tasks or more and all are of one sort, which is not -1."""
    stages = len(parent)
    common, result = np.full(stages, -1), np.zeros(stages, np.bool_)
    for s in range(1, stages):
        own = sort[last[s]]
        if own >= 0 and (parent[s] == 0 or common[parent[s]] == own):
            common[s] = own
            result[s] = parent[s] != 0
    return result
