"""Files graph.json of DAGBench: an instance of SAGA as JSON."""

from __future__ import annotations

import os

import msgspec

from hetsched.arguments import checked
from hetsched.documents import write_bytes
from hetsched.errors import UnsupportedFeature
from hetsched.frontends.exchange import Imported, decode_all, text_of
from hetsched.frontends.saga import related, stated
from hetsched.problem.problem import Problem

__all__ = ["read", "write"]


class Task(msgspec.Struct):
    """A task and its cost."""

    name: str
    cost: float


class Dependency(msgspec.Struct):
    """An edge and its size."""

    source: str
    target: str
    size: float


class Node(msgspec.Struct):
    """A device and its speed."""

    name: str
    speed: float


class Link(msgspec.Struct):
    """The speed of a link, in both directions; null is infinite."""

    source: str
    target: str
    speed: float | None


class Graph(msgspec.Struct):
    """The tasks."""

    tasks: list[Task]
    dependencies: list[Dependency]


class Network(msgspec.Struct):
    """The devices."""

    nodes: list[Node]
    edges: list[Link]


class Instance(msgspec.Struct):
    """A file."""

    task_graph: Graph
    network: Network
    name: str = ""


@checked
def read(path: str | os.PathLike[str]) -> Imported:
    """Read a graph.json of DAGBench; durations are cost over speed, transfers size over the speed of the link, see `saga.read`.

    Tasks, edges and nodes keep the order of the file.

    Raises
    ------
    InvalidProblem
        The file breaks a rule of the format.
    """
    name = os.fspath(path)
    one, unknown = decode_all(text_of(path), Instance, name)
    graph, network = one.task_graph, one.network
    made = related(
        [(task.name, task.cost) for task in graph.tasks],
        [(edge.source, edge.target, edge.size) for edge in graph.dependencies],
        [(node.name, node.speed) for node in network.nodes],
        [(link.source, link.target, link.speed) for link in network.edges],
        name,
    )
    return made._replace(lost=(*made.lost, *([f"name: {one.name}"] if one.name else []), *unknown))


@checked
def write(problem: Problem, path: str | os.PathLike[str], *, name: str = "") -> None:
    """Write a problem of related devices as a graph.json of DAGBench.

    Durations are written as cost over speed, and read back within a relative 1e-12.

    Raises
    ------
    UnsupportedFeature
        The durations are no cost over speed, links are not symmetric, or the problem has what the format does not; the message names it.
    """
    what = "a file of DAGBench"
    cost, speed, links = stated(problem, what)
    names, devices = problem.graph.names, problem.cluster.names
    for one, two, rate in links:
        if rate == float("inf"):
            raise UnsupportedFeature(f"{what} cannot state an infinite bandwidth, that of {one!r} and {two!r}; give a finite one")
    sizes = zip(problem.graph.edges.tolist(), problem.graph.edge_bytes.tolist(), strict=True)
    instance = Instance(
        Graph([Task(*row) for row in zip(names, cost, strict=True)], [Dependency(names[i], names[j], size) for (i, j), size in sizes]),
        Network([Node(*row) for row in zip(devices, speed, strict=True)], [Link(*link) for link in links]),
        name,
    )
    write_bytes(msgspec.json.format(msgspec.json.encode(instance)) + b"\n", path)
