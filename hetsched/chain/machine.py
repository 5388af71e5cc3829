"""The machine on which a model is placed: a cluster, and what a tool has of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from os import PathLike
from typing import NamedTuple

import numpy as np

from hetsched import documents
from hetsched.arguments import checked
from hetsched.arrays import FloatArray, Frozen, readonly
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import number


class Efficiency(NamedTuple):
    """Shares of a data sheet's FLOP/s and bytes per second that are reached."""

    compute: float
    memory: float


class Machine(Frozen):
    """A cluster on which models are placed.

    Parameters
    ----------
    cluster : Cluster
    reserved_bytes : mapping of str to float, optional
        Memory of a device that a placement leaves free, by the device's name. Default: 0.
    tool_names : mapping of str to mapping, optional
        Names of a device in tools, as ``{"gpu0": {"llama.cpp": "CUDA0", "torch": 0}}``.
    efficiency : mapping of str to (float, float), optional
        Measured shares of the peak FLOP/s and of the memory bandwidth of a device, above 0. Without one a cost model's default counts.

    Raises
    ------
    InvalidProblem
        A device is not in the cluster, or an amount breaks its rule.

    Notes
    -----
    It is ``hetsched.Machine``. `hetsched.costs.Machine` is another class: what an engine adds to the durations of a problem.
    """

    _format = "hetsched-machine"
    cluster: Cluster
    reserved_bytes: Mapping[str, float]
    tool_names: Mapping[str, Mapping[str, str | int]]
    efficiency: Mapping[str, Efficiency]

    @checked(InvalidProblem)
    def __init__(
        self,
        cluster: Cluster,
        *,
        reserved_bytes: Mapping[str, float] | None = None,
        tool_names: Mapping[str, Mapping[str, str | int]] | None = None,
        efficiency: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        for what, given in (("reserved_bytes", reserved_bytes), ("tool_names", tool_names), ("efficiency", efficiency)):
            strange = [name for name in given or {} if name not in cluster.index]
            if strange:
                raise InvalidProblem(
                    f"{what} names {strange[0]!r}, which is not in the cluster; its devices are {', '.join(cluster.names)}"
                )
        for name, amount in (reserved_bytes or {}).items():
            if not 0 <= number(amount) < math.inf:
                raise InvalidProblem(f"reserved_bytes of {name!r} is {amount!r}; it must be a finite number of bytes from 0")
        for name, shares in (efficiency or {}).items():
            if len(shares) != 2 or not all(0 < number(share) < math.inf for share in shares):
                raise InvalidProblem(f"efficiency of {name!r} is {shares!r}; it must be shares of the peak and of the bandwidth above 0")
        self._set(
            cluster=cluster,
            reserved_bytes={name: float(amount) for name, amount in (reserved_bytes or {}).items()},
            tool_names={name: dict(words) for name, words in (tool_names or {}).items()},
            efficiency={name: Efficiency(*map(float, shares)) for name, shares in (efficiency or {}).items()},
        )

    def __repr__(self) -> str:
        return f"<Machine with {', '.join(self.cluster.names)}>"

    def reserving(self, reserved_bytes: Mapping[str, float]) -> Machine:
        """Return the machine with other bytes reserved on some devices."""
        reserved = {**self.reserved_bytes, **reserved_bytes}
        return Machine(self.cluster, reserved_bytes=reserved, tool_names=self.tool_names, efficiency=self.efficiency)

    @property
    def usable_bytes(self) -> FloatArray:
        """Memory of each device [m] less what is reserved."""
        reserved = np.array([self.reserved_bytes.get(name, 0.0) for name in self.cluster.names])
        return readonly(np.maximum(self.cluster.memory_bytes - reserved, 0.0))

    @checked
    def names_in(self, tool: str) -> tuple[str | int, ...]:
        """Return what a tool calls each device: as `tool_names` says, or by default.

        By default a device of the kind ``"cpu"``, or of that name, is the CPU, and others are GPUs, numbered on each node in order from 0.
        llama.cpp calls them CPU and CUDA0, other tools cpu and 0; GPU 0 of one of several nodes is ``"node:0"``.
        """
        names: list[str | int] = []
        gpus: Counter[str] = Counter()
        several = len({device.node for device in self.cluster.devices}) > 1
        for device in self.cluster.devices:
            is_cpu = "cpu" in (device.kind, device.name)
            by_default: str | int = "cpu" if is_cpu else gpus[device.node]
            if tool == "llama.cpp":
                by_default = "CPU" if is_cpu else f"CUDA{by_default}"
            if several:
                by_default = f"{device.node or device.name}:{by_default}"
            gpus[device.node] += not is_cpu
            names.append(self.tool_names.get(device.name, {}).get(tool, by_default))
        return tuple(names)

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the machine as a JSON document; ``hetsched.read`` reads it back to the bit."""
        documents.write(self, path)
