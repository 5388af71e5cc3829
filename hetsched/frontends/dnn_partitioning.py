"""Profiled networks of msr-fiddle/dnn-partitioning, and its split files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

import msgspec
import numpy as np

from hetsched.arguments import checked
from hetsched.documents import write_bytes
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.frontends.exchange import UNIT, Imported, Reference, check_transfers, decode, decode_all, naming, text_of
from hetsched.frontends.moirai import given_transfers
from hetsched.problem.cluster import MOST_DEVICES, Cluster, Device
from hetsched.problem.problem import Problem

__all__ = ["read", "read_split", "write_split"]

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_DEVICES)]


class Node(msgspec.Struct, rename="camel"):
    """An operator or a layer."""

    id: int
    supported_on_fpga: bool | int
    cpu_latency: float
    fpga_latency: float
    size: float
    color_class: int | None = None


class Edge(msgspec.Struct, rename="camel"):
    """An edge; its cost is the time between an accelerator and the host's memory."""

    source_id: int
    dest_id: int
    cost: float


class Network(msgspec.Struct):
    """A file."""

    nodes: list[Node]
    edges: list[Edge]
    memory: float = msgspec.field(name="maxSizePerFPGA")
    accelerators: Count = msgspec.field(name="maxFPGAs")
    hosts: Count = msgspec.field(name="maxCPUs")


class Part(msgspec.Struct):
    """The nodes on one device."""

    nodes: list[int]
    load: float | None = None


class Split(msgspec.Struct):
    """A split file."""

    fpgas: list[Part]
    cpus: list[Part] = []


@checked
def read(path: str | os.PathLike[str]) -> Imported:
    """Read a profiled network: accelerators, and hosts through whose memory their transfers pass.

    Nodes become the tasks n0, n1, ... by their ids, with ``size`` as weight bytes; those of one ``colorClass`` share a device. Devices are
    accelerator0, accelerator1, ... with limited memory, and host0, host1, ... The ``cost`` of an edge is the time between an accelerator
    and the host's memory, so it counts twice between two accelerators; the objective ``"max-load"`` is that of the authors.

    Raises
    ------
    InvalidProblem
        The file breaks a rule of the format.
    """
    name = os.fspath(path)
    made, lost = decode_all(text_of(path), Network, name)
    fast = [[node.fpga_latency if node.supported_on_fpga else np.nan] * made.accelerators for node in made.nodes]
    durations = [[*row, *[node.cpu_latency] * made.hosts] for row, node in zip(fast, made.nodes, strict=True)]
    far = np.repeat([1.0, 0.0], [made.accelerators, made.hosts])
    with naming(name), np.errstate(all="ignore"):  # a problem refuses what overflows
        check_transfers(len(made.edges), len(far))
        devices = [Device(f"accelerator{k}", kind="accelerator", memory_bytes=made.memory) for k in range(made.accelerators)]
        devices += [Device(f"host{k}", kind="cpu") for k in range(made.hosts)]
        problem = given_transfers(
            [f"n{node.id}" for node in made.nodes],
            [(f"n{edge.source_id}", f"n{edge.dest_id}") for edge in made.edges],
            np.array([edge.cost for edge in made.edges]).reshape(-1, 1, 1) * (far[:, None] + far) * (1.0 - np.eye(len(far))),
            cluster=Cluster(devices, bandwidth=np.inf),
            durations=np.array(durations).reshape(len(made.nodes), len(devices)),
            weight_bytes=[node.size for node in made.nodes],
            colocation=[None if node.color_class is None else f"colour {node.color_class}" for node in made.nodes],
        )
    return Imported(problem, reference=Reference(unit=UNIT), lost=tuple(lost))


@checked
def read_split(path: str | os.PathLike[str], problem: Problem) -> dict[str, str]:
    """Return the device of each task in a split file, by name, for `Decision.from_assignment`.

    Nodes that no accelerator has are on host0, as the authors' programs place them.

    Raises
    ------
    InvalidProblem
        The file breaks a rule of the format, or names a node or a device that the problem has not.
    """
    name = os.fspath(path)
    split = decode(text_of(path), Split, name)
    placed: dict[str, str] = {}
    for kind, parts in (("accelerator", split.fpgas), ("host", split.cpus)):
        for k, part in enumerate(parts):
            device = f"{kind}{k}"
            if part.nodes and device not in problem.cluster.index:
                raise InvalidProblem(
                    f"{name} has nodes on {device}, which is no device of the problem; it has {', '.join(problem.cluster.names)}"
                )
            for task in (f"n{node}" for node in part.nodes):
                if task not in problem.graph.index or task in placed:
                    again = f"on {placed[task]} and on {device}" if task in placed else "which the problem has not"
                    raise InvalidProblem(f"{name} has node {task[1:]} {again}; name each node once")
                placed[task] = device
    rest = [task for task in problem.graph.names if task not in placed]
    if rest and "host0" not in problem.cluster.index:
        raise InvalidProblem(f"{name} leaves out node {rest[0][1:]}, and the problem has no host0 for it; name each node")
    return {task: placed.get(task, "host0") for task in problem.graph.names}


@checked
def write_split(problem: Problem, assignment: Mapping[str, str], path: str | os.PathLike[str]) -> None:
    """Write the device of each task as a split file, without loads.

    Raises
    ------
    UnsupportedFeature
        Tasks or devices are not named as `read` names them, or a task has no device.
    """
    parts: dict[str, list[list[int]]] = {
        kind: [[] for name in problem.cluster.names if name.startswith(kind)] for kind in ("accelerator", "host")
    }
    for task in problem.graph.names:
        device = assignment.get(task, "")
        kind = device.rstrip("0123456789")
        number = device.removeprefix(kind)
        known = kind in parts and number and int(number) < len(parts[kind]) and device in problem.cluster.index
        if not (known and task[:1] == "n" and task[1:].isascii() and task[1:].isdigit()):
            raise UnsupportedFeature(
                f"a split file cannot state task {task!r} on {device!r}; tasks are n0, n1, ..., devices accelerator0, ... and host0, ..."
            )
        parts[kind][int(number)].append(int(task[1:]))
    split = {file: [{"nodes": nodes} for nodes in parts[kind]] for file, kind in (("fpgas", "accelerator"), ("cpus", "host"))}
    write_bytes(msgspec.json.format(msgspec.json.encode(split)) + b"\n", path)
