"""`Model.violations` against the definition of each row, pair by pair."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hetsched.modeling import Model

NUDGE = 1e-9
"""Rounding error of a time, far below the tolerance."""


@given(ends=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.sampled_from([-NUDGE, 0.0, NUDGE])), min_size=2, max_size=6))
def test_overlaps_are_those_of_pairs_and_touching_is_none(ends: list[tuple[int, int, float]]) -> None:
    model, n = Model(), len(ends)
    start, size = model.time("start", n), model.time("size", n)
    model.no_overlap(model.interval(start, size))
    values = np.array([interval[0] + interval[2] for interval in ends] + [float(interval[1]) for interval in ends])
    apart = all(a + p <= b or b + q <= a for (a, p, _), (b, q, _) in itertools.combinations(ends, 2))
    assert (model.violations(values) == []) == apart


def test_what_can_only_take_no_time_occupies_nothing() -> None:
    model = Model()
    start, chosen = model.time("start", 2), model.binary("chosen", 2)
    model.no_overlap(model.interval(start, chosen * [4.0, 0.0]))
    assert model.violations([0.0, 1.0, 1.0, 1.0]) == []
