"""The JSON document of a schedule: one row for each batch and transfer, tasks and devices by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NoReturn, Self

import msgspec
import numpy as np

from hetsched.arrays import Columns, FloatArray, IntArray, row_starts
from hetsched.documents import VERSION, Document, Real, Row, Whole, real, reals, rows
from hetsched.errors import InvalidProblem
from hetsched.schedule.schedule import Schedule


class BatchRow(Row):
    """One batch; times in seconds. `size` is given only if it differs from the number of inputs, which is invalid."""

    task: str
    device: str
    start: Real
    finish: Real
    inputs: list[Whole] = msgspec.field(default_factory=lambda: [0])
    size: Whole | None = None


class TransferRow(Row):
    """One transfer: index of its edge in the problem's graph, of its source and target batch, times in seconds."""

    edge: Whole
    source: Whole
    target: Whole
    start: Real
    finish: Real


class SchedulePart(Row, kw_only=True):
    """A schedule; memory in bytes per device, if known."""

    tasks: list[str]
    devices: list[str]
    inputs: Whole = 1
    batches: list[BatchRow]
    transfers: list[TransferRow] = []
    makespan: Real | None = None
    transfer_order: list[tuple[Whole, Whole, Whole]] | None = None
    static_memory: list[Real] | None = None
    peak_memory: list[Real] | None = None

    @classmethod
    def of(cls, schedule: Schedule) -> SchedulePart:
        """Return the document part of a schedule."""
        batches, transfers = schedule.batches, schedule.transfers

        def batch_rows(own: slice) -> Iterable[BatchRow]:
            pointers = schedule.item_ptr[own.start : own.stop + 1]
            items = schedule.items[pointers[0] : pointers[-1]].tolist()
            inputs = [items[first:last] for first, last in itertools.pairwise((pointers - pointers[0]).tolist())]
            return map(
                BatchRow,
                map(schedule.tasks.__getitem__, batches.task[own].tolist()),
                map(schedule.devices.__getitem__, batches.device[own].tolist()),
                reals(batches.start[own]),
                reals(batches.finish[own]),
                inputs,
                (None if size == len(row) else size for size, row in zip(batches.size[own].tolist(), inputs, strict=True)),
            )

        def transfer_rows(own: slice) -> Iterable[TransferRow]:
            indices = (transfers[name][own].tolist() for name in ("edge", "source", "target"))
            return map(TransferRow, *indices, reals(transfers.start[own]), reals(transfers.finish[own]))

        order = schedule.transfer_order
        return cls(
            tasks=list(schedule.tasks),
            devices=list(schedule.devices),
            inputs=schedule.n_inputs,
            batches=rows(len(batches), batch_rows),
            transfers=rows(len(transfers), transfer_rows),
            makespan=real(schedule.makespan),
            transfer_order=None if order is None else rows(len(order), lambda own: map(tuple, order[own].tolist())),
            static_memory=None if schedule.static_memory is None else reals(schedule.static_memory),
            peak_memory=None if schedule.peak_memory is None else reals(schedule.peak_memory),
        )

    def value(self) -> Schedule:
        """Return the schedule, with indices in place of names."""
        tasks, devices = (dict(zip(names, range(len(names)), strict=True)) for names in (self.tasks, self.devices))
        runs, moves = self.batches, self.transfers
        try:
            task, device = _indices(runs, "task", tasks), _indices(runs, "device", devices)
        except KeyError:
            self._refuse_names(tasks, devices)
        counts = [len(row.inputs) for row in runs]
        batches = Columns(
            task=task,
            device=device,
            start=np.array([row.start for row in runs], np.float64),
            finish=np.array([row.finish for row in runs], np.float64),
            size=np.array([count if row.size is None else row.size for row, count in zip(runs, counts, strict=True)], np.int64),
        )
        transfers = Columns(
            edge=np.array([row.edge for row in moves], np.int64),
            source=np.array([row.source for row in moves], np.int64),
            target=np.array([row.target for row in moves], np.int64),
            start=np.array([row.start for row in moves], np.float64),
            finish=np.array([row.finish for row in moves], np.float64),
        )
        return Schedule.from_columns(
            tuple(self.tasks),
            tuple(self.devices),
            self.inputs,
            batches,
            row_starts(counts),
            np.array([item for row in runs for item in row.inputs], np.int64),
            transfers,
            transfer_order=None if self.transfer_order is None else np.array(self.transfer_order, np.int64).reshape(-1, 3),
            makespan=None if self.makespan is None else float(self.makespan),
            static_memory=_column(self.static_memory),
            peak_memory=_column(self.peak_memory),
        )

    def _refuse_names(self, tasks: Mapping[str, int], devices: Mapping[str, int]) -> NoReturn:
        """Raise the error that has the first unknown name."""
        for b, row in enumerate(self.batches):
            for what, name, index in (("task", row.task, tasks), ("device", row.device, devices)):
                if name not in index:
                    raise InvalidProblem(f"batch {b} of the schedule names {what} {name!r}, which is not in its list of {what}s")
        raise AssertionError("unreachable: every name is known")


def _indices(rows: Sequence[BatchRow], what: str, index: Mapping[str, int]) -> IntArray:
    """Return the index of the task or the device of each batch; raise `KeyError` for a name without one."""
    return np.fromiter(map(index.__getitem__, map(attrgetter(what), rows)), np.int64, len(rows))


def _column(values: list[Real] | None) -> FloatArray | None:
    return None if values is None else np.array(values, np.float64)


class ScheduleDocument(Document[Schedule], kw_only=True, tag="hetsched-schedule"):
    """A schedule alone; ``hetsched.verify`` also needs its problem."""

    schedule: SchedulePart

    @classmethod
    def of(cls, value: Schedule) -> Self:
        """Return the document of a schedule."""
        return cls(version=VERSION, schedule=SchedulePart.of(value))

    def value(self) -> Schedule:
        """Return the schedule."""
        return self.schedule.value()
