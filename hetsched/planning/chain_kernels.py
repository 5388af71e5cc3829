"""Numba kernels for intervals of a chain on groups of alike devices.

A state is how many devices of each group are used, and the group of the last stage. The used counts are the digits of one number,
the digit of group g with the weight ``stride[g]``; `best` [group, used, end] is the least sum of the stages of the items before `end`.
States in which the last stage's group is not used have no values: their memory is not touched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner, kernel


class Chain(NamedTuple):
    """A chain and G groups of devices.

    Attributes
    ----------
    before : float64 [G, n + 1]
        Cost of the items before each end.
    stage : float64 [G]
        Cost of a stage beside its items.
    lowest : int64 [G, n + 1]
        The first item with which a stage that ends there fits; `end` where none does. It never falls as the end rises.
    hop, closing : float64 [G, G]
        Cost between stages on two devices.
    size, stride : int64 [G]
        Devices of each group, and the weight of its digit.
    """

    before: FloatArray
    stage: FloatArray
    lowest: IntArray
    hop: FloatArray
    closing: FloatArray
    size: IntArray
    stride: IntArray


@kernel
def lowest_starts(needed: FloatArray, room: float, low: IntArray) -> None:
    """Fill `low` [n + 1] with the first item with which a stage that ends there needs at most `room`.

    `needed` [start, end] is what a stage needs; it never falls as the end rises or the start falls.
    """
    start = 0
    low[0] = 0
    for end in range(1, needed.shape[1]):
        while start < end and not needed[start, end] <= room:
            start += 1
        low[end] = start


@kernel
def shortest(chain: Chain, first: int, best: FloatArray, arrive: FloatArray, queue: IntArray) -> None:
    """Fill `best`; the first stage is on a device of group `first`, or of any group if that is -1.

    `arrive` [n] and `queue` [n] are working memory.
    """
    n_groups, n_states, n_ends = best.shape
    n = n_ends - 1
    for used in range(1, n_states):
        for g in range(n_groups):
            if used // chain.stride[g] % (chain.size[g] + 1) == 0:
                continue
            arrivals(chain, best, used - chain.stride[g], g, first, arrive)
            best[g, used, 0] = np.inf
            head = tail = 0
            added = 0
            for end in range(1, n + 1):
                start = chain.lowest[g, end]
                while added < end:
                    here = arrive[added] - chain.before[g, added]
                    while tail > head and arrive[queue[tail - 1]] - chain.before[g, queue[tail - 1]] > here:
                        tail -= 1
                    queue[tail] = added
                    tail += 1
                    added += 1
                while head < tail and queue[head] < start:
                    head += 1
                best[g, used, end] = np.inf
                if head < tail:
                    i = queue[head]
                    best[g, used, end] = arrive[i] - chain.before[g, i] + chain.before[g, end] + chain.stage[g]


@kernel
def farthest(reach: IntArray, size: IntArray, stride: IntArray, ends: IntArray) -> None:
    """Fill `ends` [state] with the end of the longest prefix of the chain that the used devices can hold; `ends[0]` is 0.

    `reach` [group, start] is the farthest end of a stage, its start if there is none. It never falls as the start rises, so no shorter
    prefix leads farther.
    """
    for used in range(1, len(ends)):
        farthest_end = 0
        for g in range(len(size)):
            if used // stride[g] % (size[g] + 1) > 0:
                end = reach[g, ends[used - stride[g]]]
                farthest_end = end if end > farthest_end else farthest_end
        ends[used] = farthest_end


@inner
def arrivals(chain: Chain, best: FloatArray, used: int, g: int, first: int, arrive: FloatArray) -> None:
    """Fill `arrive` [n]: the least cost with which a stage on group `g` can begin at each item, with the others `used`."""
    n = len(arrive)
    for i in range(n):
        arrive[i] = np.inf
    if used == 0:
        if first < 0 or first == g:
            arrive[0] = 0.0
        return
    for other in range(len(chain.size)):
        if used // chain.stride[other] % (chain.size[other] + 1) > 0:
            hop, row = chain.hop[other, g], best[other, used]
            for i in range(1, n):
                through = row[i] + hop
                arrive[i] = through if through < arrive[i] else arrive[i]  # min() is not vectorised


@kernel
def trace(chain: Chain, first: int, best: FloatArray, used: int, g: int, arrive: FloatArray, groups: IntArray, starts: IntArray) -> int:
    """Fill the group and the first item of each stage of a state, last stage first; return the number of stages."""
    end, count = best.shape[2] - 1, 0
    while True:
        before = used - chain.stride[g]
        arrivals(chain, best, before, g, first, arrive)
        start = chain.lowest[g, end]
        for i in range(start, end):
            if arrive[i] - chain.before[g, i] < arrive[start] - chain.before[g, start]:
                start = i
        groups[count], starts[count] = g, start
        count += 1
        if before == 0:
            return count
        following = -1
        for other in range(len(chain.size)):
            if before // chain.stride[other] % (chain.size[other] + 1) > 0 and (
                following < 0 or best[other, before, start] + chain.hop[other, g] < best[following, before, start] + chain.hop[following, g]
            ):
                following = other
        used, end, g = before, start, following


@kernel
def shortest_of_any(chain: Chain, cost: FloatArray, first: int, best: FloatArray, arrive: FloatArray) -> None:
    """Fill `best` as `shortest` does, with any cost [group, start, end] of a stage; those that do not fit cost inf."""
    n_groups, n_states, n_ends = best.shape
    for used in range(1, n_states):
        for g in range(n_groups):
            if used // chain.stride[g] % (chain.size[g] + 1) == 0:
                continue
            arrivals(chain, best, used - chain.stride[g], g, first, arrive)
            for end in range(n_ends):
                least = np.inf
                for start in range(end):
                    through = arrive[start] + cost[g, start, end]
                    least = through if through < least else least
                best[g, used, end] = least
