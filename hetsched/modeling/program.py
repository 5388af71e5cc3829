"""What a model says, as data: columns, constraints that keep their meaning, an objective. Passes turn one into another."""

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
    """What values a column takes."""

    CONTINUOUS = 0
    INTEGER = 1
    """Binary, if its bounds are 0 and 1."""
    TIME = 2
    """Continuous for a linear solver; whole multiples of a unit for a solver of integers."""


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
    """Redundant: following from the others for some optimal solution, so that a backend may leave it out."""


@dataclass(frozen=True)
class Implies:
    """Rows that hold where all their literals are one; literals are [rows, m]."""

    literals: Expression
    rows: Rows
    tag: str
    cut: bool = False


@dataclass(frozen=True)
class ExactlyOne:
    """Of each line of the binaries [lines, m] exactly one is one."""

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
    """Intervals present on one resource do not overlap there; `pairs` [P, 2] need saying."""

    intervals: Intervals
    pairs: IntArray
    tag: str


@dataclass(frozen=True)
class Maximum:
    """Each target [g] is at least its terms [g, m], and the largest of them where it matters."""

    target: Expression
    terms: Expression
    tag: str


Constraint = Linear | Implies | ExactlyOne | NoOverlap | Maximum


@dataclass(frozen=True)
class Derived:
    """Columns that a pass has added, and how their values follow from those of the columns before."""

    first: int
    count: int
    values: Callable[[FloatArray], FloatArray]
    """From values of the columns before `first` (NaN = not known) to the values of these."""


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
        Without dimensions; to be made as small as can be.
    derived : tuple of Derived
    """

    blocks: tuple[Block, ...]
    kind: npt.NDArray[np.int8]
    lower: FloatArray
    upper: FloatArray
    constraints: tuple[Constraint, ...]
    objective: Expression
    derived: tuple[Derived, ...] = ()

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.kind)

    def with_columns(
        self, name: str, shape: tuple[int, ...], lower: FloatArray, upper: FloatArray, values: Callable[[FloatArray], FloatArray]
    ) -> tuple[Program, Expression]:
        """Return the program with binaries added, and these; `values` is as in `Derived`."""
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
        """Return values of the model's own columns with those of derived columns behind them."""
        for added in self.derived:
            values = np.concatenate([values[: added.first], added.values(values[: added.first])])
        return values

    def column_names(self) -> list[str]:
        """Return a name for every column."""
        return [name for block in self.blocks for name in block.column_names()]

    @property
    def n_rows(self) -> int:
        """How many rows, choices and intervals it says, as they are."""
        return sum(map(_height, self.constraints))

    @property
    def n_terms(self) -> int:
        """About how many terms it has once it is lowered to linear rows."""
        return sum(map(_terms, self.constraints))

    def check(self) -> Program:
        """Return the program if it is well-formed, else raise `InvalidModel`: a pass or a caller is wrong."""
        n = self.n_columns
        if not len(self.lower) == len(self.upper) == n or sum(int(np.prod(block.shape)) for block in self.blocks) != n:
            raise InvalidModel(f"{n} columns have {len(self.lower)} lower and {len(self.upper)} upper bounds")
        if np.isnan(self.lower).any() or np.isnan(self.upper).any():
            raise InvalidModel("a bound of a column is not a number")
        if self.objective.shape != ():
            raise InvalidModel(f"the objective has shape {self.objective.shape}; sum it up")
        for constraint in self.constraints:
            for part in vars(constraint).values():
                for found in _expressions(part):
                    if len(found.ptr) != found.size + 1 or found.ptr[-1] != len(found.column) or (np.diff(found.ptr) < 0).any():
                        raise InvalidModel(f"an expression of {constraint.tag!r} is broken")
                    if len(found.column) and not (0 <= found.column.min() and found.column.max() < n):
                        raise InvalidModel(f"an expression of {constraint.tag!r} names column {found.column.max()} of {n}")
                    if not (np.isfinite(found.coefficient).all() and np.isfinite(found.constant).all()):
                        raise InvalidModel(f"a coefficient of {constraint.tag!r} is not finite")
        return self


def _height(said: Constraint) -> int:
    if isinstance(said, Linear | Implies):
        return len(said.rows)
    if isinstance(said, NoOverlap):
        return said.intervals.n * said.intervals.resources
    return said.literals.shape[0] if isinstance(said, ExactlyOne) else said.terms.size


def _terms(said: Constraint) -> int:
    if isinstance(said, NoOverlap):  # two orders a pair, and on each resource that one of them holds
        return 10 * len(said.pairs) * (1 + said.intervals.resources)
    return sum(len(found.column) for part in vars(said).values() for found in _expressions(part))


def _expressions(part: Any) -> list[Expression]:
    if isinstance(part, Expression):
        return [part]
    if isinstance(part, Rows):
        return [part.expression]
    if isinstance(part, Intervals):
        return [each for each in vars(part).values() if each is not None]
    return []
