"""Kernel that enumerates ideals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.arrays import IntArray
from hetsched.compiled import kernel

Words = npt.NDArray[np.uint64]


class PartialOrder(NamedTuple):
    """A partial order on 0, ..., size - 1; sets are bits in words of 64."""

    below: Words
    """[size, words]: the elements right before each."""
    mark: Words
    """[size]: random numbers; the sum of those of its elements is the hash of a set."""


class IdealTable(NamedTuple):
    """The ideals found so far, and where to find one by its hash; see `ideal_table`."""

    sets: Words
    """[limit + 1, words]"""
    hashes: Words
    """[limit + 1]"""
    slots: IntArray
    """Numbers of ideals by hash, -1 where none is; the length is a power of two."""
    grown: Words
    """[words]: the ideal that is looked for."""


class Growth(NamedTuple):
    """What one call looks into; see `growth`."""

    numbers: IntArray
    """Of elements that each ideal can take on, one ideal after another."""
    element: IntArray
    """Those elements."""
    larger: IntArray
    """The ideals that result."""


def ideal_table(words: int, limit: int) -> IdealTable:
    """Return a table for `limit` ideals that holds the empty one."""
    sets, hashes = np.zeros((limit + 1, words), np.uint64), np.zeros(limit + 1, np.uint64)
    slots = np.full(1 << int(np.ceil(np.log2(2 * limit + 16))), -1)
    slots[0] = 0
    return IdealTable(sets, hashes, slots, np.empty(words, np.uint64))


def growth(ideals: int, size: int) -> Growth:
    """Return room for what so many ideals of `size` elements grow to."""
    return Growth(np.empty(ideals, np.int64), np.empty(ideals * size, np.int64), np.empty(ideals * size, np.int64))


@kernel
def grow(begin: int, count: int, order: PartialOrder, table: IdealTable, growth: Growth) -> tuple[int, int]:
    """Add what ideals from `begin` on grow to by one element, until all are looked into or `growth` is full.

    Returns the first one that is not looked into, and the number of ideals, -1 if there is no room for more.
    """
    below, mark = order
    sets, hashes, slots, grown = table
    numbers, element, larger = growth
    size, words = below.shape
    last_slot = len(slots) - 1
    c, used = begin, 0
    while c < count and c - begin < len(numbers):
        before = used
        for y in range(size):
            bit = np.uint64(1) << np.uint64(y % 64)
            if sets[c, y // 64] & bit:
                continue
            ready = True
            for w in range(words):
                if below[y, w] & ~sets[c, w]:
                    ready = False
                    break
            if not ready:
                continue
            for w in range(words):
                grown[w] = sets[c, w]
            grown[y // 64] |= bit
            key = hashes[c] + mark[y]
            slot = np.int64((key ^ (key >> np.uint64(29))) & np.uint64(last_slot))
            found = np.int64(-1)
            while slots[slot] >= 0:
                other = slots[slot]
                if hashes[other] == key:
                    same = True
                    for w in range(words):
                        if sets[other, w] != grown[w]:
                            same = False
                            break
                    if same:
                        found = other
                        break
                slot = (slot + 1) & last_slot
            if found < 0:
                if count == len(hashes):
                    return c, -1
                found = np.int64(count)
                for w in range(words):
                    sets[found, w] = grown[w]
                hashes[found] = key
                slots[slot] = found
                count += 1
            element[used], larger[used] = y, found
            used += 1
        numbers[c - begin] = used - before
        c += 1
    return c, count
