"""Profiled graphs of Moirai as JSON: unrelated devices, and a transfer time for each edge and pair of devices."""

from __future__ import annotations

import os

import msgspec
import numpy as np

from hetsched.arguments import checked
from hetsched.errors import InvalidProblem
from hetsched.frontends.exchange import UNIT, Imported, Reference, check_transfers, decode_all, naming, text_of
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem

__all__ = ["read"]


class Machine(msgspec.Struct):
    """A device."""

    id: int
    memory: float | None = None


class Task(msgspec.Struct):
    """A task and its seconds on each device."""

    id: int
    time: list[float | None]
    memory: float = 0.0


class Edge(msgspec.Struct):
    """An edge and its seconds from each device to each."""

    src: int
    dst: int
    comm_time: list[list[float | None]] | None = None


class Profile(msgspec.Struct):
    """A file."""

    devices: list[Machine]
    tasks: list[Task]
    edges: list[Edge]


@checked
def read(path: str | os.PathLike[str]) -> Imported:
    """Read a profiled graph with unrelated devices and given transfer times.

    A file has ``devices`` (id, memory), ``tasks`` (id, time on each device, memory) and ``edges`` (src, dst, ``comm_time`` from each
    device to each; no time if it is left out). Tasks are named t0, t1, ... by their ids, devices d0, d1, ...

    Raises
    ------
    InvalidProblem
        The file breaks a rule of the format.
    """
    name = os.fspath(path)
    made, lost = decode_all(text_of(path), Profile, name)
    size = len(made.devices)
    for task in made.tasks:
        if len(task.time) != size:
            raise InvalidProblem(f"{name}: task {task.id} has {len(task.time)} times, but there are {size} devices; give one for each")
    with naming(name):
        check_transfers(len(made.edges), size)
    transfers = np.zeros((len(made.edges), size, size))
    for e, edge in enumerate(made.edges):
        if edge.comm_time is not None:
            if [len(row) for row in edge.comm_time] != [size] * size:
                raise InvalidProblem(f"{name}: comm_time of edge {edge.src} -> {edge.dst} is no {size} x {size} matrix")
            transfers[e] = np.array(edge.comm_time, float)
    with naming(name):
        problem = given_transfers(
            [f"t{task.id}" for task in made.tasks],
            [(f"t{edge.src}", f"t{edge.dst}") for edge in made.edges],
            transfers,
            cluster=Cluster(
                [Device(f"d{one.id}", memory_bytes=np.inf if one.memory is None else one.memory) for one in made.devices], np.inf
            ),
            durations=np.array([task.time for task in made.tasks], float).reshape(len(made.tasks), size),
            weight_bytes=[task.memory for task in made.tasks],
        )
    return Imported(problem, reference=Reference(unit=UNIT), lost=tuple(lost))


def given_transfers(
    tasks: list[str],
    edges: list[tuple[str, str]],
    transfers: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    *,
    cluster: Cluster,
    durations: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    weight_bytes: list[float],
    colocation: list[str | None] | None = None,
) -> Problem:
    """Return a problem whose edges, which may be parallel, have transfer times [E, K, K]; those of parallel edges are added."""
    graph = TaskGraph(tasks, [(*edge, 0.0) for edge in edges], weight_bytes=weight_bytes, colocation=colocation)
    place = {(graph.names[i], graph.names[j]): e for e, (i, j) in enumerate(graph.edges.tolist())}
    summed = np.zeros((graph.n_edges, cluster.n_devices, cluster.n_devices))
    np.add.at(summed, [place[edge] for edge in edges], transfers)
    return Problem(graph, cluster, durations=durations, transfers=summed)
