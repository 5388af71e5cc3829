"""The most even load of identical bins: optima against all packings, and what is proven when the work is limited."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.analysis.packing import SETS, first_packing, least_packing
from hetsched.stopping import Deadline
from hetsched.testing.profiles import examples

WHOLE = st.lists(st.integers(0, 12), max_size=9)
REAL = st.lists(st.floats(0.0, 10.0, allow_subnormal=False), max_size=8)


def least_of_all(length: list[float], bins: int) -> float:
    """Return the least load of the fullest bin over all packings."""
    loads = {(0.0,) * bins}
    for one in length:
        loads = {tuple(sorted((*load[:k], load[k] + one, *load[k + 1 :]))) for load in loads for k in range(bins)}
    return min(max(load) for load in loads)


@examples(200)
@given(length=WHOLE, bins=st.integers(1, 4), scale=st.sampled_from([1.0, 0.25, 3.0]))
def test_a_packing_of_whole_lengths_is_the_best_of_all(length: list[int], bins: int, scale: float) -> None:
    scaled = np.array(length, np.float64) * scale
    packing = least_packing(scaled, bins, divisor=scale)
    assert packing.load == packing.least == least_of_all(scaled.tolist(), bins)
    assert np.bincount(packing.bin, scaled, bins).max() == packing.load


@examples(200)
@given(length=REAL, bins=st.integers(1, 4))
def test_a_packing_of_any_lengths_is_the_best_of_all(length: list[float], bins: int) -> None:
    packing, least = least_packing(np.array(length), bins), least_of_all(length, bins)
    assert packing.load == pytest.approx(packing.least, rel=1e-8)
    assert packing.least <= least * (1 + 1e-12)  # what is proven has only the error of sums
    assert least <= packing.load * (1 + 1e-12)
    assert np.bincount(packing.bin, length, bins).max() == pytest.approx(packing.load)


@examples(100)
@given(length=st.lists(st.integers(1, 60), min_size=1, max_size=40), bins=st.integers(1, 12), sets=st.sampled_from([0, *SETS[:2]]))
def test_with_less_work_the_bound_holds_and_the_packing_is_one(length: list[int], bins: int, sets: int) -> None:
    lengths = np.array(length, np.float64)
    limited, whole = (least_packing(lengths, bins, divisor=1.0, sets=most) for most in (sets, SETS[-1]))
    assert limited.least <= whole.load <= limited.load
    assert whole.least <= limited.load
    assert np.bincount(limited.bin, lengths, bins).max() == limited.load


@pytest.mark.parametrize("bins", [2, 3, 5, 8])
def test_longest_first_is_as_bad_as_it_can_be_and_the_optimum_is_found(bins: int) -> None:
    """R. L. Graham 1969: two of each length from 2 m - 1 down to m + 1 and three of m take 4 m - 1 instead of 3 m."""
    length = np.array([*np.repeat(np.arange(bins + 1, 2 * bins), 2), bins, bins, bins], np.float64)
    assert first_packing(length, bins).load == 4 * bins - 1
    packing = least_packing(length, bins, divisor=1.0)
    assert (packing.load, packing.least) == (3 * bins, 3 * bins)


@pytest.mark.parametrize("length", [[7, 9, 21, 33, 87], [3, 0, 0, 0]])
@pytest.mark.parametrize("large", [10**9, 10**12])
def test_large_lengths_whose_sums_are_far_apart_take_few_searches(length: list[int], large: int) -> None:
    """The bound used to climb by one divisor a search, and a packing of the same load counted as a better one."""
    whole = [large + one for one in length]
    reads = itertools.count()  # the clock counts how often it is read
    packing = least_packing(np.array(whole, np.float64), 2, divisor=1.0, deadline=Deadline(200, reads.__next__))
    assert packing.load == packing.least == least_of_all(whole, 2)


def test_nothing_is_searched_for_after_the_deadline() -> None:
    length = np.array([3.0, 3.0, 2.0, 2.0, 2.0])
    packing = least_packing(length, 2, deadline=Deadline.after(0.0))
    assert (packing.load, packing.least) == (7.0, pytest.approx(6.0))


def test_a_packing_that_is_good_enough_is_not_improved() -> None:
    length = np.array([3.0, 3.0, 2.0, 2.0, 2.0])
    assert least_packing(length, 2, divisor=1.0, enough=7.0).load == 7.0
    assert least_packing(length, 2, divisor=1.0, enough=6.5).load == 6.0


def test_items_without_length_need_no_search() -> None:
    """Their load is equal to every bound on it, even if less is asked for."""
    packing = least_packing(np.zeros(3), 2, enough=-1.0)
    assert (packing.load, packing.least) == (0.0, 0.0)
