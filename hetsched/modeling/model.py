"""Models: columns, high-level rows and an objective, solved by any backend."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.documents import write_bytes
from hetsched.errors import InvalidModel, UnsupportedFeature
from hetsched.modeling.backends.protocol import SOLVER, Backend, Request
from hetsched.modeling.expression import Expression, Rows, expression
from hetsched.modeling.outcome import Incumbent, NewBound, Outcome
from hetsched.modeling.program import (
    Block,
    Constraint,
    ExactlyOne,
    Implies,
    Intervals,
    Kind,
    Linear,
    Maximum,
    NoOverlap,
    Program,
    Propagator,
    Tighten,
)
from hetsched.modeling.settings import SolveSettings
from hetsched.stopping import NEVER, Deadline

MAKING = "the making of a model"
FORMATS = (".lp", ".mps")


def _bound(values: npt.ArrayLike, what: str, shape: tuple[int, ...]) -> FloatArray:
    """Return bounds of columns of a shape, flat."""
    given = check_array(values, what, error=InvalidModel)
    try:
        return np.array(np.broadcast_to(given, shape)).ravel()
    except ValueError:
        raise InvalidModel(f"{what} has shape {given.shape}, which does not fit columns of shape {shape}") from None


class Model:
    """A mixed-integer model, independent of the solver.

    Columns are made in arrays (`binary`, `integer`, `continuous`, `time`) and combine to expressions
    like numpy arrays. High-level rows (`add`, `exactly_one`, `implies`, `no_overlap`, `maximum`) are
    lowered by a backend to the features of its solver.

    Parameters
    ----------
    deadline : Deadline, optional
        After it `OutOfTime` is raised for new columns and rows.

    Examples
    --------
    >>> model = Model()
    >>> x = model.binary("x", 3)
    >>> _ = model.add(np.array([5, 4, 3]) @ x <= 8, tag="weight")
    >>> model.maximise(np.array([10, 7, 6]) @ x)
    >>> model.solve().objective
    16.0
    """

    def __init__(self, *, deadline: Deadline = NEVER) -> None:
        self.deadline = deadline
        self._blocks: list[Block] = []
        self._kind: list[npt.NDArray[np.int8]] = []
        self._lower: list[FloatArray] = []
        self._upper: list[FloatArray] = []
        self._constraints: list[Constraint] = []
        self._propagators: list[Propagator] = []
        self.objective = Expression.of_numbers(0.0)
        self._sign = 1.0
        self._n_columns = 0

    def __repr__(self) -> str:
        return f"<Model of {self._n_columns} columns and {sum(map(_size, self._constraints))} rows>"

    # Columns

    def _columns(self, name: str, shape: int | tuple[int, ...], kind: Kind, lower: npt.ArrayLike, upper: npt.ArrayLike) -> Expression:
        self.deadline.check(MAKING)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if name in (block.name for block in self._blocks):
            raise InvalidModel(f"columns named {name!r} exist already; choose another name")
        low, high = _bound(lower, "lower", shape), _bound(upper, "upper", shape)
        if kind == Kind.INTEGER:
            low, high = np.ceil(low), np.floor(high)
        if not (low <= high).all():
            bad = int(np.argmin(low <= high))
            which = Block(name, 0, shape).column_names()[bad]
            raise InvalidModel(f"column {which} has lower bound {low[bad]} above upper bound {high[bad]}")
        first = self._n_columns
        self._blocks.append(Block(name, first, shape))
        self._kind.append(np.full(len(low), kind, np.int8))
        self._lower.append(low)
        self._upper.append(high)
        self._n_columns += len(low)
        return Expression.of_columns(first, shape)

    @checked
    def binary(self, name: str, shape: int | tuple[int, ...] = (), *, lower: npt.ArrayLike = 0, upper: npt.ArrayLike = 1) -> Expression:
        """Return new columns that are 0 or 1; bounds fix some."""
        return self._columns(name, shape, Kind.INTEGER, lower, upper)

    @checked
    def integer(self, name: str, shape: int | tuple[int, ...] = (), *, lower: npt.ArrayLike, upper: npt.ArrayLike) -> Expression:
        """Return new columns of whole numbers."""
        return self._columns(name, shape, Kind.INTEGER, lower, upper)

    @checked
    def continuous(
        self, name: str, shape: int | tuple[int, ...] = (), *, lower: npt.ArrayLike = 0.0, upper: npt.ArrayLike = np.inf
    ) -> Expression:
        """Return new columns of real numbers."""
        return self._columns(name, shape, Kind.CONTINUOUS, lower, upper)

    @checked
    def time(
        self, name: str, shape: int | tuple[int, ...] = (), *, lower: npt.ArrayLike = 0.0, upper: npt.ArrayLike = np.inf
    ) -> Expression:
        """Return new columns of times: real numbers, which integer solvers round to multiples of a unit."""
        return self._columns(name, shape, Kind.TIME, lower, upper)

    @checked
    def set_bounds(self, columns: Expression, *, lower: npt.ArrayLike | None = None, upper: npt.ArrayLike | None = None) -> None:
        """Change bounds of columns, for instance of a slice of the result of `binary`.

        Bounds of whole numbers are rounded inwards.
        """
        place = self._places(columns)
        kind = np.concatenate(self._kind)[place]
        ends = [np.concatenate(self._lower), np.concatenate(self._upper)]
        for end, values, inwards in zip(ends, (lower, upper), (np.ceil, np.floor), strict=True):
            if values is not None:
                limits = _bound(values, "a bound", columns.shape)
                end[place] = np.where(kind == Kind.INTEGER, inwards(limits), limits)
        crossed = np.flatnonzero(~(ends[0][place] <= ends[1][place]))
        if len(crossed):
            c = int(place[crossed[0]])
            raise InvalidModel(
                f"column {self.program.column_names()[c]} would have lower bound {ends[0][c]} above upper bound {ends[1][c]}; "
                "to move both, give both at once"
            )
        self._lower, self._upper = [ends[0]], [ends[1]]

    def _places(self, columns: Expression) -> IntArray:
        """Return the numbers of columns; refuse expressions of them."""
        if (np.diff(columns.ptr) != 1).any() or (columns.coefficient != 1).any() or columns.constant.any():
            raise InvalidModel("bounds belong to columns, not to expressions of them; add a row instead")
        if columns.column.max(initial=-1) >= self._n_columns:
            raise InvalidModel("the columns belong to another model; give columns of this one")
        return columns.column

    # Rows

    def _say(self, constraint: Constraint) -> None:
        self.deadline.check(MAKING)
        self._constraints.append(constraint)

    @checked
    def add(self, rows: Rows, *, tag: str = "", cut: bool = False) -> None:
        """Add rows; `tag` names them in `describe` and in `violations`.

        A `cut` is redundant: it does not change the optimal value, but may speed up its proof.
        """
        if not isinstance(rows, Rows):
            raise InvalidModel(f"{rows!r} is not a row; compare expressions: model.add(x.sum() <= 1)")
        self._say(Linear(rows, tag, cut))

    @checked
    def exactly_one(self, literals: Expression, *, axis: int = -1, tag: str = "") -> None:
        """Require that exactly one binary along an axis is 1."""
        size = literals.shape[axis]
        lines = literals._take(np.moveaxis(np.arange(literals.size).reshape(literals.shape), axis, -1).reshape(-1, size))
        self._say(ExactlyOne(lines, tag))

    @checked
    def implies(self, literals: Expression, rows: Rows, *, tag: str = "", cut: bool = False) -> None:
        """Require rows where their literals are 1.

        Parameters
        ----------
        literals : Expression
            Binaries or ``1 - binary``, of the shape of the rows, or with another axis at the end of
            literals that must all be 1.
        rows : Rows
        """
        if literals.shape == rows.shape:
            literals = literals.reshape(*literals.shape, 1)
        if literals.shape[:-1] != rows.shape:
            raise InvalidModel(f"literals of shape {literals.shape} do not fit rows of shape {rows.shape}, with or without another axis")
        flat = Rows(rows.expression.reshape(-1), rows.lower, rows.upper)
        self._say(Implies(literals.reshape(len(rows), literals.shape[-1]), flat, tag, cut))

    @checked
    def interval(
        self, start: Expression, size: Expression | npt.ArrayLike, *, end: Expression | None = None, presence: Expression | None = None
    ) -> Intervals:
        """Return intervals for `no_overlap`.

        Parameters
        ----------
        start : Expression [n] or [n, R]
        size : Expression or array, [n] or [n, R]
        end : Expression, optional
            Of the shape of `start`; default ``start + size``. The caller adds rows that relate it to start and size.
        presence : Expression [n, R], optional
            Binaries: whether the interval is on the resource; default: all on the same one.
        """
        length = expression(size)
        if end is None:
            end = start + length
        n = start.shape[0]
        resources = 1 if presence is None else presence.shape[1]
        for what, part in (("start", start), ("size", length), ("end", end)):
            if part.shape not in ((n,), (n, resources)):
                raise InvalidModel(f"the {what} of intervals has shape {part.shape}; it must be {(n,)} or {(n, resources)}")
        if end.shape != start.shape:
            raise InvalidModel(f"start has shape {start.shape} but end {end.shape}; give end the shape of start")
        return Intervals(start, length, end, presence)

    @checked
    def no_overlap(self, intervals: Intervals, pairs: npt.ArrayLike | None = None, *, tag: str = "") -> None:
        """Require that intervals present on the same resource do not overlap there.

        An interval whose size can only be 0 occupies no resource; one whose size may be larger is in the
        order even if it is 0.

        `pairs` [P, 2] are those for which it does not follow from other rows; default all.
        """
        if pairs is None:
            pairs = np.stack(np.triu_indices(intervals.n, 1), axis=1)
        listed = check_array(pairs, "pairs", None, np.int64, error=InvalidModel)
        if listed.size and (listed.ndim != 2 or listed.shape[1] != 2):
            raise InvalidModel(f"pairs has shape {list(listed.shape)}; it must be [pairs, 2]")
        listed = listed.reshape(-1, 2)
        if len(listed) and not (0 <= listed.min() and listed.max() < intervals.n):
            raise InvalidModel(f"pairs name intervals {listed.min()} to {listed.max()}, but there are {intervals.n}, from 0")
        self._say(NoOverlap(intervals, listed, tag))

    @checked
    def maximum(self, name: str, terms: Expression, *, tag: str = "") -> Expression:
        """Return a new time that is at least each of the terms [..., m], and their maximum in an optimum that minimises it."""
        lines = terms.reshape(-1, terms.shape[-1]) if terms.ndim > 1 else terms.reshape(1, -1)
        low, high = lines.bounds(np.concatenate(self._lower), np.concatenate(self._upper))
        ends = [bound.reshape(lines.shape).max(axis=1).reshape(terms.shape[:-1]) for bound in (low, high)]
        target = self.time(name, terms.shape[:-1], lower=ends[0], upper=ends[1])
        self._say(Maximum(target.reshape(-1), lines, tag))
        return target

    @checked
    def propagate(self, columns: Expression, tighten: Tighten, *, branches: bool = False, tag: str = "") -> None:
        """Let a backend call a function in the nodes of its search to tighten bounds of columns.

        Like a cut it is redundant: what it excludes must follow from the rows. Backends without the capability ``propagators``
        ignore it, and so do all with ``cuts=False``.

        Parameters
        ----------
        columns : Expression [m]
            Columns, without a column twice.
        tighten : callable
            ``tighten(lower, upper)`` gets the bounds of the columns in a node, two arrays [m], and changes them in place to bounds
            that every solution within them satisfies. It returns None if there is none, else -1, or the place in `columns` of a
            whole-number column to branch on, whose upper half is searched first. The same bounds must give the same answer. For a
            solver given by name, which runs in another process, it has to be picklable.
        branches : bool
            Whether it returns columns to branch on until all its columns are decided. If one of the columns is the objective, so that
            the function also bounds it, SCIP then searches depth first and without linear programs.
        """
        place = self._places(columns.reshape(-1))
        if len(np.unique(place)) < len(place):
            raise InvalidModel(f"{tag or 'a propagator'!r} names a column twice; name each once")
        self._propagators.append(Propagator(place, tighten, branches, tag))

    # Objective

    @checked
    def minimise(self, objective: Expression) -> None:
        """Minimise an expression."""
        self.objective, self._sign = objective, 1.0

    @checked
    def maximise(self, objective: Expression) -> None:
        """Maximise an expression."""
        self.objective, self._sign = objective, -1.0

    # Contents

    @property
    def program(self) -> Program:
        """The model as data."""
        empty = np.zeros(0)
        return Program(
            tuple(self._blocks),
            np.concatenate([np.zeros(0, np.int8), *self._kind]),
            np.concatenate([empty, *self._lower]),
            np.concatenate([empty, *self._upper]),
            tuple(self._constraints),
            self.objective * self._sign,
            propagators=tuple(self._propagators),
        )

    def describe(self) -> str:
        """Return the numbers of columns by name and of rows by tag, as text."""
        lines = [f"{self._n_columns} columns"]
        lines += [
            f"  {block.name:<24} {int(np.prod(block.shape)):>9}  {'x'.join(map(str, block.shape)) or 'single'}" for block in self._blocks
        ]
        rows: Counter[str] = Counter()
        for constraint in self._constraints:
            cut = " (cut)" if getattr(constraint, "cut", False) else ""
            rows[f"{constraint.tag or '-'} {type(constraint).__name__}{cut}"] += _size(constraint)
        lines += [f"{sum(rows.values())} rows", *(f"  {name:<34} {count:>9}" for name, count in rows.items())]
        return "\n".join(lines)

    @checked
    def violations(self, values: npt.ArrayLike, *, tolerance: float = 1e-6) -> list[str]:
        """Return the violations by values of all columns, one line each with the tag; `tolerance` is relative to the terms."""
        from hetsched.modeling.lowering import violations

        return violations(self.program, check_array(values, "values", (self._n_columns,), error=InvalidModel), tolerance)

    @checked(UnsupportedFeature, solver=SOLVER)
    def solve(
        self,
        solver: str | Backend = "scip",
        *,
        time_limit: float | None = None,
        deadline: Deadline = NEVER,
        gap: float = 0.0,
        threads: int | None = None,
        seed: int = 0,
        hint: npt.ArrayLike | None = None,
        cuts: bool = True,
        on_incumbent: Callable[[Incumbent], object] | None = None,
        on_bound: Callable[[NewBound], object] | None = None,
        stop: Callable[[], object] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Solve the model.

        Parameters
        ----------
        solver : "scip", "highs", "cpsat", or a backend
            A solver given by name runs in a separate process, which is started once; if it aborts, the outcome
            has its results so far. A backend (``hetsched.modeling.backends.backend(name)``) runs in this process
            and keeps its model, so that it is faster to solve again after changes of bounds or objective, or with
            more rows.
        time_limit : float, optional
            Seconds of wall-clock time, kept to half a second. They include passing the model to the solver, which is refused
            if it would take longer.
        deadline : Deadline, optional
            The same as a point in time; the earlier one applies.
        gap : float
            Relative gap at which to stop.
        threads : int, optional
            The most threads of the solver; default its own choice: one, and for cpsat one for each core.
        seed : int
        hint : array [columns], optional
            A start; NaN for unknown values.
        cuts : bool
            Whether to use redundant rows and propagators.
        on_incumbent : callable, optional
            Called with each better solution; returning True stops the solve.
        on_bound : callable, optional
            Called with each better bound; returning True stops the solve.
        stop : callable, optional
            Called several times a second; a true result stops the solve.
        options : mapping, optional
            Parameters of the solver by name.

        Returns
        -------
        Outcome
            After Ctrl-C it has the results so far.

        Raises
        ------
        UnsupportedFeature
            The solver lacks a feature that the model needs; the message names one that has it.
        MissingDependency
            The solver is not installed.
        InvalidModel
            The model is not well-formed, or a row needs bounds that its columns lack.
        """
        end = Deadline.after(time_limit, deadline.clock).earlier(deadline)
        settings = SolveSettings(end, gap, threads, seed, cuts, dict(options or {}))
        start = None if hint is None else check_array(hint, "hint", (self._n_columns,), error=InvalidModel)
        return self.run(solver, Request(settings, start, on_incumbent, on_bound, stop))

    @checked(UnsupportedFeature, solver=SOLVER)
    def run(self, solver: str | Backend, request: Request) -> Outcome:
        """Solve the model for a request; see `solve`."""
        from hetsched.modeling import backends

        return backends.solve(solver, self.program.check(), request.signed(self._sign)).signed(self._sign)

    @checked
    def native(self, solver: str = "scip") -> Any:
        """Return the model as an object of the solver's library."""
        from hetsched.modeling.backends import backend

        return backend(solver).native(self.program.check())

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the model, lowered to the rows of a linear program, as .lp or .mps (by SCIP)."""
        if Path(path).suffix.lower() not in FORMATS:
            raise UnsupportedFeature(f"no model can be written to {os.fspath(path)!r}: its name must end in {' or '.join(FORMATS)}")
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / f"model{Path(path).suffix.lower()}"
            self.native("scip").writeProblem(os.fspath(made), verbose=False)
            write_bytes(made.read_bytes(), path)


def _size(constraint: Constraint) -> int:
    """Return the number of rows, choices or intervals of a constraint."""
    if isinstance(constraint, Linear | Implies):
        return len(constraint.rows)
    if isinstance(constraint, NoOverlap):
        return len(constraint.pairs)
    return constraint.literals.shape[0] if isinstance(constraint, ExactlyOne) else constraint.target.size
