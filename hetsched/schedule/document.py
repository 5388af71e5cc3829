"""The JSON document of a schedule: one row a batch and a transfer, tasks and devices by name."""

from __future__ import annotations

import msgspec
import numpy as np

from hetsched.columns import Columns
from hetsched.errors import InvalidProblem, InvalidSchedule
from hetsched.problem.document import VERSION, Document, Number, Row, to_document, write
from hetsched.schedule.schedule import Schedule

__all__ = ["BatchRow", "ScheduleDocument", "SchedulePart", "TransferRow", "write"]


class BatchRow(Row):
    """One batch; times in seconds."""

    task: str
    device: str
    start: float
    finish: float
    inputs: list[int] = msgspec.field(default_factory=lambda: [0])


class TransferRow(Row):
    """One transfer: edge number of the problem's graph, numbers of the batches it joins, seconds."""

    edge: int
    source: int
    target: int
    start: float
    finish: float


class SchedulePart(Row, kw_only=True):
    """A schedule; memory in bytes per device, if known."""

    tasks: list[str]
    devices: list[str]
    inputs: int = 1
    batches: list[BatchRow]
    transfers: list[TransferRow] = []
    makespan: Number = None
    transfer_order: list[tuple[int, int, int]] | None = None
    static_memory: list[float] | None = None
    peak_memory: list[float] | None = None

    @classmethod
    def of(cls, schedule: Schedule) -> SchedulePart:
        """Return the document part of a schedule."""
        batches, transfers, items = schedule.batches, schedule.transfers, schedule.items.tolist()
        pointers = schedule.item_ptr.tolist()
        task = [schedule.tasks[i] for i in batches.task.tolist()]
        device = [schedule.devices[k] for k in batches.device.tolist()]
        rows = zip(task, device, batches.start.tolist(), batches.finish.tolist(), pointers, pointers[1:], strict=False)
        moves = zip(*(transfers[name].tolist() for name in ("edge", "source", "target", "start", "finish")), strict=True)
        order = schedule.transfer_order
        return cls(
            tasks=list(schedule.tasks), devices=list(schedule.devices), inputs=schedule.n_inputs,
            batches=[BatchRow(i, k, start, finish, items[first:last]) for i, k, start, finish, first, last in rows],
            transfers=[TransferRow(*row) for row in moves], makespan=schedule.makespan,
            transfer_order=None if order is None else [tuple(row) for row in order.tolist()],
            static_memory=None if schedule.static_memory is None else schedule.static_memory.tolist(),
            peak_memory=None if schedule.peak_memory is None else schedule.peak_memory.tolist(),
        )  # fmt: skip

    def value(self) -> Schedule:
        """Return the schedule, its names resolved."""
        tasks = {name: i for i, name in enumerate(self.tasks)}
        devices = {name: k for k, name in enumerate(self.devices)}
        for b, row in enumerate(self.batches):
            for what, name, known in (("task", row.task, tasks), ("device", row.device, devices)):
                if name not in known:
                    raise InvalidProblem(f"batch {b} of the schedule names {what} {name!r}, which is not in its list of {what}s")
        rows, moves = self.batches, self.transfers
        counts = [len(row.inputs) for row in rows]
        batches = Columns(
            task=np.array([tasks[row.task] for row in rows], np.int64),
            device=np.array([devices[row.device] for row in rows], np.int64),
            start=np.array([row.start for row in rows], np.float64),
            finish=np.array([row.finish for row in rows], np.float64),
            size=np.array(counts, np.int64),
        )
        transfers = Columns(
            edge=np.array([row.edge for row in moves], np.int64),
            source=np.array([row.source for row in moves], np.int64),
            target=np.array([row.target for row in moves], np.int64),
            start=np.array([row.start for row in moves], np.float64),
            finish=np.array([row.finish for row in moves], np.float64),
        )
        try:
            return Schedule.from_columns(
                tuple(self.tasks), tuple(self.devices), self.inputs, batches,
                np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
                np.array([item for row in rows for item in row.inputs], np.int64), transfers,
                transfer_order=None if self.transfer_order is None else np.array(self.transfer_order, np.int64).reshape(-1, 3),
                makespan=self.makespan, static_memory=self.static_memory, peak_memory=self.peak_memory,
            )  # fmt: skip
        except OverflowError:
            raise InvalidSchedule("the schedule's document holds a number beyond 64 bits") from None


class ScheduleDocument(Document, kw_only=True, tag="hetsched-schedule"):
    """A schedule alone; ``hetsched.verify`` needs its problem beside it."""

    schedule: SchedulePart

    def value(self) -> Schedule:
        """Return the schedule."""
        return self.schedule.value()


@to_document.register
def _(value: Schedule) -> Document:
    return ScheduleDocument(version=VERSION, schedule=SchedulePart.of(value))
