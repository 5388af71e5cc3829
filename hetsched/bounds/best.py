"""The best lower bound, from cheap to dear."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hetsched.analysis.modules import falls_apart, modules
from hetsched.arguments import checked
from hetsched.bounds import combinatorial, steady
from hetsched.bounds.destructive import destructive
from hetsched.bounds.modular import modular
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.solution import Bound, Status
from hetsched.stopping import NEVER, Deadline

_SMALL, _LARGE = 0.3, 0.7
"""Parts of the time left for bounds that others follow."""


@checked
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


@checked
def every(
    problem: Problem, *, objective: str = "makespan", deadline: Deadline = NEVER, dear: bool = True, models: bool = True
) -> Iterator[Bound]:
    """Yield all bounds from cheap to dear: those of `quick`, `load`, `head_tail_load`, `modular`, `destructive`, and of `relaxation`.

    What does not fit the time is left out or cut short, but for the very first; a proof that
    there is no schedule (value inf) is the last. Under another objective than the makespan those of
    `steady.every`.

    Parameters
    ----------
    problem : Problem
    objective : "makespan", "period" or "max-load"
    deadline : Deadline
        When to end.
    dear : bool
        If not, only those of `quick`, and `destructive`.
    models : bool
        Whether to ask a solver too, where there is a deadline and a model is small.
    """
    if objective != "makespan":
        yield from steady.every(problem, objective)
        return
    best: Bound | None = None
    for found in _cheap(problem) if dear else quick(problem):
        best = found if best is None or found.value > best.value else best
        yield found
        if math.isinf(best.value) or deadline.over:
            return
    assert best is not None  # quick yields at least one
    for found in _dear(problem, best, deadline, models) if dear else (destructive(problem, start=best, deadline=deadline),):
        yield found
        if math.isinf(found.value) or deadline.over:
            return


def _dear(problem: Problem, best: Bound, deadline: Deadline, models: bool) -> Iterator[Bound]:
    from hetsched.bounds import relaxation

    models = models and math.isfinite(deadline.end)
    if models and falls_apart(problem):
        solution = relaxation.split(problem, deadline=deadline.part(_LARGE))
        yield solution.proof
        if solution.status in (Status.OPTIMAL, Status.INFEASIBLE):
            return
        models = False
    models = models and relaxation.fits(problem)
    found = modular(problem, deadline=deadline.part(_SMALL if models else _LARGE))
    yield found
    yield destructive(problem, start=max(best, found, key=lambda each: each.value), deadline=deadline.part(_SMALL if models else 1.0))
    if models:
        yield from relaxation.every(problem, deadline=deadline)


def _cheap(problem: Problem) -> Iterator[Bound]:
    yield from quick(problem)
    yield combinatorial.load(problem)
    yield combinatorial.head_tail_load(problem)


def prepare() -> None:
    """Compile what `every` needs, by bounding a small problem; takes milliseconds where that has been done before."""
    names = [f"t{i}" for i in range(9)]
    arcs = [(f"t{i}", f"t{j}") for i, j in ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (4, 5), (4, 6), (4, 7), (5, 8), (6, 8), (7, 8))]
    durations = [[1.0 + (3 * i) % 5, 2.0 + (2 * i) % 3] for i in range(9)]
    problem = Problem(TaskGraph(names, arcs, output_bytes=1.0), Cluster(["a", "b"], bandwidth=2.0), durations=durations)
    for _ in every(problem):
        pass
    modules(problem.graph, channels=2, largest=2)  # what `every` asks of graphs that no single task cuts


@checked
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
    return max(every(problem, objective=objective, deadline=Deadline.after(time_limit)), key=lambda found: found.value)
