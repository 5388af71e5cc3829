"""Models as data: columns, high-level constraints, an objective. Passes transform one program into another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import InvalidModel
from hetsched.modeling.expression import Expression, Rows


class Kind(IntEnum):
    """The kind of a column's values."""

    CONTINUOUS = 0
    INTEGER = 1
    """Whole numbers; binary if its bounds are 0 and 1."""
    TIME = 2
    """Continuous for a linear solver; multiples of a unit for an integer solver."""


@dataclass(frozen=True)
class Block:
    """Columns that were made together."""

    name: str
    first: int
    shape: tuple[int, ...]

    def column_names(self) -> list[str]:
        """Return the names of its columns, such as ``x(3,1)``."""
        if not self.shape:
            return [self.name]
        return [f"{self.name}({','.join(place)})" for place in product(*([str(i) for i in range(size)] for size in self.shape))]


@dataclass(frozen=True)
class Linear:
    """Rows that hold always."""

    rows: Rows
    tag: str
    cut: bool = False
    """Whether the rows are redundant: some optimal solution satisfies them, so that a backend may omit them."""


@dataclass(frozen=True)
class Implies:
    """Rows that hold where all their literals [rows, m] are 1."""

    literals: Expression
    rows: Rows
    tag: str
    cut: bool = False


@dataclass(frozen=True)
class ExactlyOne:
    """Exactly one binary in each line [lines, m] is 1."""

    literals: Expression
    tag: str


@dataclass(frozen=True)
class Intervals:
    """n intervals on R resources, each present or not.

    `start` and `end` are [n] if they are the same on every resource, else [n, R]; `size` is
    [n, R], or [n]; `presence` is [n, R], or None if all are present (then R = 1).
    """

    start: Expression
    size: Expression
    end: Expression
    presence: Expression | None

    @property
    def n(self) -> int:
        """Number of intervals."""
        return self.start.shape[0]

    @property
    def resources(self) -> int:
        """Number of resources."""
        return 1 if self.presence is None else self.presence.shape[1]


@dataclass(frozen=True)
class NoOverlap:
    """Intervals present on the same resource do not overlap there; `pairs` [P, 2] are those not implied by other rows."""

    intervals: Intervals
    pairs: IntArray
    tag: str


@dataclass(frozen=True)
class Maximum:
    """Each target [g] is at least its terms [g, m], and their maximum in an optimum that minimises it."""

    target: Expression
    terms: Expression
    tag: str


Constraint = Linear | Implies | ExactlyOne | NoOverlap | Maximum
Tighten = Callable[[FloatArray, FloatArray], int | None]


@dataclass(frozen=True, eq=False)
class Propagator:
    """A function that tightens bounds of columns, called in the nodes of a backend's search; see ``Model.propagate``."""

    columns: IntArray
    """[m]: the columns whose bounds it reads and tightens."""
    tighten: Tighten
    """Changes ``lower, upper`` [m] in place; returns the place of the column to branch on, -1 without one, None if there is no solution."""
    branches: bool
    """Whether it chooses columns to branch on."""
    tag: str


@dataclass(frozen=True)
class Derived:
    """Columns added by a pass, and their values as a function of those of earlier columns."""

    first: int
    count: int
    values: Callable[[FloatArray], FloatArray]
    """Function from values of the columns before `first` (NaN = unknown) to the values of these."""


@dataclass(frozen=True)
class Program:
    """A model at one stage of its lowering.

    Attributes
    ----------
    blocks : tuple of Block
    kind : int8 array [columns], see `Kind`
    lower, upper : float64 arrays [columns]
    constraints : tuple
    objective : Expression
        An expression without dimensions, which is minimised.
    derived : tuple of Derived
    propagators : tuple of Propagator
        Redundant; a backend may ignore them.
    """

    blocks: tuple[Block, ...]
    kind: npt.NDArray[np.int8]
    lower: FloatArray
    upper: FloatArray
    constraints: tuple[Constraint, ...]
    objective: Expression
    derived: tuple[Derived, ...] = ()
    propagators: tuple[Propagator, ...] = ()

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.kind)

    def with_columns(
        self, name: str, shape: tuple[int, ...], lower: FloatArray, upper: FloatArray, values: Callable[[FloatArray], FloatArray]
    ) -> tuple[Program, Expression]:
        """Return the program with new binaries, and these; `values` is as in `Derived`."""
        first, size = self.n_columns, int(np.prod(shape))
        grown = replace(
            self,
            blocks=(*self.blocks, Block(name, first, shape)),
            kind=np.concatenate([self.kind, np.full(size, Kind.INTEGER, np.int8)]),
            lower=np.concatenate([self.lower, lower]),
            upper=np.concatenate([self.upper, upper]),
            derived=(*self.derived, Derived(first, size, values)),
        )
        return grown, Expression.of_columns(first, shape)

    def complete(self, values: FloatArray) -> FloatArray:
        """Return values of the model's columns, followed by those of derived columns."""
        for added in self.derived:
            values = np.concatenate([values[: added.first], added.values(values[: added.first])])
        return values

    def column_names(self) -> list[str]:
        """Return a name for every column."""
        return [name for block in self.blocks for name in block.column_names()]

    @property
    def n_rows(self) -> int:
        """Number of rows, choices and intervals before lowering."""
        return sum(map(_height, self.constraints))

    @property
    def n_terms(self) -> int:
        """Approximate number of terms after lowering to linear rows."""
        return sum(map(_terms, self.constraints))

    def check(self) -> Program:
        """Return the program if it is well-formed, else raise `InvalidModel`."""
        n = self.n_columns
        if not len(self.lower) == len(self.upper) == n or sum(int(np.prod(block.shape)) for block in self.blocks) != n:
            raise InvalidModel(f"{n} columns have {len(self.lower)} lower and {len(self.upper)} upper bounds")
        if np.isnan(self.lower).any() or np.isnan(self.upper).any():
            raise InvalidModel("a bound of a column is not a number")
        if self.objective.shape != ():
            raise InvalidModel(f"the objective has shape {self.objective.shape}; sum it up")
        for constraint in self.constraints:
            for part in vars(constraint).values():
                for entry in _expressions(part):
                    if len(entry.ptr) != entry.size + 1 or entry.ptr[-1] != len(entry.column) or (np.diff(entry.ptr) < 0).any():
                        raise InvalidModel(f"an expression of {constraint.tag!r} is broken")
                    if len(entry.column) and not (0 <= entry.column.min() and entry.column.max() < n):
                        raise InvalidModel(f"an expression of {constraint.tag!r} names column {entry.column.max()} of {n}")
                    if not (np.isfinite(entry.coefficient).all() and np.isfinite(entry.constant).all()):
                        raise InvalidModel(f"a coefficient of {constraint.tag!r} is not finite")
        return self


def _height(constraint: Constraint) -> int:
    if isinstance(constraint, Linear | Implies):
        return len(constraint.rows)
    if isinstance(constraint, NoOverlap):
        return constraint.intervals.n * constraint.intervals.resources
    return constraint.literals.shape[0] if isinstance(constraint, ExactlyOne) else constraint.terms.size


def _terms(constraint: Constraint) -> int:
    if isinstance(constraint, NoOverlap):  # two orders for each pair, and on each resource a row that one of them holds
        return 10 * len(constraint.pairs) * (1 + constraint.intervals.resources)
    return sum(len(entry.column) for part in vars(constraint).values() for entry in _expressions(part))


def _expressions(part: Any) -> list[Expression]:
    if isinstance(part, Expression):
        return [part]
    if isinstance(part, Rows):
        return [part.expression]
    if isinstance(part, Intervals):
        return [entry for entry in vars(part).values() if entry is not None]
    return []
