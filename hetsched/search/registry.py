"""Methods: their declarations, the registry, and queries over it."""

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

from hetsched.arguments import checked
from hetsched.errors import UnsupportedFeature, warn
from hetsched.problem.graph import unique_names
from hetsched.problem.problem import Problem
from hetsched.schedule.objectives import OBJECTIVES

LARGE = 1000
"""A graph with more tasks is large."""
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
    "heuristics.placement.policy_gradient",
    "heuristics.multilevel",
    "models.methods",
    "decomposition.split",
    "decomposition.neighbourhoods",
    "bounds.methods",
    "portfolio.auto",
)
"""Modules below `hetsched` that register methods on import."""


class Kind(StrEnum):
    """The kind of a method."""

    CONSTRUCTIVE = "constructive"
    """One pass."""
    SEARCH = "search"
    """Anytime: improves the best schedule of the monitor until the budget is spent."""
    EXACT = "exact"
    """Exact, by a solver or by branch and bound."""
    BOUND = "bound"
    """Lower bounds only."""
    PORTFOLIO = "portfolio"
    """Runs other methods."""


class Role(StrEnum):
    """The use of a method by other methods."""

    START = "start"
    """A start of searches and solvers."""
    UPPER = "upper bound"
    """The upper bound of formulations is the best of these."""
    PACKING = "packing"
    """Provides a placement if no start fits the memory."""
    BASELINE = "baseline"
    """A baseline of `multilevel`, which is never worse than those that its time permits."""


When: TypeAlias = Callable[[Problem], bool]
"""Whether a method is used for a problem."""


def always(_: Problem) -> bool:
    """Return True."""
    return True


def never(_: Problem) -> bool:
    """Return False."""
    return False


def several_inputs(problem: Problem) -> bool:
    """Return whether the problem has more than one input."""
    return problem.inputs > 1


def batches_given(problem: Problem) -> bool:
    """Return whether every schedule has the same batches: there is one input, or one batch size."""
    return problem.inputs == 1 or problem.n_sizes == 1


def large(problem: Problem) -> bool:
    """Return whether the graph has more than `LARGE` tasks."""
    return problem.n_tasks > LARGE


def tasks_up_to(n: int) -> When:
    """Return the condition that the graph has at most `n` tasks."""
    return lambda problem: problem.n_tasks <= n


@checked
@dataclass(frozen=True)
class Supports:
    """The problems that a method supports; `Monitor.run` refuses others before the method begins."""

    inputs: Literal["one", "whole", "any"] = "any"
    """"whole": every task needs a batch of all inputs on some device."""
    batching: tuple[str, ...] = ("once", "free")
    communication: tuple[str, ...] | None = None
    """Communication models; None for all."""
    memory: tuple[str, ...] = ("static", "peak")
    besides: str = ""
    """Further problems that the method itself refuses, in a few words."""

    @checked
    def refusal(self, problem: Problem) -> str:
        """Return why the method does not support a problem, with a remedy, or an empty text."""
        inputs = problem.inputs
        if self.inputs == "one" and inputs > 1:
            return f"one input is supported, but the problem has {inputs}; use problem.replace(inputs=1), or a search method"
        if self.inputs == "whole":
            stuck = problem.without_whole_batch
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
        return ""

    @property
    def refused(self) -> tuple[str, ...]:
        """The features of problems that are refused, in a few words each."""
        features = []
        if self.inputs == "one":
            features.append("several inputs")
        if self.inputs == "whole":
            features.append("tasks without a batch of all inputs")
        features += [f"{value} memory" for value in ("static", "peak") if value not in self.memory]
        features += [f"batching {value}" for value in ("once", "free") if value not in self.batching]
        if self.communication is not None:
            features.append(f"communication other than {', '.join(self.communication)}")
        return tuple(filter(None, (*features, self.besides)))


@checked
@dataclass(frozen=True)
class Auto:
    """Declares that a method is a default member of `auto`."""

    weight: float = 1.0
    """Relative share of the time among searches."""
    when: When = always
    uninterrupted: When = never
    """Where it runs without a break, for turns would begin it anew; only searches of hetsched do, in the process of the solve."""


@checked
@dataclass(frozen=True)
class Method:
    """A registered method and its declarations."""

    name: str
    summary: str
    function: Callable[..., None] = field(repr=False)
    source: str = ""
    """The paper that it follows."""
    kind: Kind = Kind.SEARCH
    objectives: frozenset[str] = MAKESPAN
    """The objectives that it minimises; under another objective its schedules are only offered."""
    roles: Mapping[Role, When] = field(default_factory=dict)
    deterministic: bool = True
    """Whether the same problem, seed and evaluation limit give the same answer to the bit."""
    growth: int = 1
    """Exponent of the growth of its time in the number of tasks."""
    solver: str | None = None
    """The name of the backend that solves its models."""
    needs: str | None = None
    """A module that must be importable."""
    supports: Supports = Supports()
    distributes: bool = False
    """Whether it distributes work over the executor of the solve."""
    turn: int = 1000
    """Methods that run one after another are ordered by it; those of hetsched are below 1000."""
    auto: Auto | None = None

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """Names and defaults of its options."""
        parameters = list(inspect.signature(self.function).parameters.values())[2:]
        return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}

    @property
    def at_once(self) -> bool:
        """Whether it is constructive."""
        return self.kind is Kind.CONSTRUCTIVE

    @property
    def proves(self) -> bool:
        """Whether it computes bounds."""
        return self.kind in (Kind.EXACT, Kind.BOUND)

    @property
    def models(self) -> bool:
        """Whether it solves models by a solver."""
        return self.kind is Kind.EXACT and (self.solver is not None or "solver" in self.options)

    @property
    def available(self) -> bool:
        """Whether the modules that it needs are installed."""
        return self.needs is None or importlib.util.find_spec(self.needs) is not None

    @checked
    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise `UnsupportedFeature` for an option that the method does not have."""
        for name in options:
            if name not in self.options:
                listed = ", ".join(f"{n}={d!r}" for n, d in self.options.items()) or "none"
                raise UnsupportedFeature(f"method {self.name!r} takes no option {name!r}; its options: {listed}")


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
    """Register ``function(problem, monitor, **options)`` as a method of `solve`.

    The function offers decisions with ``monitor.offer(decision)``, stops soon after
    ``monitor.should_stop``, and draws random numbers from ``monitor.rng`` only. The same function may be
    registered again (on a reload of its module), but not another function of the same name.
    The parameters are the fields of `Method`.
    """
    unique_names([name], "method")

    def register(function: Callable[..., None]) -> Callable[..., None]:
        existing = _registry.get(name)
        if existing is not None and (existing.function.__module__, existing.function.__qualname__) != (
            function.__module__,
            function.__qualname__,
        ):
            raise UnsupportedFeature(
                f"a method named {name!r} is registered already, by {existing.function.__module__}; choose another name"
            )
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
    """Import the modules of `BUILT_IN`, then the entry points of other packages; once in a process."""
    global _discovered
    if _discovered:
        return
    _discovered = True  # before the imports, during which a module may query methods
    for name in BUILT_IN:
        importlib.import_module(f"hetsched.{name}")
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS) if plug_ins else ():
        try:
            entry.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: a plug-in must not end this process
            reason = str(error) if isinstance(error, Exception) else repr(error)
            warn(f"methods of entry point {entry.name!r} ({entry.value}) cannot be loaded: {reason}", UserWarning)


@contextlib.contextmanager
def temporarily(*methods: Method) -> Iterator[None]:
    """Register methods in the context, in place of those of the same name; restore the registry at its end."""
    discover()
    before = dict(_registry)
    _registry.update({added.name: added for added in methods})
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
    """Return a registered method; raise `UnsupportedFeature` with the available names for another."""
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
        Only methods that minimise it.
    role : Role, optional
        Only methods that have it.
    auto : bool
        Only default members of `auto`.
    problem : Problem, optional
        Only methods that support it and whose condition, of their role or of `auto`, holds for it.
    """
    discover()
    chosen = []
    for candidate in sorted(_registry.values(), key=lambda candidate: (candidate.turn, candidate.name)):
        fits = (kind is None or candidate.kind is kind) and (objective is None or objective in candidate.objectives)
        if not fits or (role is not None and role not in candidate.roles) or (auto and candidate.auto is None) or not candidate.available:
            continue
        if problem is not None:
            conditions = [candidate.roles[role]] if role is not None else []
            conditions += [candidate.auto.when] if auto and candidate.auto is not None else []
            if candidate.supports.refusal(problem) or not all(condition(problem) for condition in conditions):
                continue
        chosen.append(candidate)
    return chosen


@checked
def exact(solver: str, objective: str = "makespan") -> Method:
    """Return the exact method of a solver for an objective.

    It is the method whose models that solver solves, else the method of that name, else the default member of
    `auto` for the objective that has an option ``solver``.

    Raises `UnsupportedFeature` if there is none.
    """
    fitting = [candidate for candidate in registered().values() if candidate.kind is Kind.EXACT and objective in candidate.objectives]
    conditions: tuple[Callable[[Method], bool], ...] = (
        lambda candidate: candidate.solver == solver,
        lambda candidate: candidate.name == solver,
        lambda candidate: candidate.auto is not None and not candidate.distributes and "solver" in candidate.options,
    )
    for condition in conditions:
        for candidate in fitting:
            if condition(candidate):
                return candidate
    solvers = sorted({candidate.solver or candidate.name for candidate in fitting})
    raise UnsupportedFeature(f"no exact method for the {objective} uses solver {solver!r}; choose from {', '.join(solvers)}")
