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
    served: IntArray
    """The arcs with a transfer, ascending."""


class Facts:
    """A schedule's columns, and columns derived from these and the problem."""

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.problem, self.schedule = problem, schedule
        batches, transfers = schedule.batches, schedule.transfers
        self.task, self.device = _integers(batches.task), _integers(batches.device)
        self.start, self.finish = _times(batches)
        self.makespan = float(np.fmax.reduce(self.finish, initial=0.0))
        self.tolerance = TOLERANCE * self.makespan
        n_rows = schedule.item_ptr[1:] - schedule.item_ptr[:-1]
        if problem.inputs == 1 and (n_rows == 1).all():
            self.row_batch, self.row_item = np.arange(len(n_rows)), np.zeros(len(n_rows), np.int64)
            self.count, cell = n_rows, self.task
        else:  # one row for each (batch, input), even if a batch lists an input twice
            rows = distinct(np.repeat(np.arange(len(self.task)), n_rows) * problem.inputs + schedule.items)
            self.row_batch, self.row_item = np.divmod(rows, problem.inputs)
            self.count = np.bincount(self.row_batch, minlength=len(self.task))
            cell = self.task[self.row_batch] * problem.inputs + self.row_item
        self.repeats = n_rows - self.count
        self.copies = np.bincount(cell, minlength=problem.n_tasks * problem.inputs)
        self.once = bool((self.copies == 1).all())  # every input of every task
        self.move_edge, self.move_source = _integers(transfers.edge), _integers(transfers.source)
        self.move_target = _integers(transfers.target)
        self.move_start, self.move_finish = _times(transfers)
        edge, self.source_row, target_row = self._shared_inputs(cell)
        source, target, count = self.row_batch[self.source_row], self.row_batch[target_row], np.ones(len(edge), np.int64)
        keys, moves = source * len(self.task) + target, self.move_source * len(self.task) + self.move_target
        if problem.inputs == 1 and self.once:  # the arcs are the edges, in their order
            self.arc_of, arc_of_move = edge, self.move_edge
        else:
            keys, first, self.arc_of, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
            edge, source, target, arc_of_move = edge[first], source[first], target[first], _places(keys, moves)
        h, k = self.device[source], self.device[target]
        remote, seconds = h != k, problem.transfer_times(edge, h, k, count)
        transfer, self.arc_of_move = np.full(len(keys), -1), np.full(len(moves), -1)
        if len(keys):
            (rows,) = ((keys[arc_of_move] == moves) & (edge[arc_of_move] == self.move_edge) & remote[arc_of_move]).nonzero()
            transfer[arc_of_move[rows[::-1]]] = rows[::-1]  # of several for one arc, the first
        (served,) = (transfer >= 0).nonzero()
        self.arc_of_move[transfer[served]] = served
        self.arcs = Arcs(edge, source, target, count, seconds, remote, transfer, served)
        place = np.minimum(problem.batch_sizes.searchsorted(self.count), len(problem.batch_sizes) - 1)
        self.duration = problem.table[self.task, problem.column[self.device], place]
        self.duration[problem.batch_sizes[place] != self.count] = np.nan
        self.no_duration = np.isnan(self.duration).nonzero()[0].tolist()

    def _shared_inputs(self, cell: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return (edge, row of the source, row of the target) for every edge, input and copy of both."""
        graph, inputs = self.problem.graph, self.problem.inputs
        edge, ahead, behind = np.arange(graph.n_edges), graph.source, graph.target
        if inputs > 1:
            edge = np.repeat(edge, inputs)
            ahead, behind = ((ends[:, None] * inputs + np.arange(inputs)).ravel() for ends in (ahead, behind))
        if self.once:
            row = np.empty_like(cell)
            row[cell] = np.arange(len(cell))
            return edge, row[ahead], row[behind]
        row, first = np.argsort(cell, kind="stable"), np.cumsum(self.copies) - self.copies
        number = self.copies[ahead] * self.copies[behind]
        pair = np.repeat(np.arange(len(edge)), number)
        nth = np.arange(len(pair)) - np.repeat(np.cumsum(number) - number, number)
        a, b = np.divmod(nth, self.copies[behind][pair])
        return edge[pair], row[first[ahead[pair]] + a], row[first[behind[pair]] + b]

    def sizes(self, batch: int) -> IntArray:
        """Return the batch sizes for which the batch's device has durations of its task."""
        durations = self.problem.table[self.task[batch], self.problem.column[self.device[batch]]]
        sizes: IntArray = self.problem.batch_sizes[np.isfinite(durations)]
        return sizes

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


def _places(keys: IntArray, values: IntArray) -> IntArray:
    """Return the place of each value among ascending keys; any place if it is not one of them."""
    ascending, place = np.argsort(values), np.empty(len(values), np.int64)  # of many, values in order are found several times as fast
    place[ascending] = np.minimum(np.searchsorted(keys, values[ascending]), len(keys) - 1)
    return place


def _times(columns: Columns) -> tuple[FloatArray, FloatArray]:
    """Return starts and finishes; both are NaN, which breaks no other rule, if either is not finite."""
    start, finish = np.asarray(columns.start, np.float64), np.asarray(columns.finish, np.float64)
    proper = np.isfinite(start) & np.isfinite(finish)
    if proper.all():
        return start, finish
    return np.where(proper, start, np.nan), np.where(proper, finish, np.nan)


def inputs_text(items: Sequence[int]) -> str:
    """Return the text for some inputs in messages."""
    shown = ", ".join(map(str, items[:6])) + (f" and {len(items) - 6} more" if len(items) > 6 else "")
    return f"input {shown}" if len(items) == 1 else f"inputs {shown}" if items else "no input"
