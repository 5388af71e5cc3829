"""Graphs of networkx with durations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.arguments import checked, number, shown
from hetsched.errors import InvalidProblem
from hetsched.frontends.exchange import Imported, check_same, others, sorted_edges
from hetsched.problem import ranges
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.problem.tables import OF_TASKS

if TYPE_CHECKING:
    import networkx

__all__ = ["read", "to_networkx"]


@checked(InvalidProblem)
def read(
    graph: networkx.DiGraph[Any],
    cluster: Cluster,
    *,
    nodes: Mapping[str, str | None] | None = None,
    edges: Mapping[str, str | None] | None = None,
) -> Imported:
    """Read a ``networkx.DiGraph`` whose nodes have durations, for the devices of a cluster.

    The node attribute ``durations`` maps names of devices to seconds; a task cannot run on a device that is left out. The other
    attributes, and `nodes` and `edges`, are those of `TaskGraph.from_networkx`. `Imported.lost` names those that are left out: those of
    the graph itself, those for which `nodes` or `edges` has None, and unknown ones without numbers, such as colours. Unknown numbers of
    nodes and edges, such as weights, are refused.

    Raises
    ------
    InvalidProblem
        A node has no durations, or an attribute is unknown or breaks a rule; the message names it.
    """
    named = {**_without_numbers([data for _, data in graph.nodes(data=True)], ("durations", *OF_TASKS)), **(nodes or {})}
    joined = {**_without_numbers([data for _, _, data in graph.edges(data=True)], ("bytes",)), **(edges or {})}
    tasks = TaskGraph.from_networkx(graph, nodes={"durations": None, **named}, edges=joined)
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
    lost = others("attributes of the graph", [graph.graph], [])
    lost += [line for what, meant in (("nodes", named), ("edges", joined)) for line in _left_out(what, meant)]
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


def _without_numbers(rows: list[Mapping[str, Any]], known: Iterable[str]) -> dict[str, str | None]:
    """Return None for each unknown attribute that is nowhere a number."""
    amounts = {key for row in rows for key, value in row.items() if not np.isnan(ranges.number(value))}
    return {key: None for row in rows for key in row if key not in known and key not in amounts}


def _left_out(what: str, meant: Mapping[str, str | None]) -> list[str]:
    return others(f"attributes of {what}", [[attribute for attribute, name in meant.items() if name is None]], [])


def _seconds(value: Any, name: str, device: str) -> float:
    return float(number(0).check(value, f"the duration of node {name!r} on {device!r}", InvalidProblem))
