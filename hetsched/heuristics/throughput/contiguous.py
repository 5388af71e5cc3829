"""Contiguous dynamic program for the period: every device runs an interval of the graph."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from hetsched.analysis.ideals import Ideals, chain, ideals
from hetsched.analysis.load_data import LoadData, device_prices, linear_order, load_data, sums, unit_order, without_pendants
from hetsched.arrays import FloatArray, IntArray, readonly, row_starts
from hetsched.errors import InvalidSchedule, UnsupportedFeature
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.objectives import hosts
from hetsched.search import LOADS, Auto, Monitor, Supports, method

LIGHT = (0.02, 0.01, 0.005, 0.002, 0.0, -1.0)
"""Largest shares of all work of light units, tried in turn until there are too many ideals; below 0 no unit is light."""
_STATES = 40_000_000
_SECONDS = 0.01


@method(
    "contiguous",
    summary="period: the best intervals of the graph, one a device, by dynamic programming over ideals",
    source="J. Tarnawski et al., NeurIPS 2020",
    objectives=LOADS,
    supports=Supports(besides="wide graphs"),
    turn=380,
    auto=Auto(),
)
def contiguous(problem: Problem, monitor: Monitor, *, limit: int = 50_000) -> None:
    """Find the assignment of least period in which every device runs an interval: a difference of two ideals (down-sets).

    Identical devices are interchangeable: a state holds how many of each class are used. Under
    max-load, and with ports whose links are all equal, the load of an interval on a device does not
    depend on the other intervals, and the result is the best contiguous assignment. Where channels
    have loads of their own, two assignments are offered: one divides the traffic into and out of a
    device evenly over its channels, a lower bound; the other puts it on a single channel.

    A graph with more than `limit` ideals is narrowed: units without predecessors or without
    successors, and with at most a small share of all work (0 to 2 %), are merged with a neighbour.
    Under objectives other than max-load the period is minimised.

    Raises
    ------
    UnsupportedFeature
        There are still too many ideals, or too many classes of devices.
    """
    rule = "max-load" if monitor.objective == "max-load" else "period"
    pairs, order = unit_order(problem)
    work = sums(problem.whole_durations, problem.unit, problem.n_units)
    monitor.deadline.check("the ordering of units")
    fits = False
    for group, linear, lattice in _lattices(problem, monitor, pairs, order, work, limit):
        unit = group[problem.unit]
        data = load_data(problem, rule, unit)
        for need in memory_needs(problem):
            monitor.deadline.check("the tables of a dynamic program")
            program = _Program(problem, data, np.bincount(group, need, data.n_units).astype(np.float64), linear)
            if _offer_all(monitor, program, unit, lattice):
                fits = True
                break
    if not fits:
        monitor.note("found no assignment of an interval to each device that pins, paths and memory allow; use method 'load-search'")


def _lattices(
    problem: Problem, monitor: Monitor, pairs: IntArray, order: IntArray, work: FloatArray, limit: int
) -> Iterator[tuple[IntArray, IntArray, Ideals]]:
    """Yield (group of each unit, linear order of the groups, ideals over positions in it), from coarse to fine.

    The first order is linear; the others are those of the graph with light pendants merged with a
    neighbour. Incumbents from coarse orders prune most states of the fine ones.
    """
    yield np.arange(problem.n_units), order, chain(problem.n_units)
    able, shortest = np.isfinite(work), work.min(axis=1)
    count, joined = -1, ""
    for share in LIGHT:
        if monitor.should_stop:
            return
        group = without_pendants(pairs, order, shortest <= share * shortest.sum(), able)
        if group.max(initial=-1) + 1 == count:
            continue
        count = int(group.max(initial=-1)) + 1
        between = np.unique(group[pairs], axis=0)
        between = between[between[:, 0] != between[:, 1]]
        linear = linear_order(between, np.arange(count))
        place = np.empty(count, np.int64)
        place[linear] = np.arange(count)
        lattice = ideals(count, place[between], limit=limit, stop=lambda: monitor.should_stop)
        if lattice is None:
            break
        joined = f"{problem.n_units - count} of {problem.n_units} units joined a neighbour, for {lattice.number} ideals"
        yield group, linear, lattice
    if not joined and not monitor.should_stop:
        raise UnsupportedFeature(f"the graph is too wide: it has more than limit={limit} ideals; use method 'load-search'")
    if count < problem.n_units or lattice is None:
        monitor.note(joined)


def _offer_all(monitor: Monitor, program: _Program, unit: IntArray, lattice: Ideals) -> bool:
    """Offer the best assignment under each estimate of transfer seconds; return whether one fits the memory or the search must stop."""
    fits = False
    for enter, leave in program.estimates():
        device = program.run(monitor, lattice, enter, leave)
        if device is None:
            continue
        try:
            fits |= math.isfinite(monitor.offer(Decision.whole(monitor.problem, device[unit], monitor.problem.graph.topological_order)))
        except InvalidSchedule as broken:  # the estimate assumes that all channels exist
            monitor.note(str(broken))
        if monitor.should_stop:
            break
    return fits or monitor.should_stop


def _spread(resource: IntArray, axis: int) -> IntArray:
    """Return the number of resources that share the transfers into each device (axis 0) or out of it (axis 1), [K], at least 1."""
    table = np.moveaxis(resource, axis, 1)
    counts = [[len(np.unique(row[row >= 0])) for row in table[:, :, side]] for side in range(2)]
    return np.array([max(1, min(pair)) for pair in zip(*counts, strict=True)])


class _Classes(NamedTuple):
    """Classes of interchangeable devices."""

    of: IntArray
    """[K]: the class of each device."""
    first: IntArray
    """[C]: a device of each class."""
    number: IntArray
    """[C]: the number of its devices."""


class _Program:
    """The dynamic program on one set of units, numbered by position in a linear order."""

    def __init__(self, problem: Problem, data: LoadData, need: Any, linear: IntArray) -> None:
        self.problem, self.linear, self.missing = problem, linear, data.missing
        place = np.empty(len(linear), np.int64)
        place[linear] = np.arange(len(linear))
        self.cost, self.need = data.cost[linear], need[linear]
        self.capacity = problem.cluster.memory_bytes * (1 + 1e-12)
        out_ptr, out = _permuted(data.out_ptr, data.out, linear)
        read_ptr, read = _permuted(data.read_ptr, data.read, linear)
        self.data = data._replace(
            cost=self.cost, source=place[data.source], reader=place[data.reader], out_ptr=out_ptr, out=out, read_ptr=read_ptr, read=read
        )

    def estimates(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield seconds of tensors into and out of each device, [H, K] each: lower bounds, then upper bounds if they differ."""
        data, time_ = self.data, np.where(np.isfinite(self.data.time), self.data.time, self.missing)
        size = data.cost.shape[1]
        if data.host:
            yield time_[:, 0], time_[:, 1]
            return
        apart = ~np.eye(size, dtype=bool)
        if size == 1:
            yield np.zeros((len(time_), 1)), np.zeros((len(time_), 1))
            return
        loads = np.where(apart, np.where(data.resource[:, :, 0] >= 0, data.time, 0.0), np.inf)
        low = [np.where(np.isfinite(seconds), seconds, 0.0) for seconds in (loads.min(axis=1), loads.min(axis=2))]
        low = [seconds / _spread(data.resource, axis) for axis, seconds in enumerate(low)]
        high = [np.where(apart, time_, 0.0).max(axis=axis) for axis in (1, 2)]
        yield low[0], low[1]
        if any((a != b).any() for a, b in zip(low, high, strict=True)):
            yield high[0], high[1]

    def run(self, monitor: Monitor, lattice: Ideals, enter: FloatArray, leave: FloatArray) -> IntArray | None:
        """Return the device of each unit in the best contiguous assignment below the incumbent; None if there is none."""
        from hetsched.heuristics.throughput.contiguous_kernels import DeviceClasses, Lattice, Prices, Table, extend, new_path

        kinds = self._classes(enter, leave)
        stride = np.concatenate([[1], np.cumprod(kinds.number + 1)])
        n_states, stride = int(stride[-1]), stride[:-1]
        if lattice.number * n_states > _STATES:
            raise UnsupportedFeature(
                f"{lattice.number} ideals and {len(kinds.number)} kinds of devices make more than {_STATES} states; "
                "lower the option 'limit', or use method 'load-search'"
            )
        smaller = _smaller(lattice)
        monitor.deadline.check("the tables of a dynamic program")
        prices = Prices(*self._prices(smaller, kinds, stride, n_states))
        best = np.full((lattice.number, n_states), np.inf)
        best[0, 0] = 0.0
        from_ideal, from_class = np.zeros(best.shape, np.int32), np.zeros(best.shape, np.int8)
        incumbent = monitor.incumbent * self.problem.inputs if monitor.objective == self._objective else np.inf
        bound = np.array([min(incumbent, self.missing)])
        seconds = np.stack([enter[:, kinds.first], leave[:, kinds.first]], axis=1)
        data = self.data._replace(cost=self.cost[:, kinds.first], time=seconds)
        data = LoadData(data.host, *map(readonly, data[1:]))
        classes = DeviceClasses(kinds.number, stride, self.capacity[kinds.first], self.need)
        table = Table(best, from_ideal, from_class, bound)
        path = new_path(len(data.source), len(self.cost), len(kinds.number))
        begin, chunk = 0, 1
        while begin < lattice.number and not monitor.should_stop:
            started = time.perf_counter()
            extend(begin, min(begin + chunk, lattice.number), Lattice(*lattice, *smaller), data, classes, prices, table, path)
            begin += chunk
            took = max(time.perf_counter() - started, 1e-6)
            chunk = max(1, min(10_000, int(chunk * min(2.0, _SECONDS / took))))
        return self._trace(smaller, kinds, stride, best, from_ideal, from_class)

    @property
    def _objective(self) -> str:
        return "max-load" if self.data.host else "period"

    def _classes(self, enter: FloatArray, leave: FloatArray) -> _Classes:
        """Group devices with equal costs, transfer seconds, capacity and host into classes."""
        numbers: dict[bytes, int] = {}
        pays = hosts(self.problem)
        of = []
        for k in range(self.cost.shape[1]):
            columns = (self.cost[:, k], enter[:, k], leave[:, k], self.capacity[k : k + 1], pays[k : k + 1])
            of.append(numbers.setdefault(b"".join(column.tobytes() for column in columns), len(numbers)))
        _, first, number = np.unique(of, return_index=True, return_counts=True)
        return _Classes(np.array(of), first, number.astype(np.int64))

    def _prices(
        self, smaller: tuple[IntArray, IntArray], kinds: _Classes, stride: IntArray, n_states: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the fields of `contiguous_kernels.Prices`."""
        prices = device_prices(self.cost)
        class_prices = np.array([prices[kinds.of == c].mean() for c in range(len(kinds.number))])
        cost = self.cost[:, kinds.first]
        work = np.where(np.isfinite(cost), np.where(np.isfinite(cost), cost, 0.0) * class_prices, np.inf).min(axis=1, initial=np.inf)
        used = np.arange(n_states)[:, None] // stride % (kinds.number + 1)
        priced_to = [0.0]
        for parent, added in zip(smaller[0][1:].tolist(), smaller[1][1:].tolist(), strict=True):
            priced_to.append(priced_to[parent] + float(work[added]))
        return ((kinds.number - used) * class_prices).sum(axis=1), work, np.array(priced_to)

    def _trace(
        self, smaller: tuple[IntArray, IntArray], kinds: _Classes, stride: IntArray, best: FloatArray, from_ideal: Any, from_class: Any
    ) -> IntArray | None:
        """Return the devices along the best path to the last ideal, traced backwards; None if there is no path."""
        ideal, state = len(best) - 1, int(best[-1].argmin())
        if not np.isfinite(best[ideal, state]):
            return None
        free = [list(np.flatnonzero(kinds.of == c)) for c in range(len(kinds.number))]
        device = np.empty(len(self.linear), np.int64)
        members = _members(ideal, *smaller)
        while ideal:
            kind = int(from_class[ideal, state])
            ideal, state = int(from_ideal[ideal, state]), state - int(stride[kind])
            rest = _members(ideal, *smaller)
            device[self.linear[sorted(members - rest)]] = free[kind].pop()
            members = rest
        return device


def _smaller(lattice: Ideals) -> tuple[IntArray, IntArray]:
    """Return for each ideal an ideal with one element less, and that element; [I] each, 0 for the empty ideal."""
    parent, added = np.zeros(lattice.number, np.int64), np.zeros(lattice.number, np.int64)
    parent[lattice.larger] = np.repeat(np.arange(lattice.number), np.diff(lattice.ptr))
    added[lattice.larger] = lattice.element
    return parent, added


def _members(ideal: int, parent: IntArray, added: IntArray) -> set[int]:
    """Return the elements of an ideal."""
    members = set()
    while ideal:
        members.add(int(added[ideal]))
        ideal = int(parent[ideal])
    return members


def _permuted(ptr: IntArray, values: IntArray, order: IntArray) -> tuple[IntArray, IntArray]:
    """Return the rows of a table of variable row lengths in the given order."""
    counts = np.diff(ptr)[order]
    rows = [values[ptr[x] : ptr[x + 1]] for x in order.tolist()]
    return row_starts(counts), np.concatenate([np.zeros(0, np.int64), *rows])
