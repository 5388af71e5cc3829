"""DiviML's bound for several inputs: when some inputs have passed the first modules, the others still need the rest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.analysis import levels
from hetsched.analysis.closure import ancestors
from hetsched.analysis.load import best_thresholds, priced, thresholds
from hetsched.analysis.load_data import device_prices
from hetsched.arguments import check_indices, checked
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.errors import InvalidArgument
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem, stated
from hetsched.stopping import Deadline

LARGEST = 4000
"""The most tasks for which all ancestors are computed."""
_ITERATIONS = 20


class Handover(NamedTuple):
    """The bound, and the boundary and number of inputs that give it."""

    value: float
    boundary: int
    """Number of modules before the boundary."""
    inputs: int
    """Number of inputs that have passed those modules before the rest is counted."""


@checked
def handover(problem: Problem, modules: list[IntArray], deadline: Deadline) -> Handover:
    """Return the largest sum of a time for b inputs up to a boundary and one for the L - b + 1 last inputs after it.

    Let R be the tasks up to a boundary that something in the last module depends on, its ends those that
    tasks beyond it read: all of R comes before one of the c ends. Put inputs in the order in which they
    are done with R. When the b-th is done, b inputs have passed R. Each of the L - b + 1 inputs from the
    b-th on is done with R then or later, and as the last of R ended one of the ends: what depends on
    that end, of that input, starts no earlier. At least ceil((L - b + 1) / c) of these inputs agree on
    the end. And whichever each has, at any prices of devices the work of all is at least
    (L - b + 1) times that of the cheapest end's dependants. The same holds for fewer than L inputs up to
    a later boundary, so times add up from boundary to boundary.

    A batch may hold other inputs besides: q inputs in it cost as much as the cheapest batch of at least q.
    """
    if problem.n_tasks > LARGEST:
        return Handover(0.0, 0, 0)
    return _Chain(problem, modules, deadline).best()


class _Part(NamedTuple):
    """Some tasks, and their levels as a problem by themselves."""

    tasks: IntArray
    path: float
    head: FloatArray
    tail: FloatArray


class _Chain:
    """One problem, and the times of its inputs from boundary to boundary; all are 0 after the deadline."""

    def __init__(self, problem: Problem, modules: list[IntArray], deadline: Deadline) -> None:
        if not modules:
            raise InvalidArgument("modules is []; it must be the tasks of one module or more")
        modules = [check_indices(tasks, f"modules[{t}]", problem.n_tasks) for t, tasks in enumerate(modules)]
        self.problem, self.modules, self.deadline = problem, modules, deadline
        self.before = ancestors(problem.graph)  # before[j, i]: i comes before j
        self.needed = np.asarray(self.before[modules[-1]].any(axis=0))
        self.needed[modules[-1]] = True
        self.counts: list[int] = np.unique(np.ceil(problem.inputs * np.array([0.0, 0.5, 1.0])).clip(1)).astype(int).tolist()
        usable = problem.usable_durations
        self._cheapest = np.minimum.accumulate(usable[:, :, ::-1], axis=2)[:, :, ::-1]  # over batches of at least that size
        self._work: dict[int, FloatArray] = {}

    def best(self) -> Handover:
        """Return the largest sum found."""
        largest, up_to = Handover(0.0, 0, 0), np.zeros(self.problem.n_tasks, bool)
        passed, depending = [0.0] * len(self.counts), list[BoolArray]()
        for t, tasks in enumerate(self.modules[:-1]):
            up_to[tasks] = True
            region = up_to & self.needed
            longer = self._extended(passed, self._parts([dependants & region for dependants in depending]))
            total = self._parts([region])
            passed = [max(self._rest(total, b), value) for b, value in zip(self.counts, longer, strict=True)]
            depending = self._dependants(region)
            beyond = self._parts(depending)
            for b, value in zip(self.counts, passed, strict=True):
                largest = max(largest, Handover(value + self._rest(beyond, self.problem.inputs - b + 1), t + 1, b))
            if self._over:
                break
        return largest

    @property
    def _over(self) -> bool:
        return self.deadline.over

    def _dependants(self, region: BoolArray) -> list[BoolArray]:
        """Return the dependants of each end of a region that has no successor in the region."""
        graph = self.problem.graph
        ends = np.unique(graph.source[region[graph.source] & ~region[graph.target] & self.needed[graph.target]])
        return [self.before[:, i] for i in ends.tolist() if not (self.before[:, i] & region).any()]

    def _parts(self, chosen: list[BoolArray]) -> list[_Part]:
        """Return the longest paths of each set of tasks, or an empty list if one is empty, for then the time is 0."""
        if self._over or not all(members.any() for members in chosen):
            return []
        parts = []
        for members in chosen:
            alone = _alone(self.problem, np.flatnonzero(members))
            shortest = levels.least_durations(alone)
            start, tail = levels.earliest_starts(alone, shortest), levels.tails(alone, shortest)
            path = float((start + shortest + tail).min(axis=1).max())
            parts.append(_Part(np.flatnonzero(members), path, start.min(axis=1), tail.min(axis=1)))
        return parts

    def _extended(self, passed: list[float], parts: list[_Part]) -> list[float]:
        """Return for each number of inputs the best sum of a time up to the boundary before and one from there on."""
        rest = {q: self._rest(parts, q) for q in {b - a + 1 for a in self.counts for b in self.counts if a <= b}}
        return [max(value + rest[b - a + 1] for a, value in zip(self.counts, passed, strict=True) if a <= b) for b in self.counts]

    def _rest(self, parts: list[_Part], inputs: int) -> float:
        """Return the least time of `inputs` inputs if each needs any one of the parts."""
        if not parts or self._over:
            return 0.0
        alike = -(-inputs // len(parts))
        value = min(self._alike(part, alike) for part in parts)
        if len(parts) == 1:
            return value
        work = [self._work_of(inputs)[part.tasks] for part in parts]
        prices = [device_prices(amounts) for amounts in work]
        return max(value, *(min(priced(amounts, price) for amounts in work) for price in prices))

    def _alike(self, part: _Part, inputs: int) -> float:
        """Return the least time of `inputs` inputs that all need the same part."""
        work, (tasks, path, head, tail) = self._work_of(inputs), part
        _, a, b, prices = best_thresholds(head, tail, work[tasks], thresholds(head), thresholds(tail), _ITERATIONS)
        return max(path, a + priced(work[tasks[(head >= a) & (tail >= b)]], prices) + b)

    def _work_of(self, inputs: int) -> FloatArray:
        """Return the least seconds of a device for `inputs` inputs of each task, [n, K]; inf = cannot run."""
        if inputs not in self._work:
            sizes = np.arange(1, inputs + 1)
            place = np.searchsorted(self.problem.batch_sizes, sizes)
            sizes, place = sizes[place < self.problem.n_sizes], place[place < self.problem.n_sizes]
            self._work[inputs] = (self._cheapest[:, :, place] * (inputs / sizes)).min(axis=2)
        return self._work[inputs]


def _alone(problem: Problem, tasks: IntArray) -> Problem:
    """Return the problem of some tasks and one input, with the shortest batches and without memory limits."""
    graph, cluster = problem.graph, problem.cluster
    place = np.full(problem.n_tasks, -1)
    place[tasks] = np.arange(len(tasks))
    ends = place[graph.edges]
    edges = np.flatnonzero((ends >= 0).all(axis=1))
    alone = TaskGraph(
        [graph.names[i] for i in tasks], ends[edges], edge_bytes=graph.edge_bytes[edges], colocation=[graph.colocation[i] for i in tasks]
    )
    network = Cluster(
        [Device(name) for name in cluster.names],
        bandwidth=cluster.route_bandwidth,
        latency=np.where(cluster.route_bandwidth > 0, cluster.route_latency, 0.0),
    )
    return Problem(
        alone,
        network,
        durations=stated(problem.usable_durations[tasks].min(axis=2)),
        transfers=None if problem.transfers is None else problem.transfers[edges],
    )
