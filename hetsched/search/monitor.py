"""The frame of every search: budget, monitor, incumbent, bound, solution, registry of methods."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import inspect
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import Columns, texts
from hetsched.errors import InconsistentBound, InvalidSchedule, OutOfTime, UnsupportedFeature, warn
from hetsched.problem.graph import unique_names
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.objectives import OBJECTIVES, find_objective
from hetsched.schedule.schedule import Schedule
from hetsched.search.solution import NO_BOUND, OPTIMALITY_GAP, BestEffort, Bound, Solution, relative_gap
from hetsched.stopping import Clock, Deadline, Stop

if TYPE_CHECKING:
    from concurrent.futures import Executor

TOLERANCE = 1e-9
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
    "heuristics.placement.clustering",
    "heuristics.placement.repartition",
    "heuristics.multilevel",
    "models.methods",
    "decomposition.split",
    "bounds.methods",
    "portfolio.auto",
)
"""Modules below `hetsched` that register methods when they are imported."""


@dataclass(frozen=True)
class Event:
    """News of a running solve: a better schedule (`incumbent` fell) or a better bound."""

    time: float
    """Seconds since the start of the solve."""
    incumbent: float
    """Value of the best schedule so far (its makespan, unless another objective was asked for), inf before the first."""
    bound: float
    source: str
    """The method or bound it comes from."""
    nodes: int = 0
    """Nodes or branches that a solver has explored."""

    @property
    def gap(self) -> float:
        """(incumbent - bound) / incumbent; 1 before the first schedule."""
        return relative_gap(self.incumbent, self.bound)


@checked
@dataclass(frozen=True)
class Budget:
    """What a solve may spend: seconds of wall time, schedule evaluations; None for no limit."""

    time_limit: float | None = None
    evaluations: int | None = None


@dataclass
class _Effort:
    """What one method did in a solve."""

    value: float = math.inf
    evaluations: int = 0
    seconds: float = 0.0


class MethodFunction(Protocol):
    """A scheduling method: offers decisions to the monitor until it is done or told to stop."""

    def __call__(self, problem: Problem, monitor: Monitor, /, **options: Any) -> None: ...


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


class Monitor:
    """What a running method talks to.

    It simulates the decisions offered, keeps the best schedule and the best bound, writes the
    history, tells the callback, and says when to stop.

    Parameters
    ----------
    problem : Problem
    budget : Budget
    seed : int
    on_progress : callable, optional
        Called with an `Event` at every improvement; returning True stops the solve.
    parent : Monitor, optional
        The monitor of the solve this one is part of; its stop is this one's too.
    objective : "makespan", "period" or "max-load"
        What schedules are compared by; bounds on anything else are passed over.
    executor : concurrent.futures.Executor, optional
        Where a method may have parts of its work done.
    clock : callable
        Returns seconds; a test may give one that it advances. A part of another solve has its parent's.

    Attributes
    ----------
    best : Schedule or None
    incumbent : float
        Value of the best schedule so far, inf before the first.
    bound : Bound
    deadline : Deadline
        When the solve, and all that it is part of, has to end.
    nodes : int
        Nodes or branches explored, for methods that count them.
    rng : numpy.random.Generator
    """

    @checked
    def __init__(
        self,
        problem: Problem,
        budget: Budget = Budget(),
        *,
        seed: int = 0,
        on_progress: Callable[[Event], object] | None = None,
        parent: Monitor | None = None,
        objective: str = "makespan",
        executor: Executor | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.value_of = find_objective(objective)
        self.objective = objective
        self.problem = problem
        self.budget = budget
        self.seed = seed
        self.executor = executor
        self.best: Schedule | None = None
        self.incumbent = math.inf
        self.bound = replace(NO_BOUND, objective=objective)
        self.source = ""
        self.evaluations = 0
        self.nodes = 0
        self._found_by = ""
        self._nearest: tuple[float, Schedule] | None = None  # bytes over capacity, and the schedule that is least so
        self._on_progress = on_progress
        self._parent = parent
        self._events: list[Event] = []
        self._efforts: dict[str, _Effort] = {}
        self._messages: dict[str, None] = {}
        self._stopped = Stop.NONE
        self._cut_short = False  # a method gave up for want of time, maybe before the limit
        self.clock: Clock = clock if parent is None else parent.clock
        self._started = self.clock()
        own = Deadline.after(budget.time_limit, self.clock)
        self.deadline: Deadline = own if parent is None else own.earlier(parent.deadline)
        self._rng: np.random.Generator | None = None

    @property
    def rng(self) -> np.random.Generator:
        """The only source of randomness a method may use."""
        if self._rng is None:
            self._rng = np.random.default_rng(self.seed)
        return self._rng

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.clock() - self._started

    @property
    def time_left(self) -> float:
        """Seconds until the time limit, inf without one."""
        return self.deadline.left

    @checked
    def time_limit(self, share: float = 1.0) -> float | None:
        """Return the time limit of what the method calls now: a share of the seconds left, None without a limit."""
        return self.deadline.part(share).limit

    @property
    def stopped(self) -> Stop:
        """Why the method has to stop; `Stop.NONE`, an empty string, while it may go on."""
        if not self._stopped:
            if self.best is not None and relative_gap(self.incumbent, self.bound.value) <= OPTIMALITY_GAP:
                self._stopped = Stop.OPTIMAL
            elif math.isinf(self.bound.value):
                self._stopped = Stop.INFEASIBLE
            elif self.deadline.over:
                self._stopped = Stop.TIME_LIMIT
            elif self.budget.evaluations is not None and self.evaluations >= self.budget.evaluations:
                self._stopped = Stop.EVALUATIONS
            elif self._parent is not None:
                self._stopped = self._parent.stopped
        return self._stopped

    @property
    def should_stop(self) -> bool:
        """Whether the method has to stop soon."""
        return bool(self.stopped)

    @checked
    def stop(self, reason: Stop) -> None:
        """Ask the method to stop."""
        self._stopped = self._stopped or reason

    @checked
    def note(self, message: str) -> None:
        """Record something the user should read, once; an empty message is none."""
        if not message:
            return
        self._messages.setdefault(f"{self.source}: {message}" if self.source else message)

    @checked
    def evaluated(self, count: int) -> None:
        """Count evaluations a method made by itself (an offer counts as one already)."""
        self.evaluations += count
        self._effort.evaluations += count

    @checked
    def credit(self, method: str, *, value: float = math.inf, evaluations: int = 0, seconds: float = 0.0) -> None:
        """Count what a method did outside this monitor, in another process for instance; `value` is the best it found."""
        effort = self._efforts.setdefault(method, _Effort())
        effort.value = min(effort.value, value)
        effort.evaluations += evaluations
        effort.seconds += seconds
        self.evaluations += evaluations

    @property
    def _effort(self) -> _Effort:
        return self._efforts.setdefault(self.source, _Effort())

    @checked
    def offer(self, decision: Decision) -> float:
        """Simulate a decision and keep its schedule if it is valid and the best so far.

        Returns
        -------
        float
            Its value, that is its makespan in seconds unless another objective was asked for; inf if it
            needs more memory than there is, which is noted; of these the one nearest to it is kept as a best effort.

        Raises
        ------
        InvalidSchedule
            The decision breaks another rule, see `simulate`.
        """
        from hetsched.schedule import memory
        from hetsched.schedule.simulate import simulate

        schedule = simulate(self.problem, decision)
        self.evaluated(1)
        needed = memory.needed(self.problem, schedule)
        over = memory.over_capacity(self.problem, needed)
        if over.any():
            if self._nearest is None or over.sum() < self._nearest[0]:
                self._nearest = float(over.sum()), schedule
            k = int(over.argmax())
            self.note(
                f"a decision needs {needed[k]:.6g} bytes on {self.problem.cluster.names[k]!r}, "
                f"{over[k]:.6g} more than there are ({self.problem.memory} memory)"
            )
            return math.inf
        value = self.value_of(self.problem, schedule)
        self._effort.value = min(self._effort.value, value)
        if value < self.incumbent:
            self.best, self.incumbent, self._found_by = schedule, value, self.source
            self._check_bound()
            self._tell(self.source)
        return value

    @checked
    def raise_bound(self, bound: Bound) -> None:
        """Record a lower bound if it is the best so far; one on another objective tells at most that there is no schedule."""
        if bound.objective != self.objective and not math.isinf(bound.value):
            return
        if bound.value > self.bound.value:
            self.bound = replace(bound, objective=self.objective)
            self._check_bound()
            self._tell(bound.name)

    def _check_bound(self) -> None:
        if self.bound.value > self.incumbent * (1 + TOLERANCE):
            raise InconsistentBound(
                f"bound {self.bound.name!r} = {self.bound.value!r} s lies above the {self.objective} {self.incumbent!r} s that "
                f"{self._found_by!r} found: one of them is wrong; please report it with the problem's document"
            )

    def _tell(self, source: str) -> None:
        event = Event(self.elapsed, self.incumbent, self.bound.value, source, self.nodes)
        self._events.append(event)
        if self._on_progress is not None and self._on_progress(event) is True:
            self.stop(Stop.CALLBACK)

    @checked
    def run(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        """Run a registered method on this problem, its finds coming here under its name; `OutOfTime` ends it with a note.

        Raises `UnsupportedFeature` if the method does not take the problem or an option.
        """
        chosen, options = find_method(name), options or {}
        chosen.check_options(options)
        refusal = chosen.supports.refusal(self.problem)
        if refusal:
            raise UnsupportedFeature(refusal)
        before, self.source = self.source, name
        started = self.elapsed
        try:
            chosen.function(self.problem, self, **options)
        except OutOfTime as spent:
            self.note(str(spent))
            self._cut_short = True
        finally:
            took = self.elapsed - started
            self._effort.seconds += took
            self.source = before
            if before:
                self._effort.seconds -= took  # the caller's share is without that of what it called

    @checked
    def attempt(self, name: str) -> None:
        """Run a registered method; what it refuses is noted."""
        try:
            self.run(name)
        except UnsupportedFeature as refusal:
            self.note(f"{name}: {refusal}")

    @checked
    def subsolve(
        self,
        problem: Problem,
        method: str,
        *,
        time_limit: float | None = None,
        evaluations: int | None = None,
        start: Solution | Schedule | Decision | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Solution:
        """Solve another problem for the same objective by a method's name, within this solve's time and stop."""
        if self.budget.evaluations is not None:
            left = max(0, self.budget.evaluations - self.evaluations)
            evaluations = left if evaluations is None else min(left, evaluations)
        child = Monitor(problem, Budget(time_limit, evaluations), seed=int(self.rng.integers(2**31)), parent=self, objective=self.objective)
        found = child.run_alone(method, start, options)
        self.evaluations += child.evaluations
        return found

    @checked
    def run_alone(
        self, method: str, start: Solution | Schedule | Decision | None = None, options: Mapping[str, Any] | None = None
    ) -> Solution:
        """Run a single method from a start and return what it found."""
        self.warm_start(start)
        if not self.should_stop:
            self.run(method, options)
        return self.solution(method)

    @checked
    def warm_start(self, start: Solution | Schedule | Decision | None) -> None:
        """Offer what an earlier solve left."""
        if isinstance(start, Solution):
            start = start.schedule
        if isinstance(start, Schedule):
            theirs, ours = (start.tasks, start.devices, start.n_inputs), (self.problem.graph.names, self.problem.cluster.names)
            if theirs != (*ours, self.problem.inputs):
                raise InvalidSchedule(
                    f"the start is a schedule of {len(start.tasks)} tasks, {len(start.devices)} devices and {start.n_inputs} inputs "
                    "that are not those of this problem; start from a schedule of the same tasks and devices"
                )
            start = start.decision
        if start is not None:
            before, self.source = self.source, "start"
            self.offer(start)
            self.source = before

    @checked
    def solution(self, asked: str) -> Solution:
        """Return what has been found; `asked` names the method where nothing was."""
        events = self._events
        history = Columns(
            time=[event.time for event in events],
            incumbent=[event.incumbent for event in events],
            bound=[event.bound for event in events],
            source=texts(event.source for event in events),
        )
        efforts = {name: effort for name, effort in self._efforts.items() if name}
        methods = Columns(
            method=texts(efforts),
            makespan=[effort.value for effort in efforts.values()],
            evaluations=np.array([effort.evaluations for effort in efforts.values()], np.int64),
            seconds=[effort.seconds for effort in efforts.values()],
        )
        stopped = self.stopped or (Stop.TIME_LIMIT if self._cut_short else Stop.FINISHED)
        return Solution(
            self.best,
            self.bound,
            method=self._found_by or asked,
            seed=self.seed,
            history=history,
            methods=methods,
            messages=self._messages,
            stopped=stopped,
            objective=self.objective,
            value=self.incumbent,
            best_effort=self._effort_over(),
        )

    def _effort_over(self) -> BestEffort | None:
        """Return what is nearest to the memory there is where nothing is within it."""
        if self.best is not None or self._nearest is None:
            return None
        from hetsched.verification.verify import verify

        schedule = self._nearest[1]
        return BestEffort(schedule, tuple(verify(self.problem, schedule)))

    def __iter__(self) -> Iterator[int]:
        """Count 0, 1, 2, ... until the method has to stop: ``for step in monitor``."""
        step = 0
        while not self.should_stop:
            yield step
            step += 1


def cores() -> int:
    """Return how many cores this process may use: those it may run on, or fewer where a container has less time."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(count, round(int(quota) / int(period))))
    except (OSError, ValueError):  # there are no such groups, or the quota is "max"
        return count
