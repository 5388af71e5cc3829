"""Solvers that models are handed to: what one must do, and which there are."""

from __future__ import annotations

import importlib
import importlib.util
import math
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.errors import MissingDependency, OutOfTime, UnsupportedFeature
from hetsched.modeling.outcome import Incumbent, NewBound, Outcome
from hetsched.modeling.program import Program
from hetsched.stopping import NEVER, Deadline, reason

WAKE, DEAF = 0.02, 0.1  # seconds between looks at the clock, and after which a solver has not kept the limit

in_process: ContextVar[bool] = ContextVar("in_process", default=False)
"""Whether solvers named by a text run in this process: quicker to start, but one that aborts takes this process along."""


@dataclass(frozen=True)
class BackendInfo:
    """What is known of a solver before it is loaded."""

    name: str
    module: str
    """Of its backend, below `hetsched.modeling.backends`."""
    requires: str
    """The package that must be installed."""
    extra: str
    """The extra of this package that installs it."""
    threads: bool
    """Can use more than one thread."""
    turn: int
    """Among the solvers that are installed, the one with the lowest is preferred."""


_KNOWN = {
    each.name: each
    for each in (
        BackendInfo("scip", "scip", "pyscipopt", "solvers", threads=False, turn=20),
        BackendInfo("highs", "highs", "highspy", "solvers", threads=True, turn=30),
        BackendInfo("cpsat", "cpsat", "ortools", "solvers", threads=True, turn=10),
    )
}


@dataclass(frozen=True)
class Request:
    """How a model is to be solved; see ``Model.solve``."""

    deadline: Deadline = NEVER
    gap: float = 0.0
    threads: int | None = None
    seed: int = 0
    cuts: bool = True
    hint: FloatArray | None = None
    on_incumbent: Callable[[Incumbent], object] | None = None
    on_bound: Callable[[NewBound], object] | None = None
    stop: Callable[[], object] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_gap(self.gap)


def check_gap(gap: float) -> None:
    """Raise `UnsupportedFeature` if a gap is none."""
    if not isinstance(gap, int | float) or not 0 <= gap < math.inf:
        raise UnsupportedFeature(f"gap is {gap!r}; it must be a number from 0 on, 0.01 for one per cent")


@checked
@dataclass(frozen=True)
class Capabilities:
    """What a solver can do; what it cannot it refuses with `UnsupportedFeature`."""

    continuous: bool
    """Takes columns that are neither whole numbers nor times."""
    unbounded: bool
    """Takes columns without finite bounds."""
    threads: bool
    """Can use more than one thread."""
    intervals: bool
    """Takes intervals, non-overlap and enforced rows as they are; else they are lowered to linear rows."""
    incremental: bool
    """Solves a changed model again without building it anew."""
    deterministic: bool
    """With one thread, the same model and seed give the same answer."""


class Backend(Protocol):
    """A solver.

    An object keeps what it has built: where the next program to `solve` differs by bounds, costs or rows
    only, `incremental` ones pass on no more than that.

    `solve` minimises the program's objective. It keeps the deadline to half a second, raising `OutOfTime`
    where the solver cannot be begun by then, stops with the best solution found when `request.stop` or a
    callback says so or on Ctrl-C, and reports values of the program's own columns.
    """

    name: str
    capabilities: Capabilities

    def solve(self, program: Program, request: Request) -> Outcome:
        """Solve a program."""
        ...

    def native(self, program: Program) -> Any:
        """Return the program as an object of the solver's own."""
        ...


@checked
def backend(name: str, *, threads: int | None = None) -> Backend:
    """Return a new backend by name.

    Raises `UnsupportedFeature` for an unknown name or for more `threads` than the solver can use,
    `MissingDependency` if it is not installed.
    """
    known = info(name, threads=threads)
    made: Backend = importlib.import_module(f"hetsched.modeling.backends.{known.module}").BACKEND()
    return made


def info(name: str, *, threads: int | None = None) -> BackendInfo:
    """Return what is known of a solver, without loading it; raises what `backend` does."""
    if name not in _KNOWN:
        raise UnsupportedFeature(f"unknown solver {name!r}; choose from {', '.join(_KNOWN)}")
    known = _KNOWN[name]
    check_threads(name, threads, several=known.threads)
    if not _installed(known):
        raise MissingDependency(known.requires, known.extra)
    return known


def preferred() -> str:
    """Return the name of the solver to use where none is asked for: the first by turn that is installed."""
    return min(_KNOWN.values(), key=lambda known: (not _installed(known), known.turn)).name


def _installed(known: BackendInfo) -> bool:
    return importlib.util.find_spec(known.requires) is not None


def check_threads(solver: str, threads: int | None, *, several: bool) -> None:
    """Raise `UnsupportedFeature` if a solver cannot use so many threads; `several`: whether it can use more than one."""
    if threads is not None and threads < 1:
        raise UnsupportedFeature(f"threads is {threads}; it must be 1 or more, or None for the solver's own choice")
    if threads not in (None, 1) and not several:
        raise UnsupportedFeature(f"{solver} searches in one thread, not {threads}; leave threads out, or use highs or cpsat")


def names() -> tuple[str, ...]:
    """Return the names of the solvers."""
    return tuple(_KNOWN)


def solve(solver: str | Backend, program: Program, request: Request) -> Outcome:
    """Solve a program: by a solver's name in a process of its own unless `in_process` says otherwise, by a backend here.

    Where there is no time to begin, the outcome is one without values, and its `detail` says so.
    """
    if isinstance(solver, str) and in_process.get():
        solver = backend(solver, threads=request.threads)
    began = request.deadline.clock()
    try:
        if not isinstance(solver, str):
            return solver.solve(program, request)
        from hetsched.modeling.backends import apart

        return apart.solve(info(solver, threads=request.threads), program, request)
    except OutOfTime as spent:
        name, seconds = solver if isinstance(solver, str) else solver.name, request.deadline.clock() - began
        return Outcome("time limit", None, "", math.inf, -math.inf, name, seconds, detail=str(spent))


class Run:
    """One solve: the clock, the callbacks, and a thread to work in while this one listens for Ctrl-C."""

    def __init__(self, request: Request, solver: Backend | None = None) -> None:
        if solver is not None:
            check_threads(solver.name, request.threads, several=solver.capabilities.threads)
        self.request = request
        self.stopped = ""
        self.nodes = 0
        self.heard = False
        self._started = request.deadline.clock()
        self._told = -float("inf")
        self._failure: BaseException | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.request.deadline.clock() - self._started

    @property
    def time_left(self) -> float | None:
        """Seconds until the deadline, None without one."""
        return self.request.deadline.limit

    def found(self, objective: float, values: Callable[[], FloatArray]) -> None:
        """Tell of a better solution; its values are asked for only if somebody listens."""
        self.heard = True
        listener = self.request.on_incumbent
        if listener is not None:
            self._tell(lambda: listener(Incumbent(self.elapsed, objective, values(), self.nodes)))

    def bounded(self, bound: float) -> None:
        """Tell of a better bound."""
        listener = self.request.on_bound
        if bound > self._told:
            self._told = bound
            if listener is not None:
                self._tell(lambda: listener(NewBound(self.elapsed, bound, self.nodes)))

    def _tell(self, call: Callable[[], object]) -> None:
        """Call a listener from within a solver, which no exception may pass through: it is raised when the solver has stopped."""
        if self._failure is not None:
            return
        try:
            if call() is True:
                self.stopped = self.stopped or "callback"
        except BaseException as error:
            self._failure = error
            self.stopped = self.stopped or "failed"

    def work(self, solve: Callable[[], object], interrupt: Callable[[], object]) -> None:
        """Run `solve` in a thread of its own; call `interrupt` when it has to stop, until it does.

        Raises `OutOfTime` if there is no time to begin.
        """
        self.request.deadline.check("handing the model over")
        failure: list[BaseException] = []
        done = threading.Event()  # a join that Ctrl-C breaks into may take the thread for dead

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
            self.stopped = "stopped"
        # The solver keeps the limit by itself; this is for when it is deaf.
        if not self.stopped and self.request.deadline.left < -DEAF:
            self.stopped = "time limit"
