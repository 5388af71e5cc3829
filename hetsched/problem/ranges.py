"""The range of the amounts of a problem."""

from __future__ import annotations

import numpy as np

from hetsched.arguments.rules import as_amount
from hetsched.arrays import BoolArray, FloatArray

SMALLEST, LARGEST = 1e-100, 1e100
"""Range of the nonzero times, sizes and bandwidths of a problem: sums and quotients neither overflow nor underflow."""
RANGE = f"0 or a number from {SMALLEST:g} to {LARGEST:g}"


def in_range(values: FloatArray) -> BoolArray:
    """Return which numbers are 0 or between `SMALLEST` and `LARGEST`; NaN is not."""
    return np.asarray((values == 0) | ((values >= SMALLEST) & (values <= LARGEST)))


def number(value: object, unit: str = "") -> float:
    """Return `value`, with a unit also text such as ``"2 ms"``, as a float, or NaN if it is not a number or too large for a float."""
    try:
        return float(as_amount(value, unit))
    except (OverflowError, TypeError, ValueError):
        return np.nan
