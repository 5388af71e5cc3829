"""The JSON document of a profile."""

from __future__ import annotations

from typing import Annotated, Self

import msgspec

from hetsched.costs.measurements import CopyTime, Network, Operator, ProfiledDevice, StageTime, TaskTime
from hetsched.costs.profile import Profile
from hetsched.costs.timeline_document import OverheadRow
from hetsched.documents import VERSION, Document, Row
from hetsched.problem.document import DeviceRow, GraphPart, ShapeRow

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Bytes = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ProfiledDeviceRow(Row):
    """A device in a session; the name of a session begins with its time in UTC."""

    device: DeviceRow
    session: str = ""
    threads: Size | None = None
    cores: tuple[Size, ...] = ()
    clock_hz: float | None = None
    software: dict[str, str] = {}
    overhead: OverheadRow | None = None

    @classmethod
    def of(cls, row: ProfiledDevice) -> Self:
        """Return the row of a device."""
        overhead = OverheadRow.of(row.name, row.overhead) if row.overhead != ProfiledDevice(row.device).overhead else None
        return cls(DeviceRow.of(row.device), row.session, row.threads, row.cores, row.clock_hz, dict(row.software), overhead)

    def value(self) -> ProfiledDevice:
        """Return the device."""
        made = ProfiledDevice(
            self.device.value(), self.session, self.threads, self.cores, self.clock_hz, tuple(sorted(self.software.items()))
        )
        return made if self.overhead is None else made._replace(overhead=self.overhead.value())


class OperatorRow(Row):
    """What a task computes; amounts are for one input."""

    digest: str
    op: str = ""
    text: str = ""
    flops: float | None = None
    bytes_accessed: float | None = None
    weight_bytes: float = 0.0
    shape: ShapeRow | None = None

    @classmethod
    def of(cls, row: Operator) -> Self:
        """Return the row of an operator."""
        return cls(*row[:-1], None if row.shape is None else ShapeRow(*row.shape))

    def value(self) -> Operator:
        """Return the operator."""
        shape = None if self.shape is None else self.shape.value()
        return Operator(self.digest, self.op, self.text, self.flops, self.bytes_accessed, self.weight_bytes, shape)


class TimeRow(Row):
    """Seconds of one batch of an operator; `placed` is empty if all tasks were on one device."""

    digest: str
    device: str
    batch: Count
    session: str = ""
    placed: str = ""
    turn: Size = 0
    runs: Count = 1
    median: Seconds | None = None
    q25: Seconds | None = None
    q75: Seconds | None = None
    cpu: Seconds | None = None
    memory_bytes: Bytes | None = None


class StageRow(Row):
    """Seconds of a stage, by the digests of each group's tasks."""

    groups: tuple[tuple[str, ...], ...]
    strategy: str
    device: str
    batch: Count
    session: str = ""
    runs: Count = 1
    median: Seconds = 0.0
    q25: Seconds | None = None
    q75: Seconds | None = None


class CopyRow(Row):
    """Seconds of a transfer of `size` bytes."""

    source: str
    target: str
    size: Size
    session: str = ""
    turn: Size = 0
    runs: Count = 1
    median: Seconds = 0.0
    q25: Seconds | None = None
    q75: Seconds | None = None
    cpu_source: Seconds | None = None
    cpu_target: Seconds | None = None


class NetworkRow(Row):
    """A graph, and the digest of each of its tasks."""

    graph: GraphPart
    digests: tuple[str, ...]


class ProfileDocument(Document[Profile], kw_only=True, tag="hetsched-profile"):
    """Measurements in sessions; seconds and bytes, null if unknown."""

    devices: list[ProfiledDeviceRow] = []
    operators: list[OperatorRow] = []
    times: list[TimeRow] = []
    stages: list[StageRow] = []
    copies: list[CopyRow] = []
    networks: list[NetworkRow] = []

    @classmethod
    def of(cls, value: Profile) -> Self:
        """Return the document of a profile."""
        return cls(
            version=VERSION,
            devices=list(map(ProfiledDeviceRow.of, value.devices)),
            operators=list(map(OperatorRow.of, value.operators)),
            times=[TimeRow(*row) for row in value.times],
            stages=[StageRow(*row) for row in value.stages],
            copies=[CopyRow(*row) for row in value.copies],
            networks=[NetworkRow(GraphPart.of(row.graph), row.digests) for row in value.networks],
        )

    def value(self) -> Profile:
        """Return the profile."""
        return Profile(
            [row.value() for row in self.devices],
            [row.value() for row in self.operators],
            [TaskTime(*msgspec.structs.astuple(row)) for row in self.times],
            [StageTime(*msgspec.structs.astuple(row)) for row in self.stages],
            [CopyTime(*msgspec.structs.astuple(row)) for row in self.copies],
            [Network(row.graph.value(), row.digests) for row in self.networks],
        )
