"""The least load of the busiest of identical devices, exactly: which items share a bin so that the fullest bin holds least.

Source: bin completion: R. E. Korf, "A new algorithm for optimal bin packing", AAAI 2002; as a search for the least capacity:
E. L. Schreiber, R. E. Korf, M. D. Moffitt, "Optimal multi-way number partitioning", Journal of the ACM 65(4), 2018.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.stopping import NEVER, Deadline

LARGEST = 60
"""The most items, which are the bits of a number."""
SETS = (1_000, 20_000, 400_000, 8_000_000)
"""The most sets of one search for a packing, in the order of the attempts."""
TABLE = 2**16
"""Refuted sets of items that are kept."""
SAME, NEAR = 1e-9, 1e-3
"""Relative difference of loads without a divisor that is none, and of a load and a bound between which nothing is tried."""
ROUNDING = 1e-12
"""Relative excess of a load over a capacity that counts as rounding."""


class Packing(NamedTuple):
    """Items in bins, and what is proven."""

    load: float
    """The sum of the fullest bin."""
    least: float
    """No packing has a smaller load than this."""
    bin: IntArray
    """The bin of each item, [n]."""


def first_packing(length: FloatArray, bins: int) -> Packing:
    """Return a packing by longest processing time first, and the bound that some bin has the mean load and holds the longest item,
    and if there are more items than bins, two of the longest ones.
    """
    order = np.argsort(-length, kind="stable")
    load, place = np.zeros(bins), np.zeros(len(length), np.int64)
    for i in order:
        place[i] = k = int(load.argmin())
        load[k] += length[i]
    longest = length[order]
    pair = longest[bins - 1] + longest[bins] if len(length) > bins else 0.0
    return Packing(float(load.max()), max(float(length.sum()) / bins * (1 - ROUNDING), float(longest[:1].sum()), float(pair)), place)


def least_packing(
    length: FloatArray,
    bins: int,
    *,
    divisor: float = 0.0,
    enough: float = 0.0,
    close: float = 0.0,
    sets: int = SETS[-1],
    deadline: Deadline = NEVER,
) -> Packing:
    """Return a packing of the least load, or the best one found and a bound.

    Parameters
    ----------
    length : array [n]
        Lengths, at least 0; at most `LARGEST`.
    bins : int
    divisor : float
        All lengths are multiples of it; 0 if that is not known.
    enough : float
        The search ends where the load of the packing is at most this.
    close : float
        The search ends where the load of the packing is at most this much above what is proven.
    sets : int
        The most sets of one search.
    deadline : Deadline
        Read between searches; those of the last attempt take some seconds.
    """
    search = _Search(length, bins, divisor)
    for most in SETS:
        while most <= sets and search.open > close and search.load > max(enough, 0.0) and not deadline.over:
            if not search.narrow(most):
                break
    return search.packing()


class _Search:
    """The best packing of some lengths so far, and the largest capacity for which there is none; in multiples of a divisor if there is one.

    These are whole numbers of less than 2^53, so their sums are exact.
    """

    def __init__(self, length: FloatArray, bins: int, divisor: float) -> None:
        self._whole, self._unit = divisor > 0.0, divisor or 1.0
        own = np.rint(length / divisor) if divisor else length
        first = first_packing(own, bins)
        self._load, self._bin = first.load, first.bin
        self._low = float(math.ceil(first.least)) if self._whole else first.least
        """The least capacity that is not refuted."""
        self._step = 0.0
        """How far above it the next whole capacity is tried."""
        self._order = np.argsort(-own, kind="stable")
        self._length: FloatArray = np.ascontiguousarray(own[self._order])
        self._free, self._chosen = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
        self._rest = np.zeros((bins, len(length) + 1))
        self._failed = np.zeros((2, TABLE), np.int64)

    @property
    def _below(self) -> float:
        """The largest capacity that counts as smaller than the load."""
        return self._load - 1.0 if self._whole else self._load * (1 - SAME)

    @property
    def load(self) -> float:
        """The sum of the fullest bin."""
        return self._load * self._unit

    @property
    def open(self) -> float:
        """By how much a better packing may be better; 0 if there is none."""
        return (self._load - self._low) * self._unit if self._low <= self._below else 0.0

    def narrow(self, most: int) -> bool:
        """Find a better packing or refute a capacity, by `most` sets for each of two capacities; return whether that was done."""
        from hetsched.analysis import packing_kernels as kernels

        below = self._below
        bold = self._low + self._step if self._whole else (self._low + below) / 2
        for capacity in dict.fromkeys((bold if bold < below * (1 - NEAR) else below, below)):
            self._failed[:] = 0
            limit = capacity + 0.5 if self._whole else capacity * (1 + ROUNDING)
            answer = kernels.pack(self._length, limit, most, self._free, self._chosen, self._rest, self._failed)
            if answer == kernels.FOUND:
                self._take()
                self._step = 0.0
            elif answer == kernels.REFUTED:
                self._low = capacity + 1.0 if self._whole else math.nextafter(capacity, math.inf)
                self._step = 2.0 * self._step + 1.0
            if answer != kernels.UNKNOWN:
                return True
        return False

    def _take(self) -> None:
        """Take the packing just found."""
        inside = self._chosen[:, None] >> np.arange(len(self._length)) & 1
        self._load = float((inside * self._length).sum(axis=1).max())
        self._bin[self._order] = inside.argmax(axis=0)

    def packing(self) -> Packing:
        """Return the best packing and what is proven."""
        return Packing(self.load, self._low * self._unit, self._bin)
