"""The least load: how evenly work can be spread over devices, with a proof that needs no solver's word.

The relaxation: fractions x[u, k] of unit u on device k, summing to 1, minimise
``C >= sum_u cost[u, k] x[u, k]`` subject to ``sum_u burden[u, k] x[u, k] <= 1``. For any prices
lambda >= 0 that sum to 1 and mu >= 0,

    sum_u min_k (lambda[k] cost[u, k] + mu[k] burden[u, k]) - sum_k mu[k]

is at most C. Solvers only look for good prices; the value is then evaluated here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hetsched.analysis.levels import Levels
from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import HetschedError

# Where the sparse linear program ends and cutting planes on the few prices begin, in unit-device
# pairs; measured to be equal around here for 3 devices.
_SPARSE_LIMIT = 30_000
_CUTS = 400
_TOLERANCE = 1e-8
_LARGEST = 1e9  # of the costs that solvers see: of what costs more, next to nothing goes there
_THRESHOLDS = 64


class Load(NamedTuple):
    """A proven least load and the prices that prove it."""

    value: float
    """No spreading has all devices below this; in the unit of the costs."""
    prices: FloatArray
    """lambda, shape [K], sums to 1."""
    burden_prices: FloatArray
    """mu, shape [K]."""


def least_load(cost: FloatArray, burden: FloatArray | None = None) -> Load:
    """Return the optimum of the relaxation above, to about 1e-7 and never above it.

    Parameters
    ----------
    cost : array [U, K]
        Cost of all of a unit on a device; inf where it cannot go. Each row needs a finite entry.
    burden : array [U, K], optional
        Share of the capacity of a device that all of a unit takes. A spreading that respects the
        capacities must exist.
    """
    n_devices = cost.shape[1]
    allowed = np.isfinite(cost)
    # Solvers have absolute tolerances. Without burdens the answer is from 1 to K of this scale.
    scale = float(cost.min(axis=1).sum()) / n_devices if burden is None else float(cost[allowed].sum()) / max(1, len(cost))
    if scale == 0.0:
        return Load(0.0, np.full(n_devices, 1.0 / n_devices), np.zeros(n_devices))
    scaled = np.minimum(np.where(allowed, cost, 0.0) / scale, _LARGEST)
    search = _by_program if cost.size <= _SPARSE_LIMIT else _by_cuts
    prices, burden_prices = search(scaled, allowed, None if burden is None else np.where(allowed, burden, 0.0))
    burden_prices = burden_prices * scale
    return Load(priced(cost, prices, burden, burden_prices), prices, burden_prices)


def priced(cost: FloatArray, prices: FloatArray, burden: FloatArray | None = None, burden_prices: FloatArray | None = None) -> float:
    """Return the least load that the prices prove (any prices >= 0, the first summing to 1).

    Rounding is subtracted: a few units in the last place per term.
    """
    price = np.where(np.isfinite(cost), cost, 0.0) * prices
    paid = 0.0
    if burden is not None and burden_prices is not None:
        price = price + np.where(np.isfinite(burden), burden, 0.0) * burden_prices
        paid = float(burden_prices.sum())
    least = np.where(np.isfinite(cost), price, np.inf).min(axis=1)
    earned = float(least.sum())
    margin = 4 * np.finfo(float).eps * (len(cost) + cost.shape[1]) * (earned + paid)
    return float(max(0.0, earned - paid - margin) / max(1.0, float(prices.sum())))


class HeadTailSet(NamedTuple):
    """Tasks that have to run between `head` and `tail` before the end, and keep a device busy for `load`; seconds."""

    head: float
    load: float
    tail: float
    tasks: IntArray
    """[m]; if some can run nowhere, these, and then `head` is inf."""


def head_tail_set(levels: Levels, *, program: bool = True) -> HeadTailSet:
    """Return the tasks ``{head >= a, tail >= b}`` with the largest ``a + load + b`` over thresholds a and b.

    With many distinct heads or tails, 64 of each are tried. With `program` the load is that of the
    set's linear program, else that of the prices found with it, which is quicker and a little lower.
    """
    levels, count = levels.merged
    head, tail = (level.min(axis=1, initial=np.inf) for level in (levels.starts, levels.tails))
    if np.isinf(head + tail).any():
        return HeadTailSet(np.inf, 0.0, 0.0, np.flatnonzero(np.isinf(head + tail)))
    work = levels.work / count
    iterations = 100 if levels.problem.n_tasks <= 1000 else 30
    _, a, b, prices = best_thresholds(head, tail, work, thresholds(head), thresholds(tail), iterations)
    chosen = np.flatnonzero((head >= a) & (tail >= b))
    value = max(priced(work[chosen], prices), least_load(work[chosen]).value if program else 0.0)
    return HeadTailSet(a, value, b, chosen)


def thresholds(levels_: FloatArray) -> FloatArray:
    """Return at most 64 of the distinct values, ascending, evenly by rank; the least is among them."""
    distinct = np.unique(levels_)
    return distinct[np.unique(np.linspace(0, len(distinct) - 1, min(_THRESHOLDS, len(distinct))).astype(np.int64))]


def best_thresholds(
    head: FloatArray, tail: FloatArray, cost: FloatArray, heads: FloatArray, tails: FloatArray, iterations: int
) -> tuple[float, float, float, FloatArray]:
    """Return (value, a, b, prices [K]) of the largest ``a + load of {head >= a, tail >= b} + b`` found.

    The search alternates between the best pair for the prices and better prices for the pair; any
    prices and thresholds give a valid value, so it may stop when it likes.

    Parameters
    ----------
    head, tail : arrays [n]
        Seconds before and after each task.
    cost : array [n, K]
        As in `least_load`.
    heads, tails : arrays
        The ascending thresholds to try.
    iterations : int
        How often prices are improved.
    """
    n_devices = cost.shape[1]
    allowed = np.isfinite(cost)
    finite = np.where(allowed, cost, 0.0)
    total = finite.sum(axis=0)
    prices = np.where(total > 0, allowed.sum(axis=0) / np.where(total > 0, total, 1.0), 0.0)
    if not prices.any():  # there is no work
        return 0.0, 0.0, 0.0, np.full(n_devices, 1.0 / n_devices)
    prices /= prices.sum()
    row, column = np.searchsorted(heads, head, "right") - 1, np.searchsorted(tails, tail, "right") - 1
    counted = np.flatnonzero((row >= 0) & (column >= 0))
    cell, shape = row[counted] * len(tails) + column[counted], (len(heads), len(tails))
    everyone = np.arange(len(cost))

    def evaluate(prices: FloatArray) -> tuple[float, int, int, FloatArray]:
        """Return the value of the best pair of thresholds, the pair, and the loads of its set."""
        price = np.where(allowed, finite * prices, np.inf)
        chosen = price.argmin(axis=1)
        table = np.bincount(cell, price[counted, chosen[counted]], len(heads) * len(tails)).reshape(shape)
        beyond = table[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]  # over all cells from here on
        value = np.where(beyond > 0, heads[:, None] + beyond + tails, 0.0)
        r, c = divmod(int(value.argmax()), len(tails))
        mine = (row >= r) & (column >= c)
        load = np.bincount(chosen[mine], finite[everyone[mine], chosen[mine]], n_devices).astype(np.float64)
        return float(value[r, c]), r, c, load

    best = (0.0, 0.0, 0.0, prices)
    for alone in np.eye(n_devices):  # for work that has no other place
        value, r, c, _ = evaluate(alone)
        if value > best[0]:
            best = (value, float(heads[r]), float(tails[c]), alone)
    for iteration in range(iterations):
        value, r, c, load = evaluate(prices)
        if value > best[0]:
            best = (value, float(heads[r]), float(tails[c]), prices)
        mean = float(prices @ load)
        spread = float(np.abs(load - mean).max())
        if spread <= 1e-9 * mean:
            break
        prices = prices * np.exp((load - mean) / spread / (1.0 + iteration) ** 0.7)  # multiplicative weights
        prices /= prices.sum()
    return best


def _by_program(cost: FloatArray, allowed: Any, burden: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return prices from the marginals of the sparse linear program."""
    from scipy.sparse import csr_matrix

    unit, device = np.nonzero(allowed)
    n_units, n_devices = cost.shape
    pairs = np.arange(1, len(unit) + 1)  # column 0 is C
    rows = [np.arange(n_devices), device]
    columns = [np.zeros(n_devices, np.int64), pairs]
    values = [-np.ones(n_devices), cost[allowed]]
    limits = np.zeros(n_devices)
    if burden is not None:
        rows.append(n_devices + device)
        columns.append(pairs)
        values.append(burden[allowed])
        limits = np.concatenate([limits, np.full(n_devices, 1.0 + 1e-6)])  # room for the solver's tolerance, not in the proof
    shape = (len(limits), 1 + len(unit))
    matrix = csr_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape)
    sums = csr_matrix((np.ones(len(unit)), (unit, pairs)), (n_units, shape[1]))
    objective = np.zeros(shape[1])
    objective[0] = 1.0
    # C is free, so that its price row is an equation and lambda sums to 1.
    bounds = np.array([[-np.inf, np.inf], *[[0.0, np.inf]] * len(unit)])
    result = _solved(objective, A_ub=matrix, b_ub=limits, A_eq=sums, b_eq=np.ones(n_units), bounds=bounds)
    return _cleaned(-result.ineqlin.marginals, n_devices)


def _by_cuts(cost: FloatArray, allowed: Any, burden: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return prices by Kelley's cutting planes on the concave function of the prices."""
    n_units, n_devices = cost.shape
    forbidden = np.where(allowed, 0.0, np.inf)
    everyone = np.arange(n_units)
    prices = np.full(n_devices * (1 if burden is None else 2), 0.0)
    prices[:n_devices] = 1.0 / n_devices
    best, best_value = prices, -np.inf
    box = 10.0 * n_units  # costs are 1 in the mean
    cuts: list[FloatArray] = []
    while len(cuts) < _CUTS:
        price = cost * prices[:n_devices] + forbidden
        if burden is not None:
            price += burden * prices[n_devices:]
        chosen = price.argmin(axis=1)
        cut: Any = np.bincount(chosen, cost[everyone, chosen], n_devices)
        if burden is not None:
            cut = np.concatenate([cut, np.bincount(chosen, burden[everyone, chosen], n_devices) - 1.0])
        value = float(cut @ prices)
        if value > best_value:
            best, best_value = prices, value
        cuts.append(cut)
        ceiling, prices = _master(np.array(cuts), n_devices, box)
        if ceiling - best_value <= _TOLERANCE * max(best_value, 1e-3):
            if prices[n_devices:].max(initial=0.0) < box * (1 - 1e-9):
                break
            box *= 10.0
    return _cleaned(best, n_devices)


def _master(cuts: FloatArray, n_devices: int, box: float) -> tuple[float, FloatArray]:
    """Return the largest t and prices with ``t <= cut @ prices`` for all cuts."""
    size = cuts.shape[1]
    objective = np.zeros(1 + size)
    objective[0] = -1.0
    simplex = np.zeros((1, 1 + size))
    simplex[0, 1 : 1 + n_devices] = 1.0
    bounds = [(None, None), *[(0.0, 1.0)] * n_devices, *[(0.0, box)] * (size - n_devices)]
    rows = np.column_stack([np.ones(len(cuts)), -cuts])
    result = _solved(objective, A_ub=rows, b_ub=np.zeros(len(cuts)), A_eq=simplex, b_eq=np.ones(1), bounds=bounds)
    return -float(result.fun), np.maximum(result.x[1:], 0.0)


def _solved(objective: FloatArray, **program: Any) -> Any:
    from scipy.optimize import linprog

    result = linprog(objective, method="highs", **program)
    if result.status != 0:
        raise HetschedError(
            f"the linear program of the load bound ended without an answer: {result.message}; please report the problem's document"
        )
    return result


def _cleaned(prices: FloatArray, n_devices: int) -> tuple[FloatArray, FloatArray]:
    """Return (lambda on the simplex, mu >= 0) from prices that are so up to a solver's tolerance."""
    prices = np.maximum(prices, 0.0)
    total = prices[:n_devices].sum()
    return prices[:n_devices] / total, prices[n_devices:] / total
