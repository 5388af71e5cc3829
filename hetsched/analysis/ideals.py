"""Enumeration of the ideals (down-sets) of a partial order, the states of dynamic programs over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hetsched.arrays import IntArray

_CHUNK = 100_000  # pairs of ideals and elements examined between two calls of `stop`


class Ideals(NamedTuple):
    """All ideals, the empty one first, smaller ones before larger ones, all elements last.

    ``element[ptr[c]:ptr[c + 1]]`` are the elements that can be added to ideal c, the same range of
    ``larger`` the resulting ideals.
    """

    ptr: IntArray
    element: IntArray
    larger: IntArray

    @property
    def number(self) -> int:
        """Number of ideals."""
        return len(self.ptr) - 1


def chain(size: int) -> Ideals:
    """Return the ideals of the order 0 < 1 < ... < size - 1."""
    return Ideals(np.append(np.arange(size + 1), size), np.arange(size), np.arange(1, size + 1))


def ideals(size: int, pairs: IntArray, *, limit: int, stop: Callable[[], bool] = lambda: False) -> Ideals | None:
    """Return the ideals of a partial order on 0, ..., size - 1; None if there are more than `limit`, or once `stop()` is true.

    `pairs` [P, 2] are (before, after) and must have no cycle.
    """
    from hetsched.analysis.ideal_kernels import PartialOrder, grow, growth, ideal_table

    words = max(1, (size + 63) // 64)
    below = np.zeros((size, words), np.uint64)
    for before, after in pairs.tolist():
        below[after, before // 64] |= np.uint64(1 << (before % 64))
    order = PartialOrder(below, np.random.default_rng(0).integers(1, 2**63, size, np.uint64))
    table = ideal_table(words, limit)
    count, done = 1, 0
    counts: list[IntArray] = [np.zeros(1, np.int64)]
    elements: list[IntArray] = []
    larger: list[IntArray] = []
    while done < count:
        if stop():
            return None
        buffer = growth(max(1, _CHUNK // max(1, size)), size)
        end, count = grow(done, count, order, table, buffer)
        if count < 0:
            return None
        numbers = buffer.numbers[: end - done]
        used = int(numbers.sum())
        counts.append(numbers)
        elements.append(buffer.element[:used])
        larger.append(buffer.larger[:used])
        done = end
    nothing = [np.zeros(0, np.int64)]
    return Ideals(np.cumsum(np.concatenate(counts)), np.concatenate(elements or nothing), np.concatenate(larger or nothing))
