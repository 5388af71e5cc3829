"""The members of `auto` for a problem, and their weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hetsched.errors import UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.search import Kind, Method, find_method, select


@dataclass(eq=False)
class Member:
    """A method in a run of `auto`, and its state."""

    name: str
    weight: float = 1.0
    here: bool = False
    """Whether it is registered only in this process."""
    uninterrupted: bool = False
    """Whether it is the search to run without a break."""
    charged: float = 0.0
    """Seconds, or evaluations, used so far."""
    turns: int = 0
    stalled_turns: int = 0
    """Consecutive turns that it ended by itself without a better schedule."""
    deaths: int = 0
    retired: bool = False
    method: Method = field(init=False)

    def __post_init__(self) -> None:
        self.method = find_method(self.name)
        function = self.method.function
        # A worker cannot import a function of a script or of another function; other cases fail in the worker.
        self.here = function.__module__ == "__main__" or "<locals>" in function.__qualname__

    @property
    def at_once(self) -> bool:
        """Whether it is constructive."""
        return self.method.at_once

    @property
    def proves(self) -> bool:
        """Whether it computes bounds."""
        return self.method.proves

    @property
    def splits(self) -> bool:
        """Whether it solves a problem part by part, and has good schedules before a proof."""
        return self.method.kind is Kind.EXACT and self.method.distributes

    @property
    def models(self) -> bool:
        """Whether it solves models by a solver."""
        return self.method.models


def usual(problem: Problem, objective: str) -> dict[str, float]:
    """Return the default members for a problem with their weights; of the exact methods with a solver only the first that fits."""
    chosen = select(objective=objective, auto=True, problem=problem)
    exact = [member for member in chosen if member.models][1:]
    return {member.name: member.auto.weight for member in chosen if member.auto is not None and member not in exact}


def choose(
    problem: Problem, objective: str, members: str | Iterable[str] | Mapping[str, float] | None, exclude: str | Iterable[str]
) -> list[Member]:
    """Return the members of `auto` for a problem in the order of their first turns, constructive methods first.

    Parameters
    ----------
    members : names, or mapping of name to weight, optional
        A string holds names separated by commas.
    exclude : names

    Raises
    ------
    UnsupportedFeature
        An unknown name, an invalid weight, or no member left.
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
    listed = [Member(name, weight) for name, weight in chosen.items()]
    if members is None:  # else the weights decide
        for member in listed:
            declared = member.method.auto
            member.uninterrupted = declared is not None and declared.uninterrupted(problem)
    return sorted(listed, key=lambda member: (not member.at_once, member.method.turn if member.at_once else 0))


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
