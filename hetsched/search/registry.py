"""Methods: what each declares, the registry of all, and queries over it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import numpy as np

from hetsched.arguments import checked
from hetsched.errors import UnsupportedFeature, warn
from hetsched.problem.graph import unique_names
from hetsched.problem.problem import Problem
from hetsched.schedule.objectives import OBJECTIVES

LARGE = 1000
"""Tasks beyond which a graph counts as large."""
MAKESPAN, ALL = frozenset({"makespan"}), frozenset(OBJECTIVES)
LOADS = ALL - MAKESPAN
ENTRY_POINTS = "hetsched.methods"
BUILT_IN = (
    "heuristics.list_scheduling.simple",
    "heuristics.list_scheduling.static",
    "heuristics.list_scheduling.dynamic",
    "heuristics.local_search.annealing",
    "heuristics.local_search.tabu",
    "heuristics.local_search.evolution",
    "heuristics.list_scheduling.batched",
    "heuristics.randomised",
    "heuristics.diviml_search",
    "heuristics.throughput.contiguous",
    "heuristics.throughput.load_search",
    "heuristics.placement.celeritas",
    "heuristics.placement.baechi",
    "heuristics.placement.partitions",
    "heuristics.placement.clustering",
    "heuristics.placement.repartition",
    "heuristics.multilevel",
    "models.methods",
    "decomposition.split",
    "bounds.methods",
    "portfolio.auto",
)
"""Modules below `hetsched` that register methods when they are imported."""


class Kind(StrEnum):
    """How a method works."""

    CONSTRUCTIVE = "constructive"
    """One pass; done as soon as it has begun."""
    SEARCH = "search"
    """Anytime: begins at the best schedule of the monitor and improves it until the budget is spent."""
    EXACT = "exact"
    """Hands a model to a solver, or branches."""
    BOUND = "bound"
    """Lower bounds only."""
    PORTFOLIO = "portfolio"
    """Runs other methods."""


class Role(StrEnum):
    """What other methods use a method for."""

    START = "start"
    """Searches and solvers begin with it."""
    UPPER = "upper bound"
    """The upper bound of formulations is the best of these."""
    PACKING = "packing"
    """Asked for a placement where no start fits the memory."""
    BASELINE = "baseline"
    """`multilevel` is never worse than any of these that its time allows."""


When: TypeAlias = Callable[[Problem], bool]
"""Whether a method takes part on a problem."""


def always(_: Problem) -> bool:
    """Return True."""
    return True


def several_inputs(problem: Problem) -> bool:
    """Return whether the problem has more than one input."""
    return problem.inputs > 1


def large(problem: Problem) -> bool:
    """Return whether the graph has more than `LARGE` tasks."""
    return problem.n_tasks > LARGE


def tasks_up_to(n: int) -> When:
    """Return the condition that the graph has at most `n` tasks."""
    return lambda problem: problem.n_tasks <= n


@checked
@dataclass(frozen=True)
class Supports:
    """The problems a method takes; `Monitor.run` refuses the others before the method begins."""

    inputs: Literal["one", "whole", "any"] = "any"
    """"whole": every task needs a batch of all inputs on some device."""
    batching: tuple[str, ...] = ("once", "free")
    communication: tuple[str, ...] | None = None
    """None: every model of communication."""
    contended_batches: bool = True
    """Several inputs where transfers contend."""
    memory: tuple[str, ...] = ("static", "peak")
    besides: str = ""
    """What the method refuses by itself, in a few words."""

    @checked
    def refusal(self, problem: Problem) -> str:
        """Return why the method does not take a problem, with the remedy, or an empty text."""
        inputs = problem.inputs
        if self.inputs == "one" and inputs > 1:
            return f"one input is supported, but the problem has {inputs}; use problem.replace(inputs=1), or a search method"
        if self.inputs == "whole":
            stuck = np.flatnonzero(np.isinf(problem.whole_durations).all(axis=1))
            if len(stuck):
                name = problem.graph.names[stuck[0]]
                return (
                    f"every task has to run as one batch of all {inputs} inputs, but {name!r} has no such batch on any device; "
                    "give durations for that size"
                )
        if problem.memory not in self.memory:
            return f"memory={problem.memory!r} is not supported; use problem.replace(memory={self.memory[0]!r}), or a search method"
        if problem.batching not in self.batching:
            return f"batching={problem.batching!r} is not supported; use problem.replace(batching={self.batching[0]!r}), or a search method"
        if self.communication is not None and problem.communication not in self.communication:
            remedy = f"use problem.replace(communication={self.communication[0]!r}), or a search method"
            return f"communication={problem.communication!r} is not supported; {remedy}"
        if not self.contended_batches and inputs > 1 and problem.links.contended:
            return (
                f"{inputs} inputs are not supported with communication={problem.communication!r}; "
                "use communication 'delay' or 'per-input', one input, or a search method"
            )
        return ""

    @property
    def refused(self) -> tuple[str, ...]:
        """What is refused, in a few words each."""
        found = []
        if self.inputs == "one":
            found.append("several inputs")
        elif not self.contended_batches:
            found.append("several inputs with contention")
        if self.inputs == "whole":
            found.append("tasks without a batch of all inputs")
        found += [f"{value} memory" for value in ("static", "peak") if value not in self.memory]
        found += [f"batching {value}" for value in ("once", "free") if value not in self.batching]
        if self.communication is not None:
            found.append(f"communication other than {', '.join(self.communication)}")
        return tuple(filter(None, (*found, self.besides)))


@checked
@dataclass(frozen=True)
class Auto:
    """Where a method declares it, `auto` runs the method without being asked."""

    weight: float = 1.0
    """Its share of the time among searches."""
    when: When = always


@checked
@dataclass(frozen=True)
class Method:
    """A registered method: what it is, and what others may use it for."""

    name: str
    summary: str
    function: Callable[..., None] = field(repr=False)
    source: str = ""
    """The paper it follows."""
    kind: Kind = Kind.SEARCH
    objectives: frozenset[str] = MAKESPAN
    """The objectives it is made for; under another one it offers what it finds."""
    roles: Mapping[Role, When] = field(default_factory=dict)
    deterministic: bool = True
    """Same problem, seed and evaluation limit, same answer to the bit."""
    growth: int = 1
    """The power of the number of tasks that its time grows with."""
    solver: str | None = None
    """The name of the backend that it hands its models to."""
    needs: str | None = None
    """A module that must be importable."""
    supports: Supports = Supports()
    distributes: bool = False
    """Has parts of its work done by the executor of the solve."""
    turn: int = 1000
    """Of methods that run one after another the one with the lowest is first; those of hetsched are below 1000."""
    auto: Auto | None = None

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """Names and defaults of the options it takes."""
        parameters = list(inspect.signature(self.function).parameters.values())[2:]
        return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}

    @property
    def at_once(self) -> bool:
        """Whether it is done as soon as it has begun."""
        return self.kind is Kind.CONSTRUCTIVE

    @property
    def proves(self) -> bool:
        """Whether it is there for the bound as well."""
        return self.kind in (Kind.EXACT, Kind.BOUND)

    @property
    def available(self) -> bool:
        """Whether what it needs is installed."""
        return self.needs is None or importlib.util.find_spec(self.needs) is not None

    @checked
    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise `UnsupportedFeature` for an option the method does not take."""
        for name in options:
            if name not in self.options:
                known = ", ".join(f"{n}={d!r}" for n, d in self.options.items()) or "none"
                raise UnsupportedFeature(f"method {self.name!r} takes no option {name!r}; its options: {known}")


_registry: dict[str, Method] = {}
_discovered = False


@checked
def method(
    name: str,
    *,
    summary: str,
    source: str = "",
    kind: Kind = Kind.SEARCH,
    objectives: frozenset[str] = MAKESPAN,
    roles: Mapping[Role, When] | None = None,
    deterministic: bool = True,
    growth: int = 1,
    solver: str | None = None,
    needs: str | None = None,
    supports: Supports = Supports(),
    distributes: bool = False,
    turn: int = 1000,
    auto: Auto | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register ``function(problem, monitor, **options)`` as a method that `solve` knows by `name`.

    The function offers decisions with ``monitor.offer(decision)``, stops soon after
    ``monitor.should_stop``, and draws randomness from ``monitor.rng`` only. Registering the same
    function again is allowed (modules get reloaded); another function of the same name is not.
    The parameters are the fields of `Method`.
    """
    unique_names([name], "method")

    def register(function: Callable[..., None]) -> Callable[..., None]:
        known = _registry.get(name)
        if known is not None and (known.function.__module__, known.function.__qualname__) != (function.__module__, function.__qualname__):
            raise UnsupportedFeature(f"a method named {name!r} is registered already, by {known.function.__module__}; choose another name")
        _registry[name] = Method(
            name,
            summary,
            function,
            source,
            kind,
            objectives,
            roles or {},
            deterministic,
            growth,
            solver,
            needs,
            supports,
            distributes,
            turn,
            auto,
        )
        return function

    return register


def discover(*, plug_ins: bool = True) -> None:
    """Import the modules of `BUILT_IN`, then the methods that other packages announce; once a process."""
    global _discovered
    if _discovered:
        return
    _discovered = True  # before the imports: a module may ask for methods while it is imported
    for name in BUILT_IN:
        importlib.import_module(f"hetsched.{name}")
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS) if plug_ins else ():
        try:
            entry.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: what others install must not end this process
            reason = str(error) if isinstance(error, Exception) else repr(error)
            warn(f"methods of entry point {entry.name!r} ({entry.value}) cannot be loaded: {reason}", UserWarning)


@contextlib.contextmanager
def temporarily(*methods: Method) -> Iterator[None]:
    """Register methods, in place of those of the same name, and forget at the end whatever was registered meanwhile."""
    discover()
    before = dict(_registry)
    _registry.update({each.name: each for each in methods})
    try:
        yield
    finally:
        _registry.clear()
        _registry.update(before)


def registered() -> Mapping[str, Method]:
    """Return all methods, by name."""
    discover()
    return dict(sorted(_registry.items()))


@checked
def find_method(name: str) -> Method:
    """Return a registered method; raises `UnsupportedFeature` naming those there are."""
    discover()
    if name not in _registry:
        raise UnsupportedFeature(f"unknown method {name!r}; choose from {', '.join(sorted(_registry))}")
    return _registry[name]


@checked
def select(
    *, kind: Kind | None = None, objective: str | None = None, role: Role | None = None, auto: bool = False, problem: Problem | None = None
) -> list[Method]:
    """Return the methods that are available and fit, by turn and name.

    Parameters
    ----------
    kind : Kind, optional
    objective : "makespan", "period" or "max-load", optional
        Methods made for it.
    role : Role, optional
        Methods that have it.
    auto : bool
        Only methods that `auto` runs without being asked.
    problem : Problem, optional
        Only methods that take it, and that the condition of their role, or of `auto`, lets take part.
    """
    discover()
    chosen = []
    for each in sorted(_registry.values(), key=lambda each: (each.turn, each.name)):
        fits = (kind is None or each.kind is kind) and (objective is None or objective in each.objectives)
        if not fits or (role is not None and role not in each.roles) or (auto and each.auto is None) or not each.available:
            continue
        if problem is not None:
            conditions = [each.roles[role]] if role is not None else []
            conditions += [each.auto.when] if auto and each.auto is not None else []
            if each.supports.refusal(problem) or not all(condition(problem) for condition in conditions):
                continue
        chosen.append(each)
    return chosen


@checked
def exact(solver: str, objective: str = "makespan") -> Method:
    """Return the exact method for an objective that stands for a solver.

    It is the one that hands its models to that solver, else the one of that name, else the one that `auto`
    runs for the objective and that has an option ``solver``.

    Raises `UnsupportedFeature` if there is none.
    """
    fitting = [each for each in registered().values() if each.kind is Kind.EXACT and objective in each.objectives]
    conditions: tuple[Callable[[Method], bool], ...] = (
        lambda each: each.solver == solver,
        lambda each: each.name == solver,
        lambda each: each.auto is not None and not each.distributes and "solver" in each.options,
    )
    for condition in conditions:
        for each in fitting:
            if condition(each):
                return each
    known = sorted({each.solver or each.name for each in fitting})
    raise UnsupportedFeature(f"no exact method for the {objective} stands for solver {solver!r}; choose from {', '.join(known)}")
