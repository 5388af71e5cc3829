"""Placements on so many different devices that all sets of used ones are too many: local search, and bounds by prices of items.

The local search changes a sequence of devices; the best cuts for one are found by dynamic programming. The bounds are those of Lagrangian
relaxation: with a price for each item, whatever it is, a placement costs the prices of all items and what its stages cost beyond those of
theirs. That is at least the least of stages on so many devices, whose numbers of items add up to all, and of which one has the first item
and one the last. In this relaxation a stage is entered by the fastest hop that the device has, and stages may overlap or leave items out.
Subgradients of the prices make the bound high; where items are alike, prices of their own times do.

What is not a sum, the largest load or the largest overlapped time, is bounded by cases: it is in one of several intervals, whose upper end
is a cap in the sum, and whose lower end is added to it or compared with it. The interval of the least bound is halved.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.chain.evaluation import evaluate
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.compiled import NotCompiled, kernels_in_time
from hetsched.errors import OutOfTime
from hetsched.planning import local_search_kernels as kernels
from hetsched.planning.incumbent import Incumbent
from hetsched.planning.local_search_kernels import Costs, Multipliers, Scratch
from hetsched.planning.tables import Tables
from hetsched.search.solution import OPTIMALITY_GAP

MOVES, CLIMBS = 3000, 8
"""Random moves of a climb, some 10 to 100 milliseconds, and climbs for each part of the search."""
STEPS, MORE_STEPS = 300, 30
"""Steps of the subgradient method for a part of the search, and for half an interval, from the prices of the whole."""
FAILURES = 5
"""Parts that are searched without any placement that fits before none is expected."""
CASES = 800
"""The most intervals of the bound that are looked at."""
NARROW = 5e-4
"""Relative width below which an interval, of values or of bounds, is not halved."""
FARTHER = 4.0
"""By what bounds are multiplied to be the next aim where no value is known."""
SHRINK = 0.9
"""Factor by which caps on overlapped times shrink."""
SEARCH, BOUND = "local search", "Lagrangian bound"


def find_near(problems: Sequence[ChainProblem], incumbent: Incumbent, *, by_period: bool) -> None:
    """Find a good placement among those of several problems, and a bound on the latency, or on the period, of all.

    For the period the problems are those for 1, 2, ... stages, the last one for more too. None has something to offload.
    """
    try:
        with kernels_in_time(incumbent.deadline.left):
            _find(problems, incumbent, by_period)
    except NotCompiled:
        raise OutOfTime("the local search has no time to be compiled; allow more time, or run `hetsched prepare`") from None


class _Case(NamedTuple):
    """A case of the bound of a part: the largest load or overlapped time is in an interval.

    Sums over weights are at least `share` under its upper end, by the prices.
    """

    bound: float
    number: int
    part: int
    low: float
    high: float
    share: float
    prices: FloatArray


def _find(problems: Sequence[ChainProblem], incumbent: Incumbent, by_period: bool) -> None:
    parts = []
    for count, problem in enumerate(problems, 1):
        most = problem.n_devices if count == len(problems) or not by_period else count
        parts += [_Part(problem, range(count if by_period else 1, most + 1), by_period)] if count <= problem.n_devices else []
    incumbent.begin(len(parts), lambda part: parts[part].low)
    cases, kept, numbers = list[_Case](), list[_Case](), itertools.count()

    def note(part: int, low: float, high: float, share: float, prices: FloatArray) -> None:
        bound = parts[part].value(low, share)
        if bound < math.inf and not incumbent.settles(bound * (1 + OPTIMALITY_GAP)):
            heapq.heappush(cases, _Case(bound, next(numbers), part, low, high, share, prices))

    def tell(part: int) -> None:
        incumbent.raise_bound(part, min((case.bound for case in (*cases, *kept) if case.part == part), default=math.inf), BOUND)
        incumbent.check()

    for number, part in enumerate(parts):
        share = part.flat.sum() / part.weight[np.isfinite(part.weight)].max()
        if part.is_able.sum() >= part.counts[0] and np.isfinite(part.flat).all() and not part.tables.lacking:
            note(number, part.low, math.inf, float(share), part.flat)
        tell(number)
    waiting, cases[:] = sorted(cases), []
    for case in waiting:
        incumbent.check()
        part, share, prices = parts[case.part], case.share, case.prices
        if not by_period or (incumbent.placement is None and incumbent.value == math.inf):
            share = part.flat_share(math.inf)
            if share < math.inf and incumbent.placement is None and sum(other.searched for other in parts) < FAILURES:
                part.search(case.bound, incumbent)
        if share < math.inf and not by_period:
            share, prices = part.share(math.inf, case.prices, part.sought(case.low, incumbent.value), STEPS)
        note(case.part, case.low, math.inf, share, prices)
    for number in range(len(parts)):
        tell(number)
    for _ in range(CASES):
        if not cases:
            break
        case = heapq.heappop(cases)
        part, high = parts[case.part], min(case.high, incumbent.value)
        if incumbent.settles(case.bound * (1 + OPTIMALITY_GAP)):
            pass
        elif part.has_caps and NARROW * high < high - case.low < math.inf:
            middle = (case.low + high) / 2
            share, prices = part.share(middle, case.prices, part.sought(case.low, incumbent.value), MORE_STEPS)
            note(case.part, case.low, middle, max(share, case.share), prices)
            note(case.part, middle, high, case.share, case.prices)
        elif part.searched or (incumbent.value == math.inf and sum(other.searched for other in parts) >= FAILURES):
            kept.append(case)
        else:
            part.search(case.bound, incumbent)
            heapq.heappush(cases, case)
        tell(case.part)


class _Part:
    """The placements with some numbers of stages, of least latency or least period."""

    def __init__(self, problem: ChainProblem, counts: range, by_period: bool) -> None:
        self.problem, self.counts, self.by_period, self.tables = problem, counts, by_period, Tables(problem)
        n, m = problem.n_items, problem.n_devices
        self.weight = np.full(m, np.inf)
        for count in counts:
            self.weight[count - 1] = problem.in_progress(count) if by_period else 1.0
        self.has_caps = by_period or bool(problem.overlapped_seconds.any() or problem.overlapped_hops.any())
        self.low = float((problem.seconds if by_period else problem.overlapped_seconds).min(axis=1).max())
        rows = np.full((m + 1 + kernels.ENDS, n + 1), np.inf), np.zeros((m + 1, n + 1), np.int64)
        self.work = Scratch(*rows, np.zeros(n + 1, np.int64), np.arange(m), np.arange(m))
        fitting = self.tables.fitting[problem.groups, 1:]
        self.is_able = (fitting < np.arange(1, n + 1)).any(axis=1) & np.isfinite(problem.stage_seconds)
        self.flat = (problem.seconds - problem.overlapped_seconds).min(axis=1)
        """Prices that are alike for alike items, whose bound by numbers of items is good where most are."""
        self.capped: tuple[float, Costs] | None = None
        self.sums = np.empty((m + 1, kernels.ENDS, counts[-1] + 1, n + 1))
        self.searched = False

    def _multipliers(self, prices: FloatArray) -> Multipliers:
        n, m = self.problem.n_items, self.problem.n_devices
        return Multipliers(np.empty(n), prices.copy(), np.empty(n), np.empty(m), np.zeros(m, np.int64), np.zeros(m, np.int64), np.arange(m))

    def costs(self, cap: float) -> Costs:
        """Return the costs of stages and hops with a cap on their loads, or on their overlapped times."""
        if self.capped is None or self.capped[0] != cap:
            problem, own = self.problem, self.problem.groups
            load, overlap = (cap, math.inf) if self.by_period else (math.inf, cap)
            hop, closing = problem.hops - problem.overlapped_hops, problem.closing.copy()
            hop[(problem.hops > load) | (problem.overlapped_hops > overlap)] = np.inf
            closing[closing > load] = np.inf
            others = ~np.eye(len(own), dtype=bool)
            costs = Costs(
                self.tables.rest[own],
                self.tables.lowest(load, overlap)[own],
                problem.stage_seconds.copy(),
                hop.min(axis=0, where=others, initial=np.inf),
                closing.min(axis=1, where=others, initial=np.inf),
                hop,
                closing,
                np.arange(len(own)) if problem.nodes is None else problem.nodes.copy(),
                self.weight,
            )
            self.capped = cap, costs
        return self.capped[1]

    def value(self, low: float, share: float) -> float:
        """Return a bound by the largest load or overlapped time and the sums over weights."""
        return max(low, share) if self.by_period else low + share

    def sought(self, low: float, value: float) -> float:
        """Return the sum over its weight at which a bound by the largest overlapped time is a value."""
        return value if self.by_period else value - low

    def flat_share(self, cap: float) -> float:
        """Return the bound on sums over their weights under a cap by the prices that are alike for alike items."""
        return kernels.bound_by_lengths(self.costs(cap), self._multipliers(self.flat), self.sums, self.work)

    def share(self, cap: float, prices: FloatArray, most: float, steps: int) -> tuple[float, FloatArray]:
        """Return a bound on sums over their weights under a cap, inf if there are none, and its prices; no more than `most` is sought."""
        costs, y = self.costs(cap), self._multipliers(prices)
        finite = (np.where(np.isfinite(each), each, 0.0).sum() for each in (costs.before[:, -1], costs.stage, costs.hop, costs.closing))
        largest, share = float(sum(finite)), self.flat_share(cap)
        while share < most:
            target = most if most < math.inf else FARTHER * share if share > 0 else 1.0
            raised = kernels.raise_prices(costs, y, steps, target, self.work)
            if raised > largest:
                return math.inf, y.best
            if raised < target:
                share = max(share, raised if raised < share else kernels.bound_by_lengths(costs, y, self.sums, self.work))
                break
            share = raised
        return max(share, 0.0), y.best

    def search(self, bound: float, incumbent: Incumbent) -> None:
        """Offer better placements than the best so far, by local search; none is below the bound."""
        self.searched = True
        rng, value = np.random.default_rng(0), incumbent.value
        cap = value if self.by_period else math.inf
        order, count = self._fastest(cap)
        for _ in range(CLIMBS):
            incumbent.check()
            trial, used = self._better((order, count), cap)
            used = kernels.climb(self.costs(cap), trial, used, rng.random((MOVES, 3)), cap if self.by_period else -math.inf, self.work)
            placement = self._cut(cap, trial, used)
            if placement is not None:
                found = evaluate(self.problem, placement)
                incumbent.offer(found.period if self.by_period else found.latency, placement, SEARCH)
            if placement is not None or value == math.inf:
                order, count = trial, used
            if self.by_period:
                if placement is None and cap == value < math.inf:
                    break
                bound = bound if placement is not None else max(bound, cap)
                cap = (bound + incumbent.value) / 2 if incumbent.value < math.inf else math.inf
                if incumbent.value - bound <= NARROW * incumbent.value:
                    break
            elif self.has_caps:
                if placement is None and cap < math.inf:
                    break
                cap = math.inf if placement is None else SHRINK * self.tables.largest_overlap(placement)

    def _better(self, known: tuple[IntArray, int], cap: float) -> tuple[IntArray, int]:
        """Return a known order of devices with the number of used ones, or that of the bound if it is better under a cap."""
        order, count = known[0].copy(), known[1]
        if self.problem.nodes is not None:
            return order, count
        self.flat_share(cap)
        costs, other = self.costs(cap), order.copy()
        used = kernels.order_by_lengths(costs, self._multipliers(self.flat), self.sums, other, self.work)
        if not used:
            return order, count
        (end, total), (other_end, other_total) = (
            kernels.least_sum(costs, each, each_count, self.work) for each, each_count in ((order, count), (other, used))
        )
        better = other_end > end or (other_end == end and other_total / self.weight[used - 1] < total / self.weight[count - 1])
        return (other, used) if better else (order, count)

    def _fastest(self, cap: float) -> tuple[IntArray, int]:
        """Return an order of devices, and how many are used: as many of the fastest ones of the fastest nodes as reach farthest."""
        costs, m = self.costs(cap), self.problem.n_devices
        speed = np.where(self.is_able, self.problem.seconds.sum(axis=0) + self.problem.stage_seconds, np.inf)
        nodes, best = costs.nodes, (-2, 0.0, np.arange(m), self.counts[0])
        for each in range(1, int(np.bincount(nodes).max()) + 1):
            own = [sorted(np.flatnonzero(nodes == node), key=speed.__getitem__) for node in np.unique(nodes)]
            own.sort(key=lambda devices: (len(devices) < each, float(speed[devices[:each]].sum())))
            order = np.array([*(k for devices in own for k in devices[:each]), *(k for devices in own for k in devices[each:])])
            for count in range(each, each * sum(len(devices) >= each for devices in own) + 1, each):
                if count in self.counts:
                    end, total = kernels.least_sum(costs, order, count, self.work)
                    best = max(best, (end, -total / self.weight[count - 1], order, count), key=lambda one: one[:2])
        return best[2:]

    def _cut(self, cap: float, order: IntArray, count: int) -> Placement | None:
        """Return the placement of the least sum on the first `count` devices of an order; None if there is none."""
        end, _ = kernels.least_sum(self.costs(cap), order, count, self.work)
        if end < self.problem.n_items:
            return None
        stages = []
        for s in range(count, 0, -1):
            start = int(self.work.begin[s, end])
            stages.append((int(order[s - 1]), start, end))
            end = start
        return Placement(stages[::-1])


def prepare() -> None:
    """Compile the kernels."""
    find_near([ChainProblem(["a", "b"], ["x", "y"], np.ones((2, 2)))], Incumbent(), by_period=False)
