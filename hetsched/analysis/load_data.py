"""The data of loads of devices and channels when inputs are pipelined: units, their work, and the tensors between them.

A unit is a co-location class of tasks (mostly one task). It runs on one device, each of its tasks as one batch of all L
inputs. All seconds are for all L inputs; a load divided by L is one of `hetsched.schedule.objectives`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.analysis.load import best_thresholds, least_load
from hetsched.arrays import BoolArray, FloatArray, IntArray, readonly, row_starts
from hetsched.errors import UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.schedule.objectives import host_times

_SMALL = 1_000  # pairs of units and devices up to which a linear program takes a few milliseconds
_ROUNDS = 100
_LARGEST = 100_000_000  # numbers in a table of times


class LoadData(NamedTuple):
    """A problem as arrays for kernels: U units, K devices, H tensors shared by several units.

    A tensor that moves between devices loads the resources of its link, or with `host` the two devices themselves, once each.
    """

    host: bool
    """Whether tensors pass through the host's memory, for the objective ``"max-load"``."""
    resource: IntArray
    """[K, K, 2]: the resources that a tensor loads between two devices, see `hetsched.problem.links.LinkTable`."""
    user: IntArray
    """[R]: a device whose transfers load each resource; none if `host`."""
    cost: FloatArray
    """[U, K] seconds of a unit on a device; inf where it cannot run."""
    source: IntArray
    """[H] the unit a tensor comes from; without `host` each edge between units is a tensor."""
    reader_ptr: IntArray
    reader: IntArray
    """The units that read tensor t, other than its source: ``reader[reader_ptr[t]:reader_ptr[t + 1]]``."""
    out_ptr: IntArray
    out: IntArray
    """The tensors that come from unit u."""
    read_ptr: IntArray
    read: IntArray
    """The tensors that unit u reads."""
    time: FloatArray
    """[H, K, K]: seconds from one device to another; with `host` [H, 2, K]: into and out of a device. inf without a path."""

    @property
    def n_units(self) -> int:
        """Number of units."""
        return len(self.cost)

    @property
    def missing(self) -> float:
        """Seconds that exceed every load without a missing path; used in sums in place of inf."""
        work = np.where(np.isfinite(self.cost), self.cost, 0.0).max(axis=1, initial=0.0).sum()
        moves = np.where(np.isfinite(self.time), self.time, 0.0).max(axis=(1, 2), initial=0.0).sum()
        return float(4.0 * (work + 2.0 * self.time.shape[2] * moves)) or 1.0


def load_data(problem: Problem, objective: str, unit: IntArray | None = None) -> LoadData:
    """Return the data of the loads of devices and channels for the objective ``"period"`` or ``"max-load"``.

    `unit` [n] is the unit of each task if units are larger than co-location classes.

    Raises `UnsupportedFeature` if some unit has no batch of all inputs, or if the objective does not support the problem.
    """
    unit = problem.unit if unit is None else unit
    count = int(unit.max(initial=-1)) + 1
    cost = sums(problem.whole_durations, unit, count)
    stuck = np.flatnonzero(np.isinf(cost).all(axis=1))
    if len(stuck):
        name = problem.graph.names[int(np.flatnonzero(unit == stuck[0])[0])]
        raise UnsupportedFeature(
            f"methods for the period run each task as one batch of all {problem.inputs} inputs, but task {name!r} has no such batch "
            "on a device that its co-located tasks can run on too; give durations for that size"
        )
    if objective == "max-load":
        source, pairs, time = _tensors(problem, unit)
        user = np.zeros(0, np.int64)
    else:
        source, pairs, time = _edges(problem, unit)
        user = problem.links.users
    reader_ptr, reader = _rows(pairs[:, 0], pairs[:, 1], len(source))
    out_ptr, out = _rows(source, np.arange(len(source)), count)
    read_ptr, read = _rows(pairs[:, 1], pairs[:, 0], count)
    arrays = (problem.links.resource, user, cost, source, reader_ptr, reader, out_ptr, out, read_ptr, read, time)
    return LoadData(objective == "max-load", *(readonly(array) for array in arrays))  # readonly, so that kernels are compiled once


def sums(amounts: FloatArray, unit: IntArray, count: int) -> FloatArray:
    """Return the sum of `amounts` [n] or [n, K] over each of `count` units."""
    total = np.zeros((count, *amounts.shape[1:]))
    np.add.at(total, unit, amounts)
    return total


def _edges(problem: Problem, unit: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return (source unit, (tensor, reading unit) pairs, times) with one tensor for all edges between two units."""
    graph, size = problem.graph, problem.n_devices
    ends = np.column_stack([unit[graph.source], unit[graph.target]])
    crossing = np.flatnonzero(ends[:, 0] != ends[:, 1])
    unique, place = np.unique(ends[crossing], axis=0, return_inverse=True)
    if len(unique) * size * size > _LARGEST:
        raise UnsupportedFeature(
            f"{len(unique)} edges between {size} devices are too many for the methods of the period; "
            "coarsen the graph, or take fewer devices"
        )
    time = np.zeros((len(unique), size, size))
    every = np.arange(size)
    np.add.at(time, place.reshape(-1), problem.transfer_times(crossing[:, None, None], every[:, None], every, problem.inputs))
    return unique[:, 0], np.column_stack([np.arange(len(unique)), unique[:, 1]]), time


def _tensors(problem: Problem, unit: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the same as `_edges`, with one tensor for each task that other units read."""
    graph = problem.graph
    enter, leave = host_times(problem)
    pairs = np.column_stack([graph.source, unit[graph.target]])
    pairs = np.unique(pairs[unit[graph.source] != unit[graph.target]], axis=0)
    task, tensor = np.unique(pairs[:, 0], return_inverse=True)
    return unit[task], np.column_stack([tensor.reshape(-1), pairs[:, 1]]), np.stack([enter[task], leave[task]], axis=1)


def _rows(row: IntArray, value: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Return values grouped by `row`: row starts [count + 1], values."""
    order = np.argsort(row, kind="stable")
    return row_starts(np.bincount(row, minlength=count)), value[order].astype(np.int64)


def device_prices(cost: FloatArray) -> FloatArray:
    """Return prices of devices with about the largest lower bound for the work [U, K], see `load.priced`; they sum to 1."""
    if cost.size <= _SMALL:
        return least_load(cost).prices
    nothing = np.zeros(len(cost))
    return best_thresholds(nothing, nothing, cost, np.zeros(1), np.zeros(1), _ROUNDS)[3]


def unit_order(problem: Problem) -> tuple[IntArray, IntArray]:
    """Return an acyclic precedence of units: (pairs (before, after) [P, 2]; a linear order of the units [U]).

    Units inherit the edges of their tasks. If these form cycles (as for the layers of a network
    whose backward tasks are co-located with the forward ones), only the edges of a cycle that follow the
    order in which the units are first needed are kept.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    graph, unit, size = problem.graph, problem.unit, problem.n_units
    ends = np.unique(np.column_stack([unit[graph.source], unit[graph.target]]), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    matrix = coo_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), (size, size))
    component = connected_components(matrix, connection="strong")[1]
    rank = _needed(problem)
    kept = (component[ends[:, 0]] != component[ends[:, 1]]) | (rank[ends[:, 0]] < rank[ends[:, 1]])
    pairs = ends[kept]
    return pairs, linear_order(pairs, rank)


def _needed(problem: Problem) -> IntArray:
    """Return the position of each unit in the order in which they are first needed: by longest path to a sink, descending.

    Tasks without parents that are read in their own unit, such as weights, do not count.
    """
    graph = problem.graph
    left = np.zeros(graph.n_tasks, np.int64)  # edges of the longest path to a sink
    for i in graph.topological_order[::-1].tolist():
        after = graph.succ[graph.succ_ptr[i] : graph.succ_ptr[i + 1]]
        left[i] = left[after].max(initial=-1) + 1
    most = np.full(problem.n_units, -1)
    own = problem.unit[graph.source] == problem.unit[graph.target]
    counts = np.ones(graph.n_tasks, bool)
    counts[graph.source[own]] = np.diff(graph.pred_ptr)[graph.source[own]] > 0
    np.maximum.at(most, problem.unit[counts], left[counts])
    place = np.empty(problem.n_units, np.int64)
    place[np.argsort(-most, kind="stable")] = np.arange(problem.n_units)
    return place


def linear_order(pairs: IntArray, rank: IntArray) -> IntArray:
    """Return a depth-first topological order of the units; ties go to the lower `rank`."""
    waiting = np.bincount(pairs[:, 1], minlength=len(rank))
    followers: list[list[int]] = [[] for _ in range(len(rank))]
    for before, after in pairs.tolist():
        followers[before].append(after)
    ready = sorted(np.flatnonzero(waiting == 0).tolist(), key=lambda u: -int(rank[u]))
    order: list[int] = []
    while ready:
        unit = ready.pop()
        order.append(unit)
        for after in sorted(followers[unit], key=lambda u: -int(rank[u])):
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return np.array(order, np.int64)


def without_pendants(pairs: IntArray, order: IntArray, light: BoolArray, able: BoolArray) -> IntArray:
    """Return the group of each unit [U], numbered by `order`, after merging light units without predecessors or successors.

    A light unit without successors joins the last of its predecessors, one without predecessors the first
    of its successors, until no such unit is left. Units are not merged if the group could run on no
    device; `able` [U, K] is whether a unit can run on a device.
    """
    able = able[order]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    home = np.arange(len(order))  # indexed by position in `order`, as everything below
    before: list[set[int]] = [set() for _ in order]
    after: list[set[int]] = [set() for _ in order]
    for a, b in place[pairs].tolist():
        before[b].add(a)
        after[a].add(b)
    waiting = [x for x in range(len(order)) if light[order[x]]]
    while waiting:
        x = waiting.pop()
        if home[x] != x or (before[x] and after[x]) or not (before[x] or after[x]):
            continue
        near, into = (before, after) if before[x] else (after, before)
        host = max(near[x]) if before[x] else min(near[x])
        if not (able[x] & able[host]).any():
            continue
        able[host] &= able[x]
        for other in near[x]:
            into[other].discard(x)
            if other != host:
                near[host].add(other)
                into[other].add(host)
        home[x] = host
        waiting += [y for y in (*near[x], host) if light[order[y]]]
    for x in range(len(order)):
        while home[home[x]] != home[x]:
            home[x] = home[home[x]]
    return np.unique(home, return_inverse=True)[1].reshape(-1)[place]
