"""Parts of a problem that are the same up to the names of their tasks: what is decided for one holds for all."""

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

_ROUNDS = 100  # of refinement, before parts are compared one by one
_TRIES = 1000  # of pairing two tasks that look the same, beyond one for each task
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93], np.uint64)


class Copy(NamedTuple):
    """Which part a part is a copy of."""

    of: int
    """The first part that it is identical to, maybe itself."""
    tasks: IntArray
    """The tasks of the part, in the order of those of part `of` that they correspond to."""


class _Shape(NamedTuple):
    """A part with numbers in place of names: two parts are identical if some renumbering makes them equal."""

    kind: IntArray
    """[m]: same number, same data of the task."""
    source: IntArray
    target: IntArray
    """[e]: places in the part."""
    load: IntArray
    """[e]: same number, same data of the edge."""
    unit: IntArray
    """[m]: the co-location unit."""


@checked
def identical_parts(
    problem: Problem, parts: Sequence[IntArray], *, marks: Sequence[IntArray] | None = None, bare: Sequence[BoolArray] | None = None
) -> list[Copy]:
    """Find parts that are identical: some mapping of their tasks keeps everything that a schedule depends on.

    Two tasks can correspond if they take the same seconds in batches of each size on each device, run
    nowhere else, and need the same memory (which counts if some device's is finite); the edges between
    them if they carry the same bytes, or have the same transfer times if those are explicit; and tasks
    that share a co-location label must correspond to tasks that do. A label that tasks outside the part
    carry too corresponds to itself alone. Operator types and names do not count.

    Parameters
    ----------
    problem : Problem
    parts : sequence of int arrays
        The tasks of each part, in any order; a task may be in several parts. With them go the edges
        that have both ends in the part.
    marks : sequence of int arrays, optional
        A number for each task of each part; tasks correspond only to tasks of the same number.
    bare : sequence of bool arrays, optional
        Whether a task of a part stands for what comes before or after it, so that of its data only
        where it can run counts, neither how long nor how large it is.

    Returns
    -------
    list of Copy
        One for each part. What is said is exact, whatever the order in which tasks are listed. Only
        where very many tasks of a part look the same and are not (strongly regular graphs), the search
        for a mapping may be given up, and the part counts as unlike the others.

    Raises
    ------
    UnsupportedFeature
        `marks` or `bare` do not have one entry for each task of each part, or a part names a task twice.

    Notes
    -----
    Colour refinement (Weisfeiler and Leman) on the numbers tells most unlike parts apart. For the
    others the tasks in the order listed are tried, which is right for the blocks of most networks, then
    tasks of equal colours are paired, refining after each choice, until every colour is a single task.
    Whatever it finds is compared number by number.
    """
    parts = [check_indices(part, f"parts[{p}]", problem.n_tasks) for p, part in enumerate(parts)]
    for what, columns in (("marks", marks), ("bare", bare)):
        if columns is not None and list(map(np.size, columns)) != list(map(len, parts)):
            raise UnsupportedFeature(f"{what} must have one entry for each task of each of the {len(parts)} parts")
    shapes = _shapes(problem, parts, marks, bare) if parts else []
    found: list[Copy] = []
    known: dict[bytes, list[int]] = {}
    for p, colours in enumerate(_colours(shapes)):
        alike = known.setdefault(np.sort(colours).tobytes(), [])
        for first in alike:
            order = _mapping(shapes[first], shapes[p])
            if order is not None:
                found.append(Copy(first, parts[p][order]))
                break
        else:
            alike.append(p)
            found.append(Copy(p, parts[p]))
    return found


# ---------------------------------------------------------------------- what there is to compare


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
    """Return the edges inside the parts, their ends as places in the part [e, 2], and how many there are in each."""
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
    return np.concatenate(edges), np.concatenate(ends), [len(each) for each in edges[1:]]


def _outer_labels(problem: Problem, parts: Sequence[IntArray]) -> IntArray:
    """Return for each task of each part its co-location unit if that reaches beyond the part, else -1."""
    sizes = np.bincount(problem.unit, minlength=problem.n_units)
    found = [np.empty(0, np.int64)]
    for part in parts:
        _, which, here = np.unique(problem.unit[part], return_inverse=True, return_counts=True)
        found.append(np.where(here[which] < sizes[problem.unit[part]], problem.unit[part], -1))
    return np.concatenate(found)


def _kinds(
    problem: Problem, tasks: IntArray, marks: Sequence[IntArray] | None, bare: Sequence[BoolArray] | None, labels: IntArray
) -> IntArray:
    """Return a number for each of the tasks: the same for those with the same data."""
    graph, n = problem.graph, problem.n_tasks
    seconds = problem.arrays.durations.reshape(n, -1)
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
    """Return a number for each row: the same for equal ones."""
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
    """Return colours that tell tasks apart by those of their neighbours, too, until that tells no more apart."""
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
    """Return colours of the tasks of all shapes; identical shapes have the same ones, as often."""
    if not shapes:
        return []
    joined = _joined(shapes)
    colour = _refined(joined, _mixed(joined.kind.astype(np.uint64)), _ROUNDS)
    return np.split(colour, np.cumsum([len(shape.kind) for shape in shapes])[:-1])


# ---------------------------------------------------------------------- mappings


def _mapping(a: _Shape, b: _Shape) -> IntArray | None:
    """Return the places in `b` that those in `a` correspond to, None if there are none or they are not found."""
    m = len(a.kind)
    if len(b.kind) != m or len(a.source) != len(b.source):
        return None
    listed = np.arange(m)
    if _maps(a, b, listed):
        return listed
    both = _joined([a, b])
    trials: list[tuple[Hashes, int, list[int]]] = []  # colours so far, a task of a, those of b left to pair it with
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
    """Tell whether `a` becomes `b` where place i of `a` is ``places[i]`` of `b`."""
    if not np.array_equal(a.kind, b.kind[places]):
        return False
    ours, theirs = np.stack([places[a.source], places[a.target], a.load]), np.stack([b.source, b.target, b.load])
    if not np.array_equal(ours[:, np.lexsort(ours)], theirs[:, np.lexsort(theirs)]):
        return False
    pairs = {*zip(a.unit.tolist(), b.unit[places].tolist(), strict=True)}
    return len(pairs) == len({u for u, _ in pairs}) == len({u for _, u in pairs})
