"""The decorator that checks the arguments of a public function."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hetsched.arguments.annotations import rules
from hetsched.arguments.rules import Rule
from hetsched.errors import HetschedError, InvalidArgument

F = TypeVar("F", bound=Callable[..., Any])


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
