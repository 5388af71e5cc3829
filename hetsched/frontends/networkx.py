"""Graphs of networkx with durations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.arguments import checked, number, shown
from hetsched.errors import InvalidProblem
from hetsched.frontends.exchange import Imported, check_same, others, sorted_edges
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem

if TYPE_CHECKING:
    import networkx

__all__ = ["read", "to_networkx"]

_OF_NODES = ("durations", "op", "weight_bytes", "input_bytes", "output_bytes", "flops", "bytes_accessed", "shape", "colocation", "devices")


@checked(InvalidProblem)
def read(graph: networkx.DiGraph[Any], cluster: Cluster) -> Imported:
    """Read a ``networkx.DiGraph`` whose nodes have durations, for the devices of a cluster.

    The node attribute ``durations`` maps names of devices to seconds; a task cannot run on a device that is left out. The other
    attributes are those of `TaskGraph.from_networkx`.

    Raises
    ------
    InvalidProblem
        A node has no durations, or an attribute breaks a rule; the message names it.
    """
    tasks = TaskGraph.from_networkx(graph)
    seconds = np.full((tasks.n_tasks, cluster.n_devices), np.nan)
    for i, (name, (_, values)) in enumerate(zip(tasks.names, graph.nodes(data=True), strict=True)):
        given = values.get("durations")
        if not isinstance(given, Mapping):
            raise InvalidProblem(f"durations of node {name!r} is {shown(given)}; it must be a mapping of devices to seconds")
        for device, value in given.items():
            if device not in cluster.index:
                raise InvalidProblem(
                    f"durations of node {name!r} has the device {shown(device)}; the cluster has {', '.join(cluster.names)}"
                )
            seconds[i, cluster.index[device]] = _seconds(value, name, device)
    lost = others("attributes of nodes", [values for _, values in graph.nodes(data=True)], _OF_NODES)
    lost += others("attributes of edges", [values for _, _, values in graph.edges(data=True)], ["bytes"])
    return Imported(Problem(tasks, cluster, durations=seconds), lost=tuple(lost))


@checked
def to_networkx(problem: Problem) -> networkx.DiGraph[Any]:
    """Return a ``networkx.DiGraph`` whose nodes are the task names, with ``durations``; `read` is its inverse, given the cluster.

    networkx sorts edges by source.

    Raises
    ------
    UnsupportedFeature
        The problem has several inputs, given transfer times, or rules other than the default, which a graph has no place for.
    """
    graph = problem.graph.to_networkx()
    for name, row in zip(problem.graph.names, problem.table[:, problem.column, 0].tolist(), strict=True):
        pairs = zip(problem.cluster.names, row, strict=True)
        graph.nodes[name]["durations"] = {device: seconds for device, seconds in pairs if seconds == seconds}
    check_same(sorted_edges(problem, "source"), lambda: read(graph, problem.cluster).problem, "a graph of networkx")
    return graph


def _seconds(value: Any, name: str, device: str) -> float:
    return float(number(0).check(value, f"the duration of node {name!r} on {device!r}", InvalidProblem))
