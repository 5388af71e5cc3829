"""The members of `auto`: which methods it lets run on a problem, and with what weight."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hetsched.errors import UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.search import Kind, Method, find_method, select


@dataclass(eq=False)
class Member:
    """A method in the race, and how it fared so far."""

    name: str
    weight: float = 1.0
    here: bool = False
    """Whether only this process knows it."""
    charged: float = 0.0
    """Seconds, or evaluations, given so far."""
    turns: int = 0
    stalled_turns: int = 0
    """Turns in a row that it ended by itself without a better schedule."""
    deaths: int = 0
    retired: bool = False
    method: Method = field(init=False)

    def __post_init__(self) -> None:
        self.method = find_method(self.name)
        function = self.method.function
        # What a script or a function defines is not there for who imports the module; other cases are found out by asking.
        self.here = function.__module__ == "__main__" or "<locals>" in function.__qualname__

    @property
    def at_once(self) -> bool:
        """Whether it is done as soon as it has begun."""
        return self.method.at_once

    @property
    def proves(self) -> bool:
        """Whether it is there for the bound as well."""
        return self.method.proves

    @property
    def models(self) -> bool:
        """Whether it hands models to a solver."""
        return self.method.kind is Kind.EXACT and (self.method.solver is not None or "solver" in self.method.options)


def usual(problem: Problem, objective: str) -> dict[str, float]:
    """Return the members for a problem if the user names none, with their weights; of the exact methods only the first that fits."""
    chosen = select(objective=objective, auto=True, problem=problem)
    exact = [each for each in chosen if each.kind is Kind.EXACT][:1]
    return {each.name: each.auto.weight for each in chosen if each.auto is not None and (each.kind is not Kind.EXACT or each in exact)}


def choose(
    problem: Problem, objective: str, members: str | Iterable[str] | Mapping[str, float] | None, exclude: str | Iterable[str]
) -> list[Member]:
    """Return the members of `auto` for a problem, in the order in which they would begin: first what is done at once, by turn.

    Parameters
    ----------
    members : names, or mapping of name to weight, optional
        A text holds names with commas between them.
    exclude : names

    Raises
    ------
    UnsupportedFeature
        A name that is no method, a weight that is none, or nobody left.
    """
    weights = _weights(usual(problem, objective) if members is None else members)
    banned = set(_names(exclude))
    for name in (*weights, *banned):
        find_method(name)
    chosen = {name: weight for name, weight in weights.items() if name not in banned}
    if not chosen:
        raise UnsupportedFeature(
            f"exclude={sorted(banned)} leaves no member of {', '.join(weights) or 'none'}; exclude fewer, or name others"
        )
    if "auto" in chosen:
        raise UnsupportedFeature("'auto' is named as a member of itself; name the methods it should run, or leave members out")
    found = [Member(name, weight) for name, weight in chosen.items()]
    return sorted(found, key=lambda member: (not member.at_once, member.method.turn if member.at_once else 0))


def _names(given: str | Iterable[str]) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()] if isinstance(given, str) else list(given)


def _weights(given: str | Iterable[str] | Mapping[str, float]) -> dict[str, float]:
    if not isinstance(given, Mapping):
        return dict.fromkeys(_names(given), 1.0)
    for name, weight in given.items():
        if not (isinstance(weight, int | float) and 0 < weight < math.inf):
            raise UnsupportedFeature(
                f"the weight of member {name!r} is {weight!r}; it must be a number above 0 (exclude={name!r} leaves it out)"
            )
    return {name: float(weight) for name, weight in given.items()}
