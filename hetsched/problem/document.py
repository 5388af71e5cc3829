"""The JSON documents: versioned, strict, read back to the bit.

One rule for absent numbers: ``null`` stands for NaN in durations, transfers and work (impossible,
unknown) and for infinity in memory and bandwidth (unlimited).
"""

from __future__ import annotations

import contextlib
import errno
import gc
import math
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from functools import singledispatch
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

import msgspec
import numpy as np

from hetsched.arguments import checked, shown
from hetsched.arrays import FloatArray
from hetsched.errors import InvalidArgument, InvalidProblem, UnsupportedFeature
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.links import Communication
from hetsched.problem.problem import Batching, Memory, Problem

VERSION = 1
LARGEST_DOCUMENT = 2**28
"""Bytes of a document at most."""
Number = float | None
Real = float | Literal["nan", "inf", "-inf"]
"""A number that a rule forbids to be what it is, which `verify` says, not the document."""
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number that a column of whole numbers can hold."""


class Row(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Base of the parts of documents: defaults are not written, unknown fields are refused."""


class Document(Row, kw_only=True, tag_field="format"):
    """Base of the documents: a JSON object whose `format` names its kind."""

    version: int

    def value(self) -> Any:
        """Return what the document describes."""
        raise TypeError(f"{type(self).__name__} describes nothing")


class _Header(msgspec.Struct):
    format: str
    version: int = VERSION


class TaskRow(Row):
    """One task; amounts are for one input, in bytes and FLOP."""

    name: str
    op: str = ""
    weight_bytes: float = 0.0
    input_bytes: float = 0.0
    output_bytes: float = 0.0
    flops: Number = None
    bytes_accessed: Number = None
    colocation: str | None = None
    devices: tuple[str, ...] | None = None


class GraphPart(Row, kw_only=True):
    """Tasks, and edges as [source, target, bytes]; null bytes mean the source's output_bytes."""

    tasks: list[TaskRow]
    edges: list[tuple[str, str, Number]] = []

    @classmethod
    def of(cls, graph: TaskGraph) -> Self:
        """Return the document part of a graph."""
        names = graph.names
        columns = (
            names,
            graph.op,
            graph.weight_bytes.tolist(),
            graph.input_bytes.tolist(),
            graph.output_bytes.tolist(),
            optional(graph.flops),
            optional(graph.bytes_accessed),
            graph.colocation,
            graph.devices,
        )
        edges = zip(graph.source.tolist(), graph.target.tolist(), graph.edge_bytes.tolist(), strict=True)
        return cls(tasks=[TaskRow(*row) for row in zip(*columns, strict=True)], edges=[(names[i], names[j], size) for i, j, size in edges])

    def value(self) -> TaskGraph:
        """Return the graph."""
        rows = self.tasks
        return TaskGraph(
            [row.name for row in rows],
            self.edges,
            op=[row.op for row in rows],
            weight_bytes=[row.weight_bytes for row in rows],
            input_bytes=[row.input_bytes for row in rows],
            output_bytes=[row.output_bytes for row in rows],
            flops=np.array([row.flops for row in rows], np.float64),
            bytes_accessed=np.array([row.bytes_accessed for row in rows], np.float64),
            colocation=[row.colocation for row in rows],
            devices=[row.devices for row in rows],
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

    @classmethod
    def of(cls, device: Device) -> Self:
        """Return the row of a device."""
        memory = device.memory_bytes if np.isfinite(device.memory_bytes) else None
        peaks = dict(device.peak_flops)
        return cls(device.name, device.kind, device.node, memory, peaks, device.memory_bandwidth, device.launch_overhead)

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
            bandwidth=optional(cluster.bandwidth),
            latency=cluster.latency.tolist(),
        )

    def value(self) -> Cluster:
        """Return the cluster."""
        return Cluster([row.value() for row in self.devices], _unlimited(self.bandwidth), _matrix(self.latency, "latency"))


class GraphDocument(Document, kw_only=True, tag="hetsched-graph"):
    """A task graph alone."""

    graph: GraphPart

    def value(self) -> TaskGraph:
        """Return the graph."""
        return self.graph.value()


class ClusterDocument(Document, kw_only=True, tag="hetsched-cluster"):
    """A cluster alone."""

    cluster: ClusterPart

    def value(self) -> Cluster:
        """Return the cluster."""
        return self.cluster.value()


class ProblemDocument(Document, kw_only=True, tag="hetsched-problem"):
    """A problem: durations are [task][device] seconds, or [task][device][size] with batch_sizes.

    `transfers` are [edge][from device][to device] seconds for one input.
    """

    graph: GraphPart
    cluster: ClusterPart
    durations: list[list[Number | list[Number]]]
    batch_sizes: list[Whole] | None = None
    inputs: Whole = 1
    batching: Batching = "once"
    communication: Communication = "delay"
    memory: Memory = "static"
    transfers: list[list[list[Number]]] | None = None

    def value(self) -> Problem:
        """Return the problem."""
        graph, cluster = self.graph.value(), self.cluster.value()
        durations = _matrix(self.durations, "durations")
        if not graph.n_tasks and not durations.size:  # no rows to tell the other sizes from
            durations = durations.reshape(0, cluster.n_devices, len(self.batch_sizes or [1]))
        return Problem(
            graph,
            cluster,
            durations=durations,
            batch_sizes=self.batch_sizes,
            inputs=self.inputs,
            batching=self.batching,
            communication=self.communication,
            memory=self.memory,
            transfers=None if self.transfers is None else _matrix(self.transfers, "transfers"),
        )


KINDS: Mapping[str, type[Document]] = {
    "hetsched-graph": GraphDocument,
    "hetsched-cluster": ClusterDocument,
    "hetsched-problem": ProblemDocument,
}


def optional(column: FloatArray) -> list[Any]:
    """Return nested lists with None for what is not finite."""
    values = column.astype(object)
    values[~np.isfinite(column)] = None
    return cast("list[Any]", values.tolist())


def real(value: float) -> Any:
    """Return a number, or "nan", "inf" or "-inf"."""
    return float(value) if math.isfinite(value) else str(float(value))


def reals(column: FloatArray) -> list[Any]:
    """Return a list of numbers, those that are not finite as "nan", "inf" and "-inf"."""
    values: list[Any] = column.tolist()
    return values if np.isfinite(column).all() else list(map(real, values))


def _matrix(values: Any, what: str) -> FloatArray:
    try:
        return np.array(values, dtype=np.float64)  # None becomes NaN
    except (TypeError, ValueError, OverflowError):
        raise InvalidProblem(f"{what} has rows of different lengths; give one number per device in every row") from None


def _unlimited(bandwidth: Any) -> FloatArray:
    matrix = _matrix(np.inf if bandwidth is None else bandwidth, "bandwidth")
    return np.where(np.isnan(matrix), np.inf, matrix)


@singledispatch
def to_document(value: object) -> Document:
    """Return the document that describes a value."""
    raise InvalidArgument(f"{shown(value)} has no document format; give a graph, cluster, problem, schedule, solution or stages")


@to_document.register
def _(value: TaskGraph) -> Document:
    return GraphDocument(version=VERSION, graph=GraphPart.of(value))


@to_document.register
def _(value: Cluster) -> Document:
    return ClusterDocument(version=VERSION, cluster=ClusterPart.of(value))


@to_document.register
def _(value: Problem) -> Document:
    durations = value.durations[:, :, 0] if value.n_sizes == 1 else value.durations
    return ProblemDocument(
        version=VERSION,
        graph=GraphPart.of(value.graph),
        cluster=ClusterPart.of(value.cluster),
        durations=optional(durations),
        batch_sizes=None if value.batch_sizes.tolist() == [1] else value.batch_sizes.tolist(),
        inputs=value.inputs,
        batching=value.batching,
        communication=value.communication,
        memory=value.memory,
        transfers=None if value.transfers is None else optional(value.transfers),
    )


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Make very many objects, none of which is garbage, without looking for garbage among them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def encode(value: object) -> bytes:
    """Return the JSON text of a value's document.

    Raises
    ------
    UnsupportedFeature
        It would be larger than documents may be.
    """
    with _no_collection():
        data = msgspec.json.encode(to_document(value)) + b"\n"
    if len(data) > LARGEST_DOCUMENT:
        raise UnsupportedFeature(f"the document would have {len(data)} bytes, and {LARGEST_DOCUMENT} are allowed; pickle the value instead")
    return data


def decode(data: bytes | str, kinds: Mapping[str, type[Document]] = KINDS, name: str = "document") -> Any:
    """Return the value that a JSON document describes.

    Raises
    ------
    InvalidProblem
        In one line: where in the document, what rule, what was found.
    """
    try:
        header = msgspec.json.decode(data, type=_Header)
        kind = kinds.get(header.format)
        if kind is None:
            raise InvalidProblem(f"{name}: format {header.format!r} is not one of {', '.join(map(repr, kinds))}")
        if header.version != VERSION:
            raise InvalidProblem(f"{name}: version {header.version} of {header.format} is not version {VERSION}, which this hetsched reads")
        with _no_collection():
            return msgspec.json.decode(data, type=kind).value()
    except RecursionError:
        raise InvalidProblem(f"{name}: the JSON is nested too deeply to be a document") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidProblem(f"{name}: {' '.join(str(error).split())}") from None


def read(path: str | os.PathLike[str], kinds: Mapping[str, type[Document]] = KINDS) -> Any:
    """Return the value in the JSON document at `path`; see `decode`."""
    with open(path, "rb") as file:
        data = file.read(LARGEST_DOCUMENT + 1)  # a device may have no end
    if len(data) > LARGEST_DOCUMENT:
        raise InvalidProblem(f"{os.fspath(path)} has more than the {LARGEST_DOCUMENT} bytes that a document may have")
    return decode(data, kinds, os.fspath(path))


@checked
def write(value: object, path: str | os.PathLike[str]) -> None:
    """Write a value's document to `path`, whole or not at all."""
    write_bytes(encode(value), path)


@checked
def write_bytes(data: bytes, path: str | os.PathLike[str]) -> None:
    """Write a file whole or not at all: beside the old one, which it then replaces, and whose mode it keeps.

    A symbolic link goes on pointing to the file. Devices and pipes are written to as they are.

    Raises
    ------
    OSError
        It names the file and says what became of it.
    """
    outcome = ""
    try:
        if _special(Path(path)):
            with open(path, "ab") as file:  # standard output may be a file that already has something in it
                file.write(data)
            return
        outcome = "; nothing is written"
        target, known = Path(os.path.realpath(path)), None
        with contextlib.suppress(FileNotFoundError):
            known = target.stat()
            outcome = "; the file is as it was"
        _replace(target, data, known)
    except OSError as error:
        remedy = "make room, or name a file elsewhere" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "name another file"
        said = f"{error.strerror or error}{outcome and f'{outcome}; {remedy}'}"
        raise OSError(error.errno, said, os.fspath(path)) from None


def _special(path: Path) -> bool:
    """Tell whether there is something at `path` that only its own kind of writing does: a device, a pipe, what a descriptor stands for."""
    return path.exists() and (not path.is_file() or os.path.abspath(path).startswith(("/dev/", "/proc/")))


def _replace(target: Path, data: bytes, known: os.stat_result | None) -> None:
    """Put a new file in the place of one with the status `known`, or of none."""
    if known is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    temporary = target.parent / f".hetsched-{secrets.token_hex(8)}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if known is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)  # what does not fit is told here, not after the old file has gone
        if known is not None:
            with contextlib.suppress(OSError, AttributeError):  # only root may give files away; Windows knows no owners
                os.chown(temporary, known.st_uid, known.st_gid)
            os.chmod(temporary, stat.S_IMODE(known.st_mode))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
