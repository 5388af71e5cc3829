"""The longest path through intervals, the tasks between two tasks, each with the optimum of its devices and orders."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from hetsched.analysis.levels import Levels
from hetsched.analysis.task_subsets import RefutationBudget, SingleInputProblem, TaskSubset
from hetsched.arguments import checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.problem.graph import plural
from hetsched.problem.problem import Problem
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline

LARGEST = 24
"""The most tasks of an interval."""
_NODES = 300
"""Nodes of one refutation."""
_WORK = 5e7
"""The work of all refutations: some seconds."""


@checked
def path_of_intervals(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the longest path on which the tasks between a fork and a join take as long as the best schedule of them alone.

    Take one input, and shorten every batch to the least time that a batch of its task takes on its device: it is still a schedule of
    that input. The interval from task u to task v is u, v and every task on a path between them. In a schedule, the tasks of the
    interval begin no earlier than u, as they all depend on it, and end no later than v. So what is in a schedule of them, moved to
    begin at 0, is a schedule of the interval, with its transfers; from the start of u to the end of v there is at least the optimum of
    the interval, c(u, v), whatever other tasks do. With s(i) and f(i) for lower bounds of the start and the end of task i on any
    device,

        f(v) = max(s(v) + the least duration of v, s(u) + c(u, v)),   s(v) = max(f of the parents of v, f(v) - the longest duration of v)

    are lower bounds again, with the durations of so shortened batches: where v takes d, its start is at least its least end less d. The
    largest end is the bound; transfers outside of intervals do not count. Instead of the optimum c(u, v) there may be a bound on it: what
    branch and bound refutes (see `hetsched.bounds.modular`).

    Each task with several parents is the end of at most one interval, of up to `LARGEST` tasks. Equal intervals, of which the layers of
    a network have many, are bounded once, those with the most work in all first.
    """
    levels = Levels(problem) if levels is None else levels
    shortest = levels.least.min(axis=1, initial=math.inf)
    if not np.isfinite(shortest).all() or not problem.n_tasks:
        return Bound(levels.critical_path.length, "path of intervals", "as the critical path")
    from hetsched.analysis import interval_kernels as kernels

    arrays, order = problem.arrays, problem.graph.topological_order
    longest = np.where(np.isfinite(levels.least), levels.least, -math.inf).max(axis=1)
    ends = np.flatnonzero(np.diff(problem.graph.pred_ptr) > 1)
    tasks = kernels.intervals(arrays, order, problem.graph.rank, shortest, ends, LARGEST)
    first, seconds, bounded = np.full(problem.n_tasks, -1), np.zeros(problem.n_tasks), 0
    single_input = SingleInputProblem(problem, levels.least)
    budget = RefutationBudget(nodes=_NODES, deadline=deadline, most=_WORK)
    for alike in _equal(single_input, tasks[tasks[:, 0] >= 0], shortest):
        if budget.over:
            break
        subset = TaskSubset(single_input, *alike[0])
        value = subset.least([subset.node()], budget)
        for inside, _ in alike:
            first[inside[0]], seconds[inside[0]] = inside[-1], value
        bounded += 1
    value = kernels.longest(arrays, order, shortest, longest, first, seconds, np.empty((2, problem.n_tasks)))
    return Bound(
        value,
        "path of intervals",
        f"a path of tasks, and of what is between a fork and a join, for which each of {plural(bounded, 'different interval')} has a "
        "lower bound by branch and bound",
    )


def _equal(single_input: SingleInputProblem, rows: IntArray, shortest: FloatArray) -> list[list[tuple[IntArray, IntArray]]]:
    """Return the tasks and edges of intervals, grouped by equal tasks, transfers and co-location, those with the most work first."""
    problem, graph = single_input.problem, single_input.problem.graph
    kind = np.unique(np.column_stack([single_input.least, single_input.bytes]), axis=0, return_inverse=True)[1].ravel()
    size = graph.edge_bytes[:, None] if problem.transfers is None else problem.transfers.reshape(graph.n_edges, problem.n_devices**2)
    transfer = np.unique(size, axis=0, return_inverse=True)[1].ravel()
    groups: dict[bytes, list[tuple[IntArray, IntArray]]] = defaultdict(list)
    place = np.full(problem.n_tasks, -1)
    for row in rows:
        inside = row[row >= 0]
        place[inside] = np.arange(len(inside))
        into = np.concatenate([graph.pred_edge[graph.pred_ptr[i] : graph.pred_ptr[i + 1]] for i in inside])
        edges = into[place[graph.source[into]] >= 0]
        unit = np.unique(problem.unit[inside], return_inverse=True)[1]
        ends = place[graph.edges[edges]].ravel()
        key = np.concatenate([[len(inside)], kind[inside], unit, ends, transfer[edges]])
        groups[key.tobytes()].append((inside, edges))
        place[inside] = -1
    return sorted(groups.values(), key=lambda alike: -len(alike) * float(shortest[alike[0][0]].sum()))
