"""Solvers in separate processes, so that one that aborts, or ignores its time limit, ends only itself.

A process is started for the first model, which takes a third of a second (CP-SAT: one second), waits for
the next model after each solve, and ends with this process.
"""

from __future__ import annotations

import atexit
import dataclasses
import os
import pickle
import queue
import threading
import time
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from hetsched.errors import UnsupportedFeature
from hetsched.modeling.backends import BackendInfo, Request, Run, backend, in_process
from hetsched.modeling.backends.protocol import WAKE
from hetsched.modeling.outcome import Incumbent, NewBound, Outcome
from hetsched.modeling.program import Program
from hetsched.processes import Channel, Process, ProcessDied, Ready, StopRequest
from hetsched.stopping import NEVER, Deadline, Stop

GRACE = 0.3  # seconds for the answer of a solver that was stopped at the end of its time
PATIENCE = 3.0  # the same if there is time left: a new process would take longer than most answers


@dataclass(frozen=True)
class _Prepare:
    solver: str


@dataclass(frozen=True)
class _Job:
    program: Program
    request: Request
    seconds: float | None
    """Seconds left, for clocks of processes differ."""


@dataclass(frozen=True)
class _Failed:
    error: Exception


_Message: TypeAlias = Ready | Incumbent | NewBound | Outcome | _Failed | ProcessDied


class _Child:
    """The parent's side of a process that solves models by one solver, one after another."""

    def __init__(self, solver: str) -> None:
        self.solver = solver
        self.ready = False
        self.inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self.process = Process("hetsched.modeling.backends.apart:serve", self.inbox.put)
        self.send(_Prepare(solver))

    def send(self, message: object) -> None:
        self.process.send(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


_idle: dict[str, list[_Child]] = {}
_lock = threading.Lock()


def _take(solver: str) -> _Child:
    with _lock:
        waiting = _idle.get(solver, [])
        while waiting:
            child = waiting.pop()
            if child.process.alive:
                return child
    try:
        return _Child(solver)
    except OSError as error:
        raise UnsupportedFeature(f"no process can be started for {solver} ({error}); in_process=True runs it in this one") from None


def _give_back(child: _Child) -> None:
    with _lock:
        _idle.setdefault(child.solver, []).append(child)


@atexit.register
def _end() -> None:
    for child in (child for waiting in _idle.values() for child in waiting):
        child.process.kill()
    _idle.clear()


if hasattr(os, "register_at_fork"):  # a fork must not use the processes of its parent
    os.register_at_fork(after_in_child=_idle.clear)


def solve(info: BackendInfo, program: Program, request: Request) -> Outcome:
    """Solve a program by a solver in a separate process.

    If that process dies, or is killed because it does not answer soon after a request to stop, the outcome has
    the results that it had sent; in the first case it was stopped by "failed", and its `detail` has the reason.
    """
    for propagator in program.propagators:
        try:
            pickle.dumps(propagator)
        except Exception as error:
            raise UnsupportedFeature(
                f"the function of the propagator {propagator.tag!r} cannot be sent to the process of {info.name}: {error}; define it in a "
                f"module, or give backends.backend({info.name!r}), which runs in this process"
            ) from None
    return _Solve(info.name, program, request).outcome()


class _Solve:
    """One solve by the process of a solver."""

    def __init__(self, solver: str, program: Program, request: Request) -> None:
        self.solver, self.program = solver, program
        self.run = Run(request)
        self.child: _Child
        self.at_work = False
        """Whether the program has been sent."""
        self.stopped_at = 0.0
        """Time of the request to stop, by the monotonic clock."""
        self.end: Outcome | _Failed | ProcessDied | None = None
        self.best = Incumbent(0.0, float("inf"), None)  # type: ignore[arg-type]  # none yet
        self.bound = float("-inf")

    def outcome(self) -> Outcome:
        self.run.work(self._converse, self._interrupt)
        run = self.run
        if isinstance(self.end, Outcome):
            return dataclasses.replace(self.end, stopped=run.stopped or self.end.stopped, seconds=run.elapsed)
        detail = "" if run.stopped else f"the process of {self.solver} {self.end}; its results so far are kept"
        return Outcome(
            run.stopped or Stop.FAILED, self.best.values, "", self.best.objective, self.bound, self.solver, run.elapsed, run.nodes, detail
        )

    def _converse(self) -> None:
        """Send the program and receive messages until the end."""
        self.child = _take(self.solver)
        try:
            if self._is_ready():
                settings = dataclasses.replace(self.run.request.settings, deadline=NEVER)
                request = dataclasses.replace(self.run.request, settings=settings, on_incumbent=None, on_bound=None, stop=None)
                self.child.send(_Job(self.program, request, self.run.time_left))
                self.at_work = True
                while self.end is None:
                    self._process_message(self.child.inbox.get())
        except BaseException:
            self.child.process.kill()  # it is busy
            raise
        if isinstance(self.end, _Failed) and not self.child.ready:
            self.child.process.kill()  # it has no backend
        elif not isinstance(self.end, ProcessDied):
            _give_back(self.child)
        if isinstance(self.end, _Failed):
            raise self.end.error

    def _is_ready(self) -> bool:
        """Wait until the process has loaded its solver; return False if the solve is stopped before."""
        while not self.child.ready and self.end is None:
            try:
                self._process_message(self.child.inbox.get(timeout=WAKE))
            except queue.Empty:
                if self.run.stopped:
                    return False
        return self.child.ready

    def _process_message(self, message: _Message) -> None:
        run = self.run
        if isinstance(message, Ready):
            self.child.ready = True
        elif isinstance(message, Incumbent):
            self.best, run.nodes = message, max(run.nodes, message.nodes)
            run.found(message.objective, lambda: message.values)
        elif isinstance(message, NewBound):
            self.bound, run.nodes = max(self.bound, message.bound), max(run.nodes, message.nodes)
            run.bounded(message.bound)
        else:
            self.end = message

    def _interrupt(self) -> None:
        """Request that the solver stops; kill its process if it does not."""
        if not self.at_work:
            return
        if not self.stopped_at:
            self.stopped_at = time.monotonic()
            self.child.send(StopRequest())
        elif time.monotonic() - self.stopped_at > (GRACE if self.run.request.settings.deadline.over else PATIENCE):
            self.child.process.kill()


# ---------------------------------------------------------------- the child's side


def serve(log: int) -> NoReturn:
    """Run the process of a solver: read models from standard input and write results to standard output."""
    in_process.set(True)
    channel = Channel(log)
    name = channel.requests.get().solver
    try:
        backend(name)
    except Exception as error:
        channel.send(_Failed(_sendable(error)))
        raise SystemExit(1) from None
    channel.send(Ready())
    while True:
        job = channel.requests.get()
        request = dataclasses.replace(
            job.request,
            settings=dataclasses.replace(job.request.settings, deadline=Deadline.after(job.seconds)),
            on_incumbent=channel.send,
            on_bound=channel.send,
            stop=channel.stop_requested.is_set,
        )
        try:
            channel.send(backend(name).solve(job.program, request))
        except Exception as error:
            channel.send(_Failed(_sendable(error)))


def _sendable(error: Exception) -> Exception:
    """Return an error that can be pickled and unpickled: `error` itself if possible, else one with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
