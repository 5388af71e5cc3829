"""The machine on which a model is placed: a cluster, and what a tool has of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, Literal, NamedTuple

import numpy as np

from hetsched import documents
from hetsched.arguments import checked, shown
from hetsched.arguments.amounts import Amount, hint
from hetsched.arrays import BoolArray, FloatArray, Frozen, readonly
from hetsched.errors import InvalidArgument, InvalidProblem
from hetsched.problem.cluster import Cluster
from hetsched.problem.ranges import number

LLAMA_CPP: Mapping[str, str] = {"cuda": "CUDA", "rocm": "ROCm", "metal": "MTL"}
"""What llama.cpp calls devices of a family, before their number."""
DISK = "disk"
"""The family of devices that hold weights and do not compute."""


Basis = Literal["modelled", "measured", "mixed"]


def basis(measured: Iterable[bool]) -> Basis:
    """Return whether none, all or some of the devices are measured."""
    known = set(measured)
    return "mixed" if len(known) == 2 else "measured" if True in known else "modelled"


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
        Memory of a device that a placement leaves free, by the device's name: bytes, or text such as ``"2 GB"``. Default: 0.
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
    A device of the family "disk" has no peak and no memory bandwidth: it holds weights that are copied to others, and computes nothing.

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
        reserved_bytes: Mapping[str, Amount] | None = None,
        tool_names: Mapping[str, Mapping[str, str | int]] | None = None,
        efficiency: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        for what, given in (("reserved_bytes", reserved_bytes), ("tool_names", tool_names), ("efficiency", efficiency)):
            strange = [name for name in given or {} if name not in cluster.index]
            if strange:
                raise InvalidProblem(
                    f"{what} names {strange[0]!r}, which is not in the cluster; its devices are {', '.join(cluster.names)}"
                )
        reserved = {name: number(amount, "B") for name, amount in (reserved_bytes or {}).items()}
        for name, amount in reserved.items():
            if not 0 <= amount < math.inf:
                stated = (reserved_bytes or {})[name]
                raise InvalidProblem(f"reserved_bytes of {name!r} is {stated!r}; it must be a finite number of bytes from 0{hint('B')}")
        for name, shares in (efficiency or {}).items():
            if len(shares) != 2 or not all(0 < number(share) < math.inf for share in shares):
                raise InvalidProblem(f"efficiency of {name!r} is {shares!r}; it must be shares of the peak and of the bandwidth above 0")
        self._set(
            cluster=cluster,
            reserved_bytes=reserved,
            tool_names={name: dict(words) for name, words in (tool_names or {}).items()},
            efficiency={name: Efficiency(*map(float, shares)) for name, shares in (efficiency or {}).items()},
        )

    def __repr__(self) -> str:
        return f"<Machine with {', '.join(self.cluster.names)}>"

    @checked(InvalidProblem)
    def reserving(self, reserved_bytes: Mapping[str, Amount]) -> Machine:
        """Return the machine with other bytes reserved on some devices."""
        return self._with(reserved_bytes={**self.reserved_bytes, **reserved_bytes})

    @property
    def usable_bytes(self) -> FloatArray:
        """Memory of each device [m] less what is reserved."""
        reserved = np.array([self.reserved_bytes.get(name, 0.0) for name in self.cluster.names])
        return readonly(np.maximum(self.cluster.memory_bytes - reserved, 0.0))

    @property
    def computes(self) -> BoolArray:
        """Whether each device computes [m]: all but those of the family "disk"."""
        return np.array([device.family != DISK for device in self.cluster.devices])

    @property
    def cost_basis(self) -> Basis:
        """Whether the efficiency of none, of all or of some of the devices is stated, as measured."""
        return basis(name in self.efficiency for name in self.cluster.names)

    @checked(InvalidProblem)
    def with_efficiency(self, efficiency: Mapping[str, tuple[float, float]]) -> Machine:
        """Return the machine with the efficiencies of some devices stated, for instance those of `hetsched.costs.Rates.efficiency`."""
        return self._with(efficiency={**self.efficiency, **efficiency})

    def _with(self, **changes: Any) -> Machine:
        given = {name: getattr(self, name) for name in self._fields if name != "cluster"} | changes
        return Machine(self.cluster, **given)

    @checked
    def names_in(self, tool: str) -> tuple[str | int, ...]:
        """Return a tool's name of each device, by the device's number.

        A device without a name in `tool_names` has the default: in llama.cpp ``"CPU"``, ``"CUDA0"``, ``"ROCm0"`` or ``"MTL0"``, in the
        tools that use torch ``"cpu"``, ``"mps"`` or a number, and ``"disk"`` for a disk. Numbers count the devices of a family on a node
        in order; on one of several nodes the name is ``"node:0"``. A device that states no family is a CPU if its name begins with "cpu",
        and of CUDA otherwise.

        Raises
        ------
        InvalidArgument
            A device has a family of which no default is known.
        """
        names, count = list[str | int](), Counter[tuple[str, str]]()
        several = len({device.node for device in self.cluster.devices}) > 1
        for device in self.cluster.devices:
            family = device.family or ("cpu" if device.name.lower().startswith("cpu") else "cuda")
            stated = self.tool_names.get(device.name, {}).get(tool)
            if stated is None and family not in ("cpu", DISK, *LLAMA_CPP):
                raise InvalidArgument(
                    f"device {device.name!r} is of family {shown(family)}, which has no default name in {tool}; make the machine with "
                    f"tool_names={{{device.name!r}: {{{tool!r}: ...}}}}"
                )
            number = count[device.node, family]
            count[device.node, family] += 1
            if stated is not None:
                names.append(stated)
                continue
            if family == DISK:
                default: str | int = DISK
            elif tool == "llama.cpp":
                default = "CPU" if family == "cpu" else f"{LLAMA_CPP[family]}{number}"
            else:
                default = {"cpu": "cpu", "metal": "mps"}.get(family, number)
            names.append(f"{device.node or device.name}:{default}" if several else default)
        return tuple(names)

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the machine as a JSON document; ``hetsched.read`` reads it back to the bit."""
        documents.write(self, path)
