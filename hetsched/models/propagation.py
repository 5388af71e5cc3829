"""The reasoning of `hetsched.analysis.task_subsets` in the nodes of a solver's search."""

from __future__ import annotations

import numpy as np

from hetsched.analysis.task_subsets import RefutationBudget, SingleInputProblem, TaskSubset
from hetsched.arrays import FloatArray
from hetsched.modeling.expression import concatenate
from hetsched.models.formulation import Component, Formulation

LARGEST = 100
"""The most tasks; the time for a node grows with their square."""
ROUNDING = 1e-9
"""Relative slack of all that is derived."""


class TaskPropagation(Component):
    """Redundant: heads, tails, loads and orders of tasks tighten times and devices in every node of the search, and choose the next task.

    A row has the largest makespan that they refute at once. For one input, and up to 100 tasks; with more it adds nothing.
    """

    def add_to(self, f: Formulation) -> None:
        problem = f.problem
        if problem.inputs > 1 or not 0 < problem.n_tasks <= LARGEST:
            return
        subset = TaskSubset(SingleInputProblem(problem), np.arange(problem.n_tasks), np.arange(problem.graph.n_edges))
        makespan, tasks = f.objective.expression, subset.tasks
        least = subset.least([subset.node()], RefutationBudget(deadline=f.deadline), best=f.upper)
        f.model.add(makespan >= least * f.second * (1 - ROUNDING), tag="refuted", cut=True)
        columns = [f.assign.on[tasks].reshape(-1), f.times.start[tasks], f.times.finish[tasks], makespan.reshape(1)]
        f.model.propagate(concatenate(columns), Tightening(subset, f.second), branches=True, tag="tasks")


class Tightening:
    """Tightens bounds of ``x[m, K], start[m], finish[m], makespan``, tasks in the order of a subset, in units of which `second` make one.

    A task with a device of upper bound 0 does not run there; its start bounds the release on all devices, the time from its finish to
    the makespan's upper bound the delivery, and tasks whose windows do not meet are in order. A node of branch and bound has the same
    constraints, so what follows from it holds here: the devices that are left, earliest starts, and latest finishes within the
    makespan's upper bound. Paths without deliveries, which count from that bound, are below the makespan.
    """

    def __init__(self, subset: TaskSubset, second: float) -> None:
        self.subset, self.second = subset, second
        self.whole = subset.node()

    def __call__(self, lower: FloatArray, upper: FloatArray) -> int | None:
        from hetsched.analysis.branch_and_bound_kernels import DEVICE

        subset, (m, size) = self.subset, self.whole[0].shape
        ends = np.array([m * size, m * size + m, m * size + 2 * m])
        (x, _, finish, makespan), (_, start, earliest, least) = np.split(upper, ends), np.split(lower, ends)
        horizon = makespan[0] / self.second
        node = self.whole.copy()
        node[0][x.reshape(m, size) < 0.5] = np.inf
        node[1] = start[:, None] / self.second
        node[2] = horizon - finish[:, None] / self.second
        node[1:] = np.maximum(node[1:] - ROUNDING * horizon, 0.0)
        node[1:, np.isinf(node[0])] = 0.0
        before = subset.before | (finish[:, None] <= start)
        np.fill_diagonal(before, False)
        if subset._contradicts(node, before, horizon * (1 + ROUNDING)):
            return None
        head, tail = subset._scratch.bounds
        there = np.isfinite(node[0])
        x[~there.ravel()] = 0.0
        np.maximum(start, self._first(head, there, horizon), out=start)
        np.maximum(earliest, self._first(head + node[0], there, horizon), out=earliest)
        np.minimum(finish, makespan - self._first(tail, there, horizon), out=finish)
        kind, task, device = subset._choose(before, node)
        node[2] = 0.0
        least[0] = max(least[0], (subset._path(node) - ROUNDING * horizon) * self.second)
        return task * size + device if kind == DEVICE else -1

    def _first(self, times: FloatArray, there: FloatArray, horizon: float) -> FloatArray:
        """Return the least time on a possible device, rounded down, in the model's units."""
        return np.asarray((np.where(there, times, np.inf).min(axis=1) - ROUNDING * horizon) * self.second)
