"""Checks of times and bytes of chains."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array
from hetsched.arrays import FloatArray
from hetsched.errors import InvalidProblem
from hetsched.problem.ranges import RANGE, in_range

IMPOSSIBLE, UNLIMITED = ", or inf if it is impossible", ", or inf for unlimited"


def amounts(name: str, values: npt.ArrayLike | None, shape: tuple[int, ...], or_inf: str = "") -> FloatArray:
    """Return a copy of amounts of a shape, 0 everywhere if there are none; `or_inf` says what inf means, if it may be.

    Amounts are of bytes if the name says so, else of seconds: numbers, or text with a unit.
    """
    if values is None:
        return np.zeros(shape)
    array: FloatArray = np.array(check_array(values, name, shape, unit="B" if name.endswith("bytes") else "s", error=InvalidProblem))
    valid = in_range(array) | (np.isposinf(array) if or_inf else False)
    if not valid.all():
        first = tuple(int(k) for k in np.argwhere(~valid)[0])
        raise InvalidProblem(f"{name}{list(first)} is {array[first]}; it must be {RANGE}{or_inf}")
    return array
