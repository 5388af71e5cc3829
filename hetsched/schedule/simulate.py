"""Simulation: the times of a decision. All schedules get their times here."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

import numpy as np

from hetsched.arguments import checked, within
from hetsched.arrays import BoolArray, Columns, FloatArray, IntArray
from hetsched.errors import InvalidSchedule
from hetsched.problem.graph import named
from hetsched.problem.problem import Problem
from hetsched.schedule import memory
from hetsched.schedule.arcs import Arcs, arcs_of
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule


@checked
def simulate(problem: Problem, decision: Decision) -> Schedule:
    """Return the semi-active schedule of a decision.

    Every batch and every transfer starts as early as its predecessors and the order on its
    resources allow. Under contention and without an explicit transfer order, waiting transfers whose
    resources are all free start in order of (ready time, source batch, edge, target batch). Batches and
    transfers of zero length take part in no resource order: they start as soon as they are ready.

    Parameters
    ----------
    problem : Problem
    decision : Decision

    Returns
    -------
    Schedule
        Times in seconds. Its memory is computed but not limited to the capacities.

    Raises
    ------
    InvalidSchedule
        The decision omits an input or processes it twice, uses a device or batch size that is not
        allowed, splits a co-location label, sends data between devices without a path, orders
        transfers that do not exist, or deadlocks (the message has the cycle).
    """
    timing = TimedDecision(problem, decision)
    arcs = timing.arcs
    start, arc_start = timing.starts(timing.duration)
    (moving,) = arcs.moving.nonzero()
    departure = arc_start[moving]
    transfers = Columns._unchecked(
        edge=arcs.edge[moving],
        source=arcs.source[moving],
        target=arcs.target[moving],
        start=departure,
        finish=departure + arcs.seconds[moving],
    )
    finish = start + timing.duration
    batches = Columns._unchecked(task=decision.task, device=decision.device, start=start, finish=finish, size=decision.sizes)
    return Schedule._unchecked(
        tasks=problem.graph.names,
        devices=problem.cluster.names,
        n_inputs=problem.inputs,
        batches=batches,
        item_ptr=decision.item_ptr,
        items=decision.items,
        transfers=transfers,
        transfer_order=decision.transfer_order,
        makespan=float(finish.max(initial=0.0)),
        static_memory=partial(memory.static, problem, decision),
        peak_memory=partial(memory.peak, problem, decision, batches, arcs, arc_start),
    )


class TimedDecision:
    """A checked decision, prepared to compute times for one or many sets of durations.

    Attributes
    ----------
    duration : float64 array [m]
        Duration of each batch by the problem, in seconds.
    arcs : Arcs
    """

    def __init__(self, problem: Problem, decision: Decision) -> None:
        self.problem, self.decision = problem, decision
        self.duration = _durations(problem, decision)
        batch_of = _batch_of(problem, decision)
        _check_colocation(problem, decision, batch_of)
        self.arcs = arcs_of(problem, decision, batch_of)
        _check_paths(problem, decision, self.arcs)
        self._following = _next_batches(decision, self.duration)
        self._next_arc = np.full((len(self.arcs.edge), 2), -1)
        if problem.links.contended and decision.transfer_order is not None:
            self._next_arc = _next_arcs(problem, decision, self.arcs)

    def starts(self, duration: FloatArray, seconds: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Return the starts of batches [m] and arcs [x] if they take `duration` [m] and `seconds` [x], by default those of the problem.

        What has zero length in the problem must have zero length here. Raises `InvalidSchedule` if the decision deadlocks.
        """
        from hetsched.schedule import kernels

        problem, decision, arcs = self.problem, self.decision, self.arcs
        seconds = arcs.seconds if seconds is None else seconds
        if problem.links.contended and decision.transfer_order is None and arcs.moving.any():
            start, arc_start = kernels.first_come_first_served(duration, decision.device, arcs.source, arcs.target, seconds, problem.links)
        else:
            start, arc_start = kernels.earliest(duration, self._following, arcs.source, arcs.target, seconds, self._next_arc)
        if np.isnan(start).any():  # the target of an arc that never starts does not start either
            _refuse_deadlock(problem, decision, arcs, self._following, self._next_arc, np.isnan(np.concatenate([start, arc_start])))
        return start, arc_start


def _edge_name(problem: Problem, edge: int) -> str:
    i, j = problem.graph.edges[edge]
    return f"{problem.graph.names[i]!r} -> {problem.graph.names[j]!r}"


def _device_name(problem: Problem, decision: Decision, batch: int) -> str:
    return repr(problem.cluster.names[decision.device[batch]])


def _durations(problem: Problem, decision: Decision) -> FloatArray:
    """Return the duration of each batch; raise `InvalidSchedule` if one cannot run."""
    names, devices = problem.graph.names, problem.cluster.names
    for what, column, labels in (("task", decision.task, names), ("device", decision.device, devices)):
        if not within(column, len(labels)):
            raise InvalidSchedule(f"the decision names {what} index {column.min()} to {column.max()}; the problem has {len(labels)}")
    size = decision.sizes
    place = np.minimum(problem.batch_sizes.searchsorted(size), problem.n_sizes - 1)
    duration: FloatArray = problem.arrays.durations[decision.task, problem.device_class[decision.device], place]
    duration[problem.batch_sizes[place] != size] = np.inf
    (bad,) = np.isinf(duration).nonzero()
    if len(bad):
        b = int(bad[0])
        i, k = int(decision.task[b]), int(decision.device[b])
        if not problem.eligible[i, k]:
            allowed = named(np.flatnonzero(problem.eligible[i]), devices)
            rule = f"it may run on {allowed} (durations, pins, co-location and paths considered)"
        else:
            usable = problem.batch_sizes[np.isfinite(problem.arrays.durations[i, problem.device_class[k]])]
            rule = f"its batch sizes there are {usable.tolist()}"
        raise InvalidSchedule(f"task {names[i]!r} cannot run a batch of {size[b]} on {devices[k]!r}: {rule}")
    if problem.batching == "once" and np.bincount(decision.task).max(initial=0) > 1:
        pair, counts = np.unique(decision.task * problem.n_devices + decision.device, return_counts=True)
        if (counts > 1).any():
            i, k = divmod(int(pair[np.argmax(counts > 1)]), problem.n_devices)
            raise InvalidSchedule(
                f"task {names[i]!r} has {counts.max()} batches on {devices[k]!r} but batching='once' allows one; "
                "join them or use batching='free'"
            )
    return duration


def _batch_of(problem: Problem, decision: Decision) -> IntArray:
    """Return the batch of each (task, input), [n, L]; raise `InvalidSchedule` if an input is missing or repeated."""
    items = decision.items
    if not within(items, problem.inputs):
        raise InvalidSchedule(f"the decision names input {items.min()} to {items.max()}; the problem has {problem.inputs}, from 0")
    batch = np.arange(decision.n_batches)
    if len(items) > len(batch):
        batch = np.repeat(batch, decision.sizes)
    cell = decision.task[batch] * problem.inputs + items
    times = np.bincount(cell, minlength=problem.n_tasks * problem.inputs)
    (wrong,) = (times != 1).nonzero()
    if len(wrong):
        i, item = divmod(int(wrong[0]), problem.inputs)
        batches = "no batch" if times[wrong[0]] == 0 else f"{times[wrong[0]]} batches"
        raise InvalidSchedule(
            f"input {item} of task {problem.graph.names[i]!r} is in {batches}; every input of every task needs exactly one"
        )
    table = np.empty(problem.n_tasks * problem.inputs, np.int64)
    table[cell] = batch
    return table.reshape(problem.n_tasks, problem.inputs)


def _check_paths(problem: Problem, decision: Decision, arcs: Arcs) -> None:
    (lost,) = np.isinf(arcs.seconds).nonzero()
    if len(lost):
        x = int(lost[0])
        raise InvalidSchedule(
            f"edge {_edge_name(problem, arcs.edge[x])} is split over {_device_name(problem, decision, arcs.source[x])} and "
            f"{_device_name(problem, decision, arcs.target[x])}, between which there is no path; keep both tasks on one device"
        )


def _check_colocation(problem: Problem, decision: Decision, batch_of: IntArray) -> None:
    if problem.n_units == problem.n_tasks:
        return
    device = decision.device[batch_of]
    leader = np.full(problem.n_units, -1)
    leader[problem.unit[::-1]] = np.arange(problem.n_tasks)[::-1]
    split = np.argwhere(device != device[leader[problem.unit]])
    if len(split):
        i, item = split[0]
        names, devices = problem.graph.names, problem.cluster.names
        first = leader[problem.unit[i]]
        raise InvalidSchedule(
            f"co-location label {problem.graph.colocation[i]!r} is split for input {item}: {names[first]!r} runs on "
            f"{devices[device[first, item]]!r}, {names[i]!r} on {devices[device[i, item]]!r}"
        )


def _next_batches(decision: Decision, duration: FloatArray) -> IntArray:
    """Return the next batch on the device of each batch, [m], without those of zero length; -1 if there is none."""
    following = np.full(decision.n_batches, -1)
    (real,) = (duration > 0).nonzero()
    device = decision.device[real]
    (before,) = (device[:-1] == device[1:]).nonzero()
    following[real[before]] = real[before + 1]
    return following


def _next_arcs(problem: Problem, decision: Decision, arcs: Arcs) -> IntArray:
    """Return the next transfers on the two resources of each arc under the explicit order, [x, 2]; -1 if there is none."""
    order = decision.transfer_order
    assert order is not None
    m = decision.n_batches
    keys = (arcs.edge * m + arcs.source) * m + arcs.target
    wanted = (order[:, 0] * m + order[:, 1]) * m + order[:, 2]
    place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    exists = (keys[place] == wanted) & arcs.moving[place] if len(keys) else np.zeros(len(wanted), bool)
    again = np.ones(len(wanted), bool)
    again[np.unique(wanted, return_index=True)[1]] = False
    for wrong, why in ((~exists, "which is no transfer of this decision"), (again, "twice")):
        if wrong.any():
            row = order[int(wrong.argmax())].tolist()
            raise InvalidSchedule(f"the transfer order names (edge {row[0]}, source batch {row[1]}, target batch {row[2]}) {why}")
    real = place[arcs.seconds[place] > 0]
    missing = np.setdiff1d(np.flatnonzero(arcs.seconds > 0), real)
    if len(missing):
        a, b = int(arcs.source[missing[0]]), int(arcs.target[missing[0]])
        raise InvalidSchedule(
            f"the transfer order leaves out batch {a} -> batch {b} from {_device_name(problem, decision, a)} "
            f"to {_device_name(problem, decision, b)}; name every transfer once, or give no order"
        )
    h, k = decision.device[arcs.source[real]], decision.device[arcs.target[real]]
    following = np.full((len(keys), 2), -1)
    for side, resource in enumerate(problem.links.resource[h, k].T):
        grouped = np.argsort(resource, kind="stable")
        same = (resource[grouped[:-1]] == resource[grouped[1:]]) & (resource[grouped[1:]] >= 0)
        following[real[grouped[:-1][same]], side] = real[grouped[1:][same]]
    return following


def _refuse_deadlock(
    problem: Problem, decision: Decision, arcs: Arcs, following: IntArray, next_arc: IntArray, stuck: BoolArray
) -> NoReturn:
    """Raise `InvalidSchedule` with one cycle of orders and precedence among the stuck batches and arcs."""
    m = decision.n_batches
    before: dict[int, list[int]] = {int(node): [] for node in np.flatnonzero(stuck)}

    def add(ahead: IntArray, behind: IntArray) -> None:
        for a, b in zip(ahead.tolist(), behind.tolist(), strict=True):
            if a in before and b in before:
                before[b].append(a)

    arc = m + np.arange(len(arcs.edge))
    add(np.flatnonzero(following >= 0), following[following >= 0])
    add(arcs.source, arc)
    add(arc, arcs.target)
    for column in next_arc.T:
        add(arc[column >= 0], m + column[column >= 0])
    position: dict[int, int] = {}
    path: list[int] = []
    node = next(iter(before))
    while node not in position:
        position[node] = len(path)
        path.append(node)
        node = before[node][0]
    cycle = [*path[position[node] :], node][::-1]

    def text(node: int) -> str:
        if node >= m:
            return f"transfer {_edge_name(problem, arcs.edge[node - m])}"
        return f"{problem.graph.names[decision.task[node]]!r} on {_device_name(problem, decision, node)}"

    shown = [text(node) for node in cycle if node < m or arcs.moving[node - m]]
    raise InvalidSchedule(f"the decision deadlocks: {' before '.join(shown)}; reorder one of them")
