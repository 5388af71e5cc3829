"""Identical parts of a problem: equal up to the names of their tasks, so a solution of one is a solution of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_indices, checked
from hetsched.arrays import BoolArray, FloatArray, IntArray, row_starts
from hetsched.errors import UnsupportedFeature
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem

Hashes = npt.NDArray[np.uint64]

_ROUNDS = 100  # of refinement before parts are compared in pairs
_TRIES = 1000  # of pairing two tasks of one colour, beyond one for each task
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93], np.uint64)


class Copy(NamedTuple):
    """The part that a part is a copy of, and the correspondence of tasks."""

    of: int
    """The first part that it is identical to, possibly itself."""
    tasks: IntArray
    """The tasks of the part, in the order of the corresponding tasks of part `of`."""


class _Shape(NamedTuple):
    """A part as numbers: two parts are identical if some renumbering of tasks makes them equal."""

    kind: IntArray
    """[m]: tasks with equal data have the same number."""
    source: IntArray
    target: IntArray
    """[e]: positions in the part."""
    load: IntArray
    """[e]: edges with equal data have the same number."""
    unit: IntArray
    """[m]: the co-location unit."""


@checked
def identical_parts(
    problem: Problem, parts: Sequence[IntArray], *, marks: Sequence[IntArray] | None = None, bare: Sequence[BoolArray] | None = None
) -> list[Copy]:
    """Find identical parts: parts with a mapping of their tasks that preserves everything a schedule depends on.

    Two tasks can correspond if they have the same durations for each batch size on each device, the same
    eligible devices, and the same memory (ignored if no device has a finite capacity). Two edges can
    correspond if they carry the same bytes, or have the same transfer times if those are explicit. Tasks
    that share a co-location label must correspond to tasks that share one. A label that also occurs
    outside the part corresponds only to itself. Operator types and names are ignored.

    Parameters
    ----------
    problem : Problem
    parts : sequence of int arrays
        The tasks of each part, in any order; a task may be in several parts. The edges of a part are those
        with both ends in it.
    marks : sequence of int arrays, optional
        A number for each task of each part; tasks correspond only to tasks with the same number.
    bare : sequence of bool arrays, optional
        Whether a task of a part only represents the tasks before or after it. Of its data only its eligible
        devices are compared, not its durations or memory.

    Returns
    -------
    list of Copy
        One for each part. The mappings are exact and independent of the order in which tasks are listed. If
        very many tasks of a part have one colour and yet differ (strongly regular graphs), the search
        for a mapping may end early, and the part is then treated as different from the others.

    Raises
    ------
    UnsupportedFeature
        `marks` or `bare` do not have one entry for each task of each part, or a part names a task twice.

    Notes
    -----
    Colour refinement (Weisfeiler and Leman) on the numbers separates most parts that differ. For the
    others the mapping in the listed order is tried first, which is correct for the blocks of most networks;
    then tasks of equal colours are paired, with refinement after each choice, until every colour is a single
    task. Every mapping is checked number by number.
    """
    parts = [check_indices(part, f"parts[{p}]", problem.n_tasks) for p, part in enumerate(parts)]
    for what, columns in (("marks", marks), ("bare", bare)):
        if columns is not None and list(map(np.size, columns)) != list(map(len, parts)):
            raise UnsupportedFeature(f"{what} must have one entry for each task of each of the {len(parts)} parts")
    shapes = _shapes(problem, parts, marks, bare) if parts else []
    copies: list[Copy] = []
    parts_of: dict[bytes, list[int]] = {}
    for p, colours in enumerate(_colours(shapes)):
        alike = parts_of.setdefault(np.sort(colours).tobytes(), [])
        for first in alike:
            order = _mapping(shapes[first], shapes[p])
            if order is not None:
                copies.append(Copy(first, parts[p][order]))
                break
        else:
            alike.append(p)
            copies.append(Copy(p, parts[p]))
    return copies


# ---------------------------------------------------------------------- shapes


def _shapes(
    problem: Problem, parts: Sequence[IntArray], marks: Sequence[IntArray] | None, bare: Sequence[BoolArray] | None
) -> list[_Shape]:
    """Return the parts as shapes."""
    graph = problem.graph
    ptr = row_starts([len(row) for row in parts])
    edges, ends, count = _edges(graph, parts)
    labels = _outer_labels(problem, parts)
    kinds = _kinds(problem, np.concatenate([np.empty(0, np.int64), *parts]), marks, bare, labels)
    every = np.unique(edges)
    data = graph.edge_bytes[every, None]
    if problem.transfers is not None:
        data = problem.links.transfers[every].reshape(len(every), problem.n_devices**2)
    loads = _classes(data)[np.searchsorted(every, edges)]
    cut = np.cumsum(count)[:-1]
    rows = zip(np.split(kinds, ptr[1:-1]), np.split(ends, cut), np.split(loads, cut), parts, strict=True)
    return [_Shape(kind, both[:, 0], both[:, 1], load, problem.unit[part]) for kind, both, load, part in rows]


def _edges(graph: TaskGraph, parts: Sequence[IntArray]) -> tuple[IntArray, IntArray, list[int]]:
    """Return the edges inside the parts, their ends as positions in the part [e, 2], and the number of edges of each part."""
    place = np.full(graph.n_tasks, -1)
    edges, ends = [np.empty(0, np.int64)], [np.empty((0, 2), np.int64)]
    for number, part in enumerate(parts):
        place[part] = np.arange(len(part))
        if (place[part] != np.arange(len(part))).any():
            raise UnsupportedFeature(f"part {number} names a task twice; its tasks must be distinct")
        begin, many = graph.succ_ptr[part], graph.succ_ptr[part + 1] - graph.succ_ptr[part]
        out = graph.succ_edge[np.repeat(begin - np.cumsum(many) + many, many) + np.arange(many.sum())]
        both = place[graph.edges[out]]
        inside = both[:, 1] >= 0
        edges.append(out[inside])
        ends.append(both[inside])
        place[part] = -1
    return np.concatenate(edges), np.concatenate(ends), [len(row) for row in edges[1:]]


def _outer_labels(problem: Problem, parts: Sequence[IntArray]) -> IntArray:
    """Return for each task of each part its co-location unit if the unit has tasks outside the part, else -1."""
    sizes = np.bincount(problem.unit, minlength=problem.n_units)
    labels = [np.empty(0, np.int64)]
    for part in parts:
        _, which, here = np.unique(problem.unit[part], return_inverse=True, return_counts=True)
        labels.append(np.where(here[which] < sizes[problem.unit[part]], problem.unit[part], -1))
    return np.concatenate(labels)


def _kinds(
    problem: Problem, tasks: IntArray, marks: Sequence[IntArray] | None, bare: Sequence[BoolArray] | None, labels: IntArray
) -> IntArray:
    """Return a number for each of the tasks, equal for tasks with equal data."""
    graph, n = problem.graph, problem.n_tasks
    seconds = problem.usable_durations.reshape(n, -1)
    data = [seconds]
    if np.isfinite(problem.cluster.memory_bytes).any():
        data.append(np.stack([graph.weight_bytes, graph.input_bytes, graph.output_bytes], axis=1))
    kind = _classes(np.concatenate(data, axis=1))[tasks]
    if bare is not None:
        blank = np.concatenate([np.empty(0, bool), *bare]).astype(bool)
        where = _classes(np.isfinite(seconds).astype(np.float64))[tasks]
        kind = np.where(blank, -1 - where, kind)
    mark = np.zeros(len(tasks), np.int64) if marks is None else np.concatenate([np.empty(0, np.int64), *marks])
    return np.unique(np.stack([kind, mark, labels], axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def _classes(rows: FloatArray) -> IntArray:
    """Return a number for each row, equal for equal rows."""
    plain = np.ascontiguousarray(rows + 0.0)  # -0 is 0
    keys = plain.view(np.dtype((np.void, plain.itemsize * plain.shape[1]))).reshape(-1)
    return np.unique(keys, return_inverse=True)[1]


# ---------------------------------------------------------------------- refinement


def _mixed(values: Hashes) -> Hashes:
    """Return hashes of whole numbers (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * _FACTORS[1]
    values = (values ^ (values >> np.uint64(27))) * _FACTORS[2]
    return np.asarray(values ^ (values >> np.uint64(31)))


def _joined(shapes: Sequence[_Shape]) -> _Shape:
    """Return several shapes as one."""
    start = row_starts([len(shape.kind) for shape in shapes])
    columns = [
        (shape.kind, shape.source + a, shape.target + a, shape.load, np.unique(shape.unit, return_inverse=True)[1] + a)
        for shape, a in zip(shapes, start.tolist(), strict=False)
    ]
    return _Shape(*(np.concatenate([np.empty(0, np.int64), *column]) for column in zip(*columns, strict=True)))


def _refined(shape: _Shape, colour: Hashes, rounds: int) -> Hashes:
    """Refine colours by those of neighbours and unit members until the number of colours is stable, at most `rounds` times."""
    load = _mixed(shape.load.astype(np.uint64) + _FACTORS[0])
    n, number = len(colour), len(np.unique(colour))
    labelled = len(np.unique(shape.unit)) < n
    for _ in range(rounds):
        near: list[Hashes] = []
        for here, there, factor in ((shape.source, shape.target, _FACTORS[1]), (shape.target, shape.source, _FACTORS[2])):
            total = np.zeros(n, np.uint64)
            np.add.at(total, here, _mixed((colour[there] ^ load) * factor))
            near.append(total)
        finer = colour + _mixed(near[0]) * _FACTORS[1] + _mixed(near[1]) * _FACTORS[2]
        if labelled:
            mates = np.zeros(n, np.uint64)
            np.add.at(mates, shape.unit, _mixed(colour * _FACTORS[3]))
            finer += _mixed(mates[shape.unit]) * _FACTORS[3]
        finer = _mixed(finer)
        more = len(np.unique(finer))
        if more <= number:
            break
        colour, number = finer, more
    return colour


def _colours(shapes: list[_Shape]) -> list[Hashes]:
    """Return colours of the tasks of all shapes; identical shapes have the same multiset of colours."""
    if not shapes:
        return []
    joined = _joined(shapes)
    colour = _refined(joined, _mixed(joined.kind.astype(np.uint64)), _ROUNDS)
    return np.split(colour, np.cumsum([len(shape.kind) for shape in shapes])[:-1])


# ---------------------------------------------------------------------- mappings


def _mapping(a: _Shape, b: _Shape) -> IntArray | None:
    """Return the position in `b` of each position in `a`, or None if no mapping is found."""
    m = len(a.kind)
    if len(b.kind) != m or len(a.source) != len(b.source):
        return None
    listed = np.arange(m)
    if _maps(a, b, listed):
        return listed
    both = _joined([a, b])
    trials: list[tuple[Hashes, int, list[int]]] = []  # colours so far, a task of a, the tasks of b still to be paired with it
    colour: Hashes | None = _mixed(both.kind.astype(np.uint64))
    for _ in range(m + _TRIES):
        if colour is None:
            while trials and not trials[-1][2]:
                trials.pop()
            if not trials:
                return None
            before, i, others = trials[-1]
            colour = before.copy()
            colour[[i, m + others.pop(0)]] = _mixed(before[[i]] ^ _mixed(np.array([len(trials)], np.uint64)))  # a colour of its own
        colour = _refined(both, colour, 2 * m)
        ours, theirs = colour[:m], colour[m:]
        order, other = np.argsort(ours, kind="stable"), np.argsort(theirs, kind="stable")
        if not np.array_equal(ours[order], theirs[other]):
            colour = None
            continue
        shared = np.flatnonzero(ours[order][1:] == ours[order][:-1])
        if len(shared):
            i = int(order[shared[0]])
            trials.append((colour, i, np.flatnonzero(theirs == ours[i]).tolist()))
        else:
            places = np.empty(m, np.int64)
            places[order] = other
            if _maps(a, b, places):
                return places
        colour = None
    return None


def _maps(a: _Shape, b: _Shape, places: IntArray) -> bool:
    """Return whether mapping position i of `a` to ``places[i]`` of `b` turns `a` into `b`."""
    if not np.array_equal(a.kind, b.kind[places]):
        return False
    ours, theirs = np.stack([places[a.source], places[a.target], a.load]), np.stack([b.source, b.target, b.load])
    if not np.array_equal(ours[:, np.lexsort(ours)], theirs[:, np.lexsort(theirs)]):
        return False
    pairs = {*zip(a.unit.tolist(), b.unit[places].tolist(), strict=True)}
    return len(pairs) == len({u for u, _ in pairs}) == len({u for _, u in pairs})
