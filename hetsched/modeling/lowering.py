"""Lowering of models to linear programs, by pure passes from program to program."""

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
"""Estimated seconds to lower a term."""


@dataclass(frozen=True)
class Matrix:
    """A mixed-integer linear program: minimise ``cost @ x + offset``, ``row_lower <= A x <= row_upper``.

    `start`, `column`, `coefficient` are A by rows, with at most one term for each column; `program` is
    the lowered program, whose first columns are those of the model.
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
        """Return the edits from `old` to this matrix, or None if more changes than numbers and additional rows."""
        new_program, old_program = self.program, old.program
        if new_program.blocks != old_program.blocks or new_program.propagators != old_program.propagators:
            return None
        if (self.integer != old.integer).any():
            return None
        kept = len(old.row_lower)
        if len(self.row_lower) < kept:
            return None
        now, before = (matrix_rows.rows(kept) for matrix_rows in (self, old))
        changed = np.zeros(kept, bool)
        changed[(now - before).nonzero()[0]] = True
        changed |= (self.row_lower[:kept] != old.row_lower) | (self.row_upper[:kept] != old.row_upper)
        moved = (new_program.lower != old_program.lower) | (new_program.upper != old_program.upper)
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
    """Differences of two matrices: columns with other bounds or costs, changed rows, new rows."""

    bounds: IntArray
    costs: IntArray
    changed: IntArray
    added: IntArray


def linear(program: Program, *, cuts: bool = True, deadline: Deadline = NEVER) -> Matrix:
    """Return a program as a mixed-integer linear program, by all passes.

    Raises `OutOfTime` if that takes longer than the deadline permits.
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
    """Remove redundant rows and propagators."""
    needed = tuple(constraint for constraint in program.constraints if not getattr(constraint, "cut", False))
    return replace(program, constraints=needed, propagators=())


def maxima(program: Program) -> Program:
    """Replace each maximum by rows: it is at least each of its terms."""

    def rows(maximum: Maximum) -> Iterator[Constraint]:
        yield Linear(maximum.target.reshape(-1, 1) - maximum.terms >= 0, maximum.tag)

    return _replaced(program, Maximum, rows)


def choices(program: Program) -> Program:
    """Replace each choice of exactly one by a row."""

    def rows(choice: ExactlyOne) -> Iterator[Constraint]:
        yield Linear(choice.literals.sum(axis=1) == 1, choice.tag)

    return _replaced(program, ExactlyOne, rows)


def _replaced(program: Program, kind: type, rows: Callable[..., Iterator[Constraint]]) -> Program:
    kept: list[Constraint] = []
    for constraint in program.constraints:
        kept.extend(rows(constraint) if isinstance(constraint, kind) else [constraint])
    return replace(program, constraints=tuple(kept))


def orders(program: Program) -> Program:
    """Replace non-overlap by binaries for the order of pairs of intervals, and their implications.

    If intervals may be absent there are two binaries for each pair, one for each order, of which at least
    one is 1 if both intervals are present (on the same resource); they serve all resources if start and
    end do. If all are present, one binary for each pair is enough.
    """
    kept: list[Constraint] = []
    for constraint in program.constraints:
        if isinstance(constraint, NoOverlap):
            program, rows = _ordered(program, constraint)
            kept.extend(rows)
        else:
            kept.append(constraint)
    return replace(program, constraints=tuple(kept))


def _few(pairs: int, tag: str) -> None:
    """Raise `UnsupportedFeature` for more pairs than linear solvers can handle."""
    if pairs > MOST_PAIRS:
        raise UnsupportedFeature(
            f"non-overlap {tag!r} needs order binaries for {pairs:,} pairs in linear rows, more than {MOST_PAIRS:,}; "
            "use cpsat, which has intervals, or a search method"
        )


def _ordered(program: Program, constraint: NoOverlap) -> tuple[Program, list[Constraint]]:
    intervals, tag = constraint.intervals, constraint.tag
    i, j = constraint.pairs.T
    _few(len(i), tag)
    presence = intervals.presence
    name = re.sub(r"[^\w().]", "_", f"order{tag}.{program.n_columns}")  # a valid name in files of linear programs
    if presence is None:
        taking = (_bounds(program, intervals.size)[1] > 0).ravel()
        i, j = constraint.pairs[taking[i] & taking[j]].T
        start, end = (bound.reshape(intervals.n) for bound in (intervals.start, intervals.end))
        forth, back = Rows.of(end[i] - start[j], -np.inf, 0.0), Rows.of(end[j] - start[i], -np.inf, 0.0)
        never = [_bounds(program, rows.expression)[0] > rows.upper for rows in (forth, back)]
        low, high = (never[1] & ~never[0]).astype(np.float64), (~never[0]).astype(np.float64)
        program, first = program.with_columns(name, (len(i),), low, high, _first(end, start, i, j))
        return program, [Implies(first.reshape(-1, 1), forth, tag), Implies((1 - first).reshape(-1, 1), back, tag)]
    possible_there = _bounds(program, presence)[1].reshape(presence.shape) > 0.5
    width = 1 if intervals.size.ndim == 1 else intervals.size.shape[1]
    real = np.broadcast_to(_bounds(program, intervals.size)[1].reshape(intervals.n, width) > 0, presence.shape)
    occupied = possible_there & real  # an interval of zero length occupies no resource
    together = occupied[i] & occupied[j]
    _few(int(together.sum()), tag)
    if intervals.start.ndim == 1:  # with the same time on every resource, one order of a pair serves all
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
    """Return the function from a solution to whether a ends before b starts; NaN if unknown."""

    def values(solution: FloatArray) -> FloatArray:
        finish, begin = end[a].value(solution), start[b].value(solution)
        slack = 1e-9 * np.maximum(1.0, np.abs(np.nan_to_num(finish)))
        return np.where(np.isnan(finish) | np.isnan(begin), np.nan, (finish <= begin + slack) * 1.0)

    return values


def in_order(program: Program, values: FloatArray) -> Program:
    """Replace non-overlap by rows for the order of intervals in a solution, possibly a rounded one."""

    def rows(constraint: NoOverlap) -> Iterator[Constraint]:
        intervals = constraint.intervals
        start, end, taking = _placed(program, intervals, values)
        width = 1 if intervals.start.ndim == 1 else intervals.resources
        column = np.broadcast_to(np.arange(intervals.n * width).reshape(intervals.n, width), taking.shape)
        for r in range(intervals.resources):
            there = np.flatnonzero(taking[:, r])
            line = column[there[np.lexsort((end[there, r], start[there, r]))], r]
            if len(line) > 1:
                yield Linear(intervals.end.reshape(-1)[line[:-1]] <= intervals.start.reshape(-1)[line[1:]], constraint.tag)

    return _replaced(program, NoOverlap, rows)


def implications(program: Program) -> Program:
    """Replace each implication by a row with a big M that relaxes it unless all its literals are 1.

    M is computed for each row from the bounds of its columns and the choices of exactly one among them.
    Rows that always hold are omitted.
    """

    def rows(implication: Implies) -> Iterator[Constraint]:
        low, high = _bounds(program, implication.rows.expression)
        missing = implication.literals.shape[1] - implication.literals.sum(axis=1)
        for limit, reach, sign in ((implication.rows.upper, high, 1.0), (implication.rows.lower, low, -1.0)):
            lift = sign * (reach - limit)
            needed = np.flatnonzero(np.isfinite(limit) & (lift > 0))
            if np.isinf(lift[needed]).any():
                bad = implication.rows.expression._take(needed[np.isinf(lift[needed])][:1]).column
                name = program.column_names()[int(bad[np.isinf(program.lower[bad]) | np.isinf(program.upper[bad])][0])]
                raise InvalidModel(
                    f"an implication of {implication.tag!r} needs a big M, but column {name} lacks a finite bound; give it both"
                )
            body = implication.rows.expression._take(needed) * sign - missing._take(needed) * lift[needed]
            yield Linear(body <= sign * limit[needed], implication.tag, implication.cut)

    return _replaced(program, Implies, rows)


def _bounds(program: Program, expression: Expression) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest value of each entry, given the choices of exactly one."""
    group = np.full(program.n_columns, -1)
    size: list[int] = []
    for constraint in program.constraints:
        if isinstance(constraint, ExactlyOne):
            lines = constraint.literals
            plain = (lines.coefficient == 1).all() and not lines.constant.any() and (np.diff(lines.ptr) == 1).all()
            if plain and (group[lines.column] < 0).all():
                group[lines.column] = np.repeat(np.arange(lines.shape[0]), lines.shape[1]) + len(size)
                size += [lines.shape[1]] * lines.shape[0]
    own = group[expression.column]
    chosen, row = own >= 0, expression.row
    free = ~chosen
    lowest, highest = (
        totals(row[free], part, expression.size) + expression.constant
        for part in _reach(expression.coefficient[free], program.lower[expression.column[free]], program.upper[expression.column[free]])
    )
    if chosen.any():
        # One term for each (row, group): one of the group's columns is 1, possibly none of those in the row.
        key = row[chosen] * (len(size) + 1) + own[chosen]
        ranked = np.argsort(key, kind="stable")
        usable = program.upper[expression.column[chosen]] > 0.5
        value = expression.coefficient[chosen]
        where = np.flatnonzero(np.diff(key[ranked], prepend=-1))
        count = np.add.reduceat(np.ones(len(ranked), np.int64), where)
        complete = count == np.asarray(size)[own[chosen][ranked][where]]
        low = np.minimum.reduceat(np.where(usable, value, np.inf)[ranked], where)
        high = np.maximum.reduceat(np.where(usable, value, -np.inf)[ranked], where)
        target = row[chosen][ranked][where]
        low = np.where(complete & np.isfinite(low), low, np.minimum(low, 0.0))
        high = np.where(complete & np.isfinite(high), high, np.maximum(high, 0.0))
        lowest += totals(target, low, expression.size)
        highest += totals(target, high, expression.size)
    return lowest, highest


def _reach(coefficient: FloatArray, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    with np.errstate(invalid="ignore"):
        ends = np.where(coefficient == 0, 0.0, [coefficient * lower, coefficient * upper])
    return ends.min(axis=0), ends.max(axis=0)


def matrix(program: Program) -> Matrix:
    """Return a program of only linear rows as arrays, with the terms of a column in a row summed."""
    from scipy.sparse import csr_matrix

    rows = []
    for part in program.constraints:
        if not isinstance(part, Linear):
            raise InvalidModel(f"{type(part).__name__} of {part.tag!r} has not been lowered")
        rows.append(part.rows)
    heights = row_starts([len(part) for part in rows])
    none = np.zeros(0)
    entry = np.concatenate([none, *(part.expression.row + first for part, first in zip(rows, heights, strict=False))]).astype(np.int64)
    column = np.concatenate([none, *(part.expression.column for part in rows)]).astype(np.int64)
    coefficient = np.concatenate([none, *(part.expression.coefficient for part in rows)])
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
        np.concatenate([none, *(part.lower for part in rows)]),
        np.concatenate([none, *(part.upper for part in rows)]),
    )


def violations(program: Program, values: FloatArray, tolerance: float) -> list[str]:
    """Return the violations by values of the model's columns, one line each."""
    if values.shape != (program.n_columns,):
        raise InvalidModel(f"values have shape {values.shape}; one for each of the {program.n_columns} columns is needed")
    names = program.column_names()
    scale = tolerance * np.maximum(1.0, np.abs(values))
    outside = ~((program.lower - scale <= values) & (values <= program.upper + scale))
    messages = [
        f"column {names[c]} is {values[c]:.9g}, outside {program.lower[c]:.9g} to {program.upper[c]:.9g}"
        for c in np.flatnonzero(outside).tolist()
    ]
    fractional = (program.kind == Kind.INTEGER) & ~(np.abs(values - np.round(values)) <= tolerance)
    messages += [f"column {names[c]} is {values[c]:.9g}, not a whole number" for c in np.flatnonzero(fractional).tolist()]
    for constraint in program.constraints:
        messages += [f"{constraint.tag}: {text}" for text in _broken(program, constraint, values, tolerance)]
    return messages


def _broken(program: Program, constraint: Constraint, values: FloatArray, tolerance: float) -> Iterator[str]:
    if isinstance(constraint, Linear | Implies):
        literals = constraint.literals.value(values) if isinstance(constraint, Implies) else np.ones((len(constraint.rows), 1))
        yield from _off(constraint.rows, values, np.asarray((literals > 0.5).all(axis=1)), tolerance)
    elif isinstance(constraint, ExactlyOne):
        total = constraint.literals.value(values).sum(axis=1)
        for row in np.flatnonzero(np.abs(total - 1) > tolerance).tolist():
            yield f"line {row} has {total[row]:.9g} ones"
    elif isinstance(constraint, Maximum):
        wide = constraint.target.reshape(-1, 1) - constraint.terms
        yield from _off(Rows.of(wide, 0.0, np.inf), values, np.ones(wide.size, bool), tolerance)
    else:
        yield from _overlaps(program, constraint.intervals, values, tolerance)


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
        line = there[np.argsort(start[there, r] + end[there, r], kind="stable")]  # by their middle, which orders adjacent intervals
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
