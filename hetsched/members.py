"""The members of `auto`: which methods it lets run on a problem, and with what weight."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hetsched.analysis import model_size
from hetsched.analysis.modules import falls_apart
from hetsched.errors import UnsupportedFeature
from hetsched.modeling.backends import preferred
from hetsched.models.split import SOLVERS
from hetsched.problem.problem import Problem
from hetsched.search import Method, find_method, registered

LIST_SCHEDULERS = (
    "best-device",
    "heft",
    "lookahead",
    "peft",
    "cpop",
    "etf",
    "dls",
    "bil",
    "mcp",
    "hlfet",
    "greedy",
    "met",
    "mct",
    "olb",
    "min-min",
    "max-min",
    "sufferage",
)
"""The methods that answer at once, in the order in which `auto` runs them."""
BATCHED_SCHEDULERS = ("bheft", "bgreedy", "bmet")
"""The same for several inputs."""
PLACEMENTS = ("dsc", "celeritas", "order-place", "repartition")
"""The same for graphs of more than `MANY` tasks."""
MANY = 1000
SEARCHES: Mapping[str, float] = {"annealing": 1.0, "tabu": 1.0, "evolution": 1.0, "random-heft": 0.5}
"""The searches that `auto` runs unless told otherwise, with their weights."""
EXACT = ("split", "cpsat", "milp", "milp:highs", "moirai", "pesto", "getf", "assignment", "load-milp")
"""The methods that hand a model to a solver."""
BOUNDS = "bounds"
LOADS: Mapping[str, float] = {"load-search": 2.0, "contiguous": 1.0}
"""The searches that it runs for the objectives that are loads."""
TINY = 60
"""Columns of a model that CP-SAT proves within a fraction of a second."""
SMALL = {"cpsat": 2000, "milp": 500, "load-milp": 1000}
"""Columns up to which a solver can be worth a core of its own."""
LARGEST = 20_000
"""Columns beyond which `auto` hands no model to any solver: making it alone would take seconds and gigabytes."""


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
    dull: int = 0
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
        return self.name in (*LIST_SCHEDULERS, *BATCHED_SCHEDULERS, *PLACEMENTS)

    @property
    def proves(self) -> bool:
        """Whether it is there for the bound as well."""
        return self.name == BOUNDS or self.name in EXACT


def usual(problem: Problem, objective: str) -> dict[str, float]:
    """Return the members for a problem if the user names none."""
    quick = LIST_SCHEDULERS if problem.inputs == 1 else (*LIST_SCHEDULERS[:2], *BATCHED_SCHEDULERS, *LIST_SCHEDULERS[2:])
    names = {**dict.fromkeys((*quick, *PLACEMENTS) if problem.n_tasks > MANY else quick, 1.0), **SEARCHES}
    if objective != "makespan":
        exact = {"load-milp": 1.0} if problem.inputs == 1 and model_size.columns(problem) <= SMALL["load-milp"] else {}
        return _known({**dict.fromkeys(LIST_SCHEDULERS[:2], 1.0), **LOADS, **exact, BOUNDS: 1.0})
    names[BOUNDS] = 1.0
    size = model_size.columns(problem)
    if problem.memory == "static" and (problem.inputs == 1 or not problem.links.contended):
        method = SOLVERS[preferred()]
        if size > TINY and falls_apart(problem):
            names["split"] = 1.0
        elif size <= SMALL[method]:
            names[method] = 1.0
    return _known(names)


def _known(names: Mapping[str, float]) -> dict[str, float]:
    return {name: weight for name, weight in names.items() if name in registered()}


def choose(
    problem: Problem, objective: str, members: str | Iterable[str] | Mapping[str, float] | None, exclude: str | Iterable[str]
) -> list[Member]:
    """Return the members of `auto` for a problem, in the order in which they would begin.

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
    order = [*LIST_SCHEDULERS[:2], *BATCHED_SCHEDULERS, *LIST_SCHEDULERS[2:], *PLACEMENTS]
    place = {name: number for number, name in enumerate(order)}
    return [Member(name, chosen[name]) for name in sorted(chosen, key=lambda name: place.get(name, len(order)))]


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
