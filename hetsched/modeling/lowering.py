"""From what a model says to rows of a linear program: a list of pure passes, each from a program to a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.arrays import BoolArray, FloatArray, IntArray, row_starts
from hetsched.errors import InvalidModel, UnsupportedFeature
from hetsched.modeling.expression import Expression, Rows, totals
from hetsched.modeling.program import Constraint, ExactlyOne, Implies, Intervals, Kind, Linear, Maximum, NoOverlap, Program
from hetsched.stopping import NEVER, Deadline

Pass = Callable[[Program], Program]
MOST_PAIRS = 500_000
TERM = 2e-7
"""Seconds that lowering takes for a term, on an ordinary machine."""


@dataclass(frozen=True)
class Matrix:
    """A mixed-integer linear program: minimise ``cost @ x + offset``, ``row_lower <= A x <= row_upper``.

    `start`, `column`, `coefficient` are A by rows, with at most one term a column; `program` is the
    lowered program, whose first columns are the model's own.
    """

    program: Program
    integer: BoolArray
    cost: FloatArray
    offset: float
    start: IntArray
    column: IntArray
    coefficient: FloatArray
    row_lower: FloatArray
    row_upper: FloatArray

    def edits(self, old: Matrix) -> Edits | None:
        """Return what turns `old` into this matrix; None if that takes more than changed numbers and rows more."""
        mine, theirs = self.program, old.program
        if mine.blocks != theirs.blocks or (self.integer != old.integer).any():
            return None
        kept = len(old.row_lower)
        if len(self.row_lower) < kept:
            return None
        now, before = (each.rows(kept) for each in (self, old))
        changed = np.zeros(kept, bool)
        changed[(now - before).nonzero()[0]] = True
        changed |= (self.row_lower[:kept] != old.row_lower) | (self.row_upper[:kept] != old.row_upper)
        moved = (mine.lower != theirs.lower) | (mine.upper != theirs.upper)
        return Edits(
            np.flatnonzero(moved), np.flatnonzero(self.cost != old.cost), np.flatnonzero(changed), np.arange(kept, len(self.row_lower))
        )

    def rows(self, count: int) -> Any:
        """Return the first rows of A as a sparse matrix."""
        from scipy.sparse import csr_matrix

        start = self.start[: count + 1]
        end = int(start[-1])
        return csr_matrix((self.coefficient[:end], self.column[:end], start), shape=(count, self.program.n_columns))

    def row(self, row: int) -> dict[int, float]:
        """Return the coefficients of a row by column."""
        terms = slice(int(self.start[row]), int(self.start[row + 1]))
        return dict(zip(self.column[terms].tolist(), self.coefficient[terms].tolist(), strict=True))


@dataclass(frozen=True)
class Edits:
    """How one matrix differs from another: columns with other bounds or costs, rows that changed, rows that are new."""

    bounds: IntArray
    costs: IntArray
    changed: IntArray
    added: IntArray


def linear(program: Program, *, cuts: bool = True, deadline: Deadline = NEVER) -> Matrix:
    """Return a program as a mixed-integer linear program; every pass is listed here.

    Raises `OutOfTime` if that takes longer than the deadline allows.
    """
    what = f"lowering {program.n_columns:,} columns to linear rows"
    deadline.require(TERM * program.n_terms, what)
    passes: list[Pass] = [maxima, orders, implications, choices]
    if not cuts:
        passes.insert(0, without_cuts)
    for step in passes:
        program = step(program).check()
        deadline.check(what)
    return matrix(program)


def without_cuts(program: Program) -> Program:
    """Leave redundant rows out."""
    return replace(program, constraints=tuple(each for each in program.constraints if not getattr(each, "cut", False)))


def maxima(program: Program) -> Program:
    """Turn each maximum into rows: at least each of its terms."""

    def rows(each: Maximum) -> Iterator[Constraint]:
        yield Linear(each.target.reshape(-1, 1) - each.terms >= 0, each.tag)

    return _replaced(program, Maximum, rows)


def choices(program: Program) -> Program:
    """Turn each choice of exactly one into a row."""

    def rows(each: ExactlyOne) -> Iterator[Constraint]:
        yield Linear(each.literals.sum(axis=1) == 1, each.tag)

    return _replaced(program, ExactlyOne, rows)


def _replaced(program: Program, kind: type, rows: Callable[..., Iterator[Constraint]]) -> Program:
    kept: list[Constraint] = []
    for each in program.constraints:
        kept.extend(rows(each) if isinstance(each, kind) else [each])
    return replace(program, constraints=tuple(kept))


def orders(program: Program) -> Program:
    """Turn non-overlap into binaries that say which interval of a pair is first, and what follows.

    Where intervals may be absent there are two binaries a pair, one each way, at least one of them
    one if both are present (on the same resource); they serve all resources if start and end do.
    Where all are present one binary a pair is enough.
    """
    kept: list[Constraint] = []
    for each in program.constraints:
        if isinstance(each, NoOverlap):
            program, rows = _ordered(program, each)
            kept.extend(rows)
        else:
            kept.append(each)
    return replace(program, constraints=tuple(kept))


def _few(pairs: int, tag: str) -> None:
    """Raise `UnsupportedFeature` for more pairs than a linear solver could do anything with."""
    if pairs > MOST_PAIRS:
        raise UnsupportedFeature(
            f"non-overlap {tag!r} takes order binaries for {pairs:,} pairs in linear rows, more than {MOST_PAIRS:,}; "
            "use cpsat, which takes intervals as they are, or a search method"
        )


def _ordered(program: Program, said: NoOverlap) -> tuple[Program, list[Constraint]]:
    intervals, tag = said.intervals, said.tag
    i, j = said.pairs.T
    _few(len(i), tag)
    presence = intervals.presence
    name = re.sub(r"[^\w().]", "_", f"order{tag}.{program.n_columns}")  # as files of linear programs allow
    if presence is None:
        taking = (_bounds(program, intervals.size)[1] > 0).ravel()
        i, j = said.pairs[taking[i] & taking[j]].T
        start, end = (each.reshape(intervals.n) for each in (intervals.start, intervals.end))
        forth, back = Rows.of(end[i] - start[j], -np.inf, 0.0), Rows.of(end[j] - start[i], -np.inf, 0.0)
        never = [_bounds(program, rows.expression)[0] > rows.upper for rows in (forth, back)]
        low, high = (never[1] & ~never[0]).astype(np.float64), (~never[0]).astype(np.float64)
        program, first = program.with_columns(name, (len(i),), low, high, _first(end, start, i, j))
        return program, [Implies(first.reshape(-1, 1), forth, tag), Implies((1 - first).reshape(-1, 1), back, tag)]
    possible_there = _bounds(program, presence)[1].reshape(presence.shape) > 0.5
    width = 1 if intervals.size.ndim == 1 else intervals.size.shape[1]
    real = np.broadcast_to(_bounds(program, intervals.size)[1].reshape(intervals.n, width) > 0, presence.shape)
    occupied = possible_there & real  # what takes no time occupies nothing
    together = occupied[i] & occupied[j]
    _few(int(together.sum()), tag)
    if intervals.start.ndim == 1:  # the same time on every resource: one order a pair serves all
        pair, resource = np.nonzero(together)
        apart = np.flatnonzero(together.any(axis=1))
        order_of = np.searchsorted(apart, pair)
        ends = [(i[apart], j[apart]), (j[apart], i[apart])]
    else:
        pair, resource = np.nonzero(together)
        order_of = np.arange(len(pair))
        width = presence.shape[1]
        ends = [(i[pair] * width + resource, j[pair] * width + resource), (j[pair] * width + resource, i[pair] * width + resource)]
    start, end = intervals.start.reshape(-1), intervals.end.reshape(-1)
    rows: list[Constraint] = []
    literals = []
    for way, (a, b) in zip((".forth", ".back"), ends, strict=True):
        implied = Rows.of(end[a] - start[b], -np.inf, 0.0)
        possible = (_bounds(program, implied.expression)[0] <= implied.upper).astype(np.float64)
        program, literal = program.with_columns(f"{name}{way}", (len(a),), np.zeros(len(a)), possible, _first(end, start, a, b))
        literals.append(literal)
        rows.append(Implies(literal.reshape(-1, 1), implied, tag))
    both = presence[i[pair], resource] + presence[j[pair], resource]
    rows.append(Linear(literals[0][order_of] + literals[1][order_of] - both >= -1, tag))
    return program, rows


def _first(end: Expression, start: Expression, a: IntArray, b: IntArray) -> Callable[[FloatArray], FloatArray]:
    """Return what tells from a solution whether a ends before b starts; NaN where it does not say."""

    def values(known: FloatArray) -> FloatArray:
        finish, begin = end[a].value(known), start[b].value(known)
        slack = 1e-9 * np.maximum(1.0, np.abs(np.nan_to_num(finish)))
        return np.where(np.isnan(finish) | np.isnan(begin), np.nan, (finish <= begin + slack) * 1.0)

    return values


def in_order(program: Program, values: FloatArray) -> Program:
    """Turn non-overlap into rows that keep the order that intervals have in a solution, rounded ones too."""

    def rows(each: NoOverlap) -> Iterator[Constraint]:
        intervals = each.intervals
        start, end, taking = _placed(program, intervals, values)
        width = 1 if intervals.start.ndim == 1 else intervals.resources
        column = np.broadcast_to(np.arange(intervals.n * width).reshape(intervals.n, width), taking.shape)
        for r in range(intervals.resources):
            there = np.flatnonzero(taking[:, r])
            line = column[there[np.lexsort((end[there, r], start[there, r]))], r]
            if len(line) > 1:
                yield Linear(intervals.end.reshape(-1)[line[:-1]] <= intervals.start.reshape(-1)[line[1:]], each.tag)

    return _replaced(program, NoOverlap, rows)


def implications(program: Program) -> Program:
    """Turn each implication into a row that a big M lifts unless all its literals are one.

    M is computed for each row from the bounds of its columns, of which exactly one may be one where
    the model says so. Rows that always hold are left out.
    """

    def rows(each: Implies) -> Iterator[Constraint]:
        least, most = _bounds(program, each.rows.expression)
        missing = each.literals.shape[1] - each.literals.sum(axis=1)
        for limit, reach, sign in ((each.rows.upper, most, 1.0), (each.rows.lower, least, -1.0)):
            lift = sign * (reach - limit)
            needed = np.flatnonzero(np.isfinite(limit) & (lift > 0))
            if np.isinf(lift[needed]).any():
                bad = each.rows.expression._take(needed[np.isinf(lift[needed])][:1]).column
                name = program.column_names()[int(bad[np.isinf(program.lower[bad]) | np.isinf(program.upper[bad])][0])]
                raise InvalidModel(f"an implication of {each.tag!r} needs a big M, but column {name} lacks a finite bound; give it both")
            body = each.rows.expression._take(needed) * sign - missing._take(needed) * lift[needed]
            yield Linear(body <= sign * limit[needed], each.tag, each.cut)

    return _replaced(program, Implies, rows)


def _bounds(program: Program, found: Expression) -> tuple[FloatArray, FloatArray]:
    """Return the least and largest value of each entry, using that of some columns exactly one is one."""
    group = np.full(program.n_columns, -1)
    size: list[int] = []
    for each in program.constraints:
        if isinstance(each, ExactlyOne):
            lines = each.literals
            plain = (lines.coefficient == 1).all() and not lines.constant.any() and (np.diff(lines.ptr) == 1).all()
            if plain and (group[lines.column] < 0).all():
                group[lines.column] = np.repeat(np.arange(lines.shape[0]), lines.shape[1]) + len(size)
                size += [lines.shape[1]] * lines.shape[0]
    own = group[found.column]
    chosen, row = own >= 0, found.row
    free = ~chosen
    least, most = (
        totals(row[free], part, found.size) + found.constant
        for part in _reach(found.coefficient[free], program.lower[found.column[free]], program.upper[found.column[free]])
    )
    if chosen.any():
        # One term a (row, group): of its columns one is one, or none of those that the row names.
        key = row[chosen] * (len(size) + 1) + own[chosen]
        ranked = np.argsort(key, kind="stable")
        usable = program.upper[found.column[chosen]] > 0.5
        value = found.coefficient[chosen]
        where = np.flatnonzero(np.diff(key[ranked], prepend=-1))
        count = np.add.reduceat(np.ones(len(ranked), np.int64), where)
        whole = count == np.asarray(size)[own[chosen][ranked][where]]
        low = np.minimum.reduceat(np.where(usable, value, np.inf)[ranked], where)
        high = np.maximum.reduceat(np.where(usable, value, -np.inf)[ranked], where)
        target = row[chosen][ranked][where]
        low = np.where(whole & np.isfinite(low), low, np.minimum(low, 0.0))
        high = np.where(whole & np.isfinite(high), high, np.maximum(high, 0.0))
        least += totals(target, low, found.size)
        most += totals(target, high, found.size)
    return least, most


def _reach(coefficient: FloatArray, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    with np.errstate(invalid="ignore"):
        ends = np.where(coefficient == 0, 0.0, [coefficient * lower, coefficient * upper])
    return ends.min(axis=0), ends.max(axis=0)


def matrix(program: Program) -> Matrix:
    """Return a program of linear rows only as arrays, terms of one column in one row added up."""
    from scipy.sparse import csr_matrix

    rows = []
    for each in program.constraints:
        if not isinstance(each, Linear):
            raise InvalidModel(f"{type(each).__name__} of {each.tag!r} has not been lowered")
        rows.append(each.rows)
    heights = row_starts([len(each) for each in rows])
    none = np.zeros(0)
    entry = np.concatenate([none, *(each.expression.row + first for each, first in zip(rows, heights, strict=False))]).astype(np.int64)
    column = np.concatenate([none, *(each.expression.column for each in rows)]).astype(np.int64)
    coefficient = np.concatenate([none, *(each.expression.coefficient for each in rows)])
    added = csr_matrix((coefficient, (entry, column)), shape=(int(heights[-1]), program.n_columns))
    added.eliminate_zeros()
    goal = program.objective
    return Matrix(
        program,
        program.kind == Kind.INTEGER,
        totals(goal.column, goal.coefficient, program.n_columns),
        float(goal.constant[0]),
        added.indptr.astype(np.int64),
        added.indices.astype(np.int64),
        added.data,
        np.concatenate([none, *(each.lower for each in rows)]),
        np.concatenate([none, *(each.upper for each in rows)]),
    )


def violations(program: Program, values: FloatArray, tolerance: float) -> list[str]:
    """Return what values of the model's columns violate, a line each."""
    if values.shape != (program.n_columns,):
        raise InvalidModel(f"values have shape {values.shape}; one for each of the {program.n_columns} columns is needed")
    names = program.column_names()
    scale = tolerance * np.maximum(1.0, np.abs(values))
    outside = ~((program.lower - scale <= values) & (values <= program.upper + scale))
    found = [
        f"column {names[c]} is {values[c]:.9g}, outside {program.lower[c]:.9g} to {program.upper[c]:.9g}"
        for c in np.flatnonzero(outside).tolist()
    ]
    whole = (program.kind == Kind.INTEGER) & ~(np.abs(values - np.round(values)) <= tolerance)
    found += [f"column {names[c]} is {values[c]:.9g}, no whole number" for c in np.flatnonzero(whole).tolist()]
    for each in program.constraints:
        found += [f"{each.tag}: {text}" for text in _broken(program, each, values, tolerance)]
    return found


def _broken(program: Program, said: Constraint, values: FloatArray, tolerance: float) -> Iterator[str]:
    if isinstance(said, Linear | Implies):
        literals = said.literals.value(values) if isinstance(said, Implies) else np.ones((len(said.rows), 1))
        yield from _off(said.rows, values, np.asarray((literals > 0.5).all(axis=1)), tolerance)
    elif isinstance(said, ExactlyOne):
        total = said.literals.value(values).sum(axis=1)
        for row in np.flatnonzero(np.abs(total - 1) > tolerance).tolist():
            yield f"line {row} has {total[row]:.9g} ones"
    elif isinstance(said, Maximum):
        wide = said.target.reshape(-1, 1) - said.terms
        yield from _off(Rows.of(wide, 0.0, np.inf), values, np.ones(wide.size, bool), tolerance)
    else:
        yield from _overlaps(program, said.intervals, values, tolerance)


def _off(rows: Rows, values: FloatArray, active: BoolArray, tolerance: float) -> Iterator[str]:
    value = rows.expression.value(values).ravel()
    expression = rows.expression
    largest = np.zeros(len(rows))
    np.maximum.at(largest, expression.row, np.abs(expression.coefficient * values[expression.column]))
    slack = tolerance * np.maximum(1.0, largest)
    for row in np.flatnonzero(active & ~((rows.lower - slack <= value) & (value <= rows.upper + slack))).tolist():
        yield f"row {row} is {value[row]:.9g}, outside {rows.lower[row]:.9g} to {rows.upper[row]:.9g}"


def _overlaps(program: Program, intervals: Intervals, values: FloatArray, tolerance: float) -> Iterator[str]:
    start, end, taking = _placed(program, intervals, values)
    slack = tolerance * max(1.0, float(np.abs(end).max(initial=0.0)))
    for r in range(intervals.resources):
        there = np.flatnonzero(taking[:, r])
        line = there[np.argsort(start[there, r] + end[there, r], kind="stable")]  # by their middle: what touches stays in order
        latest = np.maximum.accumulate(end[line, r])
        for place in np.flatnonzero(start[line[1:], r] < latest[:-1] - slack).tolist():
            before = line[: place + 1]
            pair = sorted((int(before[end[before, r].argmax()]), int(line[place + 1])))
            yield f"intervals {pair[0]} and {pair[1]} overlap on resource {r}"


def _placed(program: Program, intervals: Intervals, values: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return start and end of intervals in a solution, and whether they occupy a resource, each [n, R]."""
    shape = (intervals.n, intervals.resources)

    def wide(part: npt.NDArray[Any], ndim: int) -> npt.NDArray[Any]:
        return np.broadcast_to(part.reshape(intervals.n, 1 if ndim == 1 else -1) if intervals.n else np.zeros(shape, part.dtype), shape)

    start, end = (wide(part.value(values), part.ndim) for part in (intervals.start, intervals.end))
    real = wide(_bounds(program, intervals.size)[1] > 0, intervals.size.ndim)
    present = np.ones(shape, bool) if intervals.presence is None else np.asarray(intervals.presence.value(values) > 0.5)
    return start, end, present & real
