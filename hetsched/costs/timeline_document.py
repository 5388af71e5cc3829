"""The JSON document of a timeline: a schedule with measured or forecast times, and columns of its batches and transfers."""

from __future__ import annotations

from typing import Self

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.costs.machine import Machine, Overhead
from hetsched.costs.timeline import Timeline
from hetsched.documents import VERSION, Document, Real, Row, Whole, real, reals
from hetsched.schedule.document import SchedulePart


class OverheadRow(Row):
    """What a device adds, in seconds and seconds per byte; `busy` is a factor."""

    device: str
    dispatch: float = 0.0
    host: str | None = None
    dispatch_python: float = 0.0
    send: float = 0.0
    send_per_byte: float = 0.0
    receive: float = 0.0
    receive_per_byte: float = 0.0
    busy: float = 1.0
    gather: float = 0.0
    gather_per_byte: float = 0.0

    @classmethod
    def of(cls, device: str, x: Overhead) -> OverheadRow:
        """Return the row of a device's overhead."""
        return cls(device, float(x.dispatch), x.host, float(x.dispatch_python), *map(float, (*x.send, *x.receive, x.busy, *x.gather)))

    def value(self) -> Overhead:
        """Return the overhead."""
        send, receive = (self.send, self.send_per_byte), (self.receive, self.receive_per_byte)
        gather = self.gather, self.gather_per_byte
        return Overhead(self.dispatch, self.host, self.dispatch_python, send, receive, self.busy, gather)


class MachinePart(Row):
    """The overheads of devices, and whether a value crosses to a device once however many tasks there read it."""

    devices: list[OverheadRow] = []
    once: bool = False

    @classmethod
    def of(cls, machine: Machine) -> MachinePart:
        """Return the document part of a machine."""
        return cls([OverheadRow.of(*pair) for pair in machine.devices], machine.once)

    def value(self) -> Machine:
        """Return the machine."""
        return Machine({row.device: row.value() for row in self.devices}, once=self.once)


class TimelineDocument(Document[Timeline], kw_only=True, tag="hetsched-timeline"):
    """A timeline; columns are in the order of the batches and transfers of `schedule`, seconds, "nan" for unknown.

    `durations` and `lengths` have a row for each run, as many as `makespans`. Transfers with the same number in `shipment` were
    one message.
    """

    schedule: SchedulePart
    measured: bool
    cpu: list[Real]
    waited: list[Real]
    seen: list[bool]
    shipment: list[Whole]
    durations: list[list[Real]]
    lengths: list[list[Real]]
    makespans: list[Real]
    machine: MachinePart | None = None
    plan_digest: str = ""
    software: dict[str, str] = {}
    clock_error: Real = 0.0
    gathered: list[Real] | None = None

    @classmethod
    def of(cls, value: Timeline) -> Self:
        """Return the document of a timeline."""
        return cls(
            version=VERSION,
            schedule=SchedulePart.of(value.schedule),
            measured=value.measured,
            cpu=reals(value.cpu),
            waited=reals(value.waited),
            seen=value.seen.tolist(),
            shipment=value.shipment.tolist(),
            durations=list(map(reals, value.durations)),
            lengths=list(map(reals, value.lengths)),
            makespans=reals(value.makespans),
            machine=None if value.machine is None else MachinePart.of(value.machine),
            plan_digest=value.plan_digest,
            software=dict(value.software),
            clock_error=real(value.clock_error),
            gathered=reals(value.gathered) if value.gathered.any() else None,
        )

    def value(self) -> Timeline:
        """Return the timeline."""
        schedule = self.schedule.value()
        return Timeline(
            schedule,
            cpu=np.array(self.cpu, np.float64),
            waited=np.array(self.waited, np.float64),
            seen=np.array(self.seen, np.bool_),
            shipment=np.array(self.shipment, np.int64),
            durations=_table(self.durations),
            lengths=_table(self.lengths),
            makespans=np.array(self.makespans, np.float64),
            measured=self.measured,
            machine=None if self.machine is None else self.machine.value(),
            plan_digest=self.plan_digest,
            software=self.software,
            clock_error=float(self.clock_error),
            gathered=None if self.gathered is None else np.array(self.gathered, np.float64),
        )


def _table(rows: list[list[Real]]) -> FloatArray:
    """Return rows as an array; raise `InvalidSchedule` by the shape of a flat one if they differ in length."""
    if len({len(row) for row in rows}) > 1:
        return np.array([number for row in rows for number in row], np.float64)
    return np.array(rows, np.float64)
