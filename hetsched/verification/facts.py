"""The derived columns of a problem and a schedule that `verify` checks, and the names of things in messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.arrays import BoolArray, Columns, FloatArray, IntArray, distinct
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule

TOLERANCE = 1e-9
"""Relative tolerance: to the last finish for times, to the capacity for memory."""


class Arcs(NamedTuple):
    """Data dependencies: an edge, and batches of its source and target that share inputs."""

    edge: IntArray
    source: IntArray
    target: IntArray
    shared: IntArray
    """Number of inputs in both batches."""
    seconds: FloatArray
    """Transfer time; 0 on one device, inf without a path."""
    remote: BoolArray
    transfer: IntArray
    """Row of its transfer in the schedule, -1 without one."""


class Facts:
    """A schedule's columns, and columns derived from these and the problem."""

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem, self.schedule = problem, schedule
        batches, transfers = schedule.batches, schedule.transfers
        self.task, self.device = _integers(batches.task), _integers(batches.device)
        self.start, self.finish = _times(batches)
        self.makespan = float(np.fmax.reduce(self.finish, initial=0.0))
        self.tolerance = TOLERANCE * self.makespan
        n_rows = np.diff(schedule.item_ptr)
        # One row for each (batch, input), even if a batch lists an input twice.
        rows = distinct(np.repeat(np.arange(len(self.task)), n_rows) * problem.inputs + schedule.items)
        self.row_batch, self.row_item = np.divmod(rows, problem.inputs)
        self.count = np.bincount(self.row_batch, minlength=len(self.task))
        self.repeats = n_rows - self.count
        cell = self.task[self.row_batch] * problem.inputs + self.row_item
        self.copies = np.bincount(cell, minlength=problem.n_tasks * problem.inputs)
        self.move_edge, self.move_source, self.move_target = (_integers(transfers[name]) for name in ("edge", "source", "target"))
        self.move_start, self.move_finish = _times(transfers)
        edge, self.source_row, target_row = self._shared_inputs(cell)
        keys, first, self.arc_of, count = np.unique(
            self.row_batch[self.source_row] * len(self.task) + self.row_batch[target_row],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        source, target = self.row_batch[self.source_row[first]], self.row_batch[target_row[first]]
        h, k = self.device[source], self.device[target]
        seconds = problem.transfer_times(edge[first], h, k, count)
        self.arc_of_move = self._serving(keys, edge[first], h != k)
        transfer = np.full(len(keys), -1)
        lawful = np.flatnonzero(self.arc_of_move >= 0)
        transfer[self.arc_of_move[lawful]] = lawful
        self.arcs = Arcs(edge[first], source, target, count, seconds, h != k, transfer)
        size = np.searchsorted(problem.batch_sizes, self.count)
        fits = (size < len(problem.batch_sizes)) & (problem.batch_sizes[np.minimum(size, len(problem.batch_sizes) - 1)] == self.count)
        seconds = problem.table[self.task, problem.column[self.device]]
        self.duration = np.where(fits, seconds[np.arange(len(size)), np.where(fits, size, 0)], np.nan)
        self.runs_there = np.any(np.isfinite(seconds), axis=1)

    def _shared_inputs(self, cell: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return (edge, row of the source, row of the target) for every edge, input and copy of both."""
        graph, inputs = self.problem.graph, self.problem.inputs
        edge, item = np.repeat(np.arange(graph.n_edges), inputs), np.tile(np.arange(inputs), graph.n_edges)
        ahead, behind = graph.edges[edge, 0] * inputs + item, graph.edges[edge, 1] * inputs + item
        row, first = np.argsort(cell, kind="stable"), np.cumsum(self.copies) - self.copies
        number = self.copies[ahead] * self.copies[behind]
        if (number == 1).all():
            return edge, row[first[ahead]], row[first[behind]]
        pair = np.repeat(np.arange(len(edge)), number)
        nth = np.arange(len(pair)) - np.repeat(np.cumsum(number) - number, number)
        a, b = np.divmod(nth, self.copies[behind][pair])
        return edge[pair], row[first[ahead[pair]] + a], row[first[behind[pair]] + b]

    def _serving(self, keys: IntArray, edge: IntArray, remote: BoolArray) -> IntArray:
        """Return the arc of each transfer; -1 without one, or if an earlier row has it."""
        result = np.full(len(self.move_edge), -1)
        if len(keys):
            pairs = self.move_source * len(self.task) + self.move_target
            ascending, place = np.argsort(pairs), np.empty(len(pairs), np.int64)  # of many, pairs in order are found several times as fast
            place[ascending] = np.minimum(np.searchsorted(keys, pairs[ascending]), len(keys) - 1)
            rows = np.flatnonzero((keys[place] == pairs) & (edge[place] == self.move_edge) & remote[place])
            arc, first = np.unique(place[rows], return_index=True)
            result[rows[first]] = arc
        return result

    def move(self, row: int) -> tuple[int, int, int]:
        """Return edge, source and target batch of a row of the schedule's transfers."""
        return int(self.move_edge[row]), int(self.move_source[row]), int(self.move_target[row])

    def items(self, batch: int) -> tuple[int, ...]:
        """Return the inputs of a batch."""
        return tuple(self.row_item[slice(*np.searchsorted(self.row_batch, [batch, batch + 1]))].tolist())

    def batch(self, b: int) -> str:
        """Return the text for a batch in messages."""
        which = "" if self.problem.inputs == 1 else f" ({inputs_text(self.items(b))})"
        return f"{self.task_name(b)!r}{which} on {self.device_name(b)!r}"

    def task_name(self, b: int) -> str:
        """Return the name of a batch's task."""
        return self.problem.graph.names[int(self.task[b])]

    def device_name(self, b: int) -> str:
        """Return the name of a batch's device."""
        return self.problem.cluster.names[int(self.device[b])]

    def edge_text(self, e: int) -> str:
        """Return the text for an edge in messages."""
        i, j = self.problem.graph.edges[e]
        return f"{self.problem.graph.names[i]!r} -> {self.problem.graph.names[j]!r}"

    def transfer(self, edge: int, source: int, target: int) -> str:
        """Return the text for a transfer in messages."""
        which = "" if self.problem.inputs == 1 else f" ({inputs_text(self.items(source))} to {inputs_text(self.items(target))})"
        return f"the transfer {self.edge_text(edge)}{which} from {self.device_name(source)!r} to {self.device_name(target)!r}"


def _integers(column: npt.NDArray[np.generic]) -> IntArray:
    return np.asarray(column, np.int64)  # an empty column may be of floats


def _times(columns: Columns) -> tuple[FloatArray, FloatArray]:
    """Return starts and finishes; both are NaN, which breaks no other rule, if either is not finite."""
    start, finish = (np.asarray(columns[name], np.float64) for name in ("start", "finish"))
    proper = np.isfinite(start) & np.isfinite(finish)
    return np.where(proper, start, np.nan), np.where(proper, finish, np.nan)


def inputs_text(items: Sequence[int]) -> str:
    """Return the text for some inputs in messages."""
    shown = ", ".join(map(str, items[:6])) + (f" and {len(items) - 6} more" if len(items) > 6 else "")
    return f"input {shown}" if len(items) == 1 else f"inputs {shown}" if items else "no input"
