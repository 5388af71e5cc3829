"""The one front door: `solve`, and the methods it knows."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import logging
import math
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hetsched.errors import InconsistentBound, InvalidSchedule, UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.verify import verify
from hetsched.search import Budget, Event, Method, Monitor, find_method, method, registered
from hetsched.solution import Solution

ENTRY_POINTS = "hetsched.methods"
_BUILT_IN = ("heuristics.simple", "heuristics.list_scheduling", "heuristics.dynamic", "models.methods")
LIST_SCHEDULERS = (
    "best-device", "heft", "peft", "cpop", "etf", "dls", "bil", "mcp", "hlfet", "greedy", "met", "mct", "olb",
    "min-min", "max-min", "sufferage",
)  # fmt: skip
"""The methods that answer at once, in the order in which `auto` runs them."""
_log = logging.getLogger(__name__)


@functools.cache
def _discover() -> None:
    """Import the built-in methods, then those that other packages announce."""
    for name in _BUILT_IN:
        importlib.import_module(f"hetsched.{name}")
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:
            warnings.warn(f"methods of entry point {entry.name!r} ({entry.value}) cannot be loaded: {error}", stacklevel=3)


def methods() -> Mapping[str, Method]:
    """Return every method by name: ours, those registered by the user's code, those of entry points."""
    _discover()
    return registered()


@method("auto", summary="every list scheduler in turn, then the best lower bound; stops at a proven optimum", deterministic=False)
def auto(problem: Problem, monitor: Monitor, *, bound_seconds: float = 5.0) -> None:
    """Run the list schedulers in turn on one monitor, then bound after bound for `bound_seconds` at most.

    A list scheduler that cannot handle the problem is passed over with a note.
    """
    from hetsched.bounds import best

    for name in LIST_SCHEDULERS:
        if monitor.should_stop and (name != LIST_SCHEDULERS[0] or monitor.stopped != "time limit"):
            return
        try:
            monitor.run(name)
        except UnsupportedFeature as refusal:
            monitor.note(f"{name}: {refusal}")
    if math.isinf(monitor.time_left) and not monitor.should_stop:
        best.prepare()  # so that compiling, on the first run, takes nothing from the seconds given
    for lower_bound in best.every(problem, time_limit=max(0.0, min(bound_seconds, monitor.time_left))):
        monitor.raise_bound(lower_bound)
        if monitor.should_stop:
            return


def solve(
    problem: Problem,
    method: str | Iterable[str] = "auto",
    *,
    time_limit: float | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    start: Solution | Schedule | Decision | None = None,
    on_progress: Callable[[Event], object] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Solution:
    """Schedule a problem and prove the answer valid.

    Parameters
    ----------
    problem : Problem
    method : str or several
        Names from `methods`; several run one after another and share the budget.
    time_limit : float, optional
        Seconds of wall time; methods stop soon after.
    evaluations : int, optional
        Number of schedules evaluated; with it a deterministic method answers the same to the bit.
    seed : int
    start : Solution, Schedule or Decision, optional
        A warm start: its decision is re-timed and the answer never falls behind that.
    on_progress : callable, optional
        Called with an `Event` at every improvement; returning True stops the solve.
    options : mapping, optional
        Options of the methods named, see ``Method.options``.

    Returns
    -------
    Solution
        Its status tells what is known; `solve` does not raise for it. Ctrl-C returns the best found,
        as soon as the running method looks up; a second one does not wait for that.

    Raises
    ------
    UnsupportedFeature
        Unknown method or option, or a single method asked for what it cannot do.
    InvalidSchedule
        `start` is no decision of this problem, or a method made a schedule that breaks a rule (a bug).
    InconsistentBound
        A bound lies above a valid schedule (a bug).
    """
    _discover()
    names = [method] if isinstance(method, str) else list(method)
    if not names:
        raise UnsupportedFeature("no method named; give one or more, or leave it out for 'auto'")
    for name in names:
        find_method(name).check_options(options or {})
    monitor = Monitor(problem, Budget(time_limit, evaluations), seed=seed, on_progress=on_progress)
    with _ctrl_c(monitor):
        failure = _run(monitor, names, start, options)
        solution = monitor.solution(", ".join(names))
        if solution.schedule is not None:
            violations = verify(problem, solution.schedule)
            if violations:
                raise InvalidSchedule(
                    f"method {solution.method!r} made a schedule that breaks {len(violations)} rules, first: {violations[0].message}; "
                    "please report it with the problem's document"
                )
    if failure is not None and solution.schedule is None and not math.isinf(solution.bound):
        raise failure
    return solution


@contextlib.contextmanager
def _ctrl_c(monitor: Monitor) -> Iterator[None]:
    """Let the first Ctrl-C ask the method to stop, the second interrupt it.

    An exception in the midst of a compiled kernel would not be safe. Only where Ctrl-C would raise
    `KeyboardInterrupt`: handlers of one's own, and other threads, are left alone.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or usual is not signal.default_int_handler:
        yield
        return

    def ask(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, usual)
        monitor.stop("interrupted")

    signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _run(
    monitor: Monitor, names: list[str], start: Solution | Schedule | Decision | None, options: Mapping[str, Any] | None
) -> Exception | None:
    """Run the quick bounds and the methods; return the first failure of one."""
    from hetsched.bounds import best

    failure: Exception | None = None
    problem = monitor.problem
    try:
        monitor.warm_start(start)
        for lower_bound in best.quick(problem):
            monitor.raise_bound(lower_bound)
        for name in names:
            if monitor.should_stop and (monitor.best is not None or monitor.stopped != "time limit"):
                break
            try:
                monitor.run(name, options)
            except InconsistentBound:
                raise
            except Exception as error:
                if not isinstance(error, UnsupportedFeature):
                    _log.exception("method %s failed", name)
                failure = failure or error
                monitor.note(f"{name} failed: {type(error).__name__}: {error}")
        if math.isinf(monitor.bound.value):
            from hetsched.models.assignment import shortage

            monitor.note(shortage(problem))
    except KeyboardInterrupt:
        monitor.stop("interrupted")
    return failure
