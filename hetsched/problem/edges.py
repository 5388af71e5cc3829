"""The edges of a task graph as arrays, from pairs of names or of indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array
from hetsched.arguments.amounts import Amount, hint
from hetsched.arrays import FloatArray, IntArray, distinct
from hetsched.errors import InvalidProblem
from hetsched.problem.labels import Numbers, edge_axis, in_order
from hetsched.problem.ranges import RANGE, in_range, number

Edge: TypeAlias = tuple[str, str] | tuple[str, str, Amount | None]


def read_edges(
    edges: Iterable[Edge] | npt.NDArray[np.integer[Any]], edge_bytes: Numbers | None, names: tuple[str, ...], output_bytes: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return ([E, 2] task indices, [E] bytes) with parallel edges summed."""
    if isinstance(edges, np.ndarray) and edges.dtype.kind in "iu":
        arcs, sizes = _indexed_edges(edges, edge_bytes, names, output_bytes)
    elif edge_bytes is not None:
        raise InvalidProblem("edge_bytes needs an integer array of edges; write named edges as (source, target, bytes)")
    else:
        arcs, sizes = _named_edges(edges, names, output_bytes)
    bad = ~in_range(sizes)
    if bad.any():
        e = int(np.flatnonzero(bad)[0])
        i, j = arcs[e]
        raise InvalidProblem(f"edge {names[i]!r} -> {names[j]!r} carries {sizes[e]} bytes; it must be {RANGE}")
    keys = arcs[:, 0] * len(names) + arcs[:, 1]
    if len(distinct(keys)) == len(keys):
        return arcs, sizes
    unique, first, group = np.unique(keys, return_index=True, return_inverse=True)
    kept = np.sort(first)
    total = np.zeros(len(unique))
    np.add.at(total, group, sizes)
    return arcs[kept], total[group[kept]]


def _indexed_edges(
    edges: npt.NDArray[np.integer[Any]], edge_bytes: Numbers | None, names: tuple[str, ...], output_bytes: FloatArray
) -> tuple[IntArray, FloatArray]:
    arcs = np.array(edges, dtype=np.int64).reshape(-1, 2) if edges.size == 0 else np.array(edges, dtype=np.int64)
    if arcs.ndim != 2 or arcs.shape[1] != 2:
        raise InvalidProblem(f"an array of edges must have shape [E, 2]; got {arcs.shape}")
    outside = (arcs < 0) | (arcs >= len(names))
    if outside.any():
        e = int(np.flatnonzero(outside.any(axis=1))[0])
        raise InvalidProblem(f"edge {e} joins tasks {tuple(arcs[e].tolist())} but task indices run from 0 to {len(names) - 1}")
    if edge_bytes is None:
        return arcs, output_bytes[arcs[:, 0]]
    sizes = np.array(check_array(in_order(edge_bytes, "edge_bytes", edge_axis(arcs, names)), "edge_bytes", unit="B", error=InvalidProblem))
    if sizes.ndim == 0:
        sizes = np.full(len(arcs), sizes)
    if sizes.shape != (len(arcs),):
        raise InvalidProblem(f"edge_bytes has shape {sizes.shape} but there are {len(arcs)} edges; give one number per edge")
    return arcs, sizes


def _named_edges(edges: Iterable[Edge], names: tuple[str, ...], output_bytes: FloatArray) -> tuple[IntArray, FloatArray]:
    rows = list(edges)
    index = dict(zip(names, range(len(names)), strict=True))
    try:
        ends = [np.fromiter(map(index.__getitem__, map(itemgetter(end), rows)), np.int64, len(rows)) for end in (0, 1)]
        given = [row[2] if len(row) > 2 else None for row in rows]
    except (KeyError, IndexError, TypeError):
        _refuse_edge(rows, index)
    arcs = np.stack(ends, axis=1)
    if any(isinstance(size, str) for size in given):
        given = [size if np.isnan(parsed := number(size, "B")) else parsed for size in given]
    try:
        if any(isinstance(size, str) for size in given):
            raise ValueError
        sizes = np.array(given, dtype=np.float64)  # None becomes NaN
    except (TypeError, ValueError, OverflowError) as error:
        bad = next(row for row in rows if len(row) > 2 and row[2] is not None and np.isnan(number(row[2])))
        raise InvalidProblem(f"edge {bad!r}: bytes must be a number{hint('B')}") from error
    absent = np.array([e for e in np.flatnonzero(np.isnan(sizes)).tolist() if given[e] is None], np.int64)
    sizes[absent] = output_bytes[arcs[absent, 0]]
    return arcs, sizes


def _refuse_edge(rows: Sequence[Any], index: dict[str, int]) -> NoReturn:
    """Raise the error that names the first malformed edge."""
    for row in rows:
        if isinstance(row, str) or not isinstance(row, Sequence) or not 2 <= len(row) <= 3:
            raise InvalidProblem(f"edge {row!r} is not (source, target) or (source, target, bytes)")
        for end in row[:2]:
            if not isinstance(end, str) or end not in index:
                raise InvalidProblem(f"edge {row[0]!r} -> {row[1]!r} names {end!r}, which is no task of the graph")
    raise AssertionError("unreachable: every edge is well formed")
