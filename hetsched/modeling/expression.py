"""Arrays of linear expressions over the columns of a model, and rows by comparisons of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, checked
from hetsched.arrays import FloatArray, IntArray, row_starts
from hetsched.errors import InvalidModel


class Expression:
    """An array of linear expressions; entry r is ``constant[r] + sum of coefficient * column`` over its terms.

    It can be indexed, broadcast and summed like a numpy array. ``+``, ``-``, ``*`` by numbers, ``@`` with a
    constant matrix, `sum`, `reshape` and indexing give expressions; ``<=``, ``>=`` and ``==`` give `Rows`
    for ``model.add``. Columns of a model are expressions of one term each.

    Attributes
    ----------
    shape : tuple of int
    ptr, column, coefficient : arrays
        The terms of the flat entry r are those from ``ptr[r]`` to ``ptr[r + 1]``.
    constant : float64 array, flat
    """

    __slots__ = ("coefficient", "column", "constant", "ptr", "shape")
    __array_ufunc__ = None  # so that numpy calls our operators for `array * expression`
    __hash__ = None  # type: ignore[assignment]  # `==` makes rows

    @checked
    def __init__(self, shape: tuple[int, ...], ptr: IntArray, column: IntArray, coefficient: FloatArray, constant: FloatArray) -> None:
        self.shape, self.ptr, self.column, self.coefficient, self.constant = shape, ptr, column, coefficient, constant

    @classmethod
    @checked
    def of_columns(cls, first: int, shape: tuple[int, ...]) -> Expression:
        """Return the columns from `first` on as an array."""
        size = int(np.prod(shape))
        return cls(shape, np.arange(size + 1), np.arange(first, first + size), np.ones(size), np.zeros(size))

    @classmethod
    def of_numbers(cls, values: npt.ArrayLike) -> Expression:
        """Return numbers as expressions without terms."""
        array = check_array(values, "values", error=InvalidModel)
        empty = np.zeros(0, np.int64)
        return cls(array.shape, np.zeros(array.size + 1, np.int64), empty, np.zeros(0), array.ravel().copy())

    def __repr__(self) -> str:
        return f"<Expression of shape {self.shape}, {len(self.column)} terms>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an expression without dimensions has no length")
        return self.shape[0]

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self.constant)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def T(self) -> Expression:
        """The expression with its axes reversed."""
        return self._take(np.arange(self.size).reshape(self.shape).T)

    @property
    def row(self) -> IntArray:
        """The flat entry of each term."""
        return np.repeat(np.arange(self.size), np.diff(self.ptr))

    def _take(self, entries: npt.NDArray[Any]) -> Expression:
        """Return the expression of some entries, in the shape of `entries`."""
        flat = np.asarray(entries, np.int64).ravel()
        length = self.ptr[flat + 1] - self.ptr[flat]
        ptr = row_starts(length)
        term = np.repeat(self.ptr[flat] - ptr[:-1], length) + np.arange(ptr[-1])
        return Expression(np.shape(entries), ptr, self.column[term], self.coefficient[term], self.constant[flat])

    def __getitem__(self, key: Any) -> Expression:
        try:
            return self._take(np.arange(self.size).reshape(self.shape)[key])
        except IndexError as error:
            raise InvalidModel(f"an expression of shape {self.shape} cannot be indexed with {key!r}: {error}") from None

    @checked
    def reshape(self, *shape: int | tuple[int, ...]) -> Expression:
        """Return the entries in another shape; one length may be -1."""
        target = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        try:
            new = np.arange(self.size).reshape(target).shape  # type: ignore[arg-type]
        except ValueError:
            raise InvalidModel(f"an expression of shape {self.shape} cannot take the shape {target}") from None
        return Expression(new, self.ptr, self.column, self.coefficient, self.constant)

    @checked
    def broadcast_to(self, shape: tuple[int, ...]) -> Expression:
        """Return the expression repeated to a shape."""
        return self if shape == self.shape else self._take(np.broadcast_to(np.arange(self.size).reshape(self.shape), shape))

    @checked
    def sum(self, axis: int | tuple[int, ...] | None = None) -> Expression:
        """Return sums over all entries or over some axes."""
        axes = range(self.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        if any(not -self.ndim <= axis_number < self.ndim for axis_number in axes):
            raise InvalidModel(f"an expression of shape {self.shape} has no axis {axis}")
        summed = sorted({axis_number % self.ndim for axis_number in axes})
        kept = [axis_number for axis_number in range(self.ndim) if axis_number not in summed]
        shape = tuple(self.shape[axis_number] for axis_number in kept)
        size = int(np.prod(shape))
        width = int(np.prod([self.shape[axis_number] for axis_number in summed]))
        entries = np.arange(self.size).reshape(self.shape).transpose(*kept, *summed).reshape(size, width)
        lined = self._take(entries)
        return Expression(
            shape,
            lined.ptr[::width] if width else np.zeros(size + 1, np.int64),
            lined.column,
            lined.coefficient,
            lined.constant.reshape(entries.shape).sum(axis=1),
        )

    def __add__(self, other: Expression | npt.ArrayLike) -> Expression:
        a, b = _aligned(self, other, "+")
        rows_a, rows_b = a.row, b.row
        place_a = np.arange(len(a.column)) + b.ptr[rows_a]
        place_b = np.arange(len(b.column)) + a.ptr[rows_b + 1]
        column, coefficient = np.empty(len(place_a) + len(place_b), np.int64), np.empty(len(place_a) + len(place_b))
        column[place_a], column[place_b] = a.column, b.column
        coefficient[place_a], coefficient[place_b] = a.coefficient, b.coefficient
        return Expression(a.shape, a.ptr + b.ptr, column, coefficient, a.constant + b.constant)

    __radd__ = __add__

    def __neg__(self) -> Expression:
        return Expression(self.shape, self.ptr, self.column, -self.coefficient, -self.constant)

    def __sub__(self, other: Expression | npt.ArrayLike) -> Expression:
        return self + (-other if isinstance(other, Expression) else -np.asarray(other, np.float64))

    def __rsub__(self, other: npt.ArrayLike) -> Expression:
        return -self + other

    def __mul__(self, other: npt.ArrayLike) -> Expression:
        if isinstance(other, Expression):
            raise InvalidModel("expressions are linear: they cannot be multiplied with one another; use implies() for a choice")
        factor = np.asarray(other, np.float64)
        wide = self.broadcast_to(_common(self.shape, factor.shape, "*"))
        flat = np.broadcast_to(factor, wide.shape).ravel()
        return Expression(wide.shape, wide.ptr, wide.column, wide.coefficient * flat[wide.row], wide.constant * flat)

    __rmul__ = __mul__

    def __truediv__(self, other: npt.ArrayLike) -> Expression:
        return self * (1.0 / np.asarray(other, np.float64))

    def __matmul__(self, matrix: Any) -> Expression:
        turned = Expression.__rmatmul__(self.T, matrix.T)
        return turned.T if self.ndim > 1 else turned

    def __rmatmul__(self, matrix: Any) -> Expression:
        """Return ``matrix @ self``; the matrix is constant, dense or scipy-sparse, [m, n] or [n]."""
        if np.ndim(matrix) == 1:
            return (np.asarray(matrix, np.float64).reshape((-1,) + (1,) * (self.ndim - 1)) * self).sum(axis=0)
        dense = np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, np.float64)
        if dense.ndim != 2 or self.ndim not in (1, 2) or dense.shape[1] != self.shape[0]:
            raise InvalidModel(f"a matrix of shape {dense.shape} cannot be multiplied with an expression of shape {self.shape}")
        i, j = np.nonzero(dense)
        width = 1 if self.ndim == 1 else self.shape[1]
        entries = (j[:, None] * width + np.arange(width)).ravel()
        target = (i[:, None] * width + np.arange(width)).ravel()
        order = np.argsort(target, kind="stable")
        scaled = self._take(entries[order]) * np.repeat(dense[i, j], width)[order]
        size = dense.shape[0] * width
        ends = np.searchsorted(target[order], np.arange(size + 1))
        constant = totals(target[order], scaled.constant, size)
        return Expression((dense.shape[0], *self.shape[1:]), scaled.ptr[ends], scaled.column, scaled.coefficient, constant)

    def __le__(self, other: Expression | npt.ArrayLike) -> Rows:
        return Rows.of(self - other, -np.inf, 0.0)

    def __ge__(self, other: Expression | npt.ArrayLike) -> Rows:
        return Rows.of(self - other, 0.0, np.inf)

    def __eq__(self, other: object) -> Rows:  # type: ignore[override]
        return Rows.of(self - other, 0.0, 0.0)  # type: ignore[operator]

    def __bool__(self) -> NoReturn:
        raise InvalidModel("an expression has no truth value; comparisons make rows for model.add()")

    @checked
    def value(self, values: FloatArray) -> FloatArray:
        """Return the entries for values of all columns, in the expression's shape."""
        self._reaches(values, "values")
        total = totals(self.row, self.coefficient * values[self.column], self.size)
        return np.asarray((total + self.constant).reshape(self.shape))

    @checked
    def bounds(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and the largest value of each entry for columns within bounds, flat."""
        self._reaches(lower, "lower")
        self._reaches(upper, "upper")
        positive = self.coefficient > 0
        ends = []
        for near, far in ((lower, upper), (upper, lower)):
            with np.errstate(invalid="ignore"):
                reach = np.where(self.coefficient == 0, 0.0, self.coefficient * np.where(positive, near[self.column], far[self.column]))
            ends.append(totals(self.row, reach, self.size) + self.constant)
        return ends[0], ends[1]

    def _reaches(self, values: FloatArray, what: str) -> None:
        """Raise an error if `values` does not have one number for each column of the expression."""
        needed = int(self.column.max(initial=-1)) + 1
        if values.ndim != 1 or len(values) < needed:
            raise InvalidModel(f"{what} has shape {list(values.shape)}; give one number for each column, at least {needed}")


class Rows:
    """An array of rows ``lower <= expression <= upper``, made by comparisons of expressions.

    Attributes
    ----------
    expression : Expression
        An expression without constants.
    lower, upper : float64 arrays, flat
        -inf or inf for no limit.
    """

    __slots__ = ("expression", "lower", "upper")

    @checked
    def __init__(self, expression: Expression, lower: FloatArray, upper: FloatArray) -> None:
        self.expression, self.lower, self.upper = expression, lower, upper

    @classmethod
    @checked
    def of(cls, expression: Expression, lower: float, upper: float) -> Rows:
        """Return the rows with constants moved to the limits."""
        free = Expression(expression.shape, expression.ptr, expression.column, expression.coefficient, np.zeros(expression.size))
        limits = (np.full(expression.size, end) if np.isinf(end) else end - expression.constant for end in (lower, upper))
        return cls(free, *limits)

    def __repr__(self) -> str:
        return f"<Rows of shape {self.shape}>"

    def __len__(self) -> int:
        return len(self.lower)

    def __bool__(self) -> NoReturn:
        raise InvalidModel("rows have no truth value: a chained comparison such as a <= x <= b makes only one of the two; add each")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the expression."""
        return self.expression.shape

    def __getitem__(self, key: Any) -> Rows:
        kept = np.arange(len(self)).reshape(self.shape)[key]
        return Rows(self.expression[key], self.lower[np.ravel(kept)], self.upper[np.ravel(kept)])


def totals(place: IntArray, amount: FloatArray, size: int) -> FloatArray:
    """Return the sum of the amounts at each of `size` places."""
    return np.bincount(place, amount, size).astype(np.float64) if size else np.zeros(0)


@checked
def concatenate(expressions: Sequence[Expression]) -> Expression:
    """Return expressions joined along their first axis."""
    if not expressions:
        raise InvalidModel("there is nothing to concatenate")
    tails = {part.shape[1:] for part in expressions}
    if len(tails) > 1 or any(not part.shape for part in expressions):
        raise InvalidModel(f"expressions of shapes {[part.shape for part in expressions]} cannot be joined along the first axis")
    offsets = row_starts([len(part.column) for part in expressions])
    ptr = np.concatenate([[0], *(part.ptr[1:] + offset for part, offset in zip(expressions, offsets, strict=False))])
    return Expression(
        (sum(part.shape[0] for part in expressions), *tails.pop()),
        ptr.astype(np.int64),
        np.concatenate([part.column for part in expressions]),
        np.concatenate([part.coefficient for part in expressions]),
        np.concatenate([part.constant for part in expressions]),
    )


@checked
def stack(expressions: Sequence[Expression]) -> Expression:
    """Return expressions of one shape joined along a new last axis."""
    if len({part.shape for part in expressions}) != 1:
        raise InvalidModel(f"expressions of shapes {[part.shape for part in expressions]} cannot be stacked; they must have one shape")
    shape, size = expressions[0].shape, expressions[0].size
    joined = concatenate([part.reshape(size) for part in expressions])
    return joined._take(np.arange(len(expressions) * size).reshape(len(expressions), *shape).transpose(*range(1, len(shape) + 1), 0))


def expression(value: Expression | npt.ArrayLike) -> Expression:
    """Return an expression unchanged, or numbers as an expression without terms."""
    return value if isinstance(value, Expression) else Expression.of_numbers(value)


def _common(a: tuple[int, ...], b: tuple[int, ...], sign: str) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise InvalidModel(f"shapes {a} and {b} do not fit together for {sign!r}") from None


def _aligned(a: Expression, other: Expression | npt.ArrayLike, sign: str) -> tuple[Expression, Expression]:
    b = expression(other)
    shape = _common(a.shape, b.shape, sign)
    return a.broadcast_to(shape), b.broadcast_to(shape)
