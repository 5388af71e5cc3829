"""Conversion of labelled values to arrays in the index order of tasks, devices or edges."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.arguments import shown
from hetsched.arrays import IntArray
from hetsched.errors import HetschedError, InvalidProblem

Numbers: TypeAlias = npt.ArrayLike | Mapping[Any, Any]
"""A number, an array, or labelled values: a mapping, a series or a data frame."""


class Axis:
    """One axis of an array: the names of its positions.

    Parameters
    ----------
    what : str
        What the positions are, in the singular: task, device, edge.
    names : sequence, or callable that returns one
        In index order; an edge is a pair of task names. A callable is called only if the values have labels.
    """

    def __init__(self, what: str, names: Sequence[Hashable] | Callable[[], Sequence[Hashable]]) -> None:
        self.what = what
        self._names = names

    @cached_property
    def names(self) -> Sequence[Hashable]:
        """The names, in index order."""
        return self._names() if callable(self._names) else self._names


def edge_axis(arcs: IntArray, names: Sequence[str]) -> Axis:
    """Return the axis of edges, labelled by (source, target) pairs of names."""
    return Axis("edge", lambda: [(names[i], names[j]) for i, j in arcs.tolist()])


def in_order(values: Any, what: str, *axes: Axis, error: type[HetschedError] = InvalidProblem) -> Any:
    """Return labelled values as an array in index order; return values without labels unchanged.

    Mappings, also nested, and the data frames and series of pandas have labels. The labels of an axis must
    be exactly its names, in any order; two axes may be in either order.

    Raises
    ------
    InvalidProblem
        A label is not a name of the axis, occurs twice, or is missing.
    """
    if not axes:
        return values
    if isinstance(values, Mapping):
        return _mapping(values, what, axes, error)
    if isinstance(values, list | tuple) and len(axes) > 1 and values and _labelled(values[0]):
        return [in_order(row, f"{what}[{place}]", *axes[1:], error=error) for place, row in enumerate(values)]
    if not hasattr(values, "to_numpy"):
        return values
    index, columns = getattr(values, "index", None), getattr(values, "columns", None)
    if index is None and columns is None:
        return values  # a polars series has no labels
    if index is None or (columns is not None and len(axes) == 1):
        wanted = " and ".join(f"{axis.what} names" for axis in axes)
        raise error(f"{what} is a table whose rows have no labels for {wanted}; give a mapping by name, or to_numpy() in index order")
    rows = list(index)
    if columns is None:
        axis = _axis_of(rows, axes[:1])
        return values.to_numpy()[_places(rows, what, axes[axis], error)]
    heads = list(columns)
    first = _axis_of(rows, axes[:2])
    if axes[first].names == axes[1 - first].names or _axis_of(heads, axes[:2]) == first:
        first = 0
    taken = values.to_numpy()[np.ix_(_places(rows, what, axes[first], error), _places(heads, what, axes[1 - first], error))]
    return taken.T if first else taken


def each(values: Any, what: str, axis: Axis, absent: Any = ..., error: type[HetschedError] = InvalidProblem) -> Any:
    """Return a mapping or a series as a list in index order, with `absent` for missing names; return a sequence unchanged."""
    if _labelled(values) and not isinstance(values, Mapping):
        values = dict(zip(values.index, values.to_numpy().tolist(), strict=True))
    if not isinstance(values, Mapping):
        return values
    if absent is not ...:
        values = dict.fromkeys(axis.names, absent) | dict(values)
    _places(list(values), what, axis, error)
    return [values[name] for name in axis.names]


def _labelled(values: Any) -> bool:
    return isinstance(values, Mapping) or (hasattr(values, "to_numpy") and hasattr(values, "index"))


def _mapping(values: Mapping[Any, Any], what: str, axes: Sequence[Axis], error: type[HetschedError]) -> Any:
    labels = list(values)
    chosen = _axis_of(labels, axes[:2])
    places = _places(labels, what, axes[chosen], error)
    others = [*axes[:chosen], *axes[chosen + 1 :]]
    given = list(values.values())
    rows = [in_order(given[place], f"{what}[{shown(labels[place])}]", *others, error=error) for place in places]
    try:
        array = np.array(rows)
        if array.dtype.kind == "U":
            array = np.array(rows, dtype=object)  # numbers among text stay numbers
    except ValueError:
        raise error(f"{what} has different numbers of values for different {axes[chosen].what}s; give each as many") from None
    return np.moveaxis(array, 0, chosen) if array.ndim > chosen else array


def _axis_of(labels: Sequence[Any], axes: Sequence[Axis]) -> int:
    """Return the index of the first axis that contains all labels, or 0 if none does."""
    for place, axis in enumerate(axes):
        names = set(axis.names)
        if all(isinstance(label, Hashable) and label in names for label in labels):
            return place
    return 0


def _places(labels: Sequence[Any], what: str, axis: Axis, error: type[HetschedError]) -> list[int]:
    """Return the position among the labels of each name of an axis."""
    position: dict[Any, int] = {}
    names = set(axis.names)
    for place, label in enumerate(labels):
        if not isinstance(label, Hashable) or label not in names:
            remedy = f"name {_some(axis)}, or give an array in index order"
            raise error(f"{what} has a label {shown(label)}, which is no {axis.what}; {remedy}")
        if label in position:
            raise error(f"{what} has the label {shown(label)} twice; name each {axis.what} once")
        position[label] = place
    for name in axis.names:
        if name not in position:
            raise error(f"{what} has nothing for {axis.what} {shown(name)}; name each {axis.what}")
    if len(position) < len(axis.names):
        raise error(f"{what} is labelled by name, but two {axis.what}s have the same name; give an array in index order")
    return [position[name] for name in axis.names]


def _some(axis: Axis) -> str:
    return ", ".join(map(shown, axis.names[:3])) + (", ..." if len(axis.names) > 3 else "")
