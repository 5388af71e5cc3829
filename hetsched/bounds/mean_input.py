"""What the mean of all inputs needs: large batches keep devices busy for less, small ones let an input pass sooner.

Other bounds count the work of each task in its most efficient batch, and a path in the shortest batches. No schedule has both.
Let y(i, k, p) be the number of batches of p inputs of task i on device k, d(i, k, p) the seconds of one, and L the number of
inputs, so that the share p y(i, k, p) / L of the inputs is in such batches. Let S(i) be the mean over the inputs of the start of
i, and D(i) = sum over k and p of d(i, k, p) p y(i, k, p) / L that of its duration, as a batch lasts as long for each of its inputs.
Every schedule of makespan T satisfies

1. sum over k and p of p y(i, k, p) = L for each task i, and with one batch of a task on a device, sum over p of y(i, k, p) <= 1;
2. sum over i and p of d(i, k, p) y(i, k, p) <= T for each device k, for its batches do not overlap;
3. S(u) + D(u) + sum over the tasks i between u and v, and over p, of d(i, k, p) p y(i, k, p) / L <= S(v) for each device k and tasks
   u and v with a path from u to v. For one input all tasks between them start after its batch of u ends, and end before its batch
   of v starts; their batches with it are distinct, and those on device k do not overlap. So the sum of their durations fits between.
   The mean over the inputs is the row. In place of u there may be the start of the schedule, in place of v its end, T.

The least T that satisfies the rows with any numbers y >= 0 is `mean_input`; with whole numbers, `whole_batches`. Nothing is said
of transfers, memory and labels, so both hold for all of them. Rows 3 are added where a solution violates them.
"""

from __future__ import annotations

import numpy as np

from hetsched.analysis.closure import ancestors
from hetsched.analysis.levels import Levels
from hetsched.arguments import checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.bounds.relaxation import LARGEST, relaxed
from hetsched.modeling.backends import info
from hetsched.modeling.expression import concatenate
from hetsched.modeling.model import Model
from hetsched.problem.problem import Problem
from hetsched.search.solution import NO_BOUND, Bound, Trust
from hetsched.stopping import NEVER, Deadline

_COLUMNS = 10_000
"""The most numbers of batches in a linear program."""
_TASKS = 1000
"""The most tasks, all pairs of which are looked at."""
_ROUNDS = 20
_GAIN = 1e-4
"""The least gain of a round, as a share of the bound, after which there is another."""
_VIOLATED = 1e-6
"""By how much a row is violated that is added, as a share of the makespan."""
_MOST = 4.0
"""The longest makespan that is considered, in units of the model."""


@checked
def batched(problem: Problem) -> bool:
    """Return whether there are several inputs, and few enough tasks and numbers of batches."""
    return problem.inputs > 1 and problem.n_tasks <= _TASKS and 0 < np.isfinite(problem.usable_durations).sum() <= _COLUMNS


@checked
def few_batches(problem: Problem) -> bool:
    """Return whether a solver can decide on the numbers of batches."""
    return batched(problem) and bool(np.isfinite(problem.usable_durations).sum() <= LARGEST)


@checked
def mean_input(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the least makespan that is long enough for the devices and for the mean of all inputs; see the module for the proof.

    Linear programs are solved by HiGHS; the value is that of the Lagrangian at the prices found, with rounding subtracted.
    """
    levels = Levels(problem) if levels is None else levels
    mean = _MeanInput(levels, deadline)
    return mean.bound("mean input", mean.tighten(deadline))


@checked
def whole_batches(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return what SCIP proves by the deadline if the numbers of batches in `mean_input` are whole."""
    levels = Levels(problem) if levels is None else levels
    mean = _MeanInput(levels, deadline)
    value = mean.tighten(deadline)
    if not mean.unit or deadline.over:
        return mean.bound("mean input", value)
    outcome = mean.model.solve("scip", deadline=deadline)
    proven = outcome.bound * (1 - info("scip").capabilities.bound_tolerance)
    return mean.bound("whole batches of the mean input", max(value, proven), trust="solver")


class _MeanInput:
    """The model, whose unit of time is the work of all tasks on their best devices, so that no solver's tolerance depends on the seconds.

    Makespans above `_MOST` are left out, so a bound is never above that.
    """

    def __init__(self, levels: Levels, deadline: Deadline) -> None:
        self.problem = problem = levels.problem
        seconds, n = levels.batch_durations, problem.n_tasks
        work = float(levels.work.min(axis=1).sum())
        self.unit = work if work < np.inf else 0.0
        if not self.unit:
            return
        possible = np.isfinite(seconds)
        lasting = np.where(possible, seconds, 0.0) / self.unit
        share = problem.batch_sizes / problem.inputs
        once = problem.batching == "once"
        self.model = model = Model(deadline=deadline)
        self.end = model.continuous("end", lower=0.0, upper=_MOST)
        starts = model.continuous("start", n, lower=0.0, upper=_MOST)
        most = 1 if once else problem.inputs // problem.batch_sizes
        count = model.integer("batches", seconds.shape, lower=0, upper=np.where(possible, most, 0))
        model.add((count * share).sum(axis=(1, 2)) == 1.0, tag="all inputs")
        if once:
            model.add(count.sum(axis=2) <= 1.0, tag="one batch")
        model.add((count * lasting).sum(axis=(0, 2)) <= self.end, tag="load")
        self.mean = (count * (lasting * share)).sum(axis=2)
        self.starts = concatenate([starts, self.end.reshape(1)])
        self.finishes = concatenate([starts + self.mean.sum(axis=1), self.end.reshape(1) * 0.0])
        before = ancestors(problem.graph, deadline)
        self.after = np.vstack([before.T, np.ones((1, n), bool)])
        """[u, i]: task i is after u; all are after the start."""
        self.before = np.vstack([before, np.ones((1, n), bool)])
        """[v, i]: task i is before v; all are before the end."""
        self.terms = 1 + self.after.astype(np.float64) @ self.before.T
        """[u, v]: one more than the tasks between."""
        self.joined = np.ones((n + 1, n + 1), bool)
        """[u, v]: u is the start or v the end or a path leads from u to v."""
        self.joined[:n, :n] = before.T
        u, v = np.append(problem.graph.source, np.arange(n)), np.append(problem.graph.target, np.full(n, n))
        model.add(self.finishes[u] <= self.starts[v], tag="path")  # rows 3 of edges and ends, nothing between
        model.minimise(self.end)

    def tighten(self, deadline: Deadline) -> float:
        """Add rows 3 that are violated as long as that gains something; return the best bound."""
        value = 0.0
        for _ in range(_ROUNDS if self.unit else 0):
            (proven, columns), before = relaxed(self.model, deadline), value
            value = max(value, proven)
            if value <= before * (1 + _GAIN) or not self._add_violated(columns) or deadline.over:
                break
        return value

    def _add_violated(self, columns: FloatArray) -> bool:
        """Add for each device, and each u and each v, the row 3 that is violated most for its number of tasks; return whether any is."""
        if not len(columns):
            return False
        mean, starts, finishes = (part.value(columns) for part in (self.mean, self.starts, self.finishes))
        room = np.where(self.joined, starts - finishes[:, None], np.inf) + _VIOLATED * starts[-1]
        added = False
        for k in range(self.problem.n_devices):
            u, v = _least((room - (self.after * mean[:, k]) @ self.before.T) / self.terms).T
            if len(u):
                between = (self.after[u] & self.before[v]).astype(np.float64)
                self.model.add(self.finishes[u] + self.mean[:, k] @ between.T <= self.starts[v], tag="between")
                added = True
        return added

    def bound(self, name: str, value: float, trust: Trust = "computed") -> Bound:
        """Return a bound from one in units of the model."""
        evidence = "the means over the inputs of starts, and numbers of batches of each size"
        return Bound(min(value, _MOST) * self.unit, name, evidence, trust=trust if value < np.inf else "solver")


def _least(short: FloatArray) -> IntArray:
    """Return the places of the least entry of each row and each column where it is negative, without repetition, [P, 2]."""
    every = np.arange(len(short))
    places = np.concatenate([np.column_stack([every, short.argmin(axis=1)]), np.column_stack([short.argmin(axis=0), every])])
    places = np.unique(places, axis=0)
    negative: IntArray = places[short[places[:, 0], places[:, 1]] < 0]
    return negative
