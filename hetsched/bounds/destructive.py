"""Destructive improvement: suppose a makespan, derive a contradiction, raise the bound."""

from __future__ import annotations

import math

import numpy as np

from hetsched.analysis.closure import ancestors
from hetsched.analysis.levels import Levels, least_work
from hetsched.analysis.load import best_thresholds, priced, thresholds
from hetsched.arguments import check_array, checked, number
from hetsched.arrays import BoolArray, FloatArray, readonly
from hetsched.bounds.combinatorial import critical_path, head_tail_load, load
from hetsched.problem.problem import Problem
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline

_CLOSURE_LIMIT = 1000
_ROUNDS = 20
_ITERATIONS = 20


@checked(precision=number(above=0.0))
def destructive(
    problem: Problem,
    *,
    levels: Levels | None = None,
    best: Bound = NO_BOUND,
    deadline: Deadline = NEVER,
    precision: float = 5e-7,
    release: FloatArray | None = None,
    delivery: FloatArray | None = None,
) -> Bound:
    """Return the largest makespan shown to be out of reach (Klein and Scholl 1999).

    For a supposed makespan T every (task, device) whose head, duration and tail exceed T goes; heads
    rise by the load of a task's ancestors and tails by that of its descendants (up to 1000 tasks);
    that takes away more pairs, and so on. T is refuted if a task is left without a device, or if
    the tasks between some head and tail need more than T. Galloping and bisection find the largest refuted T.

    Parameters
    ----------
    levels : Levels, optional
        Levels of the problem.
    best : Bound, optional
        The initial bound; default the best of `critical_path`, `load`, `head_tail_load`.
    deadline : Deadline
        The time at which the best so far is returned.
    precision : float
        Relative precision; the default is below the gap at which a schedule counts as optimal.
    release, delivery : arrays [n, K], optional
        Valid lower bounds: of the start of a batch of a task on a device, and of the time from its end to
        the makespan; inf = it never runs there.
    """
    levels = Levels(problem) if levels is None else levels
    if best is NO_BOUND:
        best = max(
            (bound(problem, levels=levels) for bound in (critical_path, load, head_tail_load)), key=lambda candidate: candidate.value
        )
    if best.value == 0 or math.isinf(best.value):
        return best
    trial = _Trial(levels, deadline, release, delivery)
    low, step = best.value, 0.01
    while trial.refutes(low * (1 + step)):
        low *= 1 + step
        step *= 2
    high, middle = low * (1 + step), low * (1 + precision)  # the finest step first: often no improvement is left
    while high - low > precision * low and not deadline.over:
        if trial.refutes(middle):
            low = middle
        else:
            high = middle
        middle = (low + high) / 2
    if low == best.value:
        return best
    return Bound(low, "destructive", f"within {low:.9g} s the heads, tails and loads of tasks contradict one another")


class _Trial:
    """Releases and deliveries of all schedules below the least makespan not refuted so far."""

    def __init__(self, levels: Levels, deadline: Deadline, release: FloatArray | None = None, delivery: FloatArray | None = None) -> None:
        self.problem, self.deadline = levels.problem, deadline
        problem = levels.problem
        self.durations = levels.batch_durations
        self.order = problem.graph.topological_order
        self.ancestors: BoolArray | None = None
        if problem.n_tasks <= _CLOSURE_LIMIT:
            self.ancestors = ancestors(problem.graph)
            self.descendants = np.ascontiguousarray(self.ancestors.T)
        shortest = levels.least
        self.known = (
            shortest,
            *(
                np.zeros_like(shortest) if given is None else check_array(given, what, shortest.shape)
                for what, given in (("release", release), ("delivery", delivery))
            ),
        )

    def refutes(self, horizon: float) -> bool:
        """Return whether a makespan of at most `horizon` seconds is refuted; False at the deadline.

        Horizons must be below the least one not refuted, whose releases and deliveries are used here.
        """
        from hetsched.analysis import level_kernels, load_kernels

        problem, order = self.problem, self.order
        w = level_kernels.heads_and_tails(*self.known)
        for _ in range(_ROUNDS):
            if self.deadline.over:
                return False
            if not level_kernels.narrow(problem.arrays, order, problem.unit, w, horizon):
                return True
            if self.ancestors is None:
                break
            heads, tails = w.start.min(axis=1), w.tail.min(axis=1)
            risen = load_kernels.tighten_releases(order, self.ancestors, heads, w.least, w.release, _ITERATIONS)
            risen |= load_kernels.tighten_releases(readonly(order[::-1]), self.descendants, tails, w.least, w.delivery, _ITERATIONS)
            if not risen:
                break
        if self._overloads(w.start, w.tail, horizon):
            return True
        self.known = (w.least, w.release, w.delivery)
        return False

    def _overloads(self, start: FloatArray, tail: FloatArray, horizon: float) -> bool:
        """Return whether the tasks between some head and some tail need more than the horizon."""
        possible = start[:, :, None] + self.durations + tail[:, :, None] <= horizon * (1 + 1e-9)
        work = least_work(self.problem, np.where(possible, self.durations, np.inf))
        head, end = start.min(axis=1), tail.min(axis=1)
        _, a, b, prices = best_thresholds(head, end, work, thresholds(head), thresholds(end), _ITERATIONS)
        return bool(a + priced(work[(head >= a) & (end >= b)], prices) + b > horizon * (1 + 1e-12))
