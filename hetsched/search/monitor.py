"""The monitor that a running method offers its decisions to."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import Columns, texts
from hetsched.errors import InconsistentBound, InvalidSchedule, OutOfTime, UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.objectives import find_objective
from hetsched.schedule.schedule import Schedule
from hetsched.search.budget import Budget
from hetsched.search.registry import find_method
from hetsched.search.solution import NO_BOUND, OPTIMALITY_GAP, BestEffort, Bound, Solution, relative_gap
from hetsched.stopping import Clock, Deadline, Stop

if TYPE_CHECKING:
    from concurrent.futures import Executor

TOLERANCE = 1e-9
_UNLIMITED = Budget()


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


@dataclass
class _Effort:
    """What one method did in a solve."""

    value: float = math.inf
    evaluations: int = 0
    seconds: float = 0.0


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
        budget: Budget = _UNLIMITED,
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

    @contextlib.contextmanager
    def as_source(self, name: str) -> Iterator[None]:
        """Credit what is offered and noted meanwhile to a name."""
        before, self.source = self.source, name
        try:
            yield
        finally:
            self.source = before

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
            with self.as_source("start"):
                self.offer(start)

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


class MethodFunction(Protocol):
    """A scheduling method: offers decisions to the monitor until it is done or told to stop."""

    def __call__(self, problem: Problem, monitor: Monitor, /, **options: Any) -> None: ...
