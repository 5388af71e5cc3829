"""Numba kernel that enumerates the ideals of a partial order."""

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
    """[size, words]: the immediate predecessors of each element."""
    mark: Words
    """[size]: random numbers; the hash of a set is the sum over its elements."""


class IdealTable(NamedTuple):
    """The ideals found so far, with a hash table; see `ideal_table`."""

    sets: Words
    """[limit + 1, words]"""
    hashes: Words
    """[limit + 1]"""
    slots: IntArray
    """Numbers of ideals by hash, -1 for an empty slot; the length is a power of two."""
    grown: Words
    """Scratch: [words], the ideal to look up."""


class Growth(NamedTuple):
    """The result of one call; see `growth`."""

    numbers: IntArray
    """The number of elements that can be added to each ideal."""
    element: IntArray
    """These elements, ideal by ideal."""
    larger: IntArray
    """The ideal that results from each addition."""


def ideal_table(words: int, limit: int) -> IdealTable:
    """Return a table for `limit` ideals that contains the empty ideal."""
    sets, hashes = np.zeros((limit + 1, words), np.uint64), np.zeros(limit + 1, np.uint64)
    slots = np.full(1 << int(np.ceil(np.log2(2 * limit + 16))), -1)
    slots[0] = 0
    return IdealTable(sets, hashes, slots, np.empty(words, np.uint64))


def growth(ideals: int, size: int) -> Growth:
    """Return uninitialised arrays for the growth of `ideals` ideals in an order of `size` elements."""
    return Growth(np.empty(ideals, np.int64), np.empty(ideals * size, np.int64), np.empty(ideals * size, np.int64))


@kernel
def grow(begin: int, count: int, order: PartialOrder, table: IdealTable, growth: Growth) -> tuple[int, int]:
    """Add the ideals with one element more than those from `begin` on, until all are expanded or `growth` is full.

    Returns the first ideal that is not expanded, and the number of ideals, -1 if the table is full.
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
