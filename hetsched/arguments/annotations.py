"""The rules that annotations express.

An annotation is a string that is evaluated in the module of its function; a class that this module imports only for a
type checker is identified by its package and name, so that a check imports nothing.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import functools
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from hetsched.arguments.checks import KINDS, check_array
from hetsched.arguments.rules import CALLABLE, FLAG, NAMED, NUMBER, TEXT, WHOLE, PartError, Rule, kind, one_of, refuse, shown


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

    optional = _NONE in alternatives
    text = ", or ".join(rule.text for rule in alternatives)
    if optional and len(alternatives) == 2:
        (other,) = (rule for rule in alternatives if rule is not _NONE)
        return Rule(text, other.or_none.take)

    def take(value: Any) -> Any:
        if value is None and optional:  # before other rules make errors
            return None
        part = None
        for rule in alternatives:
            try:
                return rule.take(value)
            except PartError as found:
                part = part or found
            except (TypeError, ValueError, OverflowError):
                pass
        raise part or ValueError

    return Rule(text, take)


_ARRAYS = set(typing.get_args(npt.ArrayLike))
"""The parts of ArrayLike, into which an alternative to it takes it apart; none where it is a type of its own."""
_NONE = Rule("None", lambda value: None if value is None else refuse())


def _rule(hint: Any) -> Rule | None:
    """Return the rule of a type, or None if it permits any value."""
    if isinstance(hint, tuple):
        return _either([_rule(part) for part in hint])
    if hint in (Any, object, npt.ArrayLike) or isinstance(hint, TypeVar):  # ArrayLike is a type of its own from Python 3.12 on
        return None
    if hint is None or hint is types.NoneType:
        return _NONE
    hint = _meaning(hint)
    plain = {float: NUMBER, int: WHOLE, str: TEXT, bool: FLAG}
    if isinstance(hint, type) and hint in plain:
        return plain[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if _ARRAYS and _ARRAYS <= set(arguments):
            return None
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


def _meaning(hint: Any) -> Any:
    """Return what a type alias stands for: from Python 3.12 on, numpy 2.5 has such aliases, ``NDArray[float64]`` among them."""
    value, parameters = getattr(typing.get_origin(hint) or hint, "__value__", None), typing.get_args(hint)
    if value is None:
        return hint
    return _meaning(value[parameters] if parameters else value)


def _array(dtype: Any) -> Rule | None:
    (scalar,) = typing.get_args(dtype) or (Any,)
    scalar = typing.get_origin(scalar) or scalar
    if not isinstance(scalar, type):
        return None
    target = np.dtype(np.int64 if scalar is np.integer else scalar)
    return Rule(f"an array of {KINDS[target.kind]}", lambda values: check_array(values, "", None, target))


def _container(origin: Any, arguments: tuple[Any, ...]) -> Rule:
    text = {"Mapping": "a mapping", "Iterable": "a sequence or another iterable"}.get(origin.__name__, f"a {origin.__name__.lower()}")
    rules = [_rule(part_type) for part_type in arguments if part_type is not Ellipsis]
    if issubclass(origin, Mapping):
        return Rule(text, functools.partial(_take_mapping, origin, rules))
    if origin is tuple and Ellipsis not in arguments:
        return Rule(text, functools.partial(_take_tuple, rules))
    return Rule(text, functools.partial(_take_values, origin, rules[0] if rules else None))


def _take_mapping(origin: Any, rules: list[Rule | None], value: Any) -> Any:
    if not isinstance(value, origin):
        refuse()
    for key, item in value.items():
        for rule, part in zip(rules, (key, item), strict=False):
            _take_part(rule, key, part)
    return value


def _take_tuple(rules: list[Rule | None], value: Any) -> Any:
    if not isinstance(value, tuple) or len(value) != len(rules):
        refuse()
    for i, (rule, part) in enumerate(zip(rules, value, strict=True)):
        _take_part(rule, i, part)
    return value


def _take_values(origin: Any, rule: Rule | None, value: Any) -> Any:
    """Take values of one kind; only a collection is read, for an iterator could be read once."""
    if origin is collections.abc.Sequence and isinstance(value, np.ndarray) and value.ndim:
        _take_values(origin, rule, value.tolist())
        return value
    required = collections.abc.Sequence if origin is list else origin
    if not isinstance(value, required) or (isinstance(value, np.ndarray) and not value.ndim):
        refuse()
    if isinstance(value, bytes) or (isinstance(value, str) and rule is not TEXT):
        refuse()
    if not isinstance(value, Collection) or required is collections.abc.Iterable:
        return value
    if rule is TEXT and set(map(type, value)) <= {str}:  # a million names one by one would take a second
        return value
    for i, part in enumerate(value):
        _take_part(rule, i, part)
    return value


def _take_part(rule: Rule | None, place: object, part: Any) -> None:
    if rule is not None:
        try:
            rule.take(part)
        except (TypeError, ValueError, OverflowError):
            raise PartError(f"[{shown(place)}]", part, rule.text) from None


def _protocol(hint: Any) -> Rule:
    bases = [base for base in hint.__mro__ if getattr(base, "_is_protocol", False) and base.__module__ != "typing"]
    named = {name for base in bases for name in (*vars(base), *getattr(base, "__annotations__", ()))}
    members = {name for name in named if not name.startswith("_") or name == "__call__"}
    methods = {name for name in members if any(callable(vars(base).get(name)) for base in bases)}

    def take(value: Any) -> Any:
        def held(name: str) -> bool:
            return hasattr(value, name) and (name not in methods or callable(getattr(value, name)))

        return value if not isinstance(value, type) and all(map(held, members)) else refuse()

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
