"""Conversion of real times to whole units, with every row rounded to a weaker one.

Let u be the unit and T = floor(t / u) for every time t. A row ``sum of a x + sum of b t <= r`` over whole x
and times t then implies ``sum of (a/u) x + sum of b T <= r/u - sum of b f`` with 0 <= f < 1, whose right
side is below ``r/u + sum of |b| over negative b`` if there is such a b. With x and T shifted to begin at 0,
coefficients rounded down weaken the row further. So every feasible solution in real times is feasible in
units, and a bound on the one problem is a bound on the other, for every unit. If some optimum has times
that are multiples of a common unit, f is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import InvalidModel, UnsupportedFeature
from hetsched.modeling.expression import Expression, Rows, totals
from hetsched.modeling.program import Implies, Kind, Linear, Maximum, NoOverlap, Program

NEAR, NEAR_OF_LARGE = 1e-9, 1e-13  # absolute and relative distance at which a number counts as whole
LARGEST = 2.0**40  # largest time in units, or less if the sum of many would exceed 64 bits
MOST = 2.0**60  # largest sum of the parts of a row
DECIMALS = 9
ROUNDING = 2e-7  # largest sum of roundings along a path, relative to the horizon


@dataclass(frozen=True)
class IntegerRows:
    """Rows ``sum of coefficient * column <= limit`` over whole columns, flat like `Expression`."""

    ptr: IntArray
    column: IntArray
    coefficient: IntArray
    limit: IntArray
    row: IntArray
    """The original row of each."""
    exact: bool
    """Whether no number was rounded."""


@dataclass(frozen=True)
class Units:
    """Units of the columns: of times `unit` seconds, of others 1."""

    unit: float
    scale: FloatArray
    """[columns]: the unit of a time, 1 for a whole number."""
    lower: IntArray
    upper: IntArray
    """Bounds in units."""
    is_time: np.ndarray
    common: bool
    """Whether all numbers of seconds in the model are multiples of the unit."""


def units(program: Program, gap: float) -> Units:
    """Return the units of a program: a common unit of all its times if there is one, else one with small roundings."""
    if (program.kind == Kind.CONTINUOUS).any():
        name = program.column_names()[int(np.argmax(program.kind == Kind.CONTINUOUS))]
        raise UnsupportedFeature(
            f"cpsat supports whole numbers and times only, but {name} is continuous; make it a time, or use scip or highs"
        )
    infinite = np.isinf(program.lower) | np.isinf(program.upper)
    if infinite.any():
        raise InvalidModel(
            f"cpsat needs finite bounds, but column {program.column_names()[int(infinite.argmax())]} lacks one; give it both"
        )
    is_time = program.kind == Kind.TIME
    horizon = float(np.abs(np.concatenate([program.lower[is_time], program.upper[is_time], [0.0]])).max())
    seconds = np.unique(np.abs(np.concatenate([np.zeros(1), *_said_of_times(program, is_time)])))
    seconds = seconds[np.isfinite(seconds) & (seconds > 0)]
    intervals = [part.intervals for part in program.constraints if isinstance(part, NoOverlap)]
    steps = sum(part.n for part in intervals) or int(is_time.sum())
    times = int(is_time.sum()) + sum(3 * part.n * part.resources for part in intervals)  # start, size and end of intervals
    largest = min(LARGEST, MOST / (2 * max(times, 1)))
    unit, common = _common_unit(seconds, horizon, largest)
    common &= all(_differences(part.rows, is_time) for part in program.constraints if isinstance(part, Linear | Implies) and not part.cut)
    if not common:
        unit = max(horizon * max(gap / 2, ROUNDING) / (2 * max(steps, 1)), horizon / largest) or 1.0
    scale = np.where(is_time, unit, 1.0)
    lower, upper = (down(bound / scale).astype(np.int64) for bound in (program.lower, program.upper))
    return Units(unit, scale, lower, upper, is_time, common)


def _differences(rows: Rows, is_time: np.ndarray) -> bool:
    """Return whether rows bound single times or differences of two, which implies an optimum with whole times."""
    expression = rows.expression
    timed = is_time[expression.column]
    sign, row = expression.coefficient[timed], expression.row[timed]
    often = max(np.bincount(row[sign == way], minlength=1).max() for way in (1.0, -1.0))
    return bool((np.abs(sign) == 1).all() and often <= 1)


def _said_of_times(program: Program, is_time: np.ndarray) -> Iterator[FloatArray]:
    """Yield the numbers of seconds in a program, except those of cuts."""
    yield program.lower[is_time]
    for constraint in program.constraints:
        if isinstance(constraint, Linear | Implies) and not constraint.cut:
            expression = constraint.rows.expression
            timed = np.zeros(len(constraint.rows), bool)
            timed[expression.row[is_time[expression.column]]] = True
            yield expression.coefficient[timed[expression.row] & ~is_time[expression.column]]
            yield constraint.rows.lower[timed]
            yield constraint.rows.upper[timed]
        elif isinstance(constraint, NoOverlap):
            yield constraint.intervals.size.coefficient
            yield constraint.intervals.size.constant
        elif isinstance(constraint, Maximum):
            yield constraint.terms.constant
            yield constraint.terms.coefficient[~is_time[constraint.terms.column]]


def _common_unit(seconds: FloatArray, horizon: float, largest: float) -> tuple[float, bool]:
    """Return the largest unit of which all numbers are multiples, if it is decimal and not too small."""
    if not len(seconds):
        return 1.0, True
    for decimals in range(-6, DECIMALS + 1):
        unit = 10.0**-decimals
        count = seconds / unit
        if horizon / unit > largest:
            break
        if whole_numbers(count).all() and (np.round(count) > 0).all():
            shared = np.gcd.reduce(np.round(count).astype(np.int64))
            return float(shared) * unit, True
    return 1.0, False


def rounded(rows: Rows, counted: Units) -> IntegerRows:
    """Return rows over whole columns that follow from `rows`; an equality gives two."""
    expression = rows.expression
    parts = []
    exact = True
    for limit, sign in ((rows.upper, 1.0), (-rows.lower, -1.0)):
        chosen = np.flatnonzero(np.isfinite(limit))
        part = expression._take(chosen)
        part = Expression(part.shape, part.ptr, part.column, part.coefficient * sign, part.constant)
        integers = _one_sided(part, limit[chosen], counted)
        exact &= integers.exact
        parts.append((integers, chosen))
    first, second = parts[0][0], parts[1][0]
    return IntegerRows(
        np.concatenate([first.ptr, second.ptr[1:] + first.ptr[-1]]),
        np.concatenate([first.column, second.column]),
        np.concatenate([first.coefficient, second.coefficient]),
        np.concatenate([first.limit, second.limit]),
        np.concatenate([parts[0][1], parts[1][1]]),
        exact,
    )


def _one_sided(expression: Expression, limit: FloatArray, counted: Units) -> IntegerRows:
    """Return ``expression <= limit`` in units."""
    row, column = expression.row, expression.column
    amount = expression.coefficient * counted.scale[column]
    timed = counted.is_time[column]
    size = expression.size
    has_time = np.zeros(size, bool)
    has_time[row[timed]] = True
    weight = np.where(has_time, 1.0 / counted.unit, 1.0) * _multiplier(expression, limit, has_time, counted)
    alpha = amount * weight[row]
    integral = down(alpha)
    shift = totals(row, alpha * counted.lower[column], size)
    beta = limit * weight - shift
    negative = timed & (alpha < 0) & (not counted.common)  # with a common unit times are exact
    slack = totals(row[negative], -alpha[negative], size)
    below = np.zeros(size, bool)
    below[row[negative]] = True
    most = np.where(below, -down(-(beta + slack)) - 1, down(beta))
    # A row with a rounded coefficient or limit is not equivalent.
    exact = bool((np.abs(alpha - integral) <= 1e-6).all() and (np.abs(beta - np.round(beta)) <= 1e-6 * np.maximum(1.0, np.abs(beta))).all())
    back = totals(row, integral * counted.lower[column], size)
    if size and not (np.abs(most + back).max(initial=0.0) < 2.0**62 and np.abs(integral).max(initial=0.0) < 2.0**62):
        raise InvalidModel("a coefficient is too large for whole numbers; use scip or highs")
    return IntegerRows(expression.ptr, column, integral.astype(np.int64), (most + back).astype(np.int64), np.arange(size), exact)


def _multiplier(expression: Expression, limit: FloatArray, has_time: np.ndarray, counted: Units) -> FloatArray:
    """Return a factor for each row that makes its coefficients whole, or their roundings small."""
    row, column, size = expression.row, expression.column, expression.size
    start = np.where(has_time, 1.0 / counted.unit, 1.0)
    base = expression.coefficient * counted.scale[column] * start[row]
    reach = np.maximum(np.abs(counted.lower), np.abs(counted.upper))[column] + 1.0
    largest = totals(row, np.abs(base) * reach, size) + np.abs(limit) * start
    factor = np.ones(size)
    open_rows = np.ones(size, bool)
    for power in range(7):
        scaled = base * 10.0**power
        off = ~whole_numbers(scaled)
        broken = np.zeros(size, bool)
        broken[row[off]] = True
        settled = open_rows & ~broken & (largest * 10.0**power <= MOST)
        factor[settled] = 10.0**power
        open_rows &= ~settled
        if not open_rows.any():
            return factor
    # Rows with times keep the unit, for rounding costs a fraction of it. Others get nine digits.
    fine = np.where(has_time, 1.0, 1e9 / np.maximum(largest, 1e-300))
    factor[open_rows] = np.minimum(fine, MOST / np.maximum(largest, 1e-300))[open_rows]
    return factor


def whole_numbers(values: FloatArray) -> np.ndarray:
    """Return which numbers are whole up to rounding in their last digits."""
    return np.abs(values - np.round(values)) <= NEAR + NEAR_OF_LARGE * np.abs(values)


def down(values: npt.ArrayLike) -> FloatArray:
    """Return numbers rounded down, where those that are whole up to rounding are rounded to the nearest."""
    numbers = np.asarray(values, np.float64)
    return np.where(whole_numbers(numbers), np.round(numbers), np.floor(numbers))
