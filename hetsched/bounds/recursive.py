"""DiviML's lower bound as printed: a recursion over the modules, with the bounds of parts of single modules added up.

Let V be tasks of modules M_1, ..., M_Q with edges between them, G the tasks of V outside M_1, O the tasks of M_1 that tasks I of G
read, A those of M_1 in O or before one of O, and B those of G in I or behind one of I. The last of A to finish can be taken
from O, because every other task of A has a successor in A. So all that depends on some u of I, and u itself, starts after A:
``OPT(V) >= OPT(A) + min over u in I of OPT(u and what depends on it in G)``. Likewise the first of B to start can be taken from I,
and some v of O, with all that comes before it in M_1, has finished by then:
``OPT(V) >= OPT(B) + min over v in O of OPT(v and what comes before it in M_1)``. The paper has M_1 and G in place of A and B, which is
wrong where a task of M_1 has no reader, or one of G reads nothing. A schedule of V contains one of any of its tasks, so bounds of
parts may stand for OPT: of more than one module this recursion, of one module branch and bound. Batches count with the least
time of any, as the paper first extends the bound to several inputs.

Source: DiviML, section IV-B.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

import numpy as np

from hetsched.analysis.closure import ancestors
from hetsched.analysis.task_subsets import RefutationBudget, SingleInputProblem, TaskSubset
from hetsched.arrays import BoolArray, IntArray
from hetsched.modeling.jobs import Jobs
from hetsched.schedule.parts import within
from hetsched.stopping import Deadline

LARGEST = 120
"""The most tasks of a part that branch and bound takes; larger ones count with their longest path."""


def recursive(
    single_input: SingleInputProblem,
    modules: list[IntArray],
    nodes: int,
    deadline: Deadline,
    *,
    executor: Executor | None = None,
    note: Callable[[str], object] = lambda _: None,
) -> float:
    """Return the bound of DiviML's recursion, in seconds.

    Parameters
    ----------
    single_input : SingleInputProblem
    modules : list of int arrays
        The tasks of each module; every edge stays in its module or leads to a later one.
    nodes : int
        The most nodes of one refutation.
    deadline : Deadline
        Afterwards parts count with their longest paths.
    executor : concurrent.futures.Executor, optional
        The executor that bounds parts of modules side by side; without one this process does.
    note : callable
        Called with a message when the executor fails.
    """
    recursion = _Recursion(single_input, modules, deadline)
    parts = list(recursion.parts())
    jobs = Jobs[bytes](executor, recursion.least.__setitem__, note)
    for key, members in parts:
        if not deadline.over:
            jobs.submit(key, _least, recursion.subset(members), nodes, deadline.limit)
    while jobs and not deadline.over:
        jobs.collect(deadline)
    jobs.cancel()
    return recursion.value()


def _least(subset: TaskSubset, nodes: int, seconds: float | None) -> float:
    """Return a bound of the tasks of a part."""
    node = subset.node()
    if len(subset.tasks) > LARGEST:
        return subset.path(node)
    return subset.least([node], RefutationBudget(nodes=nodes, deadline=Deadline.after(seconds, time.monotonic)))


class _Recursion:
    """The recursion over sets of tasks, each a bool array [n]."""

    def __init__(self, single_input: SingleInputProblem, modules: list[IntArray], deadline: Deadline) -> None:
        problem = single_input.problem
        self.single_input, self.graph, self.deadline = single_input, problem.graph, deadline
        self.before = ancestors(problem.graph)
        """before[j, i]: i comes before j."""
        self.modules = []
        for tasks in modules:
            members = np.zeros(problem.n_tasks, bool)
            members[tasks] = True
            self.modules.append(members)
        self.everything = np.ones(problem.n_tasks, bool)
        self.least: dict[bytes, float] = {}
        """Bounds of parts of one module."""

    def subset(self, members: BoolArray) -> TaskSubset:
        """Return the tasks of a set and the edges between them."""
        tasks = np.flatnonzero(members)
        return TaskSubset(self.single_input, tasks, within(self.graph, tasks))

    def parts(self) -> Iterator[tuple[bytes, BoolArray]]:
        """Yield the sets of tasks of one module that the recursion needs, and their keys."""
        waiting, known = [self.everything], set[bytes]()
        for members in waiting:
            key = members.tobytes()
            if key in known:
                continue
            known.add(key)
            steps = self._steps(members)
            if steps:
                waiting += [part for one, others in steps for part in (one, *others)]
            else:
                yield key, members

    def _steps(self, members: BoolArray) -> list[tuple[BoolArray, list[BoolArray]]]:
        """Return the sums of the recursion for a set, each of one set and the least of others; none for one module or without time."""
        if self.deadline.over:
            return []
        inside = [module & members for module in self.modules if (module & members).any()]
        if len(inside) <= 1:
            return []
        first, rest = inside[0], members & ~inside[0]
        source, target = self.graph.source, self.graph.target
        crossing = first[source] & rest[target]
        if not crossing.any():
            return [(first, []), (rest, [])]
        outputs, inputs = np.unique(source[crossing]), np.unique(target[crossing])
        ahead, behind = [self._with(i, self.before[i]) & first for i in outputs], [self._with(i, self.before[:, i]) & rest for i in inputs]
        return [(np.logical_or.reduce(ahead), behind), (np.logical_or.reduce(behind), ahead)]

    @staticmethod
    def _with(task: int, others: BoolArray) -> BoolArray:
        result = others.copy()
        result[task] = True
        return result

    def value(self) -> float:
        """Return the bound of all tasks."""
        known: dict[bytes, float] = {}
        stack = [self.everything]
        while stack:
            members = stack[-1]
            key, steps = members.tobytes(), self._steps(members)
            missing = [part for one, others in steps for part in (one, *others) if part.tobytes() not in known]
            if missing:
                stack += missing
                continue
            stack.pop()
            if steps:
                sums = [(known[one.tobytes()], [known[part.tobytes()] for part in others]) for one, others in steps]
                known[key] = max(value + min(least, default=0.0) for value, least in sums)
            else:
                known[key] = self._bound(key, members)
        return known[self.everything.tobytes()]

    def _bound(self, key: bytes, members: BoolArray) -> float:
        if key not in self.least:
            if not members.any():
                return 0.0
            subset = self.subset(members)
            self.least[key] = subset.path(subset.node())
        return self.least[key]
