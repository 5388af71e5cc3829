"""Schedules as immutable columns: the device and the times of every batch and transfer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hetsched import documents
from hetsched.arguments import check_array, checked
from hetsched.arrays import Columns, FloatArray, Frozen, IntArray, deferred, readonly, row_starts, texts
from hetsched.errors import InvalidSchedule, UnsupportedFeature
from hetsched.lazy import later
from hetsched.problem.graph import unique_names
from hetsched.problem.modules import ancestors, module_of
from hetsched.problem.problem import MOST_ITEMS
from hetsched.schedule.decision import Decision

if TYPE_CHECKING:
    import pandas

_BATCH = {"task": True, "device": True, "start": False, "finish": False, "size": True}
_TRANSFER = {"edge": True, "source": True, "target": True, "start": False, "finish": False}
"""The columns of each table, and whether their values are integers."""
Memory: TypeAlias = FloatArray | Callable[[], FloatArray] | None
"""Bytes of each device, [K], or the function that computes them when they are first read."""


class Schedule(Frozen):
    """The device and the times of every batch, and the times of every transfer.

    Attributes
    ----------
    tasks, devices : tuple of str
        The names the indices below refer to.
    n_inputs : int
        Number L of inputs.
    batches : Columns (task, device, start, finish, size)
        One row for each batch, sorted by device and then by running order; times in seconds.
    item_ptr, items : int64 arrays
        The inputs of batch b are ``items[item_ptr[b]:item_ptr[b + 1]]``.
    transfers : Columns (edge, source, target, start, finish)
        One row for each transfer between devices: edge index, source and target batch.
    transfer_order : int64 array [T, 3] or None
        The explicit order of transfers of its decision, see `Decision`.
    makespan : float
        The stated makespan in seconds.
    static_memory, peak_memory : float64 array [K] or None
        Bytes each device needs under the two memory models; None if unknown. `simulate` leaves both to their first use.

    Notes
    -----
    ``simulate`` returns schedules. `Schedule.from_columns` builds one from times computed by other code,
    which ``verify`` can check.
    """

    _format = "hetsched-schedule"
    tasks: tuple[str, ...]
    devices: tuple[str, ...]
    n_inputs: int
    batches: Columns
    item_ptr: IntArray
    items: IntArray
    transfers: Columns
    transfer_order: IntArray | None
    makespan: float
    static_memory: FloatArray | None = deferred()
    peak_memory: FloatArray | None = deferred()

    def __init__(self) -> None:
        raise TypeError("schedules are made by hetsched.simulate(problem, decision), hetsched.read(path) or Schedule.from_columns(...)")

    @classmethod
    @checked
    def from_columns(
        cls,
        tasks: tuple[str, ...],
        devices: tuple[str, ...],
        n_inputs: int,
        batches: Columns,
        item_ptr: npt.ArrayLike,
        items: npt.ArrayLike,
        transfers: Columns,
        *,
        transfer_order: npt.ArrayLike | None = None,
        makespan: float | None = None,
        static_memory: npt.ArrayLike | None = None,
        peak_memory: npt.ArrayLike | None = None,
    ) -> Schedule:
        """Build a schedule from columns; only shapes and index ranges are checked.

        The makespan defaults to the last finish. Raises `InvalidSchedule` for columns of inconsistent
        lengths or indices out of range, `InvalidProblem` for names that are not distinct strings.
        """
        if not 0 <= n_inputs * len(tasks) <= MOST_ITEMS:
            raise InvalidSchedule(f"{n_inputs} inputs of {len(tasks)} tasks: a schedule has from 0 to {MOST_ITEMS} pairs of the two")
        return cls.of_problem(
            unique_names(tasks, "task"),
            unique_names(devices, "device"),
            n_inputs,
            batches,
            item_ptr,
            items,
            transfers,
            transfer_order=transfer_order,
            makespan=makespan,
            static_memory=static_memory,
            peak_memory=peak_memory,
        )

    @classmethod
    def of_problem(
        cls,
        tasks: tuple[str, ...],
        devices: tuple[str, ...],
        n_inputs: int,
        batches: Columns,
        item_ptr: npt.ArrayLike,
        items: npt.ArrayLike,
        transfers: Columns,
        *,
        transfer_order: npt.ArrayLike | None = None,
        makespan: float | None = None,
        static_memory: npt.ArrayLike | Callable[[], FloatArray] | None = None,
        peak_memory: npt.ArrayLike | Callable[[], FloatArray] | None = None,
    ) -> Schedule:
        """Build a schedule as `from_columns` does, with names and sizes that a problem has already checked."""

        def whole(values: npt.ArrayLike, what: str, shape: tuple[int | str, ...]) -> IntArray:
            return readonly(check_array(values, what, shape, np.int64, error=InvalidSchedule))

        def bytes_of(values: npt.ArrayLike | None, what: str) -> FloatArray | None:
            return None if values is None else readonly(check_array(values, what, (len(devices),), error=InvalidSchedule))

        for what, table, wanted in (("batches", batches, _BATCH), ("transfers", transfers, _TRANSFER)):
            for name in wanted:
                if name not in table.names or table[name].dtype.kind not in ("iu" if wanted[name] else "iuf"):
                    raise InvalidSchedule(f"{what} must have a column {name!r} of {'whole numbers' if wanted[name] else 'numbers'}")
        pointers, flat = whole(item_ptr, "item_ptr", ("batches + 1",)), whole(items, "items", ("inputs",))
        order = None
        if transfer_order is not None:
            order = readonly(check_array(transfer_order, "transfer_order", None, np.int64, error=InvalidSchedule))
            if order.size and (order.ndim != 2 or order.shape[1] != 3):
                raise InvalidSchedule(f"transfer_order has shape {list(order.shape)}; give rows of edge, source batch and target batch")
            order = order.reshape(-1, 3)
        size = len(batches)
        if pointers.shape != (size + 1,) or pointers[0] != 0 or pointers[-1] != len(flat) or (np.diff(pointers) < 0).any():
            raise InvalidSchedule(f"item_ptr must hold {size + 1} non-decreasing row starts from 0 to {len(flat)}")
        for what, column, limit in (
            ("task", batches.task, len(tasks)),
            ("device", batches.device, len(devices)),
            ("input", flat, n_inputs),
            ("source batch", transfers.source, size),
            ("target batch", transfers.target, size),
            ("batch", np.empty(0) if order is None else order[:, 1:], size),
        ):
            if len(column) and not (0 <= column.min() and column.max() < limit):
                raise InvalidSchedule(
                    f"{what} numbers run from {column.min()} to {column.max()}, but the schedule has {limit}, numbered from 0"
                )
        if makespan is None:
            makespan = float(batches.finish.max(initial=0.0))
        return cls._unchecked(
            tasks=tasks,
            devices=devices,
            n_inputs=int(n_inputs),
            batches=batches,
            item_ptr=pointers,
            items=flat,
            transfers=transfers,
            makespan=float(makespan),
            transfer_order=order,
            static_memory=static_memory if callable(static_memory) else bytes_of(static_memory, "static_memory"),
            peak_memory=peak_memory if callable(peak_memory) else bytes_of(peak_memory, "peak_memory"),
        )

    @classmethod
    def _unchecked(cls, *, static_memory: Memory, peak_memory: Memory, **values: Any) -> Schedule:
        """Build a schedule of consistent values that nothing else changes, without a check or a copy; `values`: its other attributes."""
        schedule = cls.__new__(cls)
        needed = {"static_memory": static_memory, "peak_memory": peak_memory}
        schedule._set(**values, **{name: known for name, known in needed.items() if not callable(known)})
        schedule._defer(**{name: compute for name, compute in needed.items() if callable(compute)})
        return schedule

    def __repr__(self) -> str:
        return f"<Schedule of {len(self.batches)} batches on {len(self.devices)} devices, makespan {self.makespan:.6g} s>"

    _repr_html_ = later("hetsched.report.notebook:schedule_html")

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the schedule as a JSON document; ``hetsched.read`` reads it back to the bit."""
        documents.write(self, path)

    @property
    def placement(self) -> dict[str, str]:
        """The device of each task, by their names, as ``Decision.from_assignment(problem, placement)`` takes it.

        Raises `InvalidSchedule` if a task runs on several devices, each with some of the inputs: `device_of` has the device of each.
        """
        task, device = self.batches.task.tolist(), self.batches.device.tolist()
        result: dict[str, str] = {}
        for i, k in sorted(zip(task, device, strict=True)):
            name, where = self.tasks[i], self.devices[k]
            if result.setdefault(name, where) != where:
                raise InvalidSchedule(
                    f"task {name!r} runs on {result[name]!r} and on {where!r}, each with some of the inputs; ask for that of one input: "
                    f"schedule.device_of({name!r}, item)"
                )
        return result

    def named_batches(self) -> Columns:
        """Return a table of the batches with names instead of indices, in the order of `batches`.

        Columns are task, device, start, finish, duration (seconds), size and inputs (text, for instance ``"0-3, 7"``).
        """
        batches, items = self.batches, self.items.tolist()
        return Columns(
            task=texts(self.tasks)[batches.task],
            device=texts(self.devices)[batches.device],
            start=batches.start,
            finish=batches.finish,
            duration=batches.finish - batches.start,
            size=batches.size,
            inputs=texts(spans(items[first:last]) for first, last in itertools.pairwise(self.item_ptr.tolist())),
        )

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the batches as a ``pandas.DataFrame`` by start, with the columns of `named_batches`.

        Raises `MissingDependency` without pandas. ``hetsched.report.to_dataframe(problem, schedule)`` adds operators and modules.
        """
        return self.named_batches().to_dataframe().sort_values(["start", "finish"], kind="stable", ignore_index=True)

    @cached_property
    def decision(self) -> Decision:
        """The decision of the schedule: ``simulate(problem, schedule.decision) == schedule`` if
        `simulate` returned it."""
        batches = self.batches
        real = batches.finish > batches.start  # batches of zero length take part in no device's order
        later = (np.diff(batches.device[real]) > 0) | (np.diff(batches.start[real]) >= 0)
        if (np.diff(batches.device) >= 0).all() and later.all():
            return Decision(batches.task, batches.device, self.item_ptr, self.items, transfer_order=self.transfer_order)
        order = np.lexsort((batches.finish, batches.start))
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        counts = np.diff(self.item_ptr)
        listed = position[np.repeat(np.arange(len(order)), counts)]
        transfer_order = self.transfer_order
        if transfer_order is not None:
            transfer_order = np.column_stack([transfer_order[:, 0], position[transfer_order[:, 1:]]])
        return Decision(
            batches.task[order],
            batches.device[order],
            row_starts(counts[order]),
            self.items[np.argsort(listed, kind="stable")],
            transfer_order=transfer_order,
        )

    @property
    def throughput(self) -> float:
        """Inputs per second, L / makespan (inf for an empty makespan)."""
        return self.n_inputs / self.makespan if self.makespan > 0 else float("inf")

    @cached_property
    def busy_time(self) -> FloatArray:
        """Seconds each device spends running batches, shape [K]."""
        return readonly(np.bincount(self.batches.device, self.batches.finish - self.batches.start, minlength=len(self.devices)))

    @cached_property
    def _task_index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.tasks)}

    @cached_property
    def batch_of(self) -> IntArray:
        """The batch of each (task, input), shape [n, L]; -1 if there is none."""
        table = np.full((len(self.tasks), self.n_inputs), -1)
        batch = np.repeat(np.arange(len(self.batches)), np.diff(self.item_ptr))
        table[self.batches.task[batch], self.items] = batch
        return readonly(table)

    def _batch(self, task: str, item: int) -> int:
        if task not in self._task_index:
            raise InvalidSchedule(f"{task!r} is no task of the schedule")
        if not 0 <= item < self.n_inputs:
            raise InvalidSchedule(f"input {item} is outside 0 to {self.n_inputs - 1}")
        batch = int(self.batch_of[self._task_index[task], item])
        if batch < 0:
            raise InvalidSchedule(f"the schedule never runs input {item} of task {task!r}")
        return batch

    @checked
    def device_of(self, task: str, item: int = 0) -> str:
        """Return the name of the device that runs input `item` of `task`."""
        return self.devices[int(self.batches.device[self._batch(task, item)])]

    def by_module(self) -> dict[str, str]:
        """Return the device of each module, as few as say all: of a model captured from torch or ONNX, or coarsened by module.

        A module whose tasks, with those of the modules inside, are on one device has one entry; ``""`` is the whole model.
        One that is divided has entries of the modules inside it, and of its own tasks, as have tasks in no module.

        Raises
        ------
        UnsupportedFeature
            A task runs on several devices, for different inputs.
        """
        device: dict[str, int] = {}
        for task, k in zip(self.batches.task.tolist(), self.batches.device.tolist(), strict=True):
            name = self.tasks[task]
            if device.setdefault(name, k) != k:
                both = f"{self.devices[device[name]]!r} and {self.devices[k]!r}"
                raise UnsupportedFeature(f"task {name!r} runs on {both}, for different inputs; a placement by module needs one device")
        inside: dict[str, set[int]] = {}
        for name, k in device.items():
            for module in ("", *ancestors(module_of(name))):
                inside.setdefault(module, set()).add(k)
        placed = {}
        for name in self.tasks:
            if name in device:
                places = ("", *ancestors(module_of(name)))
                whole = next((module for module in places if len(inside[module]) == 1), name)
                placed[whole] = self.devices[device[name]]
        return placed

    @checked
    def start(self, task: str, item: int = 0) -> float:
        """Return the start of the batch with input `item` of `task`, in seconds."""
        return float(self.batches.start[self._batch(task, item)])

    @checked
    def finish(self, task: str, item: int = 0) -> float:
        """Return the finish of the batch with input `item` of `task`, in seconds."""
        return float(self.batches.finish[self._batch(task, item)])


def spans(items: Iterable[int]) -> str:
    """Return input numbers as text: ``0-3, 7``."""
    runs: list[list[int]] = []
    for number in sorted(items):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
