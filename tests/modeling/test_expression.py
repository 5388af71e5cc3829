"""Expressions against numpy: the values of any operation are those of the same operation on arrays of values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hetsched.errors import InvalidModel
from hetsched.modeling.expression import Expression, concatenate

SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
SMALL = st.integers(-4, 4).map(float)


@st.composite
def columns(draw: st.DrawFn, shape: Any = SHAPES) -> tuple[Expression, np.ndarray, np.ndarray]:
    """Draw an array of columns after some others, values for all, and its own values."""
    wanted = draw(shape) if isinstance(shape, st.SearchStrategy) else shape
    first, size = draw(st.integers(0, 3)), int(np.prod(wanted))
    values = draw(hnp.arrays(np.float64, first + size, elements=SMALL))
    return Expression.of_columns(first, wanted), values, values[first:].reshape(wanted)


def same(expression: Expression, values: np.ndarray, expected: Any) -> None:
    assert expression.shape == np.shape(expected)
    np.testing.assert_allclose(expression.value(values), expected)


@given(columns(), st.data())
def test_arithmetic(case: tuple[Expression, np.ndarray, np.ndarray], data: st.DataObject) -> None:
    x, values, own = case
    other = data.draw(hnp.arrays(np.float64, data.draw(hnp.broadcastable_shapes(own.shape, min_side=0, max_dims=3)), elements=SMALL))
    same(x + other, values, own + other)
    same(other - x, values, other - own)
    same(x * other, values, own * other)
    same(other * x, values, other * own)
    same(-x / 2, values, -own / 2)
    same((x + other) + (x * 2 - 1), values, own + other + own * 2 - 1)


@given(columns(), st.data())
def test_indexing_sums_and_shapes(case: tuple[Expression, np.ndarray, np.ndarray], data: st.DataObject) -> None:
    x, values, own = case
    key = data.draw(hnp.basic_indices(own.shape, allow_newaxis=True))
    same(x[key], values, own[key])
    same(x.sum(), values, own.sum())
    axis = data.draw(st.integers(-own.ndim, own.ndim - 1))
    same(x.sum(axis=axis), values, own.sum(axis=axis))
    same(x.T, values, own.T)
    same(x.reshape(own.size), values, own.reshape(own.size))


@given(columns(st.tuples(st.integers(1, 4), st.integers(1, 3))), st.data())
def test_products_with_constant_matrices(case: tuple[Expression, np.ndarray, np.ndarray], data: st.DataObject) -> None:
    x, values, own = case
    left = data.draw(hnp.arrays(np.float64, (data.draw(st.integers(1, 3)), own.shape[0]), elements=SMALL))
    right = data.draw(hnp.arrays(np.float64, (own.shape[1], data.draw(st.integers(1, 3))), elements=SMALL))
    same(left @ x, values, left @ own)
    same(x @ right, values, own @ right)
    same(left @ x[:, 0], values, left @ own[:, 0])
    same(left[0] @ x, values, left[0] @ own)
    from scipy.sparse import csr_matrix

    same(x.__rmatmul__(csr_matrix(left)), values, left @ own)


@given(columns(), st.data())
def test_bounds_hold_what_values_do(case: tuple[Expression, np.ndarray, np.ndarray], data: st.DataObject) -> None:
    x, values, _ = case
    spread = data.draw(hnp.arrays(np.float64, values.shape, elements=st.integers(0, 3).map(float)))
    expression = (x * 2 - x.sum() * 3) + 1
    low, high = expression.bounds(values - spread, values + spread)
    actual = expression.value(values).ravel()
    assert (low <= actual + 1e-9).all()
    assert (actual <= high + 1e-9).all()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_concatenation(heights: list[int]) -> None:
    values = np.arange(50.0)
    parts = [Expression.of_columns(5 * i, (height, 2)) * (i + 1) + i for i, height in enumerate(heights)]
    same(concatenate(parts), values, np.concatenate([part.value(values) for part in parts]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: x + np.zeros(4), r"shapes (3, 2) and (4,) do not fit together for '+'"),
        (lambda x: x * x, "expressions are linear"),
        (lambda x: x[5], "shape (3, 2) cannot be indexed with 5"),
        (lambda x: x.sum(axis=2), "has no axis 2"),
        (lambda x: x.reshape(4), "cannot take the shape (4,)"),
        (lambda x: np.zeros((2, 4)) @ x, "matrix of shape (2, 4) cannot be multiplied with an expression of shape (3, 2)"),
        (lambda x: bool(x), "no truth value"),
        (lambda x: bool(x <= 1), "a chained comparison"),
        (lambda x: concatenate([x, x[:, 0]]), "cannot be joined"),
    ],
)
def test_operations_that_do_not_fit_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidModel) as error:
        make(Expression.of_columns(0, (3, 2)))
    assert message in str(error.value)


def test_rows_move_constants_to_their_limits() -> None:
    x = Expression.of_columns(0, (2,))
    rows = x + 3 <= 2 * x[::-1] + np.array([1.0, 5.0])
    np.testing.assert_array_equal(rows.upper, [-2.0, 2.0])
    assert (rows.lower == -np.inf).all()
    assert (x == 1).lower.tolist() == [1, 1]
    assert rows[1].shape == ()
    assert len(rows[:1]) == 1
    unlimited = x <= np.inf
    assert (unlimited.lower.tolist(), unlimited.upper.tolist()) == ([-np.inf, -np.inf], [np.inf, np.inf])
