"""Conversion of problems, schedules and decisions to search states and back."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from hetsched.analysis.levels import tails
from hetsched.arrays import FloatArray, IntArray, row_starts
from hetsched.heuristics.local_search import state_kernels
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState, Trace
from hetsched.heuristics.memory_accounts import memory_claims, memory_needs
from hetsched.problem.problem import Problem
from hetsched.schedule import memory
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule

MOST_SLOTS = 32
"""Maximum number of batches of a task in a search."""
_CLOCK_BYTES = 32e6
_SLACK = 1.0 + 1e-9


class States:
    """The search states of a problem.

    Parameters
    ----------
    problem : Problem
    held : float
        Under ``peak`` memory, the share of the upper bound on a unit's resident data, besides weights, that it claims.

    Attributes
    ----------
    tables : SearchData
    """

    def __init__(self, problem: Problem, *, held: float = 0.0) -> None:
        self.problem = problem
        self.tables = _tables(problem, held)

    @cached_property
    def typical_claim(self) -> float:
        """Mean bytes of a unit, under ``peak`` memory at most; 1 if no unit has any."""
        return float(np.mean([*memory_needs(self.problem)][-1])) or 1.0 if self.problem.n_units else 1.0

    @cached_property
    def trace(self) -> Trace:
        """Room for the trace of one state at a time."""
        t, problem = self.tables, self.problem
        used = t.timed or problem.links.contended
        nodes, arcs = len(t.task) * used, (2 * t.slots - 1) * problem.graph.n_edges * used
        outputs = problem.n_tasks * (1 if t.slots == 1 else problem.inputs) * t.timed
        spans = outputs + (arcs + nodes) * t.timed
        return Trace(
            begin=np.zeros(nodes),
            arcs=np.zeros((arcs, 3), np.int64),
            sent=np.zeros((arcs, 2)),
            release=np.zeros(outputs),
            spans=np.zeros((spans, 3)),
            where=np.zeros(spans, np.int64),
            keys=np.zeros(2 * spans),
            items=np.zeros(2 * spans, np.int64),
            held=np.zeros(problem.n_devices),
            most=np.zeros(problem.n_devices),
        )

    def empty(self) -> SearchState:
        """Return a state without nodes."""
        t, problem = self.tables, self.problem
        nodes, cells, K = len(t.task), problem.n_units * t.slots, problem.n_devices
        resources = _clocks(problem)
        rows = max(1, -(-nodes // t.stride))
        widest = int(np.diff(problem.graph.pred_ptr).max(initial=0)) * t.slots
        integers = [np.zeros(size, np.int64) for size in (nodes, nodes, 2, problem.n_units, cells, cells, cells)]
        sequence, position, length, count, device, low, high = integers
        position[:] = -1
        return SearchState(
            sequence=sequence,
            position=position,
            length=length,
            count=count,
            device=device,
            low=low,
            high=high,
            used=np.zeros(K),
            finish=np.zeros(nodes),
            trial=np.zeros(nodes),
            tail=np.zeros(nodes),
            makespan=np.zeros(2),
            clock=np.zeros((rows, resources)),
            trial_clock=np.zeros((rows, resources)),
            ready=np.zeros(widest),
            seconds=np.zeros(widest),
            producer=np.zeros((widest, 3), np.int64),
            now=np.zeros(resources),
            behind=np.zeros(K),
            stale=np.zeros(K, np.bool_),
            marked=np.zeros(nodes, np.bool_),
            chain=np.zeros(nodes, np.int64),
            trace=self.trace,
        )

    def load(self, state: SearchState, schedule: Schedule) -> float:
        """Load a schedule into `state`; return its makespan in seconds.

        Batches that are not intervals of inputs become intervals of as many, so that the makespan may be another.
        Returns inf if no state can represent the schedule: a task has more batches than slots, or co-located tasks are in
        different batches.
        """
        low, high = _intervals(self.problem, schedule)
        if not self._load_slots(state, schedule, low, high):
            return np.inf
        t, batches = self.tables, schedule.batches
        start = _starts(self.problem, schedule, low, high)
        # Producers precede consumers also if both have a duration of 0.
        order = np.lexsort((self.problem.graph.rank[batches.task], start))
        task, first = batches.task[order], low[order]
        cell = self.problem.unit[task] * t.slots
        slot = np.zeros(len(task), np.int64)
        for s in range(1, t.slots):
            slot[(state.count[self.problem.unit[task]] > s) & (state.low[cell + s] == first)] = s
        nodes = task * t.slots + slot
        state.sequence[: len(nodes)] = nodes
        state.position[:] = -1
        state.position[nodes] = np.arange(len(nodes))
        state.length[0] = len(nodes)
        state.used[:] = self.claims(state)
        return self.settle(state)

    def settle(self, state: SearchState) -> float:
        """Evaluate a state from its first position and commit it; return its makespan in seconds."""
        makespan, _ = state_kernels.evaluate(self.tables, state, 0, np.inf)
        state_kernels.commit(self.tables, state, 0)
        return float(makespan)

    def claims(self, state: SearchState) -> FloatArray:
        """Return the bytes claimed on each device, [K]."""
        t, K = self.tables, self.problem.n_devices
        cell = np.flatnonzero(np.arange(len(state.device)) % t.slots < np.repeat(state.count, t.slots))
        unit, device = cell // t.slots, state.device[cell]
        activations = t.activation[unit] * (state.high[cell] - state.low[cell])
        runs = np.unique(unit * K + device)
        return np.asarray(np.bincount(device, activations, K) + np.bincount(runs % K, t.weight[runs // K], K))

    def decision(self, state: SearchState) -> Decision:
        """Return the decision of a state, under contention with its order of transfers."""
        t = self.tables
        nodes = state.sequence[: state.length[0]]
        cell = t.cell[nodes]
        size = state.high[cell] - state.low[cell]
        pointers = row_starts(size)
        items = np.arange(pointers[-1]) - np.repeat(pointers[:-1] - state.low[cell], size)
        order = None
        if self.problem.links.contended:
            arcs = self.trace.arcs[: state_kernels.record(t, state)]
            between = state.device[t.cell[arcs[:, 1]]] != state.device[t.cell[arcs[:, 2]]]
            order = arcs[between]
            order[:, 1:] = state.position[order[:, 1:]]
        return Decision(t.task[nodes], state.device[cell], pointers, items, transfer_order=order)

    def _load_slots(self, state: SearchState, schedule: Schedule, low: IntArray, high: IntArray) -> bool:
        """Write the slots of a schedule into a state; return False if they cannot be represented."""
        t, problem, batches = self.tables, self.problem, schedule.batches
        order = np.lexsort((low, batches.task))
        per_task = np.bincount(batches.task, minlength=problem.n_tasks)
        if per_task.max(initial=1) > t.slots:
            return False
        start = np.cumsum(per_task) - per_task
        slot = np.arange(len(order)) - np.repeat(start, per_task)
        cell = problem.unit[batches.task[order]] * t.slots + slot
        fields = (
            (state.count, problem.unit, per_task),
            (state.device, cell, batches.device[order]),
            (state.low, cell, low[order]),
            (state.high, cell, high[order]),
        )
        for column, index, values in fields:
            column[index] = values
            if (column[index] != values).any():  # co-located tasks differ
                return False
        return True


def _intervals(problem: Problem, schedule: Schedule) -> tuple[IntArray, IntArray]:
    """Return the first input of each batch and the last + 1, [B]: those of its inputs, or of as many in the order of their means."""
    size = schedule.batches.size
    mean = np.add.reduceat(schedule.items, schedule.item_ptr[:-1]) / size if len(size) else np.empty(0)
    order = np.lexsort((mean, schedule.batches.task))
    high = np.empty(len(size), np.int64)
    high[order] = (np.cumsum(size[order]) - 1) % problem.inputs + 1
    return high - size, high


def _starts(problem: Problem, schedule: Schedule, low: IntArray, high: IntArray) -> FloatArray:
    """Return times of batches, [B], in whose order each follows the producers of its inputs: their starts, or later ones."""
    batches, graph = schedule.batches, problem.graph
    start = batches.start.copy()
    if (schedule.items[schedule.item_ptr[:-1]] == low).all() and (schedule.items[schedule.item_ptr[1:] - 1] < high).all():
        return start
    of_task = np.split(np.argsort(batches.task, kind="stable"), np.cumsum(np.bincount(batches.task, minlength=graph.n_tasks))[:-1])
    for i in np.argsort(graph.rank):
        for p in graph.pred[graph.pred_ptr[i] : graph.pred_ptr[i + 1]]:
            one, other = of_task[i][:, None], of_task[p][None, :]
            common = (low[one] < high[other]) & (low[other] < high[one])
            start[of_task[i]] = np.maximum(start[of_task[i]], np.where(common, start[other], 0.0).max(axis=1))
    return start


def _tables(problem: Problem, held: float) -> SearchData:
    graph, inputs = problem.graph, problem.inputs
    slots = _slots(problem)
    durations = problem.whole_durations[:, :, None] if slots == 1 else problem.usable_durations
    size_of = np.full(inputs + 1, -1)
    if slots == 1:
        size_of[inputs] = 0
    else:
        fitting = np.flatnonzero(problem.batch_sizes <= inputs)
        size_of[problem.batch_sizes[fitting]] = fitting
    usable = np.ones((problem.n_units, problem.n_devices), bool)
    np.logical_and.at(usable, problem.unit, np.isfinite(durations).any(axis=2))
    optimistic, *_, conservative = [*memory_claims(problem)] * 2
    claims = optimistic + held * (conservative - optimistic)
    nodes = np.arange(problem.n_tasks * slots)
    factor = 1 if problem.links.per_input else inputs
    columns = {
        "task": nodes // slots,
        "cell": problem.unit[nodes // slots] * slots + nodes % slots,
        "unit": problem.unit,
        "member_ptr": row_starts(np.bincount(problem.unit, minlength=problem.n_units)),
        "members": np.argsort(problem.unit, kind="stable"),
        "durations": durations,
        "whole": problem.whole_durations if slots == 1 else np.empty((0, 0)),
        "size_of": size_of,
        "pred_bytes": graph.edge_bytes[graph.pred_edge] * factor,
        "succ_bytes": graph.edge_bytes[problem.arrays.succ_edge] * factor,
        "tail": tails(problem),
        "choice_ptr": row_starts(usable.sum(axis=1)),
        "choices": np.nonzero(usable)[1],
        "weight": claims[:, 0],
        "activation": claims[:, 1],
        "capacity": problem.cluster.memory_bytes * _SLACK,
        "resident": conservative[:, 1],
        "outputs": graph.output_bytes,
        "inputs": np.where(np.diff(graph.pred_ptr) == 0, graph.input_bytes, 0.0),
    }
    # All arrays are contiguous and writable, because numba compiles a kernel again for each other array type.
    return SearchData(
        arrays=problem.arrays,
        slots=slots,
        once=problem.batching == "once",
        timed=memory.timed(problem),
        stride=max(1, int(np.ceil(len(nodes) * _clocks(problem) * 8 / _CLOCK_BYTES))),
        **{name: np.array(column, order="C") for name, column in columns.items()},
    )


def _clocks(problem: Problem) -> int:
    """Return the length of a row of a state's clock: one entry for each device and each contended resource, and the makespan."""
    return problem.n_devices + (problem.links.n_resources if problem.links.contended else 0) + 1


def _slots(problem: Problem) -> int:
    """Return the maximum number of batches of a task in a search."""
    if problem.inputs == 1:
        return 1
    if problem.batching == "once":
        return min(problem.inputs, problem.n_devices, MOST_SLOTS)
    largest = np.where(np.isfinite(problem.usable_durations).any(axis=1), problem.batch_sizes, 0).max(axis=1)
    needed = -(-problem.inputs // max(1, int(largest.min(initial=problem.inputs))))
    return int(min(problem.inputs, max(needed, 2 * problem.n_devices), MOST_SLOTS))
