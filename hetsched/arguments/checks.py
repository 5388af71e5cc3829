"""Checks of values that no annotation describes: counts, rows, arrays and indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.arguments.amounts import hint
from hetsched.arguments.rules import LARGEST_COUNT, as_amount, refuse, shown, whole
from hetsched.errors import HetschedError, InvalidArgument

KINDS = {"f": "numbers", "i": "whole numbers", "b": "True and False"}
"""What an array contains, by the kind of its dtype."""


def check_count(value: Any, what: str, least: int = 1, most: int = LARGEST_COUNT, error: type[HetschedError] = InvalidArgument) -> int:
    """Return a whole number from `least` to `most` as an int; raise `error` for any other value."""
    return int(whole(least, most).check(value, what, error))


def check_indices(values: Any, what: str, limit: int, error: type[HetschedError] = InvalidArgument) -> npt.NDArray[np.int64]:
    """Return a one-dimensional array of indices from 0 to below `limit`."""
    indices: npt.NDArray[np.int64] = check_array(values, what, ("any",), np.int64, error=error)
    if not within(indices, limit):
        raise error(f"{what} runs from {indices.min()} to {indices.max()}; it must be indices from 0 to {limit - 1}")
    return indices


def within(indices: npt.NDArray[np.int64], limit: int) -> bool:
    """Return whether all indices, of 64 bits, are from 0 to below `limit`."""
    return not indices.size or int(indices.view(np.uint64).max()) < limit  # read without a sign, negative numbers are the largest


def check_rows(rows: Any, what: str, *columns: str, error: type[HetschedError] = InvalidArgument) -> list[tuple[Any, ...]]:
    """Return rows as tuples of the `columns`; a row is any sequence of that length except a string."""
    result = []
    for place, row in enumerate(rows):
        if isinstance(row, str | bytes | Mapping) or not hasattr(row, "__iter__") or len(cells := tuple(row)) != len(columns):
            raise error(f"{what}[{place}] is {shown(row)}; it must be ({', '.join(columns)})")
        result.append(cells)
    return result


def check_array(
    values: Any,
    what: str,
    shape: tuple[int | str, ...] | None = None,
    dtype: npt.DTypeLike = np.float64,
    *,
    text: str = "",
    absent: bool = False,
    unit: str = "",
    error: type[HetschedError] = InvalidArgument,
) -> npt.NDArray[Any]:
    """Return an array of numbers, of whole numbers or of bools.

    Parameters
    ----------
    values : array or nested sequence
        Strings, complex numbers and dates are not numbers; floats may be whole numbers; a fraction or a decimal
        becomes a float, an array of bools ones and zeros.
    what : str
        Its name in the message.
    shape : tuple, optional
        The required shape; a string, which messages contain, permits any length.
    dtype : dtype
        float64, int64 or bool.
    text : str
        The requirement, for messages after "it must be".
    absent : bool
        Whether None means NaN.
    unit : str
        A base unit of `hetsched.arguments.amounts`: text with a unit is a number too.
    """
    target = np.dtype(dtype)
    array: npt.NDArray[Any] = values
    if type(values) is not np.ndarray or values.dtype != target:  # by far the most are such arrays
        array = _converted(values, what, target, text, absent, unit, error)
    if shape is not None and (
        array.ndim != len(shape) or any(isinstance(n, int) and n != m for n, m in zip(shape, array.shape, strict=True))
    ):
        raise error(f"{what} has shape {list(array.shape)}; it must be [{', '.join(map(str, shape))}]")
    return array


def _converted(
    values: Any, what: str, target: np.dtype[Any], text: str, absent: bool, unit: str, error: type[HetschedError]
) -> npt.NDArray[Any]:
    """Return values as an array of a dtype, see `check_array`."""
    try:
        array = np.asarray(values)
        if unit and array.dtype.kind == "U":
            array = np.asarray(values, dtype=object)  # numbers among text stay numbers
        if array.dtype.kind == "O" and target.kind == "f":
            amounts = [np.nan if absent and entry is None else as_amount(entry, unit) for entry in array.flat]
            array = np.array(amounts, float).reshape(array.shape)
        if array.dtype.kind == "f" and target.kind == "i" and (np.abs(array) < LARGEST_COUNT).all() and (array == np.rint(array)).all():
            array = array.astype(target)  # numpy makes floats of empty lists
        if array.dtype.kind not in {"f": "biuf", "i": "iu", "b": "b"}[target.kind] and (array.size or array.dtype.kind not in "iuf"):
            refuse()
        array = array.astype(target, copy=False)
    except Exception:  # any error of the array interface of a foreign class
        raise error(f"{what} is {shown(values)}; it must be {text or f'an array of {KINDS[target.kind]}'}{hint(unit)}") from None
    return array
