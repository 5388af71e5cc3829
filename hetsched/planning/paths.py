"""Shortest paths of stages through the states of used devices, in whole arrays of states."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.planning.used_devices import Step, UsedDevices

ROUNDING = 1e-12
"""Share of the prices by which a bound is lower than the sum of prices and costs, which are rounded."""
PART = 1000
"""The most states that are extended at a time: those with items in common, so that costs with others are not computed."""
Extend = Callable[[int, FloatArray, int], FloatArray]
"""Returns the least costs [state, end] up to the ends of a stage on a group, the item after the `begin`-th and so on, by those before each
start [state, start], the `begin`-th item and so on."""


class Paths(NamedTuple):
    """Least costs by level of states.

    Attributes
    ----------
    tables : list of float64 [class of the last stage, state, end]
    steps : list of list of Step
        The steps to the states of each level of the tables.
    """

    tables: list[FloatArray]
    steps: list[list[Step]]


class Prices(NamedTuple):
    """Prices of items, by which costs of paths are bounded.

    The stages of a path cost the prices of their items and what they cost beyond. So behind a prefix of the chain no path costs less than
    the prices of the other items and, of each device that is left, the least that any of its stages costs beyond them, where that is
    negative; and one of the devices has the last item, whatever it costs beyond.

    Attributes
    ----------
    before : float64 [n + 1]
        Prices of the items before each end.
    least : float64 [G]
        The least cost of a stage of a group, with the hop to it and without the first and the last item, beyond the prices of its
        items, or 0 if that is positive.
    rest : float
        All prices, the `least` of all devices, what the stage with the last item costs beyond that, and the way back to the first stage.
    bound : float
        What no path of all items costs less than.
    """

    before: FloatArray
    least: FloatArray
    rest: float
    bound: float

    @classmethod
    def none(cls, n: int, n_groups: int) -> Prices:
        """Return prices of nothing, for costs that are not negative."""
        return cls(np.zeros(n + 1), np.zeros(n_groups), 0.0, 0.0)


class Links(NamedTuple):
    """Times between stages. Groups from which the times to all others are alike are one class, as those of a node are.

    Attributes
    ----------
    classes : int64 [G]
        Class of each group.
    hop, closing : float64 [H, G]
        Time from a class to a group: between stages, and from the last stage back to the first. inf: impossible.
    firsts : tuple of int
        The groups with which paths begin that are sought one after the other: -1, any, where all closing times are alike.
    """

    classes: IntArray
    hop: FloatArray
    closing: FloatArray
    firsts: tuple[int, ...]

    @classmethod
    def of(cls, hop: FloatArray, closing: FloatArray, pairs: BoolArray, *, apart: bool = False) -> Links:
        """Return the links of times between groups [G, G], each a class of its own if they are to be kept `apart`.

        `pairs` says between which there are two devices.
        """
        alike = (closing[pairs] == closing[pairs][:1]).all()
        if alike:
            closing = np.full_like(closing, closing[pairs].max(initial=0.0))
        times, known = np.concatenate([hop, closing], axis=1), np.concatenate([pairs, pairs | alike], axis=1)
        classes, rows, given = np.zeros(len(hop), np.int64), list[FloatArray](), list[BoolArray]()
        for g in range(len(hop)):
            fitting = (h for h in range(0 if apart else len(rows)) if (rows[h] == times[g])[given[h] & known[g]].all())
            h = classes[g] = next(fitting, len(rows))
            if h == len(rows):
                rows.append(times[g])
                given.append(known[g])
            rows[h], given[h] = np.where(given[h], rows[h], times[g]), given[h] | known[g]
        table = np.array(rows)
        return cls(classes, table[:, : len(hop)], table[:, len(hop) :], (-1,) if alike else tuple(range(len(hop))))

    def arrivals(self, table: FloatArray, place: int, first: int, g: int, before: IntArray, starts: slice) -> FloatArray:
        """Return the least cost [state, start] with which a stage on group `g` can begin at some items.

        It is the `place`-th stage, from 0, of a path whose first one is on group `first`, or any if that is -1; `table`
        [class, state, n + 1] are the least costs of the stages before, and `before` are states of it.
        """
        arrive: FloatArray = table[0][before, starts]
        if place == 0:
            return arrive if first in (-1, g) else np.full_like(arrive, np.inf)
        arrive += self.hop[0, g]
        for h in range(1, len(table)):
            np.minimum(arrive, table[h][before, starts] + self.hop[h, g], out=arrive)
        return arrive

    def shortest(
        self,
        states: UsedDevices,
        kept: Sequence[BoolArray],
        n: int,
        first: int,
        extend: Extend,
        *,
        check: Callable[[], object],
        prices: Prices,
        most: float,
    ) -> Paths:
        """Return the least costs of n items in the states of each level that are `kept`, without those that only lead to more than `most`.

        `check` is called before each step.
        """
        table = np.full((len(self.hop), 1, n + 1), np.inf)
        table[:, :, 0] = 0.0
        paths = Paths([table], [[]])
        place, alive, spent = np.zeros(1, np.int64), np.ones(1, np.bool_), np.zeros(1)
        ends = np.zeros((2, 1), np.int64)
        for s in range(1, len(kept)):
            if not alive.any():
                break
            usable = [(g, before, after, alive[before] & kept[s][after]) for g, before, after in states.steps[s]]
            reached = np.zeros(len(kept[s]), np.bool_)
            for _, _, after, on in usable:
                reached[after[on]] = True
            rows = np.cumsum(reached) - 1
            steps = [Step(g, place[before[on]], rows[after[on]]) for g, before, after, on in usable if on.any()]
            table, total = np.full((len(self.hop), np.count_nonzero(reached), n + 1), np.inf), np.zeros(np.count_nonzero(reached))
            for g, before, after in steps:
                total[after] = spent[before] + prices.least[g]
                for own, starts in _parts(ends[0, before], ends[1, before], n):
                    check()
                    found = extend(g, self.arrivals(paths.tables[-1], s - 1, first, g, before[own], starts), starts.start)
                    target, rows_of = table[self.classes[g], :, starts.start + 1 : starts.start + 1 + found.shape[1]], after[own]
                    target[rows_of] = np.minimum(target[rows_of], found)
            paths.tables.append(table)
            paths.steps.append(steps)
            place, alive, spent = rows, reached.copy(), total
            hopeful = table[:, :, :n].min(axis=0) - prices.before[:n] + (prices.rest - total)[:, None] <= most
            alive[reached] = hopeful.any(axis=1)
            ends = np.array([hopeful.argmax(axis=1), n - 1 - hopeful[:, ::-1].argmax(axis=1)])
        for _ in kept[len(paths.tables) :]:
            paths.tables.append(table[:, :0])
            paths.steps.append([])
        return paths


def any_stages(cost: FloatArray) -> Extend:
    """Return how stages extend prefixes, see `Extend`, with any cost of a stage [group, start, end], inf where there is none."""

    def extend(g: int, arrive: FloatArray, begin: int) -> FloatArray:
        own = cost[g, begin : begin + arrive.shape[1], begin + 1 :]
        if len(arrive) < own.shape[1]:
            return np.array([(row[:, None] + own).min(axis=0) for row in arrive])
        return np.array([(arrive + column).min(axis=1) for column in own.T]).T

    return extend


class Stages:
    """Costs of stages that are sums over their items.

    Attributes
    ----------
    before : float64 [G, n + 1]
        Cost of the items before each end.
    stage : float64 [G]
        Cost of a stage beside its items.
    lowest : int64 [G, n + 1]
        The first item with which a stage that ends there fits; `end` where none does. It never falls as the end rises.
    """

    def __init__(self, before: FloatArray, stage: FloatArray, lowest: IntArray) -> None:
        self.before, self.stage, self.lowest = before, stage, lowest

    @functools.cached_property
    def windows(self) -> list[Windows]:
        """The starts of stages with each end, by group."""
        ends = np.arange(1, self.lowest.shape[1])
        return [Windows(row[1:], ends) for row in self.lowest]

    def extend(self, g: int, arrive: FloatArray, begin: int) -> FloatArray:
        """Return the least costs up to each end, see `Extend`; ends that no stage from these starts has are left out."""
        stop = begin + arrive.shape[1]
        if arrive.shape[1] == self.before.shape[1] - 1:
            ends, windows = np.arange(1, stop + 1), self.windows[g]
        else:
            ends = np.arange(begin + 1, np.searchsorted(self.lowest[g], stop))
            windows = Windows(np.maximum(self.lowest[g, ends], begin) - begin, np.minimum(ends, stop) - begin)
        least = windows.minima(arrive - self.before[g, begin:stop])
        least += self.before[g, ends]
        least += self.stage[g]
        return least

    def prices(self, size: IntArray, links: Links) -> Prices:
        """Return prices with a high bound: the times of the items on one of the groups, of so many devices each."""
        beyond = self.before[:, None] - self.before  # by group, by whose prices it is, and end
        inner, last = np.empty((2, len(beyond), len(beyond)))
        for g, own in enumerate(beyond):
            starts = -own[:, :-1]
            starts[:, 0] = np.inf
            least = self.windows[g].minima(starts) + own[:, 1:]
            inner[g], last[g] = least[:, :-1].min(axis=1, initial=np.inf), least[:, -1]
        whole = np.where(self.lowest[:, -1] == 0, self.before[:, -1] + self.stage, np.inf).min()
        first = np.where(self.lowest[:, None, 1:-1] == 0, beyond[:, :, 1:-1], np.inf).min(axis=2, initial=np.inf) + self.stage[:, None]
        entered = (self.stage + links.hop.min(axis=0))[:, None]
        least = np.minimum(inner + entered, 0.0)
        rest = self.before[:, -1] * (1 - ROUNDING) + size @ least + (last + entered - least).min(axis=0) + links.closing.min()
        best = int(np.argmax(rest))
        bound = min(whole * (1 - ROUNDING), rest[best] + (first - least)[:, best].min())
        return Prices(self.before[best], least[:, best], float(rest[best]), float(bound))

    def trace(self, links: Links, paths: Paths, count: int, last: tuple[int, int], first: int) -> tuple[list[int], list[int]]:
        """Return group and first item of each stage of the path of `count` stages that ends in class and state `last`."""
        h, state = last
        tables, end = paths.tables, self.before.shape[1] - 1
        groups, starts = list[int](), list[int]()
        for s in range(count, 0, -1):
            best = (math.inf, 0, 0, 0)
            for g, before, after in paths.steps[s]:
                own = before[after == state] if links.classes[g] == h else before[:0]
                low = int(self.lowest[g, end])
                if len(own) and low < end:
                    arrive = links.arrivals(tables[s - 1], s - 1, first, g, own, slice(low, end))[0]
                    start = low + int(np.argmin(arrive - self.before[g, low:end]))
                    cost = float(arrive[start - low] - self.before[g, start] + self.before[g, end] + self.stage[g])
                    best = min(best, (cost, g, start, int(own[0])))
            _, g, end, state = best
            groups.append(g)
            starts.append(end)
            h = int(np.argmin(tables[s - 1][:, state, end] + links.hop[:, g]))
        return groups[::-1], starts[::-1]


def _parts(first: IntArray, last: IntArray, n: int) -> Iterator[tuple[IntArray | slice, slice]]:
    """Yield parts of states, whose ends are from the `first` to the `last`, and where the next stages may begin in any of them."""
    if len(first) <= PART:
        yield slice(None), slice(0, n)
        return
    for own in np.array_split(np.argsort(first, kind="stable"), -(-len(first) // PART)):
        yield own, slice(int(first[own].min()), min(int(last[own].max()) + 1, n))


class Windows:
    """Windows of values, each from `low` to before `high`; the least value of each window is that of two parts of 1, 2, 4, ... values.

    Parameters
    ----------
    low, high : int64 [window]
    """

    def __init__(self, low: IntArray, high: IntArray) -> None:
        self.count = len(low)
        self.parts: list[tuple[IntArray, IntArray, IntArray]] = []
        width, length = high - low, 1
        while length <= width.max(initial=0):
            own = np.flatnonzero((width >= length) & (width < 2 * length))
            self.parts.append((own, low[own], high[own] - length))
            length *= 2

    def minima(self, values: FloatArray) -> FloatArray:
        """Return the least of each row's values [row, n] by window [row, window]; inf where a window is empty."""
        least = np.full((len(values), self.count), np.inf)
        for k, (own, first, second) in enumerate(self.parts):
            if k:
                values = np.minimum(values[:, : -(1 << k - 1)], values[:, 1 << k - 1 :])
            if len(own):
                least[:, own] = np.minimum(values.take(first, axis=1), values.take(second, axis=1))
        return least
