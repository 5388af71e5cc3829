"""Array types, helpers for arrays, and immutable values made of arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NoReturn, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched.arguments import shown
from hetsched.errors import InvalidArgument, MissingDependency

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


def readonly(values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """Return `values` as a read-only C-ordered array; the caller's array is not changed."""
    array = np.array(values, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def row_starts(counts: npt.ArrayLike) -> IntArray:
    """Return the row starts of compressed rows with `counts` entries each, shape [n + 1]; the last is the number of entries."""
    lengths = np.asarray(counts, dtype=np.int64)
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def distinct(values: IntArray) -> IntArray:
    """Return the different values, ascending; `np.unique` hashes integers first, which takes several times as long."""
    ordered: IntArray = np.sort(values)
    first = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return np.asarray(ordered[first])


def texts(values: Iterable[object]) -> npt.NDArray[np.object_]:
    """Return strings, or other values, as an array of objects, in which each needs memory for its own length, not the longest."""
    return np.fromiter(values, dtype=object)


class Deferred:
    """An attribute of a `Frozen` class that `Frozen._defer` may set."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Frozen | None, owner: type) -> Any:
        pending = {} if instance is None else instance.__dict__.get("_pending", {})
        if instance is None or self.name not in pending:
            raise AttributeError(f"{owner.__name__} has no {self.name!r} yet")
        instance._set(**{self.name: pending[self.name]()})
        pending.pop(self.name, None)  # and what the function holds
        return instance.__dict__[self.name]


def deferred() -> Any:
    """Return a `Deferred` attribute, for a type checker of any type."""
    return Deferred()


class Frozen:
    """Base class of immutable values.

    Its value consists of the attributes that a subclass annotates, except ``dataclasses.field(compare=False)``. They
    are set once, with `_set` or by a dataclass (``@dataclass(frozen=True, eq=False)``); one that is `deferred` may be set
    by `_defer` to the result of a function, which is called when it is first read. Equality compares them (NaN
    equals NaN), and pickles contain only them; cached properties are computed again.
    """

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = (name for name, kind in inspect.get_annotations(cls).items() if "ClassVar" not in str(kind))
        cls._fields += tuple(name for name in own if getattr(cls.__dict__.get(name), "compare", True))

    def __post_init__(self) -> None:
        self._set(**self.__dict__)

    def _set(self, **values: Any) -> None:
        for value in values.values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            elif isinstance(value, dict):  # the columns of a table
                for part in value.values():
                    if isinstance(part, np.ndarray):
                        part.setflags(write=False)
        self.__dict__.update(values)

    def _defer(self, **functions: Callable[[], Any]) -> None:
        """Set deferred attributes to the results of functions without arguments."""
        self.__dict__.setdefault("_pending", {}).update(functions)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be assigned; make a new one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be deleted")

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(**state)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]  # arrays are not hashable


def _same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape:
            return False
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f"))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return False  # the other is None: an array that is not known
    if isinstance(a, float) and isinstance(b, float) and np.isnan(a):
        return bool(np.isnan(b))
    return bool(a == b)


class Columns(Frozen):
    """A small immutable table: named one-dimensional arrays of one length.

    Columns are attributes (``schedule.batches.start``); an iteration yields rows as dicts;
    `to_dataframe` returns a pandas DataFrame.
    """

    _columns: dict[str, npt.NDArray[Any]]

    def __init__(self, **columns: npt.ArrayLike) -> None:
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, column in columns.items():
            try:
                (_,) = (arrays.setdefault(name, readonly(column))).shape
            except (TypeError, ValueError):
                raise InvalidArgument(f"column {name!r} is {shown(column)}; it must be a one-dimensional array") from None
        if len({array.shape for array in arrays.values()}) > 1:
            raise InvalidArgument(f"columns differ in length: { {n: a.shape for n, a in arrays.items()} }; give as many values of each")
        self._set(_columns=arrays)

    @classmethod
    def _unchecked(cls, **columns: npt.NDArray[Any]) -> Self:
        """Build a table of arrays of one length that nothing else changes, without a check or a copy."""
        table = cls.__new__(cls)
        table._set(_columns=columns)
        return table

    def __getattr__(self, name: str) -> npt.NDArray[Any]:
        if name != "_columns" and name in self._columns:
            column = self.__dict__[name] = self._columns[name]  # found without this function when it is read again
            return column
        raise AttributeError(f"{type(self).__name__} has no column {name!r}")

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Columns):
            return NotImplemented
        return self.names == other.names and all(_same(self[n], other[n]) for n in self.names)

    __hash__ = None

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in zip(*(column.tolist() for column in self._columns.values()), strict=True):
            yield dict(zip(self._columns, row, strict=True))

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._columns]

    def __repr__(self) -> str:
        return f"<{len(self)} rows of {', '.join(self._columns)}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(self._columns)

    def replace(self, **columns: npt.ArrayLike) -> Self:
        """Return a copy with some columns replaced or added."""
        return type(self)(**{**self._columns, **columns})

    def to_dict(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return the columns by name."""
        return dict(self._columns)

    def to_dataframe(self) -> Any:
        """Return a ``pandas.DataFrame`` of the columns; raise `MissingDependency` without pandas."""
        try:
            import pandas
        except ImportError as error:
            raise MissingDependency("pandas", "report") from error
        return pandas.DataFrame(dict(self._columns))
