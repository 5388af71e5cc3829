"""Earliest starts of all tasks, raised subset by subset; their proof is in `hetsched.bounds.modular`."""

from __future__ import annotations

import numpy as np

from hetsched.analysis import levels
from hetsched.analysis.task_subsets import RefutationBudget, SingleInputProblem, TaskSubset
from hetsched.arguments import check_count, check_indices, checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.problem.problem import Problem

LARGEST = 120
"""The most tasks of a subset."""
_SETS = 8
"""The most sets of several ends at one boundary."""

Ends = tuple[int, ...]


class ReleaseTimes:
    """Earliest starts of all tasks, raised module by module.

    Attributes
    ----------
    release : array [n, K]
        Earliest start of a task on a device, inf = never.
    last : dict
        ``last[t, ends][i]`` [K]: the same for task i if it is the last of all `ends` to finish. Ends are
        tasks of the modules up to t.
    """

    @checked
    def __init__(self, problem: Problem, least: FloatArray, modules: list[IntArray]) -> None:
        self.single_input = SingleInputProblem(problem, least)
        self.modules = modules = [check_indices(tasks, f"modules[{t}]", problem.n_tasks) for t, tasks in enumerate(modules)]
        self.module = np.empty(problem.n_tasks, np.int64)
        for t, tasks in enumerate(modules):
            self.module[tasks] = t
        graph = problem.graph
        into = self.module[graph.target]
        self.edges = np.argsort(into, kind="stable")
        self.pointer = np.searchsorted(into[self.edges], np.arange(len(modules) + 1))
        self.read_until = np.full(problem.n_tasks, -1)
        np.maximum.at(self.read_until, graph.source, into)
        self.release = levels.earliest_starts(problem, least)
        self.last: dict[tuple[int, Ends], dict[int, FloatArray]] = {}
        self._subsets: dict[tuple[int, int], TaskSubset | None] = {}

    @property
    def channels(self) -> int:
        """The most tasks before a boundary that later modules read."""
        read = self.read_until > self.module
        passing = np.zeros(len(self.modules) + 1, np.int64)
        np.add.at(passing, self.module[read], 1)
        np.add.at(passing, self.read_until[read], -1)
        return int(np.cumsum(passing).max(initial=0))

    @checked
    def subset(self, t: int, width: int) -> TaskSubset | None:
        """Return the subset of `width` modules up to t and the tasks that they read, or None if it is too large."""
        return self._subset(check_count(t, "t", 0, len(self.modules) - 1), check_count(width, "width"))

    def _subset(self, t: int, width: int) -> TaskSubset | None:
        if (t, width) not in self._subsets:
            first = max(0, t - width + 1)
            edges = self.edges[self.pointer[first] : self.pointer[t + 1]]
            tasks = np.union1d(np.concatenate(self.modules[first : t + 1]), self.single_input.problem.graph.source[edges])
            self._subsets[t, width] = TaskSubset(self.single_input, tasks, edges) if len(tasks) <= LARGEST else None
        return self._subsets[t, width]

    @checked
    def entries(self, subset: TaskSubset, t: int, width: int) -> Ends:
        """Return the tasks of earlier modules in a subset."""
        return self._entries(subset, t, width)

    def _entries(self, subset: TaskSubset, t: int, width: int) -> Ends:
        return tuple(subset.tasks[self.module[subset.tasks] <= t - width].tolist())

    @checked
    def ends(self, t: int) -> Ends:
        """Return the tasks of module t that later ones read."""
        tasks = self.modules[check_count(t, "t", 0, len(self.modules) - 1)]
        return tuple(np.sort(tasks[self.read_until[tasks] > t]).tolist())

    @checked
    def raise_(self, width: int, budget: RefutationBudget) -> None:
        """Raise heads once from the first module to the last."""
        check_count(width, "width")
        selected = self._wanted(width, budget)
        for t in range(len(self.modules)):
            if budget.over:
                return
            subset = self._subset(t, width)
            if subset is None:
                self._follow_levels(t)
                continue
            own_tasks = subset.tasks[self.module[subset.tasks] == t]
            start = subset.starts(subset.node(self.release))[[subset.place[i] for i in own_tasks.tolist()]]
            self.release[own_tasks] = np.maximum(self.release[own_tasks], start)
            for ends in selected[t]:
                self._raise_ends(t, width, ends, budget)

    def _wanted(self, width: int, budget: RefutationBudget) -> list[list[Ends]]:
        """Return the sets of ends for each boundary: first single ones, then the entries of subsets."""
        selected: list[list[Ends]] = [[] for _ in self.modules]
        for t in range(len(self.modules) - 1, -1, -1):
            subset = None if budget.over else self._subset(t, width)
            if subset is None:
                continue
            inside = {ends for ends in selected[t] if all(self.module[i] > t - width for i in ends)}
            selected[t] = [(i,) for i in self.ends(t)] + sorted(inside, key=lambda ends: (-len(ends), ends))[:_SETS]
            if t >= width:
                for ends in (None, *selected[t]):
                    entries = self._entries(subset if ends is None else subset.ancestry(ends), t, width)
                    if len(entries) > 1:
                        selected[t - width].append(entries)
        return selected

    def _raise_ends(self, t: int, width: int, ends: Ends, budget: RefutationBudget) -> None:
        subset = self._subset(t, width)
        assert subset is not None
        part = subset.ancestry(ends)
        sinks = [i for i in ends if not part.before[part.place[i]].any()]
        previous = self.last.get((t, ends), {})
        raised = {}
        for i in sinks:
            start = np.maximum(self.release[i], previous.get(i, 0.0))
            for k in np.flatnonzero(np.isfinite(start + self.single_input.least[i])).tolist() if len(sinks) > 1 or len(ends) == 1 else []:
                if budget.over:
                    break
                nodes = self._alternatives(part, t, width, [(i, k)])
                length = self.single_input.least[i, k]
                start[k] = max(start[k], part._least(nodes, budget, start[k] + length) - length)
            raised[i] = start
        if len(ends) == 1:
            self.release[ends[0]] = raised[ends[0]]
        else:
            self.last[t, ends] = raised

    @checked
    def alternatives(
        self, subset: TaskSubset, t: int, width: int, pins: list[tuple[int, int]], delivery: FloatArray | None = None
    ) -> list[FloatArray]:
        """Return nodes of which one holds, one for each entry of the subset that may finish last and each of its devices."""
        return self._alternatives(subset, t, width, subset._check_limits(self.release, delivery, pins), delivery)

    def _alternatives(
        self, subset: TaskSubset, t: int, width: int, pins: list[tuple[int, int]], delivery: FloatArray | None = None
    ) -> list[FloatArray]:
        entries = self._entries(subset, t, width)
        last = {i: self.release[i] for i in entries} if len(entries) == 1 else self.last.get((t - width, entries), {})
        if not last:
            return [subset._node(self.release, delivery, pins)]
        nodes = []
        for i, start in last.items():
            for k in np.flatnonzero(np.isfinite(start + self.single_input.least[i])).tolist():
                node = subset._node(self.release, delivery, [*pins, (i, k)])
                node[1, subset.place[i], k] = max(node[1, subset.place[i], k], start[k])
                nodes.append(node)
        return nodes

    def _follow_levels(self, t: int) -> None:
        """Raise the releases of a module too large for a subset by its longest paths."""
        graph, shortest = self.single_input.problem.graph, self.single_input.least
        tasks = self.modules[t]
        for i in tasks[np.argsort(self.single_input.rank[tasks])].tolist():
            edges = graph.pred_edge[graph.pred_ptr[i] : graph.pred_ptr[i + 1]]
            if len(edges):
                parents = graph.source[edges]
                arrival = (self.release[parents] + shortest[parents])[:, :, None] + self.single_input.lag(edges)
                self.release[i] = np.maximum(self.release[i], arrival.min(axis=1).max(axis=0))

    @checked
    def join(self, t: int, width: int, delivery: FloatArray, budget: RefutationBudget) -> float:
        """Return a bound on the makespan: the subset up to module t between heads and the `delivery` of all tasks [n, K]."""
        subset = None if budget.over else self.subset(t, width)
        return 0.0 if subset is None else subset.least(self.alternatives(subset, t, width, [], delivery), budget)
