"""The JSON documents of task graphs, clusters and problems."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import msgspec
import numpy as np

from hetsched.arrays import FloatArray
from hetsched.documents import VERSION, Document, Number, Row, Whole, optional, rows
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import Shape, TaskGraph
from hetsched.problem.links import Communication
from hetsched.problem.problem import Batching, Memory, Problem


class ShapeRow(Row):
    """The sizes of an operator for one input: rows and columns of a matrix product, and what is summed."""

    rows: float
    columns: float
    reduction: float
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    groups: int = 1

    def value(self) -> Shape:
        """Return the shape."""
        return Shape(self.rows, self.columns, self.reduction, self.kernel, self.stride, self.groups)


class TaskRow(Row):
    """One task; amounts are for one input, in bytes and FLOP."""

    name: str
    op: str = ""
    weight_bytes: float = 0.0
    input_bytes: float = 0.0
    output_bytes: float = 0.0
    flops: Number = None
    bytes_accessed: Number = None
    shape: ShapeRow | None = None
    colocation: str | None = None
    devices: tuple[str, ...] | None = None


class GraphPart(Row, kw_only=True):
    """Tasks, and edges as [source, target, bytes]; null bytes are the source's output_bytes."""

    tasks: list[TaskRow]
    edges: list[tuple[str, str, Number]] = []

    @classmethod
    def of(cls, graph: TaskGraph) -> Self:
        """Return the document part of a graph."""
        names = graph.names

        def tasks(own: slice) -> Iterable[TaskRow]:
            return map(
                TaskRow,
                names[own],
                graph.op[own],
                graph.weight_bytes[own].tolist(),
                graph.input_bytes[own].tolist(),
                graph.output_bytes[own].tolist(),
                optional(graph.flops[own]),
                optional(graph.bytes_accessed[own]),
                (None if shape is None else ShapeRow(*shape) for shape in graph.shape[own]),
                graph.colocation[own],
                graph.devices[own],
            )

        def edges(own: slice) -> Iterable[tuple[str, str, float]]:
            ends = (map(names.__getitem__, column[own].tolist()) for column in (graph.source, graph.target))
            return zip(*ends, graph.edge_bytes[own].tolist(), strict=True)

        return cls(tasks=rows(graph.n_tasks, tasks), edges=rows(graph.n_edges, edges))

    def value(self) -> TaskGraph:
        """Return the graph."""
        tasks = self.tasks
        return TaskGraph(
            [row.name for row in tasks],
            self.edges,
            op=[row.op for row in tasks],
            weight_bytes=[row.weight_bytes for row in tasks],
            input_bytes=[row.input_bytes for row in tasks],
            output_bytes=[row.output_bytes for row in tasks],
            flops=np.array([row.flops for row in tasks], np.float64),
            bytes_accessed=np.array([row.bytes_accessed for row in tasks], np.float64),
            shape=[None if row.shape is None else row.shape.value() for row in tasks],
            colocation=[row.colocation for row in tasks],
            devices=[row.devices for row in tasks],
        )


class DeviceRow(Row):
    """One device; null memory is unlimited."""

    name: str
    kind: str = ""
    node: str = ""
    memory_bytes: Number = None
    peak_flops: dict[str, float] = {}
    memory_bandwidth: Number = None
    launch_overhead: float = 0.0
    family: str = ""
    units: int | None = None
    cache_bytes: Number = None

    @classmethod
    def of(cls, device: Device) -> Self:
        """Return the row of a device."""
        memory = device.memory_bytes if np.isfinite(device.memory_bytes) else None
        peaks = dict(device.peak_flops)
        known = device.memory_bandwidth, device.launch_overhead, device.family, device.units, device.cache_bytes
        return cls(device.name, device.kind, device.node, memory, peaks, *known)

    def value(self) -> Device:
        """Return the device."""
        return Device(**{**msgspec.structs.asdict(self), "memory_bytes": np.inf if self.memory_bytes is None else self.memory_bytes})


class ClusterPart(Row, kw_only=True):
    """Devices and direct channels: one number for all pairs, or a matrix of rows from each device.

    Bandwidth 0 is no link, null is unlimited; the diagonal is ignored.
    """

    devices: list[DeviceRow]
    bandwidth: float | None | list[list[Number]] = None
    latency: float | list[list[float]] = 0.0

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """Return the document part of a cluster."""
        return cls(
            devices=[DeviceRow.of(device) for device in cluster.devices],
            bandwidth=optional(_if_different(cluster.bandwidth)),
            latency=_if_different(cluster.latency).tolist(),
        )

    def value(self) -> Cluster:
        """Return the cluster."""
        return Cluster([row.value() for row in self.devices], _unlimited(self.bandwidth), _matrix(self.latency, "latency"))


class GraphDocument(Document[TaskGraph], kw_only=True, tag="hetsched-graph"):
    """A task graph alone."""

    graph: GraphPart

    @classmethod
    def of(cls, value: TaskGraph) -> Self:
        """Return the document of a graph."""
        return cls(version=VERSION, graph=GraphPart.of(value))

    def value(self) -> TaskGraph:
        """Return the graph."""
        return self.graph.value()


class ClusterDocument(Document[Cluster], kw_only=True, tag="hetsched-cluster"):
    """A cluster alone."""

    cluster: ClusterPart

    @classmethod
    def of(cls, value: Cluster) -> Self:
        """Return the document of a cluster."""
        return cls(version=VERSION, cluster=ClusterPart.of(value))

    def value(self) -> Cluster:
        """Return the cluster."""
        return self.cluster.value()


class ProblemDocument(Document[Problem], kw_only=True, tag="hetsched-problem"):
    """A problem: durations are [task][device] seconds, or [task][device][size] with batch_sizes; with kinds, [task][kind].

    `transfers` are [edge][from device][to device] seconds for one input.
    """

    graph: GraphPart
    cluster: ClusterPart
    durations: list[list[Number | list[Number]]]
    kinds: tuple[str, ...] | None = None
    batch_sizes: list[Whole] | None = None
    inputs: Whole = 1
    batching: Batching = "once"
    communication: Communication = "delay"
    memory: Memory = "static"
    transfers: list[list[list[Number]]] | None = None

    @classmethod
    def of(cls, value: Problem) -> Self:
        """Return the document of a problem."""
        durations, transfers = value.table[:, :, 0] if value.n_sizes == 1 else value.table, value.transfers
        return cls(
            version=VERSION,
            graph=GraphPart.of(value.graph),
            cluster=ClusterPart.of(value.cluster),
            durations=rows(value.n_tasks, lambda own: optional(durations[own])),
            kinds=value.kinds,
            batch_sizes=None if value.batch_sizes.tolist() == [1] else value.batch_sizes.tolist(),
            inputs=value.inputs,
            batching=value.batching,
            communication=value.communication,
            memory=value.memory,
            transfers=None if transfers is None else rows(len(transfers), lambda own: optional(transfers[own])),
        )

    def value(self) -> Problem:
        """Return the problem."""
        graph, cluster = self.graph.value(), self.cluster.value()
        durations = _matrix(self.durations, "durations")
        if not graph.n_tasks and not durations.size:  # without rows the other sizes are unknown
            durations = durations.reshape(0, len(self.kinds or cluster.names), len(self.batch_sizes or [1]))
        return Problem(
            graph,
            cluster,
            durations=durations,
            kinds=self.kinds,
            batch_sizes=self.batch_sizes,
            inputs=self.inputs,
            batching=self.batching,
            communication=self.communication,
            memory=self.memory,
            transfers=None if self.transfers is None else _matrix(self.transfers, "transfers"),
        )


def _matrix(values: Any, what: str) -> FloatArray:
    try:
        return np.array(values, dtype=np.float64)  # None becomes NaN
    except (TypeError, ValueError, OverflowError):
        raise InvalidProblem(f"{what} has rows of different lengths; give one number per device in every row") from None


def _if_different(matrix: FloatArray) -> FloatArray:
    """Return the one number of all ordered pairs of devices, or the matrix if they differ."""
    others = matrix[~np.eye(len(matrix), dtype=bool)]
    return np.asarray(others[0]) if len(others) and (others == others[0]).all() else matrix


def _unlimited(bandwidth: Any) -> FloatArray:
    matrix = _matrix(np.inf if bandwidth is None else bandwidth, "bandwidth")
    return np.where(np.isnan(matrix), np.inf, matrix)
