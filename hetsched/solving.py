"""The entry point `solve`, and the list of methods."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from typing import Any

from hetsched.arguments import TEXT, checked, rule
from hetsched.errors import HetschedError, InconsistentBound, InvalidSchedule, SolverFailed, UnsupportedFeature
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.modeling import backends
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.search import Budget, Event, Kind, Method, Monitor, find_method, registered
from hetsched.search.solution import Bound, Solution
from hetsched.stopping import Stop, reason, terminate
from hetsched.verification.verify import verify

EXECUTOR = rule(
    "a concurrent.futures.Executor or a client of dask.distributed",
    lambda given: isinstance(given, Executor) or hasattr(given, "get_executor"),
)
_log = logging.getLogger(__name__)


def methods() -> Mapping[str, Method]:
    """Return every method by name: those of hetsched, of the user's code and of entry points."""
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
    """Schedule a problem and verify the answer.

    Parameters
    ----------
    problem : Problem
    method : str or several
        Names from `methods`; several run one after another and share the budget.
    objective : "makespan", "period" or "max-load"
        The value of schedules: the makespan, or for a stream of inputs the largest load per input, see
        `hetsched.schedule.objectives`. Methods for another objective offer their schedules.
    time_limit : float, optional
        Seconds of wall-clock time; methods stop soon after.
    evaluations : int, optional
        The most evaluations of schedules; with it the answer of a deterministic method is reproducible to the bit.
    seed : int
    threads : int, optional
        The number of cores to use: worker processes of ``auto``, modules that ``split`` solves at a time, threads
        of the solver of an exact method. Other methods use one. Default: all cores, or workers of the executor, for ``auto`` and
        ``split``, the solver's own choice for others.
    executor : concurrent.futures.Executor, or client of dask.distributed, optional
        Its workers run the members of ``auto``, each in a process beside the worker, or solve the modules of ``split``; `threads`
        at a time, by default as many as there are. A worker that is lost costs its turn; modules are solved again in this process.
        The workers of ``auto`` connect to this process by TCP.
    start : Solution, Schedule or Decision, optional
        A warm start: its decision is simulated, and the answer is never worse.
    on_progress : callable, optional
        Called with an `Event` at every improvement; returning True stops the solve.
    options : mapping, optional
        Options of the methods, see ``Method.options``.
    in_process : bool
        Whether the solvers of exact methods run in this process. By default they run in separate processes, one
        for each solver, that are started once (a third of a second, CP-SAT one second) and wait for the next
        solve: a solver that aborts then ends only its process, and its results so far are kept. Methods without
        a solver start none, but a search with a time limit whose kernels are not compiled yet has them compiled in
        one; if they are not ready in time the answer is that of a list scheduler.

    Returns
    -------
    Solution
        Its status has the outcome; `solve` raises no error for it. Ctrl-C returns the best schedule as soon as the
        running method checks for a stop; a second one interrupts the method.

    Raises
    ------
    UnsupportedFeature
        Unknown method, option or objective, or a single method that does not support the problem.
    InvalidSchedule
        `start` is not a decision of this problem, or a method made a schedule that breaks a rule (a bug).
    InconsistentBound
        A bound is above the value of a valid schedule (a bug).
    """
    names = [method] if isinstance(method, str) else [TEXT.check(name, "method") for name in method]
    if not names:
        raise UnsupportedFeature("no method named; give one or more, or leave it out for 'auto'")
    chosen = [(found, _options(found, options or {}, threads)) for found in map(find_method, names)]
    monitor = Monitor(
        problem, Budget(time_limit, evaluations), seed=seed, on_progress=on_progress, objective=objective, executor=_executor(executor)
    )
    with contextlib.closing(monitor), _signals(monitor), _solvers(in_process):
        failure = _run(monitor, chosen, start)
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
    """Normalise `executor` to a `concurrent.futures.Executor`; dask clients provide one by `get_executor()`."""
    return given.get_executor() if hasattr(given, "get_executor") else given  # type: ignore[no-any-return]


@contextlib.contextmanager
def _solvers(in_process: bool) -> Iterator[None]:
    """Run solvers in this process within the context if `in_process`."""
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
    """Stop the method at the first Ctrl-C, or SIGTERM in the terminal, and interrupt it at the second.

    An exception inside a compiled kernel would not be safe. Only the default handler of Ctrl-C and the
    terminal's handler of SIGTERM are replaced, in the main thread; handlers of the user are kept.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    replaced = [number for number, handler in handlers.items() if handler in (signal.default_int_handler, terminate)]
    if threading.current_thread() is not threading.main_thread():
        replaced = []

    def ask(number: int, _frame: object) -> None:
        restore()
        monitor.stop(Stop.TERMINATED if number == signal.SIGTERM else Stop.INTERRUPTED)

    def restore() -> None:
        for number in replaced:
            signal.signal(number, handlers[number])

    for number in replaced:
        signal.signal(number, ask)
    try:
        yield
    finally:
        restore()


def _options(chosen: Method, options: Mapping[str, Any], threads: int | None) -> dict[str, Any]:
    """Return the options of a method, including `threads` under the method's name for it."""
    chosen.check_options(options)
    if threads is None:
        return dict(options)
    for name in ("threads", "workers"):
        if name in options:
            raise UnsupportedFeature(
                f"threads={threads} and the option {name}={options[name]!r} are the same setting; leave one of them out"
            )
        if name in chosen.options:
            return {**options, name: threads}
    return dict(options)


def _run(monitor: Monitor, chosen: list[tuple[Method, dict[str, Any]]], start: Solution | Schedule | Decision | None) -> Exception | None:
    """Run the quick bounds and the methods; return the first failure, or None.

    A constructive method takes less time than the bounds, and does not use them. It waits only for the proof that there is no
    schedule; the other bounds are computed at once only if it finds none, or if progress is reported. If little time is left for
    bounds whose kernels are not compiled yet, they are left to the first use of the solution's proof, which compiles nothing then.
    """
    from hetsched.bounds import best

    failure: Exception | None = None
    problem = monitor.problem
    bounds: Iterable[Bound] = best.quick(problem, monitor.objective)
    first = bool(monitor.on_progress or len(chosen) > 1 or chosen[0][0].kind is not Kind.CONSTRUCTIVE)
    try:
        monitor.warm_start(start)
        if first:
            _raise_bound(monitor, bounds)
        elif not _any_assignment_is_valid(problem):
            _raise_bound(monitor, itertools.islice(bounds, 1))
        for method, options in chosen:
            if monitor.should_stop and (monitor.best is not None or monitor.stopped is not Stop.TIME_LIMIT):
                break
            try:
                monitor.run(method.name, options)
            except (InconsistentBound, KeyboardInterrupt):
                raise
            except BaseException as error:  # SystemExit too: earlier offers are kept
                if not isinstance(error, UnsupportedFeature):
                    _log.exception("method %s failed", method.name)
                failure = failure or (error if isinstance(error, Exception) else HetschedError(f"{method.name} failed: {error!r}"))
                monitor.note(f"{method.name} failed: {type(error).__name__}: {error}")
        if not first and monitor.best is None:
            _raise_bound(monitor, bounds)
        elif not first and not monitor.deferred:
            monitor.deferred = bounds
        if math.isinf(monitor.bound.value):
            from hetsched.models.shortage import shortage

            monitor.note(shortage(problem, deadline=monitor.deadline))
        if failure is not None:
            monitor.stop(Stop.FAILED)
    except KeyboardInterrupt as interruption:
        monitor.stop(reason(interruption))
    return failure


def _any_assignment_is_valid(problem: Problem) -> bool:
    """Return whether each device has the memory for all tasks and a path to each other one, so that there is a schedule."""
    least = problem.cluster.memory_bytes.min(initial=math.inf)
    fits = math.isinf(least) or [*memory_needs(problem)][-1].sum() <= least
    return bool(fits and problem.paths.all())


def _raise_bound(monitor: Monitor, bounds: Iterable[Bound]) -> None:
    """Compute bounds until the solve has to stop; those for whose kernels there is no time are left to the proof of the solution."""

    from hetsched.bounds import best
    from hetsched.compiled import NotCompiled, kernels_in_time

    try:
        with kernels_in_time(monitor.time_left):
            for bound in bounds:
                monitor.raise_bound(bound)
                if monitor.should_stop:
                    break
    except NotCompiled:
        monitor.deferred = best.quick(monitor.problem, monitor.objective)
