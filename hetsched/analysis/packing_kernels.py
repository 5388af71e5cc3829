"""Bin completion: whether lengths fit into bins of one capacity, a numba function.

Bins are filled one after another. A bin holds the longest item left, and one of the sets of other items with which it is *complete*: no
item left fits beside them, none could take the place of a shorter one, and what stays empty in all bins up to here is at most what the
lengths leave empty altogether. If there is a packing at all, there is one of such sets: exchange items for longer ones that lie in later
bins, one bin after another. Of items of equal length the first are used first. The sets of items left with which a search has
failed are kept in a table.
"""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner, kernel

FOUND, REFUTED, UNKNOWN = 1, 0, -1
_MIX = np.int64(0x1E3779B97F4A7C15)


@inner
def _sum(length: FloatArray, chosen: int) -> float:
    """Return the sum of the lengths of a set of items."""
    total = 0.0
    for i in range(len(length)):
        if chosen >> i & 1:
            total += length[i]
    return total


@inner
def _fill(length: FloatArray, rest: FloatArray, free: int, chosen: int, capacity: float, least: float, first: int) -> int:
    """Return the items `chosen`, all before item `first`, and of those from there on as many as fit, in their order, until it is known
    that they do not reach `least`.

    `rest` [n + 1] are the sums of free items from each one on.
    """
    n = len(length)
    total = _sum(length, chosen)
    refused = -1.0
    if first > 0 and not chosen >> (first - 1) & 1 and free >> (first - 1) & 1:
        refused = length[first - 1]  # has just been taken out; an item as long would make the same set
    for i in range(first, n):
        if total + rest[i] < least:
            break
        if free >> i & 1 and length[i] != refused and total + length[i] <= capacity:
            chosen |= 1 << i
            total += length[i]
    return chosen


@inner
def _next(
    length: FloatArray, rest: FloatArray, free: int, chosen: int, capacity: float, least: float, head: int, most: int
) -> tuple[int, int]:
    """Return the next set of items after `chosen`, all with item `head`, -1 if there is none or `most` were tried, and how many were."""
    last, tried = len(length) - 1, 0
    while last > head and tried < most:
        if chosen >> last & 1:
            chosen = _fill(length, rest, free, chosen & ((1 << last) - 1), capacity, least, last + 1)
            tried += 1
            if _sum(length, chosen) >= least:
                return chosen, tried
            last = len(length)
        last -= 1
    return -1, tried


@inner
def _dominated(length: FloatArray, free: int, chosen: int, capacity: float, head: int) -> bool:
    """Return whether an item left fits beside the chosen ones, or in the place of a shorter one but `head`."""
    n, total = len(length), _sum(length, chosen)
    for x in range(n):
        if free >> x & 1 and not chosen >> x & 1:
            if total + length[x] <= capacity:
                return True
            for y in range(max(x, head) + 1, n):
                if chosen >> y & 1 and length[y] < length[x] and total - length[y] + length[x] <= capacity:
                    return True
    return False


@kernel
def pack(length: FloatArray, capacity: float, most: int, free: IntArray, chosen: IntArray, rest: FloatArray, failed: IntArray) -> int:
    """Return FOUND, REFUTED, or UNKNOWN after about `most` sets.

    Parameters
    ----------
    length : array [n]
        Lengths, descending; at most 62, each at most the capacity.
    capacity : float
    most : int
        The most sets that are looked at.
    free, chosen : arrays [m]
        Room for the items left, and those of each of the m bins, as bits. If a packing is found, `chosen` is it.
    rest : array [m, n + 1]
        Room for sums.
    failed : array [2, t]
        The sets of items, and the numbers of bins, that were refuted; t is a power of two. It must be 0 at first, and for each capacity.
    """
    n, m, size = len(length), len(free), failed.shape[1]
    b, entering, tried = 0, True, 0
    free[0] = (1 << n) - 1
    chosen[:] = 0
    while b >= 0:
        left = m - b
        if entering:
            total = 0.0
            rest[b, n] = 0.0
            for i in range(n - 1, -1, -1):
                if free[b] >> i & 1:
                    total += length[i]
                rest[b, i] = total
            if left * capacity < total:
                b, entering = b - 1, False
                continue
            if left == 1:
                chosen[b] = free[b]
                return FOUND
            slot = ((free[b] * _MIX) >> 20) & (size - 1)
            if failed[0, slot] == free[b] and failed[1, slot] == left:
                b, entering = b - 1, False
                continue
        head = 0
        while head < n and not free[b] >> head & 1:
            head += 1
        if head == n:
            return FOUND  # nothing is left
        least = rest[b, 0] - (left - 1) * capacity
        if entering:
            chosen[b] = _fill(length, rest[b], free[b], 1 << head, capacity, 0.0, head + 1)
            tried += 1
        skipping = not entering or _sum(length, chosen[b]) < least
        while chosen[b] >= 0 and (skipping or _dominated(length, free[b], chosen[b], capacity, head)):
            chosen[b], more = _next(length, rest[b], free[b], chosen[b], capacity, least, head, most - tried)
            tried, skipping = tried + more, False
        if tried >= most:
            return UNKNOWN
        if chosen[b] < 0:
            chosen[b] = 0
            slot = ((free[b] * _MIX) >> 20) & (size - 1)
            failed[0, slot], failed[1, slot] = free[b], left
            b, entering = b - 1, False
            continue
        free[b + 1] = free[b] & ~chosen[b]
        b, entering = b + 1, True
    return REFUTED
