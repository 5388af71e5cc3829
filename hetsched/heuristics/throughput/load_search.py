"""Local search for the period: assignments of tasks to devices by their loads."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from hetsched.analysis.load import priced
from hetsched.analysis.load_data import LoadData, device_prices, load_data, unit_order
from hetsched.arrays import FloatArray, IntArray, readonly
from hetsched.errors import InvalidSchedule
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import LOADS, Auto, Monitor, Supports, method

_CHUNK = 4_000  # moves between two checks of the time, a few milliseconds
_HOT, _COLD = 3e-3, 1e-7
_AIMS = (0.0, 0.5, 0.8, 0.95)


@method(
    "load-search",
    summary="period: annealing over who runs what, with moves of single units, pairs and connected groups",
    source="ours",
    objectives=LOADS,
    supports=Supports(),
    turn=370,
    auto=Auto(weight=2.0),
)
def load_search(problem: Problem, monitor: Monitor, *, moves: int = 8_000_000) -> None:
    """Anneal assignments until the budget is used up, or for `moves` moves (about ten seconds).

    Every round starts from the best assignment, from one device, or from intervals of a linear
    order. Its temperature first allows loads a few per cent above the target, which is between the
    bound and the best value. Rounds become longer. Excess memory and missing paths have penalties
    during the search and do not occur in offered assignments. Under objectives other than max-load
    the period is minimised.
    """
    data = load_data(problem, "max-load" if monitor.objective == "max-load" else "period")
    for need in memory_needs(problem):
        if _Search(problem, monitor, data, need).run(moves):
            return
        if monitor.should_stop:
            break
    monitor.note("found no assignment within memory along paths that exist; more time, or method 'load-milp', may")


class _Search:
    """A search with given memory claims."""

    def __init__(self, problem: Problem, monitor: Monitor, data: LoadData, need: FloatArray) -> None:
        from hetsched.heuristics.throughput.load_kernels import LoadProblem, new_state

        self.problem, self.monitor = problem, monitor
        self.allowed, self.missing = readonly(np.isfinite(data.cost)), data.missing
        self.data = data._replace(
            cost=readonly(np.where(self.allowed, data.cost, self.missing)),
            time=readonly(np.where(np.isfinite(data.time), data.time, self.missing)),
        )
        self.tables = LoadProblem(self.data, readonly(need), problem.cluster.memory_bytes, self.allowed)
        self.least = priced(data.cost, device_prices(data.cost))
        self.value, self.best = math.inf, np.zeros(data.n_units, np.int64)
        self.offered = math.inf
        self.failed = 0  # rounds that ended without a valid assignment
        self.state = new_state(self.tables, int(monitor.rng.integers(1, 2**63)))

    @cached_property
    def linear(self) -> IntArray:
        """A linear order of the units."""
        return unit_order(self.problem)[1]

    @property
    def left(self) -> int:
        """Number of evaluations left, one of which is reserved for an offer."""
        limit = self.monitor.budget.evaluations
        return _CHUNK if limit is None else limit - self.monitor.evaluations - 1

    def run(self, moves: int) -> bool:
        """Search; return whether a valid schedule was found."""
        if self.problem.n_devices == 1 or not self.problem.n_tasks:
            self.take(np.zeros(len(self.best), np.int64))
            self.offer()
            return math.isfinite(self.offered)
        for start in self.starts():
            self.take(start)
        self.offer()
        length, done = max(20 * _CHUNK, 100 * len(self.best)), 0
        number = int(self.monitor.rng.integers(12))  # a search that is continued begins with another start
        while done < moves and not self.monitor.should_stop and self.left > 0 and self.value > self.least * (1 + 1e-9):
            self.round(self.start(number), min(length, moves - done), number)
            self.failed += math.isinf(self.value)
            done += length
            number += 1
            length = min(int(length * 1.3), max(length, 400 * _CHUNK))
        self.offer()
        return math.isfinite(self.offered)

    def starts(self) -> list[IntArray]:
        """Return initial assignments: the best one, each device alone, intervals."""
        assignments = []
        best = self.monitor.best
        if best is not None and len(best.batches) == self.problem.n_tasks:
            where = np.zeros(len(self.best), np.int64)
            where[self.problem.unit[best.batches.task]] = best.batches.device
            assignments.append(where)
        assignments += [np.where(self.allowed[:, k], k, self.allowed.argmax(axis=1)) for k in range(self.problem.n_devices)]
        return assignments if best is not None or self.monitor.deadline.over else [*assignments, self.intervals()]

    def intervals(self) -> IntArray:
        """Return an assignment of intervals of a linear order to devices in random order, in proportion to their speed."""
        rng, size = self.monitor.rng, self.problem.n_devices
        speed = 1.0 / np.maximum(np.where(self.allowed, self.data.cost, 0.0).sum(axis=0), 1e-300) * self.allowed.sum(axis=0)
        devices = rng.permutation(size)
        work = np.cumsum(np.where(self.allowed, self.data.cost, np.inf).min(axis=1)[self.linear])
        ends = np.cumsum(speed[devices] / speed.sum()) * work[-1]
        chosen = devices[np.minimum(np.searchsorted(ends, work), size - 1)]
        where = np.empty(len(work), np.int64)
        where[self.linear] = chosen
        return np.where(self.allowed[np.arange(len(where)), where], where, self.allowed.argmax(axis=1))

    def start(self, number: int) -> IntArray:
        """Return the assignment from which a round starts: in two of three rounds the best one."""
        if number % 3 < 2 and math.isfinite(self.value):
            return self.best.copy()
        return self.intervals()

    def take(self, where: IntArray) -> None:
        """Keep an assignment if it is the best and valid."""
        from hetsched.heuristics.throughput.load_kernels import largest_load, recompute

        self.state.device[:] = where
        recompute(self.tables, self.state, 1.0)
        value = largest_load(self.tables, self.state)
        if value < min(self.value, self.missing):
            self.value, self.best = float(value), where.copy()

    def target(self, number: int) -> float:
        """Return the target load of a round in seconds.

        While no assignment is valid, the target of every other round, and of each if all work takes no time, is above all
        valid loads, so that only memory and missing paths have penalties.
        """
        if math.isfinite(self.value):
            return max(self.least + _AIMS[number % len(_AIMS)] * (self.value - self.least), 1e-9 * self.value)
        if self.failed % 2 or self.least == 0:
            return self.missing / 2
        return max(2 * self.least, 1e-9 * self.missing)

    def round(self, device: IntArray, length: int, number: int) -> None:
        """Anneal once, and offer the improved assignments."""
        from hetsched.heuristics.throughput.load_kernels import anneal

        target = self.target(number)
        hot = _HOT if number % 3 == 2 else _HOT / 4 ** (number % 2 + 1)
        cooling = (_COLD / hot) ** (1.0 / length)
        self.state.device[:], self.state.temperature[0] = device, hot
        best = self.best.copy()
        while length > 0 and not self.monitor.should_stop and self.left > 0:
            chunk = min(length, _CHUNK, self.left)
            value = anneal(chunk, self.tables, self.state, cooling, target, min(self.value, self.missing), best)
            self.monitor.evaluated(chunk)
            length -= chunk
            if value < min(self.value, self.missing):
                self.value, self.best = float(value), best.copy()
                self.offer()

    def offer(self) -> None:
        """Offer the best assignment, unless it has been."""
        if not self.value < self.offered or (self.left < 0 and self.monitor.best is not None):
            return
        self.offered = self.value
        try:
            worth = self.monitor.offer(Decision.whole(self.problem, self.best[self.problem.unit], self.problem.graph.topological_order))
        except InvalidSchedule:
            worth = math.inf
        if math.isinf(worth):
            self.offered = math.inf
