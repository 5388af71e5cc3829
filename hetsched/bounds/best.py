"""The best lower bound, from cheap to dear."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from hetsched.analysis.cuts import series_cuts
from hetsched.bounds import combinatorial, steady
from hetsched.bounds.destructive import destructive
from hetsched.bounds.series import series
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.solution import Bound


def quick(problem: Problem) -> Iterator[Bound]:
    """Yield the bounds that need neither search nor a linear program: critical path, head-tail load.

    If memory alone rules every schedule out, that proof (value inf) is the only one. 50,000 tasks on
    three devices take less than a second in all, a module of 32 tasks some milliseconds.
    """
    proof = combinatorial.memory(problem)
    if math.isinf(proof.value):
        yield proof
        return
    yield combinatorial.critical_path(problem)
    yield combinatorial.head_tail_load(problem, program=False)


def every(problem: Problem, *, objective: str = "makespan", time_limit: float | None = None) -> Iterator[Bound]:
    """Yield all bounds from cheap to dear: those of `quick`, `load`, `head_tail_load`, `series` (if the
    graph is one), `destructive`.

    What does not fit the time limit is left out or cut short, but for the very first; a proof that
    there is no schedule (value inf) is the last. Under another objective than the makespan those of
    `steady.every`.
    """
    if objective != "makespan":
        yield from steady.every(problem, objective)
        return
    deadline = math.inf if time_limit is None else time.perf_counter() + time_limit
    best: Bound | None = None
    for found in _every(problem, deadline):
        best = found if best is None or found.value > best.value else best
        yield found
        if math.isinf(best.value) or time.perf_counter() >= deadline:
            return
    assert best is not None  # quick yields at least one
    yield destructive(problem, start=best, time_limit=_left(deadline))


def _every(problem: Problem, deadline: float) -> Iterator[Bound]:
    yield from quick(problem)
    yield combinatorial.load(problem)
    yield combinatorial.head_tail_load(problem)
    if len(series_cuts(problem.graph)):
        yield series(problem, time_limit=_left(deadline))


def _left(deadline: float) -> float | None:
    return None if math.isinf(deadline) else max(0.0, deadline - time.perf_counter())


def prepare() -> None:
    """Compile what `every` needs, by bounding a small problem; takes milliseconds where that has been done before."""
    names = [f"t{i}" for i in range(9)]
    arcs = [(f"t{i}", f"t{j}") for i, j in ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (4, 5), (4, 6), (4, 7), (5, 8), (6, 8), (7, 8))]
    durations = [[1.0 + (3 * i) % 5, 2.0 + (2 * i) % 3] for i in range(9)]
    problem = Problem(TaskGraph(names, arcs, output_bytes=1.0), Cluster(["a", "b"], bandwidth=2.0), durations=durations)
    for _ in every(problem):
        pass


def bound(problem: Problem, *, objective: str = "makespan", time_limit: float | None = None) -> Bound:
    """Return the best lower bound on the makespan, or on another objective.

    Parameters
    ----------
    problem : Problem
    objective : "makespan", "period" or "max-load"
    time_limit : float, optional
        Seconds of wall time; see `every` for the order in which it is spent.

    Returns
    -------
    Bound
        Its value is inf if no schedule exists; the evidence says why.
    """
    return max(every(problem, objective=objective, time_limit=time_limit), key=lambda found: found.value)
