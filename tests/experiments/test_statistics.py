"""Statistics of comparisons: their properties, and values from the literature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import InvalidArgument
from hetsched.experiments import statistics as stats
from hetsched.testing.profiles import examples

values = st.floats(1e-3, 1e3) | st.just(math.inf)
paired = st.lists(st.tuples(values, values), min_size=1, max_size=8)
finite = st.lists(st.floats(0.0, 1e3), min_size=1, max_size=12)


@examples(20)
@given(paired)
def test_swapping_two_methods_mirrors_what_is_said_of_them(pairs):
    a, b = np.array(pairs).T
    there, back = stats.win_tie_loss(a, b), stats.win_tie_loss(b, a)
    assert there == stats.WinTieLoss(back.loss, back.tie, back.win)
    assert sum(there) == len(pairs)
    ratios, inverse = stats.log_ratios(a, b), stats.log_ratios(b, a)
    assert np.allclose(ratios, -inverse, equal_nan=True)
    known = ratios[~np.isnan(ratios)]
    assert stats.signed_rank(known) == pytest.approx(stats.signed_rank(-known), nan_ok=True)
    families = [str(x % 3) for x in range(len(known))]
    one, other = stats.bootstrap_mean(known, families), stats.bootstrap_mean(-known, families)
    assert one == pytest.approx((-other.mean, -other.high, -other.low), nan_ok=True, abs=1e-12)


@examples(20)
@given(paired, st.randoms())
def test_the_order_of_instances_does_not_matter(pairs, random):
    shuffled = list(pairs)
    random.shuffle(shuffled)
    for of in (stats.win_tie_loss, lambda a, b: stats.signed_rank(np.nan_to_num(stats.log_ratios(a, b)))):
        assert of(*np.array(pairs).T) == pytest.approx(of(*np.array(shuffled).T), nan_ok=True)
    table, mixed = np.array(pairs).T, np.array(shuffled).T
    for one, other in zip(stats.performance_profile(table), stats.performance_profile(mixed), strict=True):
        assert np.array_equal(one.ratios, other.ratios)


@examples(60)
@given(paired)
def test_what_differs_by_a_millionth_is_a_tie(pairs):
    a = np.array(pairs)[:, 0]
    near = a * (1 + 0.9e-6)
    assert stats.win_tie_loss(a, near) == (0, len(a), 0)
    known = stats.log_ratios(a, near)
    assert not np.nan_to_num(known).any()
    assert stats.signed_rank(known[~np.isnan(known)]) == pytest.approx(
        1.0 if np.isfinite(a).sum() >= stats.LEAST else math.nan, nan_ok=True
    )
    apart = stats.win_tie_loss(a, a * (1 + 1e-5))
    assert apart == (int(np.isfinite(a).sum()), int(np.isinf(a).sum()), 0)


@examples(60)
@given(st.lists(st.floats(0, 1) | st.just(math.nan), max_size=10))
def test_holm_raises_p_values_and_keeps_their_order(given_values):
    p = np.array(given_values, dtype=float)
    adjusted = stats.holm(p)
    assert np.array_equal(np.isnan(p), np.isnan(adjusted))
    p, adjusted = p[~np.isnan(p)], adjusted[~np.isnan(p)]
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(1.0, len(p) * p)).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()


def test_holm_as_in_its_paper():
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@examples(60)
@given(finite, st.floats(0.01, 100.0))
def test_a_shifted_mean_is_between_the_least_and_the_most_and_grows_with_the_shift(numbers, shift):
    mean = stats.shifted_geometric_mean(numbers, shift)
    assert min(numbers) - 1e-6 <= mean <= max(numbers) + 1e-6
    assert mean <= stats.shifted_geometric_mean(numbers, 10 * shift) + 1e-6
    assert stats.shifted_geometric_mean(np.array(numbers) + 1.0, shift) == pytest.approx(
        stats.shifted_geometric_mean(numbers, shift + 1.0) + 1.0
    )


def test_shifted_means_of_nothing_and_of_zeros():
    assert math.isnan(stats.shifted_geometric_mean([], 1.0))
    assert stats.shifted_geometric_mean([0.0, 4.0], 0.0) == 0.0
    assert stats.shifted_geometric_mean([1.0, 7.0], 1.0) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("numbers", "p"), [([1, 2, 3, 4, 5, 6], 2 / 64), ([-1, 2, 3, 4, 5, 6], 4 / 64), ([1.0] * 5, math.nan), ([0.0] * 6, 1.0)]
)
def test_the_signed_rank_test_is_exact_for_few(numbers, p):
    assert stats.signed_rank(numbers) == pytest.approx(p, nan_ok=True)


@examples(30)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20), st.integers(1, 12))
def test_an_interval_contains_the_mean_of_equal_families_and_no_more_than_the_values(numbers, count):
    families = [str(x % count) for x in range(len(numbers))]
    mean, low, high = stats.bootstrap_mean(numbers, families)
    assert mean == pytest.approx(np.mean(numbers))
    assert min(numbers) - 1e-12 <= low <= high <= max(numbers) + 1e-12
    same = stats.bootstrap_mean([0.25] * len(numbers), families)
    assert same == pytest.approx((0.25, 0.25, 0.25))


def test_many_families_are_resampled_as_wholes():
    numbers = np.repeat(np.arange(8.0), 50)
    families = [f"f{x:g}" for x in numbers]
    whole, within = stats.bootstrap_mean(numbers, families), stats.bootstrap_mean(numbers, [f"{x % 4:g}" for x in numbers])
    assert whole.high - whole.low > 2.0  # eight families, not four hundred instances
    assert within.high - within.low < 0.6
    assert stats.bootstrap_mean(numbers[:200], families[:200]) == (1.5, 1.5, 1.5)  # instances of a family are equal


@examples(60)
@given(st.lists(st.tuples(st.floats(0, 10), st.floats(1, 100)), max_size=6), st.floats(0.1, 20))
def test_a_primal_integral_is_a_share_and_falls_with_better_schedules(rows, limit):
    history = sorted(rows, key=lambda row: row[0])
    makespans = np.minimum.accumulate([made for _, made in history]) if history else np.empty(0)
    whole = np.array([[time, made] for (time, _), made in zip(history, makespans, strict=True)]).reshape(-1, 2)
    share = stats.primal_integral(whole, 1.0, limit)
    assert -1e-12 <= share <= 1 + 1e-12
    assert share <= stats.primal_integral(whole[:-1], 1.0, limit) + 1e-12


def test_primal_integrals_by_hand():
    assert stats.primal_integral([], 5.0, 10.0) == 1.0
    assert stats.primal_integral([[0.0, 5.0]], 5.0, 10.0) == 0.0
    assert stats.primal_integral([[1.0, 10.0], [6.0, 5.0]], 5.0, 10.0) == pytest.approx(0.1 + 0.5 * 0.5)
    assert stats.primal_integral([[20.0, 5.0]], 5.0, 10.0) == 1.0


@examples(60)
@given(st.lists(st.tuples(values, values, values), min_size=1, max_size=8))
def test_a_profile_is_a_growing_share_that_begins_with_the_wins(rows):
    table = np.array(rows).T
    profiles = stats.performance_profile(table)
    for row, profile in zip(table, profiles, strict=True):
        assert (np.diff(profile.ratios) >= 0).all()
        assert (profile.ratios >= 1).all()
        assert len(profile.ratios) == np.isfinite(row).sum()
        assert profile.shares[-1:].tolist() == ([len(profile.ratios) / len(rows)] if len(profile.ratios) else [])
    solved = np.isfinite(table).any(axis=0).sum()
    assert sum((profile.ratios == 1).sum() for profile in profiles) >= solved


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: stats.holm([0.5, 2.0]), "p values must be from 0 to 1, or NaN"),
        (lambda: stats.win_tie_loss([1.0], [1.0, 2.0]), "first has 1 values and second 2; give one of each"),
        (lambda: stats.shifted_geometric_mean([-1.0], 1.0), "values has -1.0; it must be numbers of at least 0"),
        (lambda: stats.shifted_geometric_mean([1.0], -1.0), "shift is -1.0; it must be a number at least 0"),
        (lambda: stats.bootstrap_mean([1.0], []), "families has 0 names for 1 values"),
        (lambda: stats.primal_integral([1.0, 2.0], 1.0, 1.0), r"history has shape \[2\]; it must be \[improvements, 2\]"),
        (lambda: stats.primal_integral([], 1.0, 0.0), "limit is 0.0; it must be a number above 0"),
    ],
)
def test_wrong_numbers_are_told(call: Any, said: str):
    with pytest.raises(InvalidArgument, match=said):
        call()
