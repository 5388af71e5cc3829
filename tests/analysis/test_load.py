"""The least load against a plain linear program, and the threshold searches against all thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linprog

from hetsched.analysis import load

costs = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 7), st.integers(1, 4)), elements=st.one_of(st.floats(0.01, 100), st.just(0.0), st.just(np.inf))
).filter(lambda cost: bool(np.isfinite(cost).any(axis=1).all()))


def optimum(cost: np.ndarray, burden: np.ndarray | None = None) -> float | None:
    """Return the optimum of the relaxation, from a linear program with dense rows; None if no division respects the burdens."""
    n, size = cost.shape
    finite = np.where(np.isfinite(cost), cost, 0.0)
    rows, limits = [], []
    for k in range(size):
        use = np.zeros((n, size))
        use[:, k] = finite[:, k]
        rows.append([-1.0, *use.ravel()])
        limits.append(0.0)
        if burden is not None:
            use = np.zeros((n, size))
            use[:, k] = burden[:, k]
            rows.append([0.0, *use.ravel()])
            limits.append(1.0)
    sums = [[0.0, *np.repeat(np.arange(n) == i, size).astype(float)] for i in range(n)]
    bounds = [(0, None), *((0, 1 if possible else 0) for possible in np.isfinite(cost).ravel())]
    result = linprog([1.0, *np.zeros(n * size)], A_ub=rows, b_ub=limits, A_eq=sums, b_eq=np.ones(n), bounds=bounds)
    return float(result.fun) if result.status == 0 else None


@pytest.mark.parametrize("limit", [load._SPARSE_LIMIT, 0], ids=["program", "cuts"])
@given(cost=costs)
def test_the_least_load_is_that_of_the_linear_program(limit: int, cost: np.ndarray) -> None:
    """Both algorithms for prices reach the optimum and do not exceed it."""
    expected = optimum(cost)
    assert expected is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "_SPARSE_LIMIT", limit)
        solution = load.least_load(cost)
    assert expected * (1 - 1e-6) - 1e-9 <= solution.value <= expected * (1 + 1e-9) + 1e-12
    assert solution.prices.min() >= 0
    assert solution.prices.sum() == pytest.approx(1)


@pytest.mark.parametrize("limit", [load._SPARSE_LIMIT, 0], ids=["program", "cuts"])
@given(cost=costs, data=st.data())
def test_capacities_count_in_the_least_load(limit: int, cost: np.ndarray, data: st.DataObject) -> None:
    """With feasible capacities, the value is that of the linear program with both."""
    burden = data.draw(hnp.arrays(np.float64, cost.shape, elements=st.integers(0, 8).map(lambda eighths: eighths / 8)))
    expected = optimum(cost, burden)
    assume(expected is not None)
    assert expected is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "_SPARSE_LIMIT", limit)
        solution = load.least_load(cost, burden)
    # the sparse program has a tolerance of a millionth, multiplied by the prices of burdens
    assert expected * (1 - 1e-4) - 1e-6 <= solution.value <= expected * (1 + 1e-7) + 1e-9


@given(cost=costs, data=st.data())
def test_any_prices_prove_a_load_below_the_optimum(cost: np.ndarray, data: st.DataObject) -> None:
    """The proof needs no optimal prices."""
    weights = np.array(data.draw(st.lists(st.floats(0, 1), min_size=cost.shape[1], max_size=cost.shape[1])))
    assume(weights.sum() > 0)
    expected = optimum(cost)
    assert expected is not None
    assert load.priced(cost, weights / weights.sum()) <= expected * (1 + 1e-9) + 1e-12


def test_equal_work_on_unequal_devices_is_shared_by_speed() -> None:
    """Six units of 1 s on a device and 2 s on another: 4 and 2 of them, 4 s."""
    assert load.least_load(np.tile([1.0, 2.0], (6, 1))).value == pytest.approx(4)


def test_a_capacity_forces_work_to_the_slow_device() -> None:
    """The fast device holds 2 of 6 units; 4 of them take 8 s on the other."""
    assert load.least_load(np.tile([1.0, 2.0], (6, 1)), np.tile([0.5, 0.1], (6, 1))).value == pytest.approx(8, rel=1e-5)


@pytest.mark.slow
@given(cost=costs, data=st.data())
def test_the_thresholds_found_prove_at_most_the_best_pair(cost: np.ndarray, data: st.DataObject) -> None:
    """The value of the search is at most the best over all pairs, and that of the thresholds it returns."""
    levels = hnp.arrays(np.float64, len(cost), elements=st.integers(0, 20).map(float))
    head, tail = data.draw(levels), data.draw(levels)
    value, a, b, prices = load.best_thresholds(head, tail, cost, np.unique(head), np.unique(tail), 50)
    best = 0.0
    for low in np.unique(head):
        for last in np.unique(tail):
            chosen = (head >= low) & (tail >= last)
            if chosen.any():
                best = max(best, low + (optimum(cost[chosen]) or 0.0) + last)
    chosen = (head >= a) & (tail >= b)
    assert value <= best * (1 + 1e-9)
    if value > 0:
        assert value == pytest.approx(a + load.priced(cost[chosen], prices) + b)
