"""The decorator that checks the arguments of a public function."""

from __future__ import annotations

import functools
import inspect
import operator
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

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
    plan: _Plan | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal plan
        if plan is None:
            plan = _plan(call)
        try:
            taken = [*map(operator.call, plan.takes, args)]
            if len(taken) < len(args):
                taken += map(_take(plan.rest[1]), args[len(taken) :])
            for name, value in kwargs.items():
                rule = plan.named.get(name, plan.others)
                if rule is not None:
                    kwargs[name] = rule.take(value)
        except (TypeError, ValueError, OverflowError):
            plan.refuse(args, kwargs, error)
            raise
        return function(*taken, **kwargs)

    call._rules = given  # type: ignore[attr-defined]
    return call


class _Plan(NamedTuple):
    """The rules of a function's arguments."""

    places: list[tuple[str, Rule | None]]
    """By position."""
    takes: list[Callable[[Any], Any]]
    """The functions of these rules: every call of a public function calls them, so they are not looked up again."""
    named: Mapping[str, Rule]
    rest: tuple[str, Rule | None]
    """Of further positional arguments."""
    others: Rule | None
    """Of further named arguments."""

    def refuse(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: type[HetschedError]) -> None:
        """Raise `error` for the first argument that breaks its rule."""
        rest, rule = self.rest
        further = [(f"{rest}[{i}]", rule) for i in range(len(args) - len(self.places))]
        named = [(name, self.named.get(name, self.others)) for name in kwargs]
        for (name, rule), value in zip([*self.places[: len(args)], *further, *named], [*args, *kwargs.values()], strict=True):
            if rule is not None:
                rule.check(value, name, error)


def _take(rule: Rule | None) -> Callable[[Any], Any]:
    return _as_given if rule is None else rule.take


def _as_given(value: Any) -> Any:
    return value


def _plan(function: Callable[..., Any]) -> _Plan:
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
    return _Plan(places, [_take(rule) for _, rule in places], {**by_name}, rest, others)
