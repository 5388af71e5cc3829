"""The monitor, to which a running method offers its decisions."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import Columns, texts
from hetsched.errors import InconsistentBound, InvalidSchedule, OutOfTime, UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.processes import in_process
from hetsched.schedule import memory
from hetsched.schedule.decision import Decision
from hetsched.schedule.objectives import find_objective
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate
from hetsched.search.budget import Budget
from hetsched.search.compilation import Compilers
from hetsched.search.registry import Kind, Method, Role, find_method, select
from hetsched.search.solution import NO_BOUND, OPTIMALITY_GAP, BestEffort, Bound, Solution, relative_gap
from hetsched.stopping import Clock, Deadline, Stop

if TYPE_CHECKING:
    from concurrent.futures import Executor

TOLERANCE = 1e-9
START = "start"
"""The source of a schedule that is given."""
_NO_KERNELS = Bound(0.0, "none", "there was no time to compile the kernels of bounds; `hetsched prepare` does it once for all")
_UNLIMITED = Budget()


@dataclass(frozen=True)
class Event:
    """Progress of a solve: a better schedule (a lower `incumbent`) or a better bound."""

    time: float
    """Seconds since the start of the solve."""
    incumbent: float
    """Value of the best schedule so far (its makespan unless the objective is another), inf before the first."""
    bound: float
    source: str
    """The method or bound that it comes from."""
    nodes: int = 0
    """Nodes or branches that a solver has explored."""

    @property
    def gap(self) -> float:
        """(incumbent - bound) / incumbent; 1 before the first schedule."""
        return relative_gap(self.incumbent, self.bound)


@dataclass
class _Effort:
    """The work of one method in a solve."""

    value: float = math.inf
    evaluations: int = 0
    seconds: float = 0.0


class Monitor:
    """The interface of a running method to its solve.

    It simulates the decisions offered, keeps the best schedule and the best bound, records the
    history, calls the callback, and signals the end.

    Parameters
    ----------
    problem : Problem
    budget : Budget
    seed : int
    on_progress : callable, optional
        Called with an `Event` at every improvement; returning True stops the solve.
    parent : Monitor, optional
        The monitor of the solve that this one is part of; a stop of the parent stops this one too.
    objective : "makespan", "period" or "max-load"
        The value of schedules; bounds on other objectives are ignored.
    executor : concurrent.futures.Executor, optional
        The executor over which a method may distribute its work.
    clock : callable
        Returns seconds; a test may give one that it advances. Default for a part of a solve: the parent's.

    Attributes
    ----------
    best : Schedule or None
    incumbent : float
        Value of the best schedule so far, inf before the first.
    bound : Bound
    deadline : Deadline
        The end of the solve and of those that it is part of.
    nodes : int
        Nodes or branches explored, for methods that count them.
    on_progress : callable or None
    compilers : Compilers
        Has the kernels of methods compiled.
    deferred : iterable of Bound
        Bounds that are computed when the proof of the solution is first read.
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
        self.bound = NO_BOUND if objective == NO_BOUND.objective else replace(NO_BOUND, objective=objective)
        self.source = ""
        self.evaluations = 0
        self.nodes = 0
        self.deferred: Iterable[Bound] = ()
        self._found_by = ""
        self._nearest: tuple[float, Schedule] | None = None  # bytes over capacity, the least so far, and their schedule
        self.on_progress = on_progress
        self._parent = parent
        self.compilers: Compilers = Compilers() if parent is None else parent.compilers
        self._events: list[Event] = []
        self._efforts: dict[str, _Effort] = {}
        self._messages: dict[str, None] = {}
        self._stopped = Stop.NONE
        self._cut_short = False  # a method gave up for lack of time, possibly before the limit
        self.clock: Clock = clock if parent is None else parent.clock
        self._started = self.clock()
        own = Deadline.after(budget.time_limit, self.clock)
        self.deadline: Deadline = own if parent is None else own.earlier(parent.deadline)
        self._rng: np.random.Generator | None = None

    @property
    def rng(self) -> np.random.Generator:
        """The only source of randomness that a method may use."""
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
        """Return a time limit for a part of the method: a share of the seconds left, or None without a limit."""
        return self.deadline.part(share).limit

    @property
    def stopped(self) -> Stop:
        """The reason to stop; `Stop.NONE`, an empty string, while the method may continue."""
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
        """Request that the method stops, for a reason."""
        self._stopped = self._stopped or reason

    @checked
    def note(self, message: str) -> None:
        """Record a message for the user, once; an empty message is ignored."""
        if not message:
            return
        self._messages.setdefault(f"{self.source}: {message}" if self.source else message)

    @checked
    def evaluated(self, count: int) -> None:
        """Count evaluations of a method outside `offer`, which counts as one."""
        self.evaluations += count
        self._effort.evaluations += count

    @checked
    def credit(self, method: str, *, value: float = math.inf, evaluations: int = 0, seconds: float = 0.0) -> None:
        """Count the work of a method outside this monitor, for instance in another process; `value` is its best."""
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
        """Attribute offers and notes in the context to `name`."""
        before, self.source = self.source, name
        try:
            yield
        finally:
            self.source = before

    @checked
    def offer(self, decision: Decision) -> float:
        """Simulate a decision, and keep its schedule if it is valid and the best so far.

        Returns
        -------
        float
            The value in seconds, the makespan unless the objective is another; inf if the decision exceeds the
            memory. That is noted, and the schedule with the least excess is kept as the best effort.

        Raises
        ------
        InvalidSchedule
            The decision breaks another rule, see `simulate`.
        """
        schedule = simulate(self.problem, decision)
        self.evaluated(1)
        if memory.limited(self.problem) and (over := memory.over_capacity(self.problem, memory.needed(self.problem, schedule))).any():
            if self._nearest is None or over.sum() < self._nearest[0]:
                self._nearest = float(over.sum()), schedule
            k, needed = int(over.argmax()), memory.needed(self.problem, schedule)
            self.note(
                f"a decision needs {needed[k]:.6g} bytes on {self.problem.cluster.names[k]!r}, "
                f"{over[k]:.6g} more than there are ({self.problem.memory} memory)"
            )
            return math.inf
        value = self.value_of(self.problem, schedule)
        effort = self._effort
        effort.value = min(effort.value, value)
        if value < self.incumbent:
            self.best, self.incumbent, self._found_by = schedule, value, self.source
            self._check_bound()
            self._notify(self.source)
        return value

    @property
    def from_start(self) -> bool:
        """Whether the best schedule is one that was given, see `warm_start`."""
        return self._found_by == START

    @checked
    def raise_bound(self, bound: Bound) -> None:
        """Record a lower bound if it is the best so far; one on another objective matters only if it is inf."""
        if bound.objective != self.objective and not math.isinf(bound.value):
            return
        if bound.value > self.bound.value:
            self.bound = replace(bound, objective=self.objective)
            self._check_bound()
            self._notify(bound.name)

    def _check_bound(self) -> None:
        if self.bound.value > self.incumbent * (1 + TOLERANCE):
            raise InconsistentBound(
                f"bound {self.bound.name!r} = {self.bound.value!r} s is above the {self.objective} {self.incumbent!r} s "
                f"of {self._found_by!r}: one of them is wrong; please report it with the problem's document"
            )

    def _notify(self, source: str) -> None:
        event = Event(self.elapsed, self.incumbent, self.bound.value, source, self.nodes)
        self._events.append(event)
        if self.on_progress is not None and self.on_progress(event) is True:
            self.stop(Stop.CALLBACK)

    @checked
    def run(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        """Run a registered method on this monitor, under the method's name; `OutOfTime` ends it with a note.

        Raises `UnsupportedFeature` if the method does not support the problem or an option.
        """
        chosen, options = find_method(name), options or {}
        chosen.check_options(options)
        refusal = chosen.supports.refusal(self.problem)
        if refusal:
            raise UnsupportedFeature(refusal)
        if math.isinf(self.deadline.end) or in_process.get():
            self._call(chosen, options)
        elif chosen.kind is not Kind.CONSTRUCTIVE or not self.without_compiling(partial(self._call, chosen, options)):
            if self.compilers.compile([chosen], lambda: self.should_stop, self._construct):
                self._call(chosen, options)
            elif self.stopped is not Stop.OPTIMAL:
                with self.as_source(name):
                    self.note("its kernels were not compiled within the time; `hetsched prepare` compiles those of all methods, once")
                self._construct(last=True)

    def _call(self, chosen: Method, options: Mapping[str, Any]) -> None:
        """Call a method under its name; `OutOfTime` ends it with a note."""
        before, self.source = self.source, chosen.name
        started = self.elapsed
        try:
            chosen.function(self.problem, self, **options)
        except OutOfTime as spent:
            self.note(str(spent))
            self._cut_short = True
        finally:
            seconds = self.elapsed - started
            self._effort.seconds += seconds
            self.source = before
            if before:
                self._effort.seconds -= seconds  # the caller's seconds exclude those of the method it calls

    @checked
    def without_compiling(self, work: Callable[[], object]) -> bool:
        """Return whether work ends without a kernel that would have to be compiled, or interpreted for longer than the time left."""
        from hetsched.compiled import NotCompiled, without_compiling

        try:
            with without_compiling(lambda: self.time_left):
                work()
        except NotCompiled:
            return False
        return True

    def _construct(self, *, last: bool = False) -> None:
        """Offer the schedules of the constructive methods from which searches start, until the solve has to stop.

        If the number of evaluations is limited, only as the `last` act: the method would otherwise have fewer of them. Kernels are
        compiled for it only as the last act, if there is no schedule yet.
        """
        for start in select(role=Role.START, problem=self.problem):
            if last is not (self.budget.evaluations is None):
                self.without_compiling(partial(self._call, start, {}))
            if last and self.best is None:
                self._call(start, {})
            if self.should_stop and not (last and self.best is None):
                break

    def close(self) -> None:
        """End the processes that were started for the solve."""
        self.compilers.close()

    @checked
    def attempt(self, name: str) -> None:
        """Run a registered method; a refusal is noted."""
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
        """Solve another problem for the same objective by a registered method, within the limits of this solve."""
        if self.budget.evaluations is not None:
            left = max(0, self.budget.evaluations - self.evaluations)
            evaluations = left if evaluations is None else min(left, evaluations)
        child = Monitor(problem, Budget(time_limit, evaluations), seed=int(self.rng.integers(2**31)), parent=self, objective=self.objective)
        solution = child.run_alone(method, start, options)
        self.evaluations += child.evaluations
        return solution

    @checked
    def run_alone(
        self, method: str, start: Solution | Schedule | Decision | None = None, options: Mapping[str, Any] | None = None
    ) -> Solution:
        """Run a single method from a start and return its solution."""
        self.warm_start(start)
        if not self.should_stop:
            self.run(method, options)
        return self.solution(method)

    @checked
    def warm_start(self, start: Solution | Schedule | Decision | None) -> None:
        """Offer the schedule of an earlier solve."""
        if isinstance(start, Solution):
            start = start.schedule
        if isinstance(start, Schedule):
            of_start, of_problem = (start.tasks, start.devices, start.n_inputs), (self.problem.graph.names, self.problem.cluster.names)
            if of_start != (*of_problem, self.problem.inputs):
                raise InvalidSchedule(
                    f"the {len(start.tasks)} tasks, {len(start.devices)} devices and {start.n_inputs} inputs of the start "
                    "are not those of this problem; start from a schedule of the same tasks and devices"
                )
            start = start.decision
        if start is not None:
            with self.as_source(START):
                self.offer(start)

    @checked
    def solution(self, asked: str) -> Solution:
        """Return the solution; `asked` is its method's name if there is no schedule."""
        events = self._events
        history = Columns._unchecked(
            time=np.array([event.time for event in events], np.float64),
            incumbent=np.array([event.incumbent for event in events], np.float64),
            bound=np.array([event.bound for event in events], np.float64),
            source=texts(event.source for event in events),
        )
        efforts = {name: effort for name, effort in self._efforts.items() if name}
        methods = Columns._unchecked(
            method=texts(efforts),
            makespan=np.array([effort.value for effort in efforts.values()], np.float64),
            evaluations=np.array([effort.evaluations for effort in efforts.values()], np.int64),
            seconds=np.array([effort.seconds for effort in efforts.values()], np.float64),
        )
        stopped = self.stopped or (Stop.TIME_LIMIT if self._cut_short else Stop.FINISHED)
        if math.isinf(self.bound.value):
            stopped = Stop.INFEASIBLE  # also if that was proven after another limit

        left = max(self.time_left, 0.0)

        def proof() -> Bound:
            from hetsched.compiled import NotCompiled, kernels_in_time

            try:
                with kernels_in_time(left):
                    for bound in self.deferred:
                        self.raise_bound(bound)
            except NotCompiled:
                if self.bound.name == NO_BOUND.name:
                    return replace(_NO_KERNELS, objective=self.objective)
            return self.bound

        return Solution(
            self.best,
            proof if self.deferred else self.bound,
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
        """Return the best effort, or None if there is a valid schedule or no decision."""
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
    """A scheduling method: it offers decisions to the monitor until it is done or has to stop."""

    def __call__(self, problem: Problem, monitor: Monitor, /, **options: Any) -> None: ...
