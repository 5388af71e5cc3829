"""Rounding to whole units is a relaxation: points that are feasible in real times remain feasible."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.errors import InvalidModel
from hetsched.modeling.integers import rounded, units
from hetsched.modeling.model import Model
from hetsched.modeling.program import Linear
from hetsched.testing.profiles import examples

NUMBERS = st.one_of(
    st.integers(-9, 9).map(float),
    st.integers(-99, 99).map(lambda count: count / 10),
    st.floats(-1e3, 1e3, allow_subnormal=False).map(lambda value: 0.0 if abs(value) < 1e-6 else value),
    st.sampled_from([1 / 3, 0.1 + 0.2, 1e-6, 1e6, -1.0, 1.0]),
)
TIMES = st.one_of(st.integers(0, 20).map(float), st.floats(0.0, 20.0), st.integers(0, 200).map(lambda count: count / 10))


@st.composite
def feasible(draw: st.DrawFn) -> tuple[Model, np.ndarray]:
    """Draw a model and a point that keeps all its rows."""
    n, m, rows = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    model = Model()
    x = model.integer("x", n, lower=draw(st.integers(-3, 0)), upper=5)
    t = model.time("t", m, lower=draw(st.sampled_from([0.0, -1.5])), upper=25.0)
    low = float(model.program.lower[0])
    integers = np.array([draw(st.integers(int(low), 5)) for _ in range(n)], np.float64)
    times = np.array([draw(TIMES) for _ in range(m)])
    for _ in range(rows):
        a = np.array([draw(NUMBERS) for _ in range(n)])
        ones = draw(st.booleans())  # in most rows of schedules times have the coefficient 1
        b = np.array([draw(st.sampled_from([-1.0, 0.0, 1.0])) if ones else draw(NUMBERS) for _ in range(m)])
        value = float(a @ integers + b @ times)
        kind = draw(st.sampled_from(["<=", ">=", "=="]))
        slack = draw(st.sampled_from([0.0, 0.0, 0.5, 3.0]))
        expression = a @ x + b @ t
        model.add(expression <= value + slack if kind == "<=" else expression >= value - slack if kind == ">=" else expression == value)
    return model, np.concatenate([integers, times])


@pytest.mark.slow
@examples(400)
@given(case=feasible(), gap=st.sampled_from([0.0, 1e-3, 0.1, 0.5]))
def test_the_rounded_point_keeps_the_rounded_rows(case: tuple[Model, np.ndarray], gap: float) -> None:
    model, point = case
    program = model.program
    counted = units(program, gap)
    counts = np.floor(point / counted.scale + 1e-9)
    assert (counted.lower <= counts).all()
    assert (counts <= counted.upper).all()
    for constraint in program.constraints:
        assert isinstance(constraint, Linear)
        rows = rounded(constraint.rows, counted)
        total = np.bincount(
            np.repeat(np.arange(len(rows.limit)), np.diff(rows.ptr)), rows.coefficient * counts[rows.column], len(rows.limit)
        )
        # Numbers within 1e-9 of an integer were rounded to it.
        slack = 1e-6 * np.maximum(1.0, np.abs(rows.limit))
        assert (total <= rows.limit + slack).all()


@given(counts=st.lists(st.integers(1, 10_000), min_size=1, max_size=6), decimals=st.integers(0, 6))
def test_decimal_times_have_a_common_unit_and_lose_nothing(counts: list[int], decimals: int) -> None:
    lengths = np.array(counts) / 10**decimals
    model = Model()
    start = model.time("start", len(counts), upper=float(lengths.sum()))
    x = model.binary("x", len(counts))
    model.add(start[1:] >= start[:-1] + x[:-1] * lengths[:-1])
    model.add(start + x * lengths <= float(lengths.sum()))
    counted = units(model.program, 0.0)
    assert counted.common
    np.testing.assert_allclose(lengths / counted.unit, np.round(lengths / counted.unit), atol=1e-6)
    assert all(rounded(constraint.rows, counted).exact for constraint in model.program.constraints if isinstance(constraint, Linear))


def test_numbers_that_cannot_be_rounded_are_refused() -> None:
    model = Model()
    model.time("t")
    with pytest.raises(InvalidModel, match="cpsat needs finite bounds, but column t lacks one"):
        units(model.program, 0.0)
    model = Model()
    model.continuous("flow", 2, upper=1)
    with pytest.raises(hs.UnsupportedFeature, match=r"flow\(0\) is continuous; make it a time, or use scip or highs"):
        units(model.program, 0.0)


def test_optima_between_multiples_of_the_unit_are_bounded_and_found() -> None:
    """An odd right side with an even coefficient, and an odd cycle: their optima are between multiples of the unit."""
    model = Model()
    t = model.time("t", upper=100.0)
    model.add(2 * t <= 7)
    model.maximise(t)
    outcome = model.solve("cpsat")
    assert outcome.objective == pytest.approx(3.5)
    assert outcome.bound >= 3.5
    model = Model()
    t = model.time("t", 3, upper=100.0)
    model.add(t + t[[1, 2, 0]] <= 1)
    model.maximise(t.sum())
    outcome = model.solve("cpsat")
    assert outcome.objective == pytest.approx(1.5)
    assert outcome.bound >= 1.5


@pytest.mark.slow
def test_thousands_of_intervals_and_any_weights_fit_64_bits() -> None:
    """CP-SAT refuses models whose sum of domains, or objective, exceeds 64 bits."""
    model = Model()
    count = 4500
    start, on = model.time("start", (count, 2), upper=1e6), model.binary("on", (count, 2))
    long = model.binary("long", (count, 2))
    size = on * 2.5 + long / 3.0
    model.no_overlap(model.interval(start, size, presence=on), pairs=[])
    model.minimise((start * np.geomspace(1e-9, 1e9, 2 * count).reshape(count, 2)).sum())
    native = model.native("cpsat")
    assert native.validate() == ""


@examples(100)
@given(weights=st.lists(st.floats(1e-12, 1e12), min_size=2, max_size=4), decimals=st.integers(0, 6))
def test_an_objective_of_any_weights_is_bounded_from_below(weights: list[float], decimals: int) -> None:
    model = Model()
    t = model.time("t", len(weights), lower=0.7, upper=10.0**decimals)
    model.minimise((t * np.array(weights)).sum())
    outcome = model.solve("cpsat", threads=1)
    smallest = 0.7 * sum(weights)
    assert outcome.objective == pytest.approx(smallest)
    assert smallest * (1 - 1e-6) <= outcome.bound <= smallest * (1 + 1e-6)
