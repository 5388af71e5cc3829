"""Kernels over all stages of a block at once."""

from __future__ import annotations

import numpy as np

from hetsched.compiled import builder


@builder
def longest_and_sum(parent, last, ptr, near, alone, body):  # type: ignore[no-untyped-def]
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
def alike(parent, last, sort):  # type: ignore[no-untyped-def]
    """Return of each stage whether it has two tasks or more and all are of one sort, which is not -1."""
    found = np.full(len(parent), -1)
    for s in range(1, len(parent)):
        own = sort[last[s]]
        if own >= 0 and (parent[s] == 0 or found[parent[s]] == own):
            found[s] = own
    result = found >= 0
    for s in range(len(parent)):
        if parent[s] == 0:
            result[s] = False
    return result
