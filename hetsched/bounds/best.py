"""The best lower bound, from cheap to dear."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from hetsched.analysis.cuts import series_cuts
from hetsched.bounds import combinatorial
from hetsched.bounds.destructive import destructive
from hetsched.bounds.series import series
from hetsched.problem.problem import Problem
from hetsched.solution import Bound


def quick(problem: Problem) -> Iterator[Bound]:
    """Yield the bounds that need no search, cheap to dear: critical path, load, head-tail load.

    If memory alone rules every schedule out, that proof (value inf) is the only one. 50,000 tasks on
    three devices take less than a second in all, a module of 32 tasks some milliseconds.
    """
    proof = combinatorial.memory(problem)
    if math.isinf(proof.value):
        yield proof
        return
    yield combinatorial.critical_path(problem)
    yield combinatorial.load(problem)
    yield combinatorial.head_tail_load(problem)


def bound(problem: Problem, *, time_limit: float | None = None) -> Bound:
    """Return the best lower bound on the makespan.

    Parameters
    ----------
    problem : Problem
    time_limit : float, optional
        Seconds of wall time. In order: the bounds of `quick`, `series` (if the graph is one),
        `destructive`. What does not fit is left out or cut short, but for the very first.

    Returns
    -------
    Bound
        Its value is inf if no schedule exists; the evidence says why.
    """
    deadline = math.inf if time_limit is None else time.perf_counter() + time_limit
    best: Bound | None = None
    for found in quick(problem):
        best = found if best is None else _larger(best, found)
        if time.perf_counter() >= deadline:
            return best
    assert best is not None  # quick yields at least one
    if math.isfinite(best.value) and len(series_cuts(problem.graph)):
        best = _larger(best, series(problem, time_limit=_left(deadline)))
    return destructive(problem, start=best, time_limit=_left(deadline))


def _larger(one: Bound, other: Bound) -> Bound:
    return other if other.value > one.value else one


def _left(deadline: float) -> float | None:
    return None if math.isinf(deadline) else max(0.0, deadline - time.perf_counter())
