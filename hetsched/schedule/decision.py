"""Decisions: batches, their order on each device, and optionally an order of transfers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, check_indices, check_rows, checked
from hetsched.arrays import Frozen, IntArray, readonly, row_starts
from hetsched.errors import InvalidSchedule
from hetsched.problem.problem import Problem


class Decision(Frozen):
    """The batches of a schedule and their order on each device, without times.

    Parameters
    ----------
    task, device : int array [m]
        Task and device index of each batch. The batches of one device are in the order in which
        they run; batches of different devices may be interleaved.
    item_ptr, items : int array [m + 1], int array
        The inputs of batch b are ``items[item_ptr[b]:item_ptr[b + 1]]``. Default: input 0 alone.
    transfer_order : int array [T, 3], optional
        Rows (edge, source batch, target batch), with batches numbered by their position in `task`.
        On every contended resource transfers follow this order strictly. Default: first come,
        first served (see `simulate`).

    Attributes
    ----------
    task, device, item_ptr, items, transfer_order
        In canonical form: batches sorted by device, inputs sorted within a batch.
    """

    task: IntArray
    device: IntArray
    item_ptr: IntArray
    items: IntArray
    transfer_order: IntArray | None

    def __init__(
        self,
        task: npt.ArrayLike,
        device: npt.ArrayLike,
        item_ptr: npt.ArrayLike | None = None,
        items: npt.ArrayLike | None = None,
        *,
        transfer_order: npt.ArrayLike | None = None,
    ) -> None:
        tasks, devices = _whole(task, "task").reshape(-1), _whole(device, "device").reshape(-1)
        size = len(tasks)
        pointers = np.arange(size + 1) if item_ptr is None else _whole(item_ptr, "item_ptr").reshape(-1)
        flat = np.zeros(size, np.int64) if items is None else _whole(items, "items").reshape(-1)
        rows = len(pointers) == size + 1 and pointers[0] == 0 and pointers[-1] == len(flat)
        rows = rows and (item_ptr is None or bool((pointers[:-1] < pointers[1:]).all()))
        if len(devices) != size or not rows:
            raise InvalidSchedule(
                f"a decision of {size} batches needs {size} devices and one non-empty set of inputs each; "
                f"got {len(devices)} devices, {len(pointers)} row starts and {len(flat)} inputs"
            )
        listed = devices.argsort(kind="stable")
        position = np.empty(size, np.int64)
        position[listed] = np.arange(size)
        order = None
        if transfer_order is not None:
            order = np.array(_whole(transfer_order, "transfer_order"))
            if order.size % 3 or (order.size and order.shape[-1] != 3):
                raise InvalidSchedule(f"transfer_order has shape {list(order.shape)}; give rows of edge, source batch and target batch")
            order = order.reshape(-1, 3)
            if ((order[:, 1:] < 0) | (order[:, 1:] >= size)).any():
                raise InvalidSchedule(f"the transfer order names a batch outside 0 to {size - 1}")
            order[:, 1:] = position[order[:, 1:]]
        if len(flat) == size:  # one input each
            inputs = flat[listed]
        else:
            counts = np.diff(pointers)
            inputs = flat[np.lexsort((flat, position[np.repeat(np.arange(size), counts)]))]
            pointers = row_starts(counts[listed])
        self._set(
            task=tasks[listed],
            device=devices[listed],
            item_ptr=pointers if item_ptr is None else readonly(pointers),
            items=inputs,
            transfer_order=order,
        )

    def __repr__(self) -> str:
        return f"<Decision of {self.n_batches} batches on {len(np.unique(self.device))} devices>"

    @cached_property
    def sizes(self) -> IntArray:
        """Number of inputs of each batch, [m]."""
        return readonly(self.item_ptr[1:] - self.item_ptr[:-1])

    @property
    def n_batches(self) -> int:
        """Number of batches m."""
        return len(self.task)

    @classmethod
    @checked
    def whole(cls, problem: Problem, device: npt.ArrayLike, sequence: npt.ArrayLike) -> Decision:
        """Build a decision of one batch of all inputs per task, on `device` [n], in the order of `sequence` [n]."""
        order = check_indices(sequence, "sequence", problem.n_tasks, InvalidSchedule)
        devices = check_array(device, "device", (problem.n_tasks,), np.int64, error=InvalidSchedule)
        count = problem.inputs
        if count == 1:
            return cls(order, devices[order])
        return cls(order, devices[order], np.arange(len(order) + 1) * count, np.tile(np.arange(count), len(order)))

    @classmethod
    @checked
    def from_assignment(cls, problem: Problem, assignment: Mapping[str, str], order: Sequence[str] | None = None) -> Decision:
        """Build a decision of one batch of all inputs per task, by name.

        Parameters
        ----------
        assignment : mapping of task name to device name
            A device for every task.
        order : sequence of task names, optional
            All tasks; the tasks of one device run in this order. Default: breadth-first topological.
        """
        names, index = problem.graph.names, problem.graph.index
        missing = [name for name in names if name not in assignment]
        if missing:
            raise InvalidSchedule(f"the assignment gives no device for task {missing[0]!r}; every task needs one")
        device = [_find(problem.cluster.index, assignment[name], "device") for name in names]
        sequence = problem.graph.topological_order
        if order is not None:
            sequence = np.array([_find(index, name, "task") for name in order], np.int64)
            if len(sequence) != len(names) or len(set(order)) != len(names):
                raise InvalidSchedule(f"the order must name each of the {len(names)} tasks once; it has {len(sequence)} entries")
        return cls.whole(problem, device, sequence)

    @classmethod
    @checked
    def from_batches(
        cls,
        problem: Problem,
        batches: Iterable[tuple[str, str, Iterable[int]]],
        *,
        transfers: Iterable[tuple[tuple[str, str], int, int]] | None = None,
    ) -> Decision:
        """Build a decision from (task, device, inputs) rows by name, listed in running order.

        `transfers`, if given, is the order of transfers: ((source task, target task), source batch,
        target batch) rows; batches are positions in `batches`.
        """
        task: list[int] = []
        device: list[int] = []
        items: list[list[int]] = []
        for place, (name, where, inputs) in enumerate(check_rows(batches, "batches", "task", "device", "inputs", error=InvalidSchedule)):
            task.append(_find(problem.graph.index, name, "task"))
            device.append(_find(problem.cluster.index, where, "device"))
            numbers = [*inputs] if isinstance(inputs, Iterable) else inputs
            items.append(sorted(_whole(numbers, f"the inputs of batches[{place}]").reshape(-1).tolist()))
        order = None
        if transfers is not None:
            edge_of = {edge: e for e, edge in enumerate(map(tuple, problem.graph.edges.tolist()))}
            order = []
            for ends, a, b in check_rows(transfers, "transfers", "edge", "source batch", "target batch", error=InvalidSchedule):
                ((source, target),) = check_rows([ends], "the edge of transfers", "source", "target", error=InvalidSchedule)
                edge = (_find(problem.graph.index, source, "task"), _find(problem.graph.index, target, "task"))
                if edge not in edge_of:
                    raise InvalidSchedule(f"the transfer order names {source!r} -> {target!r}, which is no edge of the graph")
                order.append((edge_of[edge], a, b))
        counts = [len(row) for row in items]
        return cls(task, device, row_starts(counts), [item for row in items for item in row], transfer_order=order)


def sent_in_order(problem: Problem, decision: Decision, moved: IntArray) -> Decision:
    """Return a decision of whole batches with an order of transfers, given by their edges."""
    batch = np.argsort(decision.task)
    order = np.column_stack([moved, batch[problem.graph.source[moved]], batch[problem.graph.target[moved]]])
    return Decision(decision.task, decision.device, decision.item_ptr, decision.items, transfer_order=order)


def _whole(values: npt.ArrayLike, what: str) -> IntArray:
    return check_array(values, what, None, np.int64, error=InvalidSchedule)


def _find(index: Mapping[str, int], name: Any, what: str) -> int:
    try:
        return index[name]
    except (KeyError, TypeError):
        raise InvalidSchedule(f"{name!r} is no {what} of the problem") from None
