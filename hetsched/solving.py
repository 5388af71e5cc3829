"""The one front door: `solve`, and the methods it knows."""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from typing import Any

from hetsched.arguments import TEXT, checked, rule
from hetsched.errors import HetschedError, InconsistentBound, InvalidSchedule, SolverFailed, UnsupportedFeature
from hetsched.modeling import backends
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.search import Budget, Event, Method, Monitor, find_method, registered
from hetsched.search.solution import Solution
from hetsched.stopping import Stop, reason, terminate
from hetsched.verification.verify import verify

EXECUTOR = rule(
    "a concurrent.futures.Executor or a client of dask.distributed",
    lambda given: isinstance(given, Executor) or hasattr(given, "get_executor"),
)
_log = logging.getLogger(__name__)


def methods() -> Mapping[str, Method]:
    """Return every method by name: ours, those registered by the user's code, those of entry points."""
    return registered()


@checked(executor=EXECUTOR)
def solve(
    problem: Problem,
    method: str | Iterable[str] = "auto",
    *,
    objective: str = "makespan",
    time_limit: float | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    executor: Executor | None = None,
    start: Solution | Schedule | Decision | None = None,
    on_progress: Callable[[Event], object] | None = None,
    options: Mapping[str, Any] | None = None,
    in_process: bool = False,
) -> Solution:
    """Schedule a problem and prove the answer valid.

    Parameters
    ----------
    problem : Problem
    method : str or several
        Names from `methods`; several run one after another and share the budget.
    objective : "makespan", "period" or "max-load"
        What schedules are compared by: their length, or when inputs stream through the largest load
        per input, see `hetsched.schedule.objectives`. Methods made for another objective offer what they find.
    time_limit : float, optional
        Seconds of wall time; methods stop soon after.
    evaluations : int, optional
        Number of schedules evaluated; with it a deterministic method answers the same to the bit.
    seed : int
    threads : int, optional
        How many cores the solve may use: worker processes of ``auto``, modules that ``split`` solves side by
        side, threads of the solver of an exact method. Other methods use one. Default: ``auto`` and
        ``split`` all there are, solvers their own choice.
    executor : concurrent.futures.Executor, or client of dask.distributed, optional
        Where ``split`` has its modules solved, as many at once as `threads` says. What it fails at is done here.
    start : Solution, Schedule or Decision, optional
        A warm start: its decision is re-timed and the answer never falls behind that.
    on_progress : callable, optional
        Called with an `Event` at every improvement; returning True stops the solve.
    options : mapping, optional
        Options of the methods named, see ``Method.options``.
    in_process : bool
        Whether the solvers of exact methods run in this process. As a rule they run in processes of their own, one
        for each solver, that are started once (a third of a second, CP-SAT a whole one) and wait for the next
        solve: a solver that aborts then costs only itself, and what it had found is kept. Methods without a
        solver pay nothing.

    Returns
    -------
    Solution
        Its status tells what is known; `solve` does not raise for it. Ctrl-C returns the best found,
        as soon as the running method looks up; a second one does not wait for that.

    Raises
    ------
    UnsupportedFeature
        Unknown method, option or objective, or a single method asked for what it cannot do.
    InvalidSchedule
        `start` is no decision of this problem, or a method made a schedule that breaks a rule (a bug).
    InconsistentBound
        A bound lies above a valid schedule (a bug).
    """
    names = [method] if isinstance(method, str) else [TEXT.check(name, "method") for name in method]
    if not names:
        raise UnsupportedFeature("no method named; give one or more, or leave it out for 'auto'")
    given = [(name, _options(find_method(name), options or {}, threads)) for name in names]
    monitor = Monitor(
        problem, Budget(time_limit, evaluations), seed=seed, on_progress=on_progress, objective=objective, executor=_executor(executor)
    )
    with _signals(monitor), _solvers(in_process):
        failure = _run(monitor, given, start)
        solution = monitor.solution(", ".join(names))
        if solution.schedule is not None:
            violations = verify(problem, solution.schedule)
            if violations:
                raise InvalidSchedule(
                    f"method {solution.method!r} made a schedule that breaks {len(violations)} rules, first: {violations[0].message}; "
                    "please report it with the problem's document"
                )
    if failure is not None and not isinstance(failure, SolverFailed) and solution.schedule is None and not math.isinf(solution.bound):
        raise failure
    return solution


def _executor(given: Any) -> Executor | None:
    """Return what futures are asked from; a client of dask.distributed makes such an executor of itself."""
    return given.get_executor() if hasattr(given, "get_executor") else given  # type: ignore[no-any-return]


@contextlib.contextmanager
def _solvers(in_process: bool) -> Iterator[None]:
    """Let solvers run in this process, where that is asked for."""
    if not in_process:
        yield
        return
    before = backends.in_process.set(True)
    try:
        yield
    finally:
        backends.in_process.reset(before)


@contextlib.contextmanager
def _signals(monitor: Monitor) -> Iterator[None]:
    """Let the first Ctrl-C, or SIGTERM on the terminal, ask the method to stop, the second interrupt it.

    An exception in the midst of a compiled kernel would not be safe. Only where Ctrl-C would raise
    `KeyboardInterrupt`, and SIGTERM what the terminal has it raise: handlers of one's own, and other threads,
    are left alone.
    """
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = [number for number, handler in usual.items() if handler in (signal.default_int_handler, terminate)]
    if threading.current_thread() is not threading.main_thread():
        ours = []

    def ask(number: int, _frame: object) -> None:
        restore()
        monitor.stop(Stop.TERMINATED if number == signal.SIGTERM else Stop.INTERRUPTED)

    def restore() -> None:
        for number in ours:
            signal.signal(number, usual[number])

    for number in ours:
        signal.signal(number, ask)
    try:
        yield
    finally:
        restore()


def _options(chosen: Method, options: Mapping[str, Any], threads: int | None) -> dict[str, Any]:
    """Return the options of a method, `threads` among them under the name it has there."""
    chosen.check_options(options)
    if threads is None:
        return dict(options)
    for name in ("threads", "workers"):
        if name in options:
            raise UnsupportedFeature(f"threads={threads} and the option {name}={options[name]!r} say the same twice; leave one of them out")
        if name in chosen.options:
            return {**options, name: threads}
    return dict(options)


def _run(monitor: Monitor, chosen: list[tuple[str, dict[str, Any]]], start: Solution | Schedule | Decision | None) -> Exception | None:
    """Run the quick bounds and the methods; return the first failure of one."""
    from hetsched.bounds import best

    failure: Exception | None = None
    problem = monitor.problem
    try:
        monitor.warm_start(start)
        for lower_bound in best.quick(problem, monitor.objective):
            monitor.raise_bound(lower_bound)
            if monitor.should_stop:
                break
        for name, options in chosen:
            if monitor.should_stop and (monitor.best is not None or monitor.stopped is not Stop.TIME_LIMIT):
                break
            try:
                monitor.run(name, options)
            except (InconsistentBound, KeyboardInterrupt):
                raise
            except BaseException as error:  # SystemExit too: what was offered before it is kept
                if not isinstance(error, UnsupportedFeature):
                    _log.exception("method %s failed", name)
                failure = failure or (error if isinstance(error, Exception) else HetschedError(f"{name} failed: {error!r}"))
                monitor.note(f"{name} failed: {type(error).__name__}: {error}")
        if math.isinf(monitor.bound.value):
            from hetsched.models.shortage import shortage

            monitor.note(shortage(problem, deadline=monitor.deadline))
        if failure is not None:
            monitor.stop(Stop.FAILED)
    except KeyboardInterrupt as interruption:
        monitor.stop(reason(interruption))
    return failure
