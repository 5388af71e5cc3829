"""The roofline cost model: a task is bound by arithmetic or by memory traffic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.arguments import COUNT, checked, shown
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.costs.protocol import Kernels
from hetsched.errors import InvalidProblem, warn
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph, named, plural

FREE_OPS = frozenset(
    {
        "input",
        "output",
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "squeeze",
        "unsqueeze",
        "transpose",
        "permute",
        "t",
        "expand",
        "slice",
        "select",
        "split",
        "chunk",
        "unbind",
        "getitem",
        "detach",
        "alias",
        "identity",
    }
)
"""Operator types that only rename data and take no time."""


@checked
@dataclass(frozen=True)
class Roofline:
    """Durations from FLOPs, bytes and the devices' peaks.

    One batch of b inputs of a task takes ::

        launch_overhead + max(b * flops / (efficiency * peak), bytes(b) / memory_bandwidth)

    with ``bytes(b) = weight_bytes + b * (bytes_accessed - weight_bytes)``: weights are read once per
    batch, other bytes once per input. A task that accesses fewer bytes than it has weights (a lookup in
    a table) shares no weights between inputs: ``bytes(b) = b * bytes_accessed``.

    Parameters
    ----------
    dtype : str
        Key of a device's `peak_flops`. The bytes of the graph are not rescaled.
    efficiency : float
        Share of the peak that operators reach, in (0, 1].
    free_ops : iterable of str
        Operator types that take no time, not even a launch: inputs and views.

    Notes
    -----
    Tasks of unknown (NaN) `flops` take the time of their memory traffic, and one warning names their number and operators.
    Unknown `bytes_accessed` are estimated as ``weight_bytes + input_bytes + output_bytes``.

    References
    ----------
    S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
    multicore architectures", Communications of the ACM 52(4), 2009.
    """

    dtype: str = "float32"
    efficiency: float = 0.5
    free_ops: Iterable[str] = FREE_OPS

    def __post_init__(self) -> None:
        if not 0 < self.efficiency <= 1:
            raise InvalidProblem(f"efficiency is {self.efficiency!r}; it must be a share of the peak in (0, 1]")
        object.__setattr__(self, "free_ops", operator_types(self.free_ops))

    @checked
    def durations(self, graph: TaskGraph, cluster: Cluster, batch_sizes: Sequence[int]) -> FloatArray:
        """Return seconds per batch, shape [task, device, size].

        Raises
        ------
        InvalidProblem
            A device has no peak for the dtype, or no memory bandwidth.
        """
        overhead = np.array([device.launch_overhead for device in cluster.devices])[:, None]
        arithmetic, traffic, free = self._parts(graph, cluster.devices, np.asarray(batch_sizes, np.float64))
        seconds: FloatArray = overhead + np.maximum(arithmetic, traffic)
        seconds[free] = 0.0
        return seconds

    @checked(inputs=COUNT)
    def kernels(self, graph: TaskGraph, device: Device, inputs: int) -> Kernels:
        """Return what one batch of that many inputs takes on a device; each kernel fills it. Errors as of `durations`."""
        arithmetic, traffic, free = self._parts(graph, [device], np.array([float(inputs)]))
        work, move = (np.where(free, 0.0, part[:, 0, 0]) for part in (arithmetic, traffic))
        return Kernels(np.maximum(work, move), work, move, ~free)

    def _parts(self, graph: TaskGraph, devices: Sequence[Device], batch: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return the seconds of arithmetic and of traffic, [n, m, B], and which tasks are free, [n]."""
        peak = np.array([peak_of(device, self.dtype) for device in devices])[:, None]
        bandwidth = np.array([bandwidth_of(device) for device in devices])[:, None]
        free = np.array([op in self.free_ops for op in graph.op], bool)
        _tell_unknown(graph, np.flatnonzero(np.isnan(graph.flops) & ~free))
        flops = np.nan_to_num(graph.flops, nan=0.0)
        total = graph.weight_bytes + graph.input_bytes + graph.output_bytes
        accessed = np.where(np.isnan(graph.bytes_accessed), total, graph.bytes_accessed)
        shared = np.where(accessed >= graph.weight_bytes, graph.weight_bytes, 0.0)
        traffic = shared[:, None, None] + (accessed - shared)[:, None, None] * batch
        return flops[:, None, None] * batch / (self.efficiency * peak), traffic / bandwidth, free


def peak_of(device: Device, dtype: str) -> float:
    """Return the peak of a device in FLOP/s; raise `InvalidProblem` if it has none for the dtype."""
    if dtype not in device.peak_flops:
        dtypes = ", ".join(device.peak_flops) or "none"
        raise InvalidProblem(
            f"device {device.name!r} has no peak_flops for {dtype!r} (it has {dtypes}); "
            "choose another dtype, give the device that peak, or take it from hetsched.costs.device(kind)"
        )
    return device.peak_flops[dtype]


def operator_types(free_ops: Iterable[str]) -> frozenset[str]:
    """Return the operator types that take no time; raise `InvalidProblem` for what is none."""
    ops = tuple(free_ops)  # an iterator would be exhausted by the first graph
    if not all(isinstance(op, str) for op in ops):
        raise InvalidProblem(f"free_ops is {shown(ops)}; it must be operator types")
    return frozenset(ops)


def _tell_unknown(graph: TaskGraph, tasks: IntArray) -> None:
    """Warn that tasks of unknown FLOPs are timed by their memory traffic alone."""
    if len(tasks):
        ops = list(dict.fromkeys(graph.op[i] for i in tasks.tolist() if graph.op[i]))
        which = f"operators {named(range(len(ops)), ops, 8)}" if ops else named(tasks, graph.names)
        warn(f"the roofline times {plural(len(tasks), 'task')} of unknown FLOPs by bytes alone ({which}); give the graph their flops")


def bandwidth_of(device: Device) -> float:
    """Return the memory bandwidth of a device in bytes per second; raise `InvalidProblem` if it has none."""
    if device.memory_bandwidth is None or not math.isfinite(device.memory_bandwidth):
        raise InvalidProblem(
            f"memory_bandwidth of device {device.name!r} is {device.memory_bandwidth}, but the roofline needs bytes per second; "
            "give the device one, or take it from hetsched.costs.device(kind)"
        )
    return device.memory_bandwidth
