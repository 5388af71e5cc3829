"""The JSON document of a machine."""

from __future__ import annotations

from typing import Annotated, Self

import msgspec

from hetsched.chain.machine import Machine
from hetsched.documents import VERSION, Document, Row
from hetsched.problem.document import ClusterPart


class EfficiencyRow(Row):
    """Shares of a device's peak FLOP/s and memory bandwidth that are reached."""

    compute: float
    memory: float


class MachineDocument(Document[Machine], kw_only=True, tag="hetsched-machine"):
    """A cluster, the memory that placements leave free, and what devices are called in tools."""

    cluster: ClusterPart
    reserved_bytes: dict[str, Annotated[float, msgspec.Meta(ge=0)]] = {}
    tool_names: dict[str, dict[str, str | int]] = {}
    efficiency: dict[str, EfficiencyRow] = {}

    @classmethod
    def of(cls, value: Machine) -> Self:
        """Return the document of a machine."""
        return cls(
            version=VERSION,
            cluster=ClusterPart.of(value.cluster),
            reserved_bytes=dict(value.reserved_bytes),
            tool_names={name: dict(words) for name, words in value.tool_names.items()},
            efficiency={name: EfficiencyRow(*shares) for name, shares in value.efficiency.items()},
        )

    def value(self) -> Machine:
        """Return the machine."""
        return Machine(
            self.cluster.value(),
            reserved_bytes=self.reserved_bytes,
            tool_names=self.tool_names,
            efficiency={name: (row.compute, row.memory) for name, row in self.efficiency.items()},
        )
