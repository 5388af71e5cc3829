"""The least load of the busiest of identical devices, exactly: which items share a bin so that the fullest bin holds least.

Source: bin completion: R. E. Korf, "A new algorithm for optimal bin packing", AAAI 2002; as a search for the least capacity:
E. L. Schreiber, R. E. Korf, M. D. Moffitt, "Optimal multi-way number partitioning", Journal of the ACM 65(4), 2018.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hetsched.analysis.packing_kernels import FOUND, REFUTED, UNKNOWN, pack
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
    length: FloatArray, bins: int, *, divisor: float = 0.0, enough: float = 0.0, sets: int = SETS[-1], deadline: Deadline = NEVER
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
    sets : int
        The most sets of one search.
    deadline : Deadline
        Read between searches; those of the last attempt take some seconds.
    """
    found, search = first_packing(length, bins), _Search(length, bins)
    low, sure = _up(found.least, divisor), 0
    while low <= (below := _below(found.load, divisor)) and found.load > max(enough, 0.0) and SETS[sure] <= sets and not deadline.over:
        bold = low if divisor else (low + below) / 2
        answer = UNKNOWN
        for capacity in dict.fromkeys((bold if bold < below * (1 - NEAR) else below, below)):
            answer = search.within(capacity, SETS[sure])
            if answer == FOUND:
                found = search.packing()
            elif answer == REFUTED:
                low = capacity + divisor if divisor else math.nextafter(capacity, math.inf)
            if answer != UNKNOWN:
                break
        sure += answer == UNKNOWN
        if sure == len(SETS):
            break
    return Packing(found.load, found.load if low > _below(found.load, divisor) else low, found.bin)


def _below(load: float, divisor: float) -> float:
    """Return the largest capacity that counts as smaller than a load."""
    return load - divisor if divisor else load * (1 - SAME)


def _up(value: float, divisor: float) -> float:
    return math.ceil(value / divisor * (1 - 1e-9)) * divisor if divisor else value


class _Search:
    """Searches for packings of some lengths, and their arrays."""

    def __init__(self, length: FloatArray, bins: int) -> None:
        self._order = np.argsort(-length, kind="stable")
        self._length: FloatArray = np.ascontiguousarray(length[self._order])
        self._free, self._chosen = np.zeros(bins, np.int64), np.zeros(bins, np.int64)
        self._rest = np.zeros((bins, len(length) + 1))
        self._failed = np.zeros((2, TABLE), np.int64)

    def within(self, capacity: float, most: int) -> int:
        """Look for a packing into bins of a capacity; see `pack`."""
        self._failed[:] = 0
        return pack(self._length, capacity * (1 + ROUNDING), most, self._free, self._chosen, self._rest, self._failed)

    def packing(self) -> Packing:
        """Return the packing just found."""
        place = np.zeros(len(self._length), np.int64)
        load = np.zeros(len(self._chosen))
        for k, chosen in enumerate(self._chosen.tolist()):
            mine = np.flatnonzero([chosen >> i & 1 for i in range(len(place))])
            place[self._order[mine]] = k
            load[k] = self._length[mine].sum()
        return Packing(float(load.max()), 0.0, place)
