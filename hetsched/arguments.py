"""The arguments of public functions, checked before anything runs.

`checked` reads a function's annotations, which give the kinds of the arguments; a range is a `Rule`
by the argument's name. A number is an int, a float, a numpy scalar, a Fraction or a Decimal; the
function receives an int or a float. True and False are not numbers.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import decimal
import functools
import inspect
import math
import numbers
import os
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from hetsched.errors import HetschedError, InvalidArgument

LARGEST_COUNT = 2**63 - 1
F = TypeVar("F", bound=Callable[..., Any])
_REMEDIES = {
    "TaskGraph": "hetsched.TaskGraph(tasks, edges, ...) makes one",
    "Cluster": "hetsched.Cluster(devices, bandwidth) makes one",
    "Problem": "hetsched.Problem(graph, cluster, durations=...) makes one, hetsched.read(path) reads one",
    "Decision": "hetsched.Decision.from_assignment(...) makes one, schedule.decision is one",
    "Schedule": "hetsched.solve(problem).schedule and hetsched.simulate(problem, decision) are such",
    "Solution": "hetsched.solve(problem) returns one",
}
_short = reprlib.Repr()
_short.maxstring, _short.maxother = 60, 80


def shown(value: object) -> str:
    """Return a value as one short line of a message."""
    try:
        text = _short.repr(value)
    except Exception:  # an int of too many digits, or an error of __repr__
        text = f"a value of type {type(value).__name__}"
    return " ".join(text.split())


@dataclass(frozen=True)
class Rule:
    """A rule for an argument."""

    text: str
    """Follows "it must be" in a message."""
    take: Callable[[Any], Any]
    """Returns the argument as the function receives it; raises `ValueError` or `TypeError` if it breaks the rule."""

    def check(self, value: Any, what: str, error: type[HetschedError] = InvalidArgument) -> Any:
        """Return the value as the function receives it; raise `error`, which names it `what`, if it breaks the rule."""
        try:
            return self.take(value)
        except _Part as part:
            part.refuse(what, error)
        except (TypeError, ValueError, OverflowError):
            raise error(_message(what, value, self.text)) from None

    @property
    def or_none(self) -> Rule:
        """The rule that also permits None."""
        return Rule(f"{self.text}, or None", lambda value: None if value is None else self.take(value))


class _Part(ValueError):
    """A part of an argument breaks its rule."""

    def __init__(self, place: str, value: object, text: str) -> None:
        super().__init__(place, value, text)
        self.place, self.value, self.text = place, value, text

    def refuse(self, what: str, error: type[HetschedError]) -> NoReturn:
        raise error(_message(what + self.place, self.value, self.text)) from None


def _message(what: str, value: object, text: str) -> str:
    return f"{what} is {shown(value)}; {'choose' if text.startswith('one of') else 'it must be'} {text}"


def _refuse() -> NoReturn:
    raise ValueError


# ---------------------------------------------------------------- rules


def _as_number(value: Any) -> int | float:
    if type(value) is float or (type(value) is int and -LARGEST_COUNT <= value <= LARGEST_COUNT):
        return value  # by far the most common
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real | decimal.Decimal):
        _refuse()
    if isinstance(value, numbers.Integral) and abs(integer := int(value)) <= LARGEST_COUNT:
        return integer
    return float(value)


def number(least: float = -math.inf, most: float = math.inf, *, above: float | None = None, below: float | None = None) -> Rule:
    """Return the rule of numbers from `least` to `most`, or `above` one and `below` another."""
    limits = [("at least", least), ("above", above), ("at most", most), ("below", below)]
    text = ["a number", *(f"{word} {limit:g}" for word, limit in limits if limit is not None and abs(limit) < math.inf)]

    def take(value: Any) -> int | float:
        parsed = _as_number(value)
        if not least <= parsed <= most or (above is not None and parsed <= above) or (below is not None and parsed >= below):
            _refuse()
        return parsed

    return Rule(" ".join(text[:2]) + "".join(f" and {part}" for part in text[2:]), take)


def whole(least: int | None = None, most: int = LARGEST_COUNT) -> Rule:
    """Return the rule of whole numbers from `least` to `most`."""
    lowest = -LARGEST_COUNT if least is None else least

    def take(value: Any) -> int:
        if type(value) is not int:
            if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
                _refuse()
            value = int(value)
        if not lowest <= value <= most:
            _refuse()
        return value  # type: ignore[no-any-return]

    text = "" if least is None else f" from {least} to {most}" if most < LARGEST_COUNT else f", at least {least}"
    return Rule(f"a whole number{text}", take)


def one_of(*choices: Any) -> Rule:
    """Return the rule of a few choices."""

    def take(value: Any) -> Any:
        for choice in choices:
            if isinstance(value, type(choice)) and value == choice:
                return choice
        _refuse()

    return Rule(f"one of {', '.join(map(repr, choices))}", take)


def kind(which: type, text: str = "") -> Rule:
    """Return the rule of values of one class."""
    article = "an" if which.__name__[:1] in "AEIOU" else "a"
    remedy = _REMEDIES.get(which.__name__.rpartition(".")[2])

    def take(value: Any) -> Any:
        return value if isinstance(value, which) else _refuse()

    return Rule(text or f"{article} {which.__name__}{f' ({remedy})' if remedy else ''}", take)


def rule(text: str, valid: Callable[[Any], object]) -> Rule:
    """Return the rule that a condition must hold."""
    return Rule(text, lambda value: value if valid(value) else _refuse())


NUMBER = Rule("a number", lambda value: _as_number(value) if type(value) is float else number().take(value))
"""The rule of the annotation `float`: NaN is permitted, but not in a range."""
WHOLE = whole()
COUNT = whole(1)
TEXT = kind(str, "a string")


def _as_bool(value: Any) -> bool:
    return bool(value) if isinstance(value, bool | np.bool_) else _refuse()


FLAG = Rule("True or False", _as_bool)
CALLABLE = rule("a function or another callable", callable)
NAMED = {
    "time_limit": Rule("a number of seconds, at least 0", number(0).take),
    "seed": Rule("a whole number, at least 0", whole(0).take),
    "evaluations": Rule("a whole number, at least 0", whole(0).take),
    "threads": Rule("a whole number, at least 1", COUNT.take),
}
"""Rules of arguments that have the same meaning everywhere."""


def check_number(
    value: Any, what: str, least: float = -math.inf, most: float = math.inf, error: type[HetschedError] = InvalidArgument
) -> Any:
    """Return a number from `least` to `most` as an int or a float; raise `error` for any other value."""
    return number(least, most).check(value, what, error)


def check_count(value: Any, what: str, least: int = 1, most: int = LARGEST_COUNT, error: type[HetschedError] = InvalidArgument) -> int:
    """Return a whole number from `least` to `most` as an int; raise `error` for any other value."""
    return int(whole(least, most).check(value, what, error))


def check_kind(value: Any, which: type, what: str, error: type[HetschedError] = InvalidArgument) -> Any:
    """Return a value of one class; raise `error` if it is of another."""
    return kind(which).check(value, what, error)


def check_indices(values: Any, what: str, limit: int, error: type[HetschedError] = InvalidArgument) -> npt.NDArray[np.int64]:
    """Return a one-dimensional array of indices from 0 to below `limit`."""
    indices: npt.NDArray[np.int64] = check_array(values, what, ("any",), np.int64, error=error)
    if len(indices) and not (0 <= indices.min() and indices.max() < limit):
        raise error(f"{what} runs from {indices.min()} to {indices.max()}; it must be indices from 0 to {limit - 1}")
    return indices


def check_rows(rows: Any, what: str, *columns: str, error: type[HetschedError] = InvalidArgument) -> list[tuple[Any, ...]]:
    """Return rows as tuples of the `columns`; a row is any sequence of that length except a string."""
    result = []
    for place, row in enumerate(rows):
        if isinstance(row, str | bytes | Mapping) or not hasattr(row, "__iter__") or len(cells := tuple(row)) != len(columns):
            raise error(f"{what}[{place}] is {shown(row)}; it must be ({', '.join(columns)})")
        result.append(cells)
    return result


_KINDS = {"f": "numbers", "i": "whole numbers", "b": "True and False"}


def check_array(
    values: Any,
    what: str,
    shape: tuple[int | str, ...] | None = None,
    dtype: npt.DTypeLike = np.float64,
    *,
    text: str = "",
    absent: bool = False,
    error: type[HetschedError] = InvalidArgument,
) -> npt.NDArray[Any]:
    """Return an array of numbers, of whole numbers or of bools.

    Parameters
    ----------
    values : array or nested sequence
        Strings, complex numbers and dates are not numbers; floats may be whole numbers; a fraction or a decimal
        becomes a float, an array of bools ones and zeros.
    what : str
        Its name in the message.
    shape : tuple, optional
        The required shape; a string, which messages contain, permits any length.
    dtype : dtype
        float64, int64 or bool.
    text : str
        The requirement, for messages after "it must be".
    absent : bool
        Whether None means NaN.
    """
    target = np.dtype(dtype)
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O" and target.kind == "f":
            array = np.array([np.nan if absent and entry is None else _as_number(entry) for entry in array.flat], float).reshape(
                array.shape
            )
        if array.dtype.kind == "f" and target.kind == "i" and (np.abs(array) < LARGEST_COUNT).all() and (array == np.rint(array)).all():
            array = array.astype(target)  # numpy makes floats of empty lists
        if array.dtype.kind not in {"f": "biuf", "i": "iu", "b": "b"}[target.kind] and (array.size or array.dtype.kind not in "iuf"):
            _refuse()
        array = array.astype(target, copy=False)
    except Exception:  # any error of the array interface of a foreign class
        raise error(f"{what} is {shown(values)}; it must be {text or f'an array of {_KINDS[target.kind]}'}") from None
    if shape is not None and (
        array.ndim != len(shape) or any(isinstance(n, int) and n != m for n, m in zip(shape, array.shape, strict=True))
    ):
        raise error(f"{what} has shape {list(array.shape)}; it must be [{', '.join(map(str, shape))}]")
    return array


# ---------------------------------------------------------------- annotations


class _Elsewhere(type):
    """The type of classes that annotations name without an import, identified by package and name."""

    def __getattr__(cls, name: str) -> _Elsewhere:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Elsewhere(f"{cls.__name__}.{name}", (), {})

    def __getitem__(cls, _parameters: object) -> _Elsewhere:
        return cls

    def __instancecheck__(cls, value: object) -> bool:
        package, _, name = cls.__name__.rpartition(".")
        return any(
            base.__name__ == name and (not package or base.__module__.partition(".")[0] == package.partition(".")[0])
            for base in type(value).__mro__
        )


class _Numpy:
    """Replaces `numpy.typing` in annotations."""

    ArrayLike = Any  # the function converts it to an array and checks it
    NDArray = npt.NDArray


class _Names(dict[str, Any]):
    """The names that annotations of a module may use."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name) if hasattr(builtins, name) else _Elsewhere(name, (), {})


def _hint(annotation: Any, scope: dict[str, Any]) -> Any:
    """Return an annotation as an object, alternatives as a tuple."""
    if not isinstance(annotation, str):
        return annotation
    names = _Names(scope | {"npt": _Numpy})

    def parts(node: ast.expr) -> list[ast.expr]:
        return [*parts(node.left), *parts(node.right)] if isinstance(node, ast.BinOp) else [node]

    alternatives = parts(ast.parse(annotation, mode="eval").body)
    return tuple(eval(ast.unparse(part), {}, names) for part in alternatives)


def _either(rules: list[Rule | None]) -> Rule | None:
    if any(rule is None for rule in rules):
        return None
    alternatives = [rule for rule in rules if rule is not None]
    if len(alternatives) == 1:
        return alternatives[0]

    def take(value: Any) -> Any:
        part = None
        for rule in alternatives:
            try:
                return rule.take(value)
            except _Part as found:
                part = part or found
            except (TypeError, ValueError, OverflowError):
                pass
        raise part or ValueError

    return Rule(", or ".join(rule.text for rule in alternatives), take)


_NONE = Rule("None", lambda value: None if value is None else _refuse())


def _rule(hint: Any) -> Rule | None:
    """Return the rule of a type, or None if it permits any value."""
    if isinstance(hint, tuple):
        return _either([_rule(part) for part in hint])
    if hint in (Any, object) or isinstance(hint, TypeVar):
        return None
    if hint is None or hint is types.NoneType:
        return _NONE
    plain = {float: NUMBER, int: WHOLE, str: TEXT, bool: FLAG}
    if isinstance(hint, type) and hint in plain:
        return plain[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _either([_rule(part) for part in arguments])
    if origin is Literal:
        return one_of(*arguments)
    if origin is np.ndarray:
        return _array(arguments[1])
    if origin is collections.abc.Callable:
        return CALLABLE
    if origin is not None and issubclass(origin, collections.abc.Iterable) and not issubclass(origin, np.ndarray):
        return _container(origin, arguments)
    if hint in (os.PathLike,) or origin is os.PathLike:
        return kind(os.PathLike, "a path")
    if isinstance(hint, type) and getattr(hint, "_is_protocol", False):
        return _protocol(hint)
    return kind(hint if origin is None else origin)


def _array(dtype: Any) -> Rule | None:
    (scalar,) = typing.get_args(dtype) or (Any,)
    scalar = typing.get_origin(scalar) or scalar
    if not isinstance(scalar, type):
        return None
    target = np.dtype(np.int64 if scalar is np.integer else scalar)
    return Rule(f"an array of {_KINDS[target.kind]}", lambda values: check_array(values, "", None, target))


def _container(origin: Any, arguments: tuple[Any, ...]) -> Rule:
    text = {"Mapping": "a mapping", "Iterable": "a sequence or another iterable"}.get(origin.__name__, f"a {origin.__name__.lower()}")
    required = collections.abc.Sequence if origin is list else origin
    mapping = issubclass(origin, collections.abc.Mapping)
    fixed = origin is tuple and Ellipsis not in arguments
    rules = [_rule(part_type) for part_type in arguments if part_type is not Ellipsis]

    def take(value: Any) -> Any:
        if origin is collections.abc.Sequence and isinstance(value, np.ndarray) and value.ndim:
            take(value.tolist())
            return value
        if not isinstance(value, required) or (fixed and len(value) != len(rules)) or (isinstance(value, np.ndarray) and not value.ndim):
            _refuse()
        if isinstance(value, str | bytes) and (not rules or rules[0] is None or rules[0] not in (TEXT,) or not isinstance(value, str)):
            _refuse()
        if isinstance(value, Collection) and required is not collections.abc.Iterable:
            if rules == [TEXT] and not fixed and set(map(type, value)) <= {str}:  # a million names one by one would take a second
                return value
            for i, item in enumerate(value.items() if isinstance(value, Mapping) else value):
                pairs = zip(rules, item, strict=True) if mapping else [(rules[i if fixed else 0], item)] if rules else []
                for rule, part in pairs:
                    if rule is not None:
                        try:
                            rule.take(part)
                        except (TypeError, ValueError, OverflowError):
                            raise _Part(f"[{shown(item[0] if mapping else i)}]", part, rule.text) from None
        return value

    return Rule(text, take)


def _protocol(hint: Any) -> Rule:
    bases = [base for base in hint.__mro__ if getattr(base, "_is_protocol", False) and base.__module__ != "typing"]
    named = {name for base in bases for name in (*vars(base), *getattr(base, "__annotations__", ()))}
    members = {name for name in named if not name.startswith("_") or name == "__call__"}
    methods = {name for name in members if any(callable(vars(base).get(name)) for base in bases)}

    def take(value: Any) -> Any:
        def held(name: str) -> bool:
            return hasattr(value, name) and (name not in methods or callable(getattr(value, name)))

        return value if not isinstance(value, type) and all(map(held, members)) else _refuse()

    members_text = " and ".join(sorted("a call" if name == "__call__" else name for name in members))
    return Rule(f"a {hint.__name__}, which has {members_text}", take)


@functools.cache
def rules(function: Callable[..., Any]) -> Mapping[str, Rule]:
    """Return the rules of a function's arguments by name, including those given to `checked`."""
    given: Mapping[str, Rule] = getattr(function, "_rules", {})
    plain = inspect.unwrap(function)
    result: dict[str, Rule] = {}
    for name, parameter in inspect.signature(plain).parameters.items():
        if parameter.annotation is parameter.empty:
            continue
        alternatives = _hint(parameter.annotation, plain.__globals__)
        kinds = alternatives if isinstance(alternatives, tuple) else (alternatives,)
        rule = given.get(name) or (NAMED.get(name) if int in kinds or float in kinds else None)
        if rule is None:
            rule = _rule(alternatives)
        elif None in kinds:
            rule = _unlimited(rule) if name == "time_limit" else rule.or_none
        if rule is not None:
            result[name] = rule
    return result


def _unlimited(rule: Rule) -> Rule:
    """Return the rule of an optional time limit, of which inf means None."""

    def take(value: Any) -> Any:
        seconds = None if value is None else rule.take(value)
        return None if seconds == math.inf else seconds

    return Rule(f"{rule.text}, or None for no limit", take)


# ---------------------------------------------------------------- the check


@typing.overload
def checked(error: type[HetschedError], /, **given: Rule) -> Callable[[F], F]: ...
@typing.overload
def checked(function: F, /) -> F: ...
@typing.overload
def checked(**given: Rule) -> Callable[[F], F]: ...
def checked(function: Any = InvalidArgument, /, **given: Rule) -> Any:
    """Check the arguments of a public function, or of the constructor of a class, at each call.

    Each argument must be of the kind of its annotation, and satisfy its rule in `NAMED` or in `given`.
    Raises `InvalidArgument`, or the error given, before the function runs.
    """
    if isinstance(function, type) and issubclass(function, HetschedError):
        return lambda target: _checked(target, given, function)
    return _checked(function, given, InvalidArgument)


def _checked(function: Any, given: Mapping[str, Rule], error: type[HetschedError]) -> Any:
    if isinstance(function, type):
        function.__init__ = _checked(function.__init__, given, error)  # type: ignore[misc]
        return function
    plan: tuple[list[tuple[str, Rule | None]], Mapping[str, Rule], tuple[str, Rule | None], Rule | None] | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal plan
        if plan is None:
            plan = _plan(call)
        places, named, (rest, rest_rule), others = plan
        taken = [value if rule is None else rule.check(value, name, error) for (name, rule), value in zip(places, args, strict=False)]
        if len(taken) < len(args):
            more = args[len(taken) :]
            taken += more if rest_rule is None else [rest_rule.check(value, f"{rest}[{i}]", error) for i, value in enumerate(more)]
        for name, value in kwargs.items():
            rule = named.get(name, others)
            if rule is not None:
                kwargs[name] = rule.check(value, name, error)
        return function(*taken, **kwargs)

    call._rules = given  # type: ignore[attr-defined]
    return call


def _plan(function: Callable[..., Any]) -> tuple[list[tuple[str, Rule | None]], Mapping[str, Rule], tuple[str, Rule | None], Rule | None]:
    """Return the rules by position, by name, of further positional and of further named arguments."""
    by_name = rules(function)
    places: list[tuple[str, Rule | None]] = []
    rest: tuple[str, Rule | None] = ("", None)
    others: Rule | None = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            places.append((name, by_name.get(name)))
        elif parameter.kind is parameter.VAR_POSITIONAL:
            rest = (name, by_name.get(name))
        elif parameter.kind is parameter.VAR_KEYWORD:
            others = by_name.get(name)
    return places, {**by_name}, rest, others
