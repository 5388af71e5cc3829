"""The base class of formulations: a problem, a model, components, and the conversion of decisions to values and back."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from hetsched.analysis import model_size
from hetsched.analysis.closure import ancestors, unordered
from hetsched.analysis.levels import Levels, Windows
from hetsched.arguments import checked, shown
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.errors import InvalidModel, InvalidSchedule, OutOfTime, SolverFailed, UnsupportedFeature
from hetsched.modeling.backends import info
from hetsched.modeling.backends.protocol import SOLVER, Backend, Request
from hetsched.modeling.model import Model
from hetsched.modeling.outcome import Incumbent, NewBound, Outcome
from hetsched.modeling.settings import SolveSettings
from hetsched.models.decoding import decode
from hetsched.models.variables import AssignmentVariables, FlowVariables, Objective, TimeVariables, Values
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate
from hetsched.search import Budget, Event, Kind, Monitor, Role, Supports, select
from hetsched.search.solution import Bound, Solution
from hetsched.stopping import NEVER, Deadline, Stop

V = TypeVar("V")
SEARCHED, EVALUATIONS, SHARE = 100, 1000, 0.05
"""The most tasks for which a search follows list schedulers, its evaluations for each task, and its share of the time."""
SLACK = 1e-9  # relative slack of the upper bound: a schedule of exactly that length stays feasible
COLUMN, PAIR = 1e-6, 2e-8
"""Estimated seconds to make a column with its terms, and to compare a pair of tasks."""


class Component(ABC):
    """A part of a formulation: columns, rows, and their values for a schedule.

    Columns for other components are provided as a frozen record, see `Formulation.provide`, which they get by
    its class, see `Formulation.variables`. An instance belongs to one formulation.
    """

    @abstractmethod
    def add_to(self, f: Formulation) -> None:
        """Add its columns and rows to ``f.model``."""

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:  # noqa: B027  # most components make no columns
        """Set the values of its columns for a schedule; values that are not set stay unknown (NaN)."""

    def canonical(self, problem: Problem, schedule: Schedule) -> Decision:
        """Return an equivalent decision that satisfies its rows, if these choose among equivalent decisions."""
        return schedule.decision


class Formulation(ABC):
    """A problem as a mixed-integer model, made of components.

    One second of the problem is `second` units of the model's time, so that the upper bound is a few
    thousand at every scale of the problem, for the tolerances of solvers are absolute.

    Parameters
    ----------
    problem : Problem
    faithful : bool
        The paper's literal form instead of the tightened one.
    upper : float, optional
        Seconds; longer schedules are excluded. Default: the best makespan of some list schedulers.
    symmetry : "batches", "tasks" or "time", optional
        Order identical devices, nodes and inputs by this criterion, see `redundant.DeviceOrder`. Default
        None, for rows of the user may distinguish them.
    components : iterable, optional
        Components in place of those of the formulation, see `recipe`.
    deadline : Deadline, optional
        The time by which the model must be complete; steps that would take longer are refused.

    Attributes
    ----------
    model : Model
    components : list
    upper : float
        Seconds.
    levels : Levels
    windows : Windows
        Devices and intervals of tasks in schedules of that length.
    deadline : Deadline

    Raises
    ------
    UnsupportedFeature
        The formulation does not cover the problem.
    OutOfTime
        The model cannot be made by the deadline.
    """

    name = "formulation"
    supports = Supports(memory=("static",))
    """The problems that the formulation covers."""

    @checked
    def __init__(
        self,
        problem: Problem,
        *,
        faithful: bool = False,
        upper: float | None = None,
        symmetry: str | None = None,
        components: Iterable[Component] | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        self.check(problem, faithful=faithful)
        columns = self.columns(problem)
        deadline.require(COLUMN * columns, f"making a model of about {columns:,} columns")
        if components is not None and symmetry is not None:
            raise UnsupportedFeature(
                f"symmetry={symmetry!r} and components are both given; add hs.models.redundant.DeviceOrder({symmetry!r}) to the components"
            )
        self.problem, self.faithful, self.symmetry, self.deadline = problem, faithful, symmetry, deadline
        self.model = Model(deadline=deadline)
        self.known: Solution | None = None
        if upper is None:
            self.known = quick(problem, deadline)
            upper = self.known.makespan
        if math.isinf(upper):
            upper = longest(problem)
        self.upper = upper * (1 + SLACK)
        self.second = 10.0 ** (3 - math.floor(math.log10(self.upper))) if self.upper > 0 else 1.0
        self.levels = Levels(problem)
        self.windows: Windows = self.levels.windows(self.upper)
        self.components: list[Component] = []
        self._records: dict[type, object] = {}
        self._adding = ""
        for component in self.recipe() if components is None else components:
            self.add(component)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.problem.n_tasks} tasks: {self.model!r}>"

    @classmethod
    @checked
    def check(cls, problem: Problem, *, faithful: bool = False) -> None:
        """Raise `UnsupportedFeature` if the formulation, or with `faithful` its literal form, does not cover the problem."""
        refusal = cls.supports.refusal(problem)
        if refusal:
            raise UnsupportedFeature(f"{cls.name}: {refusal}")

    @classmethod
    @checked
    def columns(cls, problem: Problem) -> int:
        """Return the approximate number of columns of the model, without those for the order of tasks."""
        return model_size.assignments(problem) + model_size.flows(problem) * problem.inputs

    @abstractmethod
    def recipe(self) -> Iterator[Component]:
        """Yield the components of the formulation, in order."""

    @checked
    def add(self, component: Component) -> None:
        """Add a component."""
        self._adding = type(component).__name__
        component.add_to(self)
        self.components.append(component)

    # Records shared by components

    def provide(self, record: object) -> None:
        """Provide a record of variables to later components; raise `InvalidModel` if there is one of its class."""
        if type(record) in self._records:
            raise InvalidModel(f"there are {type(record).__name__} already; leave out one of the components that provide them")
        self._records[type(record)] = record

    def variables(self, kind: type[V]) -> V:
        """Return the record of a class; raise `InvalidModel` if no component provides it."""
        if not isinstance(kind, type):
            raise InvalidModel(f"kind is {shown(kind)}; it must be the class of a record, such as TimeVariables")
        record = self._records.get(kind)
        if not isinstance(record, kind):
            makers = getattr(kind, "made_by", "the component that provides them")
            raise InvalidModel(f"{self._adding or type(self).__name__} needs {kind.__name__}; put {makers} before it")
        return record

    @property
    def assign(self) -> AssignmentVariables:
        """The assignment."""
        return self.variables(AssignmentVariables)

    @property
    def times(self) -> TimeVariables:
        """The times of tasks."""
        return self.variables(TimeVariables)

    @property
    def flows(self) -> FlowVariables:
        """The transfers."""
        return self.variables(FlowVariables)

    @property
    def objective(self) -> Objective:
        """The objective of the formulation."""
        return self.variables(Objective)

    @checked
    def minimise(self, objective: Objective) -> None:
        """Provide the objective and set it in the model."""
        self.provide(objective)
        self.model.minimise(objective.expression)

    @property
    def ticks(self) -> float:
        """The upper bound in the model's time."""
        return self.upper * self.second

    @property
    def possible(self) -> BoolArray:
        """Possible devices of tasks, unless `faithful` those in schedules within the upper bound, [n, K]."""
        if self.faithful:
            return self.problem.eligible & np.isfinite(self.problem.durations).any(axis=2)
        windows = self.windows
        return self.problem.eligible & windows.possible & np.isfinite(windows.start) & np.isfinite(windows.finish)

    def unordered_pairs(self) -> IntArray:
        """Return the pairs of tasks without a path between them, [P, 2]; raise `OutOfTime` if there is no time for all pairs."""
        self.deadline.require(PAIR * self.problem.n_tasks**2, f"comparing {self.problem.n_tasks:,} tasks with one another")
        before = ancestors(self.problem.graph, self.deadline)
        return unordered(len(before), lambda some: before[some] | before[:, some].T, self.deadline)

    # From decisions to values and back

    @checked
    def encode(self, decision: Decision | Schedule | Solution) -> FloatArray:
        """Return values of all columns for a decision, NaN if unknown.

        If rows order identical devices or inputs, these are exchanged first to satisfy the rows.

        Raises `InvalidSchedule` if its schedule is longer than the upper bound, or if the literal form for
        several inputs excludes it.
        """
        schedule = simulate(self.problem, _decision(decision))
        for component in self.components:
            canonical = component.canonical(self.problem, schedule)
            if canonical is not schedule.decision:
                schedule = simulate(self.problem, canonical)
        if not self.representable(schedule):
            raise InvalidSchedule(
                f"the schedule is {schedule.makespan:.6g} s long and has {len(schedule.batches)} batches; the model covers schedules up to "
                f"{self.upper:.6g} s with one batch of a task on a device; make the formulation with a larger `upper`"
            )
        values = np.full(self.model.program.n_columns, np.nan)
        for component in self.components:
            component.fill(self, schedule, Values(values))
        if self.faithful and self.problem.inputs > 1 and self.model.violations(values, tolerance=1e-5):
            raise InvalidSchedule(
                "the literal form orders batches without a common input, which excludes this schedule; use the tightened one"
            )
        return values

    @checked
    def representable(self, schedule: Schedule) -> bool:
        """Return whether the model covers a schedule: within the upper bound, and at most one batch of a task on a device."""
        pair = schedule.batches.task * len(schedule.devices) + schedule.batches.device
        return schedule.makespan <= self.upper and len(np.unique(pair)) == len(pair)

    @checked
    def decode(self, values: FloatArray) -> Decision:
        """Return the decision for values of the columns; `simulate` computes its times."""
        x = self.assign.x.value(values) > 0.5
        times, flows = self._records.get(TimeVariables), self._records.get(FlowVariables)
        moments = (times.start.value(values), times.finish.value(values)) if isinstance(times, TimeVariables) else None
        ordered = isinstance(flows, FlowVariables) and self.problem.links.contended
        transfers = (self.flows.leave.value(values), self.flows.arrive.value(values)) if ordered else None
        return decode(self.problem, x, moments, transfers)

    # Solving

    @checked
    def solve(
        self,
        solver: str = "scip",
        *,
        time_limit: float | None = None,
        gap: float = 0.0,
        threads: int | None = None,
        seed: int = 0,
        start: Solution | Schedule | Decision | None = None,
        cuts: bool = True,
        on_progress: Callable[[Event], object] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Solution:
        """Solve the formulation; parameters are those of ``Model.solve`` and of ``hetsched.solve``.

        Schedules get their times from `simulate`; the bound is the solver's, less its tolerance.
        """
        monitor = Monitor(self.problem, Budget(time_limit), seed=seed, on_progress=on_progress)
        settings = SolveSettings(monitor.deadline, gap, threads, seed, cuts, dict(options or {}))
        try:
            self.run(monitor, solver, settings, start=start)
        except (OutOfTime, SolverFailed) as failure:
            monitor.note(str(failure))
        return monitor.solution(self.name)

    @checked(solver=SOLVER)
    def run(
        self, monitor: Monitor, solver: str | Backend, settings: SolveSettings, *, start: Solution | Schedule | Decision | None = None
    ) -> Outcome:
        """Solve under a monitor, which receives schedules and bounds as they are found."""
        if isinstance(solver, str):
            name, capabilities = solver, info(solver, threads=settings.threads).capabilities
        else:
            name, capabilities = solver.name, solver.capabilities
        tolerance = capabilities.bound_tolerance
        monitor.source, monitor.nodes = monitor.source or self.name, 0
        hint = None
        for begin in (self.known, start):
            monitor.deadline.check(f"the reading of a start into {self.model!r}")
            hint = self._begin(monitor, begin, hint)
        own_objective = self.is_ours

        def incumbent(event: Incumbent) -> bool:
            if own_objective:
                monitor.nodes = event.nodes
                monitor.offer(self.decode(event.values))
            return False

        def bound(event: NewBound) -> bool:
            if own_objective:
                monitor.nodes = event.nodes
                self._raise_bound(monitor, event.bound, name, tolerance)
            return False

        outcome = self.model.run(solver, Request(settings, hint, incumbent, bound, lambda: monitor.should_stop))
        if outcome.values is not None:
            monitor.offer(self.decode(outcome.values))
        if outcome.stopped is Stop.GAP:
            monitor.stop(Stop.GAP)
        if outcome.proven == "infeasible" and not self.bounds_problem:
            literal = ", and the literal form orders all batches" if self.faithful else ""
            monitor.note(f"the model has no solution, but it has only one batch of a task on a device{literal}; use a search")
        if own_objective or outcome.proven == "infeasible":
            self._raise_bound(monitor, outcome.bound, name, tolerance)
        outcome.raise_for_failure()
        monitor.note(outcome.detail)
        return outcome

    def _begin(self, monitor: Monitor, begin: Solution | Schedule | Decision | None, hint: FloatArray | None) -> FloatArray | None:
        """Offer a start that satisfies every row, also those of the user, and return the better hint."""
        if begin is None or (isinstance(begin, Solution) and begin.schedule is None):
            return hint
        schedule = simulate(self.problem, _decision(begin))
        try:
            values = self.encode(schedule)
        except InvalidSchedule:
            return hint
        if np.isfinite(values).all() and self.model.violations(values, tolerance=1e-5):
            return hint
        if self.is_ours and np.isfinite(values).all() and monitor.value_of(self.problem, schedule) < monitor.incumbent:
            with monitor.as_source(begin.method if isinstance(begin, Solution) else "start"):
                monitor.offer(schedule.decision)
            return values
        return values if hint is None else hint

    def _raise_bound(self, monitor: Monitor, value: float, solver: str, tolerance: float) -> None:
        """Raise the bound to a solver's, in the model's units, but not beyond the upper bound."""
        if not (value > 0 and self.bounds_problem):
            return
        name, objective = f"{self.name} by {solver}", self._records.get(Objective)
        minimised = objective.name if isinstance(objective, Objective) else "makespan"
        if math.isinf(value) and self.upper >= longest(self.problem):
            monitor.raise_bound(Bound(math.inf, name, "proven: no schedule keeps every rule", minimised, "solver"))
            return
        lower = self.objective.bound(value, tolerance)
        if minimised == "makespan":  # the model excludes schedules longer than the upper bound
            lower = min(lower, self.upper / (1 + SLACK))
        monitor.raise_bound(Bound(lower, name, f"dual bound of {self.model!r}", minimised, "solver"))

    @property
    def is_ours(self) -> bool:
        """Whether the objective of the model is that of the formulation, not one of the user."""
        objective = self._records.get(Objective)
        return isinstance(objective, Objective) and self.model.objective is objective.expression

    @property
    def bounds_problem(self) -> bool:
        """Whether a bound on the formulation is one on the problem: with several inputs the literal form
        excludes some schedules, and every form those with several batches of a task on a device."""
        return self.problem.inputs == 1 or (self.problem.batching == "once" and not self.faithful)


def _decision(given: Solution | Schedule | Decision) -> Decision:
    schedule = given.schedule if isinstance(given, Solution) else given
    if schedule is None:
        raise InvalidSchedule("the solution holds no schedule to start from")
    return schedule.decision if isinstance(schedule, Schedule) else schedule


def quick(problem: Problem, deadline: Deadline = NEVER, *, search: bool = True) -> Solution:
    """Return the best solution of some list schedulers, possibly without a schedule; the first one always runs.

    With `search` a short one follows where it costs little, for up to 100 tasks, one input and no contention.
    """
    monitor = Monitor(problem, Budget(deadline.limit), clock=deadline.clock)
    for method in select(role=Role.UPPER, problem=problem):
        start = deadline.clock()
        monitor.attempt(method.name)
        if deadline.left < 2 * (deadline.clock() - start):  # the next takes about as long, and its schedule is simulated again
            break
    small = search and problem.inputs == 1 and problem.n_tasks <= SEARCHED and not problem.links.contended
    if small and monitor.best is not None and not monitor.should_stop:
        first = select(kind=Kind.SEARCH, objective="makespan", auto=True)[0]
        better = monitor.subsolve(
            problem, first.name, time_limit=monitor.time_limit(SHARE), evaluations=EVALUATIONS * problem.n_tasks, start=monitor.best
        )
        if better.schedule is not None:
            monitor.offer(better.schedule.decision)
    return monitor.solution("list schedulers")


def longest(problem: Problem) -> float:
    """Return an upper bound on the makespan of semi-active schedules: all tasks and transfers one after another."""
    durations = np.where(np.isfinite(problem.durations), problem.durations, 0.0)
    every = np.arange(problem.n_devices)
    edge = np.arange(problem.graph.n_edges)
    work = durations.max(axis=2).sum() if problem.inputs > 1 else durations.max(axis=(1, 2)).sum()
    if not len(edge):
        return float(work) or 1.0
    times = problem.transfer_times(edge[:, None, None], every[:, None], every, problem.inputs)
    finite = np.where(np.isfinite(times), times, 0.0)
    return float(work + (finite.max(axis=(1, 2)) * problem.inputs).sum()) or 1.0
