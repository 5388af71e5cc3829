"""The frame of every formulation: a problem, a model, components, and the way from decisions to values and back."""

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
from hetsched.search import Budget, Event, Monitor, Role, Supports, select
from hetsched.search.solution import Bound, Solution
from hetsched.stopping import NEVER, Deadline, Stop

V = TypeVar("V")
SLACK = 1e-9  # relative, of the upper bound: a schedule as long as it stays feasible
COLUMN, PAIR = 1e-6, 2e-8
"""Seconds that making a column with its terms, and looking at a pair, take on an ordinary machine."""


class Component(ABC):
    """A part of a formulation: columns, rows, and how their values follow from a schedule.

    Columns that other components need it provides as a frozen record, see `Formulation.provide`; by its class
    they ask for it, see `Formulation.variables`. An instance belongs to one formulation.
    """

    @abstractmethod
    def add_to(self, f: Formulation) -> None:
        """Add its columns and rows to ``f.model``."""

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:  # noqa: B027  # most components make no columns
        """Set the values of the columns it made for a schedule; those it does not set stay unknown (NaN)."""

    def canonical(self, problem: Problem, schedule: Schedule) -> Decision:
        """Return an equivalent decision that keeps its rows, where they choose among equivalent ones."""
        return schedule.decision


class Formulation(ABC):
    """A problem as a mixed-integer model, made of components.

    Times in the model are in units of `second` to the second, so that the upper bound is some
    thousands, whatever the problem's scale: solvers' tolerances are absolute.

    Parameters
    ----------
    problem : Problem
    faithful : bool
        The paper's literal form instead of ours.
    upper : float, optional
        Seconds: schedules longer than this are cut off. Default: the best of some list schedulers.
    symmetry : "batches", "tasks" or "time", optional
        Put identical devices, nodes and inputs in order by this criterion, see `redundant.DeviceOrder`.
        Left out unless asked for: rows of your own may tell them apart.
    components : iterable, optional
        Instead of those of the formulation, see `recipe`.
    deadline : Deadline, optional
        By when the model has to be made; what would take longer is not begun.

    Attributes
    ----------
    model : Model
    components : list
    upper : float
        Seconds.
    levels : Levels
    windows : Windows
        Where and when tasks can run in a schedule of that length.
    deadline : Deadline

    Raises
    ------
    UnsupportedFeature
        The formulation cannot state the problem.
    OutOfTime
        The model cannot be made by the deadline.
    """

    name = "formulation"
    supports = Supports(memory=("static",))
    """The problems that can be stated."""

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
        self.check(problem)
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
    def check(cls, problem: Problem) -> None:
        """Raise `UnsupportedFeature` for what the formulation cannot say."""
        refusal = cls.supports.refusal(problem)
        if refusal:
            raise UnsupportedFeature(f"{cls.name}: {refusal}")

    @classmethod
    @checked
    def columns(cls, problem: Problem) -> int:
        """Return about how many columns the model of a problem has, orders of tasks not counted."""
        return model_size.assignments(problem) + model_size.flows(problem) * problem.inputs

    @abstractmethod
    def recipe(self) -> Iterator[Component]:
        """Yield the components the formulation is made of, in order."""

    @checked
    def add(self, component: Component) -> None:
        """Add a component."""
        self._adding = type(component).__name__
        component.add_to(self)
        self.components.append(component)

    # What components share

    def provide(self, record: object) -> None:
        """Make a record of variables known to the components that follow; raises `InvalidModel` if there is one of its class."""
        if type(record) in self._records:
            raise InvalidModel(f"there are {type(record).__name__} already; leave out one of the components that provide them")
        self._records[type(record)] = record

    def variables(self, kind: type[V]) -> V:
        """Return the record of a class; raises `InvalidModel` if no component provides it."""
        if not isinstance(kind, type):
            raise InvalidModel(f"kind is {shown(kind)}; it must be the class of a record, such as TimeVariables")
        found = self._records.get(kind)
        if not isinstance(found, kind):
            makers = getattr(kind, "made_by", "the component that provides them")
            raise InvalidModel(f"{self._adding or type(self).__name__} needs {kind.__name__}; put {makers} before it")
        return found

    @property
    def assign(self) -> AssignmentVariables:
        """Which device runs what."""
        return self.variables(AssignmentVariables)

    @property
    def times(self) -> TimeVariables:
        """When tasks run."""
        return self.variables(TimeVariables)

    @property
    def flows(self) -> FlowVariables:
        """The transfers."""
        return self.variables(FlowVariables)

    @property
    def objective(self) -> Objective:
        """What the formulation minimises by itself."""
        return self.variables(Objective)

    @checked
    def minimise(self, objective: Objective) -> None:
        """Provide the objective and set it as that of the model."""
        self.provide(objective)
        self.model.minimise(objective.expression)

    @property
    def ticks(self) -> float:
        """The upper bound in the model's time."""
        return self.upper * self.second

    @property
    def possible(self) -> BoolArray:
        """[n, K]: where tasks can run at all, and unless `faithful` in a schedule no longer than the upper bound."""
        if self.faithful:
            return self.problem.eligible & np.isfinite(self.problem.durations).any(axis=2)
        found = self.windows
        return self.problem.eligible & found.possible & np.isfinite(found.start) & np.isfinite(found.finish)

    def unordered_pairs(self) -> IntArray:
        """Return the pairs of tasks that no path joins, [P, 2]; raises `OutOfTime` where there is none to look at all pairs."""
        self.deadline.require(PAIR * self.problem.n_tasks**2, f"comparing {self.problem.n_tasks:,} tasks with one another")
        before = ancestors(self.problem.graph, self.deadline)
        return unordered(len(before), lambda some: before[some] | before[:, some].T, self.deadline)

    # From decisions to values and back

    @checked
    def encode(self, decision: Decision | Schedule | Solution) -> FloatArray:
        """Return values of all columns for a decision, those nobody knows NaN.

        Where rows put identical devices or inputs in order, they trade places first.

        Raises `InvalidSchedule` if its schedule is longer than the upper bound, or one of those that the
        literal form forbids for several inputs.
        """
        schedule = simulate(self.problem, _decision(decision))
        for component in self.components:
            canonical = component.canonical(self.problem, schedule)
            if canonical is not schedule.decision:
                schedule = simulate(self.problem, canonical)
        if not self.representable(schedule):
            raise InvalidSchedule(
                f"the schedule is {schedule.makespan:.6g} s long and has {len(schedule.batches)} batches; the model has those up to "
                f"{self.upper:.6g} s with one batch of a task on a device; make the formulation with a larger `upper`"
            )
        values = np.full(self.model.program.n_columns, np.nan)
        for component in self.components:
            component.fill(self, schedule, Values(values))
        if self.faithful and self.problem.inputs > 1 and self.model.violations(values, tolerance=1e-5):
            raise InvalidSchedule("the literal form orders batches that share no input and so forbids this schedule; use the tightened one")
        return values

    @checked
    def representable(self, schedule: Schedule) -> bool:
        """Return whether a schedule is one of the model's: short enough, with one batch of a task on a device at most."""
        pair = schedule.batches.task * len(schedule.devices) + schedule.batches.device
        return schedule.makespan <= self.upper and len(np.unique(pair)) == len(pair)

    @checked
    def decode(self, values: FloatArray) -> Decision:
        """Return the decision that values of the columns stand for; `simulate` gives it its times."""
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

        The schedules are re-timed by `simulate`; the bound is the solver's, its tolerance taken off.
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
        """Solve under a monitor, which gets the schedules and bounds as they are found."""
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
        ours = self.is_ours

        def incumbent(found: Incumbent) -> bool:
            if ours:
                monitor.nodes = found.nodes
                monitor.offer(self.decode(found.values))
            return False

        def bound(found: NewBound) -> bool:
            if ours:
                monitor.nodes = found.nodes
                self._raise_bound(monitor, found.bound, name, tolerance)
            return False

        outcome = self.model.run(solver, Request(settings, hint, incumbent, bound, lambda: monitor.should_stop))
        if outcome.values is not None:
            monitor.offer(self.decode(outcome.values))
        if outcome.stopped is Stop.GAP:
            monitor.stop(Stop.GAP)
        if outcome.proven == "infeasible" and not self.bounds_problem:
            literal = ", and the literal form orders all batches" if self.faithful else ""
            monitor.note(f"the model has no solution, but it has only one batch of a task on a device{literal}; use a search")
        if ours or outcome.proven == "infeasible":
            self._raise_bound(monitor, outcome.bound, name, tolerance)
        outcome.raise_for_failure()
        monitor.note(outcome.detail)
        return outcome

    def _begin(self, monitor: Monitor, begin: Solution | Schedule | Decision | None, hint: FloatArray | None) -> FloatArray | None:
        """Offer a start that keeps every row, those of the user's own too, and return the better hint."""
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
        """Raise the bound by a solver's, in the model's units; nothing beyond the upper bound is claimed."""
        if not (value > 0 and self.bounds_problem):
            return
        name, objective = f"{self.name} by {solver}", self._records.get(Objective)
        minimised = objective.name if isinstance(objective, Objective) else "makespan"
        if math.isinf(value) and self.upper >= longest(self.problem):
            monitor.raise_bound(Bound(math.inf, name, "proven: no schedule keeps every rule", minimised))
            return
        least = self.objective.bound(value, tolerance)
        if minimised == "makespan":  # what is cut off is longer than the upper bound, so no more than that is known
            least = min(least, self.upper / (1 + SLACK))
        monitor.raise_bound(Bound(least, name, f"dual bound of {self.model!r}", minimised))

    @property
    def is_ours(self) -> bool:
        """Whether the objective of the model is that of the formulation, and not one of the user's own."""
        objective = self._records.get(Objective)
        return isinstance(objective, Objective) and self.model.objective is objective.expression

    @property
    def bounds_problem(self) -> bool:
        """Whether a bound on the formulation is one on the problem: for several inputs the literal form
        forbids some schedules, and every form those with more than one batch of a task on a device."""
        return self.problem.inputs == 1 or (self.problem.batching == "once" and not self.faithful)


def _decision(given: Solution | Schedule | Decision) -> Decision:
    found = given.schedule if isinstance(given, Solution) else given
    if found is None:
        raise InvalidSchedule("the solution holds no schedule to start from")
    return found.decision if isinstance(found, Schedule) else found


def quick(problem: Problem, deadline: Deadline = NEVER) -> Solution:
    """Return the best of some list schedulers, maybe without a schedule; at least the first has its time."""
    monitor = Monitor(problem, Budget(deadline.limit), clock=deadline.clock)
    for each in select(role=Role.UPPER, problem=problem):
        began = deadline.clock()
        monitor.attempt(each.name)
        if deadline.left < 2 * (deadline.clock() - began):  # the next takes about as long, and what is found is timed once more
            break
    return monitor.solution("list schedulers")


def longest(problem: Problem) -> float:
    """Return a length beyond which no semi-active schedule goes: all tasks and transfers one after another."""
    durations = np.where(np.isfinite(problem.durations), problem.durations, 0.0)
    every = np.arange(problem.n_devices)
    edge = np.arange(problem.graph.n_edges)
    work = durations.max(axis=2).sum() if problem.inputs > 1 else durations.max(axis=(1, 2)).sum()
    if not len(edge):
        return float(work) or 1.0
    times = problem.transfer_times(edge[:, None, None], every[:, None], every, problem.inputs)
    finite = np.where(np.isfinite(times), times, 0.0)
    return float(work + (finite.max(axis=(1, 2)) * problem.inputs).sum()) or 1.0
