"""The interface of backends, and the state of one solve."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from hetsched.arguments import checked, rule
from hetsched.arrays import FloatArray
from hetsched.errors import UnsupportedFeature
from hetsched.modeling.outcome import Incumbent, NewBound, Outcome
from hetsched.modeling.program import Program
from hetsched.modeling.settings import SolveSettings
from hetsched.stopping import NEVER, Stop, reason

T = TypeVar("T")
SOLVER = rule("the name of a solver, or a backend", lambda value: isinstance(value, str) or callable(getattr(value, "solve", None)))
WAKE, OVERDUE = 0.02, 0.1  # seconds between readings of the clock, and after which a solver has exceeded the limit


@checked
@dataclass(frozen=True)
class Capabilities:
    """Features of a solver; it raises `UnsupportedFeature` for others."""

    continuous: bool
    """Columns that are neither whole numbers nor times."""
    unbounded: bool
    """Columns without finite bounds."""
    threads: bool
    """More than one thread."""
    intervals: bool
    """Native intervals, non-overlap and enforced rows; otherwise these are lowered to linear rows."""
    incremental: bool
    """Solves of a changed model without building it again."""
    deterministic: bool
    """The same answer for the same model and seed with one thread."""
    bound_tolerance: float
    """The largest relative error of the bounds that it reports."""
    propagators: bool = False
    """Calls the propagators of a program in the nodes of its search; otherwise it ignores them."""


@checked
@dataclass(frozen=True)
class BackendInfo:
    """The declaration of a solver, available without loading it."""

    name: str
    title: str
    """Its name in prose."""
    module: str
    """Module of its backend, with a class `BACKEND` without arguments that implements `Backend`."""
    requires: str
    """The package that must be installed."""
    extra: str
    """The extra of hetsched that installs it, or an empty text."""
    method: str
    """The name of the method that solves problems by it."""
    turn: int
    """The installed solver with the lowest turn is preferred; those of hetsched are below 100."""
    capabilities: Capabilities
    deterministic: bool = True
    """Whether the same model and seed give the same answer with its default number of threads."""
    proves_up_to: int | None = None
    """The most columns for which `auto` runs it; None for never."""


@checked
@dataclass(frozen=True)
class Request:
    """One solve of a program: settings, a start, and callbacks; see ``Model.solve``."""

    settings: SolveSettings = field(default_factory=SolveSettings)
    hint: FloatArray | None = None
    on_incumbent: Callable[[Incumbent], object] | None = None
    on_bound: Callable[[NewBound], object] | None = None
    stop: Callable[[], object] | None = None

    @checked
    def signed(self, sign: float) -> Request:
        """Return the request whose callbacks receive objectives and bounds of the original model, for `sign` -1 of a maximisation."""
        incumbent, bound = self.on_incumbent, self.on_bound
        if sign > 0:
            return self
        return replace(
            self,
            on_incumbent=incumbent and (lambda event: incumbent(replace(event, objective=-event.objective))),
            on_bound=bound and (lambda event: bound(replace(event, bound=-event.bound))),
        )


class Backend(Protocol):
    """A solver.

    An object keeps the model that it has built: if the next program to `solve` differs only in bounds, costs
    or rows, `incremental` backends apply only these changes.

    `solve` minimises the program's objective. It keeps the deadline to half a second, and raises `OutOfTime`
    if the solver cannot begin before it. It stops with the best solution found when `request.stop` or a
    callback returns True, or on Ctrl-C, and reports values of the columns of the program.
    """

    name: str
    capabilities: Capabilities

    def solve(self, program: Program, request: Request) -> Outcome:
        """Solve a program."""
        ...

    def native(self, program: Program) -> Any:
        """Return the program as an object of the solver's library."""
        ...


def check_threads(solver: str, threads: int | None, *, several: bool) -> None:
    """Raise `UnsupportedFeature` if a solver cannot use `threads`; `several` is whether it can use more than one."""
    if threads is not None and threads < 1:
        raise UnsupportedFeature(f"threads is {threads}; it must be 1 or more, or None for the solver's own choice")
    if threads not in (None, 1) and not several:
        raise UnsupportedFeature(f"{solver} searches in one thread, not {threads}; leave threads out, or use highs or cpsat")


class Run:
    """One solve: the clock, the callbacks, and a thread for the solver while this one waits for Ctrl-C."""

    def __init__(self, request: Request, solver: Backend | None = None) -> None:
        if solver is not None:
            check_threads(solver.name, request.settings.threads, several=solver.capabilities.threads)
        self.request = request
        self.stopped = Stop.NONE
        self.nodes = 0
        self.reported = False
        self._started = request.settings.deadline.clock()
        self._told = -float("inf")
        self._failure: BaseException | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.request.settings.deadline.clock() - self._started

    @property
    def time_left(self) -> float | None:
        """Seconds until the deadline, for the solver's own limit of wall-clock time; None without one, or if it is on another clock."""
        deadline = self.request.settings.deadline
        return deadline.limit if deadline.clock is NEVER.clock else None

    def found(self, objective: float, values: Callable[[], FloatArray]) -> None:
        """Report a better solution; its values are computed only for a callback."""
        self.reported = True
        listener = self.request.on_incumbent
        if listener is not None:
            self._notify(lambda: listener(Incumbent(self.elapsed, objective, values(), self.nodes)))

    def bounded(self, bound: float) -> None:
        """Report a better bound."""
        listener = self.request.on_bound
        if bound > self._told:
            self._told = bound
            if listener is not None:
                self._notify(lambda: listener(NewBound(self.elapsed, bound, self.nodes)))

    def _notify(self, call: Callable[[], object]) -> None:
        """Call a callback from within a solver; it stops the solver by True."""
        if self._failure is None and self.guard(call) is True:
            self.stopped = self.stopped or Stop.CALLBACK

    def guard(self, call: Callable[[], T]) -> T | None:
        """Call a function from within a solver; an exception stops the solver, and is raised only after that."""
        try:
            return call()
        except BaseException as error:
            self._failure = self._failure or error
            self.stopped = self.stopped or Stop.FAILED
            return None

    def work(self, solve: Callable[[], object], interrupt: Callable[[], object]) -> None:
        """Run `solve` in a separate thread; call `interrupt` when it has to stop, until it does.

        Raises `OutOfTime` if there is no time to begin.
        """
        self.request.settings.deadline.check("handing the model over")
        failure: list[BaseException] = []
        done = threading.Event()  # a join that Ctrl-C interrupts may consider the thread dead

        def body() -> None:
            try:
                solve()
            except BaseException as error:
                failure.append(error)
            finally:
                done.set()

        threading.Thread(target=body, daemon=True).start()
        while not done.is_set():
            try:
                done.wait(WAKE)
                self._look()
                if self.stopped and not done.is_set():
                    interrupt()
            except KeyboardInterrupt as interruption:
                self.stopped = self.stopped or reason(interruption)
        for error in (self._failure, *failure):
            if error is not None:
                raise error

    def _look(self) -> None:
        if self.request.stop is not None and not self.stopped and self.request.stop():
            self.stopped = Stop.STOPPED
        # The solver keeps the limit by itself; this is for solvers that exceed it.
        if not self.stopped and self.request.settings.deadline.left < -OVERDUE:
            self.stopped = Stop.TIME_LIMIT
