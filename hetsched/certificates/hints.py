"""Hints for the leaves of a proof: which rule with which thresholds and prices contradicts a state, or narrows it.

A hint need not be right: the checker recomputes the set of tasks, the priced work and the conclusion from thresholds and prices. So the
search for them is in floating point, and what is found is tried in the checker's own state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hetsched.analysis.load import least_load
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.certificates.certificate import Token

PRICE, PRICE_OF_BITS = 2.0**40, 2.0**80
"""The sum of the prices of a hint, about; larger where a price is for one bit of a device."""
_ITERATIONS = 20
_ROUNDS = 6


class View(NamedTuple):
    """The levels of the n tasks of a state as arrays, in units of time."""

    tasks: IntArray
    """[n]: the numbers of the tasks in the problem."""
    least: FloatArray
    """[n, K]: durations, inf where the task cannot run."""
    start: FloatArray
    """[n, K]: least starts; inf where the task cannot run."""
    tail: FloatArray
    """[n, K]: least times from the end of a task to the end of the schedule."""
    before: BoolArray
    """[n, n]: whether a task ends before another starts."""
    horizon: float
    """The most length of a schedule of the state."""

    @property
    def head(self) -> FloatArray:
        """Least start of each task on any device, [n]."""
        return np.asarray(self.start.min(axis=1))

    @property
    def end(self) -> FloatArray:
        """Least tail of each task on any device, [n]."""
        return np.asarray(self.tail.min(axis=1))

    @property
    def place(self) -> IntArray:
        """The only device left of each task, -1 if there are several, [n]."""
        possible = np.isfinite(self.least)
        return np.where(possible.sum(axis=1) == 1, possible.argmax(axis=1), -1)


def _cheapest(least: FloatArray, prices: FloatArray) -> FloatArray:
    """Return the least priced duration of each task, [n]."""
    finite = np.isfinite(least)
    return np.asarray(np.where(finite, np.where(finite, least, 0.0) * prices, np.inf).min(axis=1))


def whole(prices: FloatArray, total: float = PRICE) -> tuple[int, ...]:
    """Return prices, which sum to 1, as whole numbers that sum to about `total`."""
    return tuple(int(price) for price in np.rint(prices * total))


def between(view: View, cost: FloatArray) -> Iterator[Token]:
    """Yield the hints of R3, R8 and R9 of the tasks between some head and some tail that exceed the horizon, if there are any.

    `cost` [n, K] are the durations that count: at the root those of all inputs.
    """
    from hetsched.analysis import branch_and_bound_kernels as kernels

    least = np.where(np.isfinite(view.least), cost, np.inf)
    n, size = least.shape
    ints, tasks, devices = np.zeros((5, n), np.int64), np.stack([view.head, view.end]), np.empty((7, size))
    chain = np.empty((2, size), np.int64)
    ints[2], ints[4] = view.place, np.arange(n)
    scratch = kernels.Scratch(np.stack([view.start, view.tail]), chain, ints, tasks, devices)
    found, head, tail = kernels.overload(scratch, least, view.horizon, _ITERATIONS)
    if found:
        prices = whole(devices[1])
        for rule in "bw":
            yield rule, int(head), int(tail), prices
        yield "f", int(head), int(tail), tuple(price + int(first) for price, first in zip(prices, chain[1], strict=True))


def overfull(view: View, bytes_: FloatArray, room: FloatArray) -> Iterator[Token]:
    """Yield an R6 hint for each device on which the tasks that have no other exceed the memory."""
    size = len(room)
    settled = np.flatnonzero(view.place >= 0)
    needed = np.bincount(view.place[settled], bytes_[settled], size)
    for k in np.flatnonzero(needed > room).tolist():
        yield "m", 0, 0, (0,) * size, tuple(int(h == k) for h in range(size))


def shortage(view: View, unit: IntArray, bits: FloatArray, room: FloatArray, cost: FloatArray) -> Iterator[Token]:
    """Yield R6 hints of the prices at which the memory, or with a horizon time and memory together, may not suffice.

    `unit` [n] are the co-location units, and `cost` [n, K] the durations that count.
    """
    counted, possible = np.isfinite(room), np.isfinite(view.least)
    if not counted.any():
        return
    _, unit = np.unique(unit, return_inverse=True)
    units = int(unit.max(initial=-1)) + 1
    work, needed, fits = np.zeros((units, len(room))), np.zeros(units), np.ones((units, len(room)), bool)
    np.add.at(work, unit, np.where(possible, cost, 0.0))
    np.add.at(needed, unit, bits)
    np.logical_and.at(fits, unit, possible)
    share = np.divide(needed[:, None], room, out=np.zeros(fits.shape), where=fits & counted & (room > 0.0))
    share = np.where(fits, share, np.inf)
    fill = least_load(share)
    if fill.value > 1.0:
        yield "m", 0, 0, (0,) * len(room), _per_bit(fill.prices, room)
    elif math.isfinite(view.horizon):
        spread = least_load(np.where(fits, work, np.inf), share)
        yield "m", 0, 0, whole(spread.prices, PRICE_OF_BITS), _per_bit(spread.burden_prices, room)


def _per_bit(prices: FloatArray, room: FloatArray) -> tuple[int, ...]:
    """Return prices of a whole capacity as those of a bit, in whole numbers; 0 where the capacity is not limited."""
    return whole(np.divide(prices, room, out=np.zeros(len(room)), where=np.isfinite(room) & (room > 0.0)), PRICE_OF_BITS)


def rises(view: View) -> list[Token]:
    """Return R4 and R5 hints for the tasks whose head or tail rises by the load of those before or after it."""
    found: list[Token] = []
    finite = np.isfinite(view.least)
    work = np.where(finite, view.least, 0.0).sum(axis=0)
    inverse = finite.sum(axis=0) / np.maximum(work, 1.0)
    prices = np.vstack([np.eye(len(inverse)), inverse / max(inverse.sum(), 1e-300)])
    value = np.stack([_cheapest(view.least, row) for row in prices])  # [prices, n]
    for letter, level, before in (("h", view.head, view.before), ("t", view.end, view.before.T)):
        order = np.argsort(-level)
        counted = before[order]
        total = level[order][:, None] + np.cumsum(value[:, order, None] * counted, axis=1)  # [prices, threshold, task]
        total = np.where(counted, total, -np.inf)
        flat = total.transpose(2, 0, 1).reshape(len(level), -1)
        best = flat.argmax(axis=1)
        for j in np.flatnonzero(np.ceil(flat.max(axis=1) - 1e-6) > level).tolist():
            price, threshold = divmod(int(best[j]), len(level))
            found.append((letter, int(level[order[threshold]]), int(view.tasks[j]), whole(prices[price])))
    return found
