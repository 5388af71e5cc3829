"""The frame of every formulation: a problem, a model, components, and the way from decisions to values and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from hetsched.analysis import model_size
from hetsched.analysis.closure import ancestors, unordered
from hetsched.analysis.levels import Windows, windows
from hetsched.arguments import checked
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.errors import InvalidSchedule, OutOfTime, SolverFailed, UnsupportedFeature
from hetsched.modeling.backends import check_gap, info
from hetsched.modeling.expression import Expression
from hetsched.modeling.model import Model
from hetsched.modeling.outcome import Incumbent, NewBound, Outcome
from hetsched.models.redundant import DeviceOrder, InputOrder
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate
from hetsched.search import Budget, Event, Monitor
from hetsched.solution import Bound, Solution
from hetsched.stopping import NEVER, Deadline

SLACK = 1e-9  # relative, of the upper bound: a schedule as long as it stays feasible
TOLERANCE = {"scip": 5e-7, "highs": 5e-7, "cpsat": 0.0}  # relative, taken off a solver's bound
COLUMN, PAIR = 1e-6, 2e-8
"""Seconds that making a column with its terms, and looking at a pair, take on an ordinary machine."""
QUICK = ("best-device", "heft", "peft", "dls", "bil")
"""Methods whose best schedule is the upper bound, in the order of `auto`."""


class Component(Protocol):
    """A part of a formulation: columns, rows, and how they follow from a schedule.

    One that makes columns has ``fill(formulation, schedule, values)`` too, which sets their values for a
    schedule; one that puts things that are alike in order has ``canonical(problem, schedule)``, which
    returns the decision that keeps the order.
    """

    def add_to(self, formulation: Any) -> None:
        """Add its columns and rows to ``formulation.model``; columns others need become attributes."""
        ...


class Formulation:
    """A problem said to a solver.

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
        Instead of those of the formulation, see `parts`.
    deadline : Deadline, optional
        By when the model has to be made; what would take longer is not begun.

    Attributes
    ----------
    model : Model
    components : list
    upper : float
        Seconds.
    windows : Windows
        Where and when tasks can run in a schedule of that length.
    deadline : Deadline

    Raises
    ------
    UnsupportedFeature
        The formulation cannot say what the problem asks.
    OutOfTime
        The model cannot be made by the deadline.
    """

    name = "formulation"

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
        self.problem, self.faithful, self.deadline = problem, faithful, deadline
        self.model = Model(deadline=deadline)
        self.known: Solution | None = None
        if upper is None:
            self.known = quick(problem, deadline)
            upper = self.known.makespan
        if math.isinf(upper):
            upper = longest(problem)
        self.upper = upper * (1 + SLACK)
        self.second = 10.0 ** (3 - math.floor(math.log10(self.upper))) if self.upper > 0 else 1.0
        self.windows: Windows = windows(problem, self.upper)
        self.components: list[Component] = []
        for component in self.parts() if components is None else components:
            self.add(component)
        if symmetry is not None:
            self.add(DeviceOrder(symmetry))
            self.add(InputOrder())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.problem.n_tasks} tasks: {self.model!r}>"

    @classmethod
    @checked
    def check(cls, problem: Problem) -> None:
        """Raise `UnsupportedFeature` for what the formulation cannot say."""
        if problem.memory == "peak":
            raise UnsupportedFeature(f"{cls.name} says static memory only; use problem.replace(memory='static'), or a search method")

    @classmethod
    @checked
    def columns(cls, problem: Problem) -> int:
        """Return about how many columns the model of a problem has, orders of tasks not counted."""
        return model_size.assignments(problem) + model_size.flows(problem) * problem.inputs

    def parts(self) -> list[Component]:
        """Return the components the formulation is made of, in order."""
        raise NotImplementedError

    @checked
    def add(self, component: Component) -> None:
        """Add a component."""
        component.add_to(self)
        self.components.append(component)

    # What components need

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

    def unordered(self) -> IntArray:
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
            canonical = getattr(component, "canonical", None)
            if canonical is not None:
                schedule = simulate(self.problem, canonical(self.problem, schedule))
        if not self.says(schedule):
            raise InvalidSchedule(
                f"the schedule is {schedule.makespan:.6g} s long and has {len(schedule.batches)} batches; the model knows schedules up to "
                f"{self.upper:.6g} s with one batch of a task on a device; make the formulation with a larger `upper`"
            )
        values = np.full(self.model.program.n_columns, np.nan)
        for component in self.components:
            fill = getattr(component, "fill", None)
            if fill is not None:
                fill(self, schedule, values)
        if self.faithful and self.problem.inputs > 1 and self.model.violations(values, tolerance=1e-5):
            raise InvalidSchedule("the literal form orders batches that share no input and so forbids this schedule; use the tightened one")
        return values

    @checked
    def says(self, schedule: Schedule) -> bool:
        """Return whether the model has words for a schedule: it is short enough, and a device has one batch of a task at most."""
        pair = schedule.batches.task * len(schedule.devices) + schedule.batches.device
        return schedule.makespan <= self.upper and len(np.unique(pair)) == len(pair)

    @checked
    def decode(self, values: FloatArray) -> Decision:
        """Return the decision that values of the columns stand for; `simulate` gives it its times."""
        raise NotImplementedError

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
        try:
            self.run(monitor, solver, gap=gap, threads=threads, start=start, cuts=cuts, options=options)
        except (OutOfTime, SolverFailed) as failure:
            monitor.note(str(failure))
        return monitor.solution(self.name)

    @checked
    def run(
        self,
        monitor: Monitor,
        solver: str,
        *,
        gap: float = 0.0,
        threads: int | None = None,
        cuts: bool = True,
        start: Solution | Schedule | Decision | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Solve under a monitor, which gets the schedules and bounds as they are found."""
        info(solver, threads=threads)
        check_gap(gap)
        monitor.source, monitor.nodes = monitor.source or self.name, 0
        hint = None
        for begin in (self.known, start):
            monitor.deadline.check(f"the reading of a start into {self.model!r}")
            hint = self._begin(monitor, begin, hint)
        ours = self.is_makespan

        def incumbent(found: Incumbent) -> bool:
            if ours:
                monitor.nodes = found.nodes
                self.offer(monitor, found.values)
            return False

        def bound(found: NewBound) -> bool:
            if ours:
                monitor.nodes = found.nodes
                self.raise_bound(monitor, found.bound, solver)
            return False

        outcome = self.model.solve(
            solver,
            deadline=monitor.deadline,
            gap=gap,
            threads=threads,
            seed=monitor.seed,
            hint=hint,
            cuts=cuts,
            on_incumbent=incumbent,
            on_bound=bound,
            stop=lambda: monitor.should_stop,
            options=options,
        )
        if outcome.values is not None:
            self.offer(monitor, outcome.values)
        if outcome.stopped == "gap":
            monitor.stop("gap")
        if outcome.proven == "infeasible" and not self.bounds_problem:
            literal = ", and the literal form orders all batches" if self.faithful else ""
            monitor.note(f"the model has no solution, but it knows only one batch of a task on a device{literal}; use a search")
        if ours or outcome.proven == "infeasible":
            self.raise_bound(monitor, outcome.bound, solver)
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
        if self.is_makespan and np.isfinite(values).all() and schedule.makespan < monitor.incumbent:
            before, monitor.source = monitor.source, begin.method if isinstance(begin, Solution) else "start"
            monitor.offer(schedule.decision)
            monitor.source = before
            return values
        return values if hint is None else hint

    @checked
    def offer(self, monitor: Monitor, values: FloatArray) -> None:
        """Offer what values stand for."""
        monitor.offer(self.decode(values))

    @checked
    def raise_bound(self, monitor: Monitor, value: float, solver: str) -> None:
        """Raise the bound by a solver's, in the model's time; nothing beyond the upper bound is claimed."""
        if solver not in TOLERANCE:
            raise UnsupportedFeature(f"solver is {solver!r}; choose from {', '.join(TOLERANCE)}")
        if not (value > 0 and self.bounds_problem):
            return
        if math.isinf(value) and self.upper >= longest(self.problem):
            monitor.raise_bound(Bound(math.inf, f"{self.name} by {solver}", "proven: no schedule keeps every rule"))
            return
        # What is cut off is longer than the upper bound, so no more than that is known.
        least = min(value / self.second * (1 - TOLERANCE[solver]), self.upper / (1 + SLACK))
        monitor.raise_bound(Bound(least, f"{self.name} by {solver}", f"dual bound of {self.model!r}"))

    @property
    def is_makespan(self) -> bool:
        """Whether the objective is the makespan, and not one of the user's own."""
        return self.model.objective is getattr(self, "makespan", None)

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
    from hetsched.heuristics import list_scheduling, simple  # noqa: F401  # they register their methods

    monitor = Monitor(problem, Budget(deadline.limit), clock=deadline.clock)
    for name in QUICK:
        began = deadline.clock()
        monitor.attempt(name)
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


def fill_in(values: FloatArray, columns: Expression, known: Any) -> None:
    """Set the values of columns."""
    values[columns.column] = np.broadcast_to(np.asarray(known, np.float64), columns.shape).ravel()
