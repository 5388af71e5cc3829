"""A lower bound on max-load: every unit is in one of the sets that devices run, and what a set moves counts.

A schedule divides the units V of a graph into sets S_k, one for each device, and its max-load is the largest of the loads of these
sets, transfers included. Let f_k(T) be the largest sum of prices pi >= 0 of a set whose load on device k is at most T. If
the sum of f_k(T) over the devices is below pi(V), the sum of all prices, no schedule has a max-load of T, because
``pi(V) = sum_k pi(S_k) <= sum_k f_k(T)``. So the least T for which it is not is a bound, for any prices.

The best prices are the dual solution of the linear relaxation of set partitioning, with a column for each set of load at most T:
maximise pi(V) subject to ``pi(S) <= z_k`` for all these S, and ``sum_k z_k = 1``. The sets are found as they are needed, as in
column generation, by the dynamic program that gives f_k. Loads are rounded down in it, transfers may be left out, and prices are whole
numbers, so that their sums are exact: all this only lowers the bound. Unlike fractions of each unit on every device, which need no
transfers at all, a set pays for every tensor that crosses its border.

Memory is left out.

Source: column generation: P. C. Gilmore, R. E. Gomory, "A linear programming approach to the cutting-stock problem", Operations
Research 9(6), 1961; states at a frontier: dynamic programming over path decompositions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hetsched.analysis.frontiers import Frontier, Subsets, frontier
from hetsched.analysis.levels import Levels
from hetsched.analysis.load import priced
from hetsched.analysis.load_data import LoadData, device_prices, load_data, unit_order
from hetsched.arguments import checked
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.problem.graph import plural
from hetsched.problem.problem import Problem
from hetsched.schedule.objectives import hosts
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline

LARGEST = 2_000
"""The most units."""
TICKS = 2_000
"""The number of loads that are told apart."""
STATES = 16_000
"""About the most states of the dynamic programs of all classes of devices."""
ROUNDS = 100
"""The most prices that are tried."""
WHOLE = 2.0**40
"""The sum of all prices as whole numbers."""
ROOM = 1.2
"""The least limit on loads, relative to the best bound so far; it is set to the square of this."""


@checked
def streams(problem: Problem) -> bool:
    """Return whether max-load is defined for a problem, and units are not too many for dynamic programs."""
    return problem.inputs == 1 and bool(hosts(problem).any()) and 0 < problem.n_units <= LARGEST


@checked
def set_partitioning(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the largest load that is proven, by prices of units, to be too small for any division into sets."""
    pricing = _Pricing(load_data(problem, "max-load"), unit_order(problem)[1], best.value, deadline)
    for _ in pricing.values():
        if deadline.over:
            break
    evidence = f"{plural(problem.n_units, 'unit')} divided into sets, each with the transfers across its border"
    return Bound(pricing.value, "set partitioning", evidence, "max-load")


class _Pricing:
    """The search for prices.

    Parameters
    ----------
    data : LoadData
    order : array [U]
    known : float
        A bound on the load, in seconds.
    deadline : Deadline
    """

    def __init__(self, data: LoadData, order: IntArray, known: float, deadline: Deadline) -> None:
        self.value = 0.0
        """The bound."""
        devices = device_prices(data.cost)
        finite = np.isfinite(data.cost)
        self._first: FloatArray = np.where(finite, np.where(finite, data.cost, 0.0) * devices, np.inf).min(axis=1)[order]
        """Prices that prove the load of the work alone."""
        self._known = max(known, priced(data.cost, devices))
        classes: dict[bytes, list[int]] = {}
        for k in range(data.cost.shape[1]):
            classes.setdefault(data.cost[:, k].tobytes() + data.time[:, :, k].tobytes(), []).append(k)
        self._number = np.array([len(same) for same in classes.values()])
        self._frontiers: list[Frontier] = []
        for same in classes.values():
            deadline.check("the states of dynamic programs")
            self._frontiers.append(frontier(data, order, same[0], STATES // len(classes)))
        self._columns: list[dict[bytes, BoolArray]] = [{} for _ in classes]

    def values(self) -> Iterator[float]:
        """Yield the bound after each round."""
        if not self._known > 0:
            return
        first = self._first if self._first.any() else np.ones_like(self._first)  # all work may take 0 s
        best = prices = first / first.sum()
        limit, share = 0.0, 1.0
        dual: FloatArray | None = prices
        for _ in range(ROUNDS):
            if limit < ROOM * max(self.value, self._known):
                limit = ROOM * ROOM * max(self.value, self._known)
                tick = limit / TICKS
                subsets = [Subsets(states, tick, TICKS) for states in self._frontiers]
            reached = self._least_load(subsets, prices) * tick
            if reached > self.value:
                self.value, best = reached, prices
            yield self.value
            if self._add([sets.set_within(min(int(self.value / tick), TICKS - 1)) for sets in subsets]):
                share, dual = 0.5, self._dual()
            elif share < 1.0:
                share = 1.0 if share > 0.9 else (1.0 + share) / 2
            else:
                return
            if dual is None:
                return
            prices = (1.0 - share) * best + share * dual

    def _add(self, found: list[BoolArray]) -> bool:
        """Add the sets found, one for each class of devices; return whether one is new."""
        before = sum(map(len, self._columns))
        for columns, column in zip(self._columns, found, strict=True):
            columns[column.tobytes()] = column
        return sum(map(len, self._columns)) > before

    def _least_load(self, subsets: list[Subsets], prices: FloatArray) -> int:
        """Return the least load, in ticks, at which sets may have all prices."""
        whole = np.floor(prices * WHOLE).astype(np.int64)
        earned = sum(number * sets.best(whole) for number, sets in zip(self._number.tolist(), subsets, strict=True))
        return int(np.searchsorted(earned, whole.sum()))

    def _dual(self) -> FloatArray | None:
        """Return prices that sum to 1 and prove a larger load if the sets so far are all there are; None if no prices do."""
        from scipy.optimize import linprog

        size, classes = len(self._first), len(self._number)
        rows = [np.concatenate([column, -np.eye(classes)[c]]) for c, columns in enumerate(self._columns) for column in columns.values()]
        result = linprog(
            np.concatenate([-np.ones(size), np.zeros(classes)]),
            A_ub=np.array(rows),
            b_ub=np.zeros(len(rows)),
            A_eq=np.concatenate([np.zeros(size), self._number])[None],
            b_eq=[1.0],
            bounds=(0.0, 1.0),
            method="highs",
        )
        if result.status != 0 or -result.fun <= 1 + 1e-9:
            return None
        found = np.maximum(result.x[:size], 0.0)
        prices: FloatArray = found / found.sum()
        return prices
