"""Parts of a graph one after another: bounds of what is between tasks that come before or after every other add up."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hetsched.analysis.cuts import series_cuts
from hetsched.analysis.levels import Levels
from hetsched.analysis.modules import LARGEST, falls_apart
from hetsched.analysis.task_subsets import RefutationBudget, SingleInputProblem, TaskSubset
from hetsched.arguments import checked
from hetsched.arrays import IntArray
from hetsched.bounds.modular import TYPICAL, WORK
from hetsched.problem.graph import TaskGraph, plural
from hetsched.problem.problem import Problem
from hetsched.schedule.parts import within
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline

_NODES = (1, 10, 100, 300, 1000, 10_000, 100_000)
"""Nodes of one refutation in each pass."""


@checked
def in_series(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the sum of bounds of the parts between tasks that come before or after every other.

    Let c be such a task, and follow one input through a schedule. The tasks before c end before it starts, and the others start after
    it ends. So the parts between these tasks, each with the task that ends it, run one after another, and the schedule takes as long
    as all together at least. A part takes at least the bound of its tasks and the edges between them: one by branch and bound, as in a
    window of `hetsched.bounds.modular`, or its longest path if it has more than 40 tasks. Batches of the input take their least time of
    any, so that this holds for several inputs, and transfers between parts are left out. Pass after pass parts are searched more
    deeply, until the deadline.

    That takes one search a part, where earliest starts on each device take nine for three devices.

    Parameters
    ----------
    problem : Problem
    levels : Levels, optional
        Levels of the problem.
    best : Bound, optional
        Not used, for a bound on the whole says little about a part.
    deadline : Deadline
        The end; without one the work takes about a second.
    """
    levels = Levels(problem) if levels is None else levels
    parts = [] if deadline.over else list(parts_of(problem.graph))
    single_input = SingleInputProblem(problem, levels.least)
    subsets = [TaskSubset(single_input, np.sort(part), within(problem.graph, part)) for part in parts]
    times = [subset.path(subset.node()) for subset in subsets]
    budget = RefutationBudget(deadline=deadline, most=WORK if math.isinf(deadline.end) else math.inf)
    for budget.nodes in _NODES:
        budget.open = 0
        for t, subset in enumerate(subsets):
            if len(subset.tasks) <= LARGEST and not budget.over:
                times[t] = subset.least([subset.node()], budget, times[t])
        if budget.over or not budget.open or math.isinf(sum(times)):
            break
    value, longest = sum(times), levels.critical_path.length
    if value <= longest:
        return Bound(longest, "in series", "as the critical path")
    return Bound(value, "in series", f"{plural(len(parts), 'part')} one after another")


def in_large_modules(problem: Problem) -> bool:
    """Return whether clean cuts divide a graph into modules of up to 40 tasks, some so large that their optima take long."""
    return falls_apart(problem) and not falls_apart(problem, TYPICAL)


@checked
def parts_of(graph: TaskGraph) -> Iterator[IntArray]:
    """Yield the tasks between some of the `series_cuts`, in series: up to `TYPICAL` tasks, or more where there is no cut between."""
    order, begin, last = graph.topological_order, 0, 0
    for end in [*(graph.rank[series_cuts(graph)] + 1).tolist(), graph.n_tasks]:
        if end - begin > TYPICAL and last > begin:
            yield order[begin:last]
            begin = last
        last = end
    if graph.n_tasks > begin:
        yield order[begin:]
