"""Rules for arguments: what a value must be, and how a function receives it.

A number is an int, a float, a numpy scalar, a Fraction or a Decimal; the function receives an int or a float.
True and False are not numbers.
"""

from __future__ import annotations

import decimal
import math
import numbers
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from hetsched.arguments.amounts import hint, parse
from hetsched.errors import HetschedError, InvalidArgument

LARGEST_COUNT = 2**63 - 1
_REMEDIES = {
    "TaskGraph": "hetsched.TaskGraph(tasks, edges, ...) makes one",
    "Cluster": "hetsched.Cluster(devices, bandwidth) makes one",
    "Problem": "hetsched.Problem(graph, cluster, durations=...) makes one, hetsched.read(path) reads one",
    "Decision": "hetsched.Decision.from_assignment(...) makes one, schedule.decision is one",
    "Schedule": "hetsched.solve(problem).schedule and hetsched.simulate(problem, decision) are such",
    "Solution": "hetsched.solve(problem) returns one",
    "ModelCard": "hetsched.frontends.configs.read(path) makes one of a config.json, frontends.gguf.read(path) of a GGUF file",
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
        except PartError as part:
            raise part.reported(what, error) from None
        except (TypeError, ValueError, OverflowError):
            raise error(_message(what, value, self.text)) from None

    @property
    def or_none(self) -> Rule:
        """The rule that also permits None."""
        return Rule(f"{self.text}, or None", lambda value: None if value is None else self.take(value))


class PartError(ValueError):
    """The error of a part of an argument."""

    def __init__(self, place: str, value: object, text: str) -> None:
        super().__init__(place, value, text)
        self.place, self.value, self.text = place, value, text

    def reported(self, what: str, error: type[HetschedError]) -> HetschedError:
        """Return the error that names the part of the argument `what`."""
        return error(_message(what + self.place, self.value, self.text))


def _message(what: str, value: object, text: str) -> str:
    return f"{what} is {shown(value)}; {'choose' if text.startswith('one of') else 'it must be'} {text}"


def refuse() -> NoReturn:
    """Raise the error of a value that breaks a rule."""
    raise ValueError


def as_number(value: Any) -> int | float:
    """Return a number as an int or a float; raise `ValueError` for what is none."""
    if type(value) is float or (type(value) is int and -LARGEST_COUNT <= value <= LARGEST_COUNT):
        return value  # by far the most common
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real | decimal.Decimal):
        refuse()
    if isinstance(value, numbers.Integral) and abs(integer := int(value)) <= LARGEST_COUNT:
        return integer
    return float(value)


def as_amount(value: Any, unit: str) -> int | float:
    """Return a number, or the number of base units that text such as ``"2 ms"`` states."""
    return parse(value, unit) if unit and isinstance(value, str) else as_number(value)


def amount(unit: str) -> Rule:
    """Return the rule of amounts in a base unit of `hetsched.arguments.amounts`."""
    return Rule(f"a number{hint(unit)}", lambda value: as_amount(value, unit))


def number(least: float = -math.inf, most: float = math.inf, *, above: float | None = None, below: float | None = None) -> Rule:
    """Return the rule of numbers from `least` to `most`, or `above` one and `below` another."""
    limits = [("at least", least), ("above", above), ("at most", most), ("below", below)]
    text = ["a number", *(f"{word} {limit:g}" for word, limit in limits if limit is not None and abs(limit) < math.inf)]

    def take(value: Any) -> int | float:
        parsed = as_number(value)
        if not least <= parsed <= most or (above is not None and parsed <= above) or (below is not None and parsed >= below):
            refuse()
        return parsed

    return Rule(" ".join(text[:2]) + "".join(f" and {part}" for part in text[2:]), take)


def whole(least: int | None = None, most: int = LARGEST_COUNT) -> Rule:
    """Return the rule of whole numbers from `least` to `most`."""
    lowest = -LARGEST_COUNT if least is None else least

    def take(value: Any) -> int:
        if type(value) is not int:
            if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
                refuse()
            value = int(value)
        if not lowest <= value <= most:
            refuse()
        return value  # type: ignore[no-any-return]

    text = "" if least is None else f" from {least} to {most}" if most < LARGEST_COUNT else f", at least {least}"
    return Rule(f"a whole number{text}", take)


def one_of(*choices: Any) -> Rule:
    """Return the rule of a few choices."""

    def take(value: Any) -> Any:
        for choice in choices:
            if isinstance(value, type(choice)) and value == choice:
                return choice
        refuse()

    return Rule(f"one of {', '.join(map(repr, choices))}", take)


def kind(which: type, text: str = "") -> Rule:
    """Return the rule of values of one class."""
    article = "an" if which.__name__[:1] in "AEIOU" else "a"
    remedy = _REMEDIES.get(which.__name__.rpartition(".")[2])

    def take(value: Any) -> Any:
        return value if isinstance(value, which) else refuse()

    return Rule(text or f"{article} {which.__name__}{f' ({remedy})' if remedy else ''}", take)


def rule(text: str, valid: Callable[[Any], object]) -> Rule:
    """Return the rule that a condition must hold."""
    return Rule(text, lambda value: value if valid(value) else refuse())


NUMBER = Rule("a number", lambda value: as_number(value) if type(value) is float else number().take(value))
"""The rule of the annotation `float`: NaN is permitted, but not in a range."""
WHOLE = whole()
COUNT = whole(1)
TEXT = kind(str, "a string")


def _as_bool(value: Any) -> bool:
    return bool(value) if isinstance(value, bool | np.bool_) else refuse()


FLAG = Rule("True or False", _as_bool)
CALLABLE = rule("a function or another callable", callable)
NAMED = {
    "time_limit": Rule(f"a number of seconds, at least 0{hint('s')}", lambda value: number(0).take(as_amount(value, "s"))),
    "seed": Rule("a whole number, at least 0", whole(0).take),
    "evaluations": Rule("a whole number, at least 0", whole(0).take),
    "threads": Rule("a whole number, at least 1", COUNT.take),
}
"""Rules of arguments that have the same meaning everywhere."""
