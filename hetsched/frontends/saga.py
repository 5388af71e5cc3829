"""Objects of SAGA (anrg-saga): a network and a task graph of related devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from hetsched.arguments import checked, shown
from hetsched.arrays import FloatArray
from hetsched.errors import InvalidArgument, InvalidProblem, MissingDependency, UnsupportedFeature
from hetsched.frontends.exchange import ROUNDING, UNIT, WRITTEN, Imported, Reference, check_same, check_transfers, naming
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.problem.ranges import number

__all__ = ["read", "to_saga"]

Link = tuple[str, str, float | None]


@checked
def read(instance: Any, network: Any = None) -> Imported:
    """Read a ``ProblemInstance`` of SAGA, or a ``TaskGraph`` and a ``Network``; their attributes count, not their classes.

    The duration of a task is its cost over the speed of the node, and the time of a transfer its size over the speed of the link, in
    both directions and without latency. Where the speed is 0 or a link is missing, nothing runs or moves, for SAGA routes nothing; then
    transfer times are given. Objects hold sets, so tasks, edges and nodes are sorted by name.

    Parameters
    ----------
    instance : object with `task_graph` and `network`, or with `tasks` and `dependencies`
    network : object with `nodes` and `edges`, optional
        With a task graph.

    Raises
    ------
    InvalidArgument
        The objects have other attributes.
    InvalidProblem
        A number or a name breaks a rule.
    """
    try:
        graph = instance.task_graph if network is None else instance
        links = instance.network if network is None else network
        tasks = [(one.name, one.cost) for one in sorted(graph.tasks, key=attrgetter("name"))]
        edges = [(one.source, one.target, one.size) for one in sorted(graph.dependencies, key=attrgetter("source", "target"))]
        nodes = [(one.name, one.speed) for one in sorted(links.nodes, key=attrgetter("name"))]
        between = [(one.source, one.target, one.speed) for one in sorted(links.edges, key=attrgetter("source", "target"))]
    except (AttributeError, TypeError) as error:
        raise InvalidArgument(
            f"instance is {shown(instance)}, no instance of SAGA ({error}); give a ProblemInstance, or a TaskGraph and a Network"
        ) from None
    return related(tasks, edges, nodes, between, "the instance")


def to_saga(problem: Problem) -> tuple[Any, Any]:
    """Return the ``Network`` and the ``TaskGraph`` of SAGA that state a problem of related devices.

    SAGA adds an entry and an exit without cost to a graph that has several.

    Raises
    ------
    UnsupportedFeature
        The durations are no cost over speed, links are not symmetric, or the problem has what SAGA does not; the message names it.
    MissingDependency
        The package ``anrg-saga`` is not installed.
    """
    cost, speed, links = stated(problem, "SAGA")
    try:
        from saga import Network
        from saga import TaskGraph as Graph
    except ImportError:
        raise MissingDependency("anrg-saga", "") from None
    names, devices = problem.graph.names, problem.cluster.names
    sizes = zip(problem.graph.edges.tolist(), problem.graph.edge_bytes.tolist(), strict=True)
    graph = Graph.create(zip(names, cost, strict=True), [(names[i], names[j], size) for (i, j), size in sizes])
    return Network.create(zip(devices, speed, strict=True), [(one, two, rate) for one, two, rate in links if one != two]), graph


def related(
    tasks: Sequence[tuple[str, float]],
    edges: Sequence[tuple[str, str, float]],
    nodes: Sequence[tuple[str, float]],
    links: Iterable[Link],
    name: str,
) -> Imported:
    """Return the problem of costs, sizes, and speeds of nodes and links; None is infinite, which only a link to itself may be."""
    size = len(nodes)
    index = {node: k for k, (node, _) in enumerate(nodes)}
    rate, given, own = np.zeros((size, size)), set(), []
    with naming(name):
        for node, speed in nodes:
            _check(f"the speed of node {node!r}", speed)
        for task, cost in tasks:
            _check(f"the cost of task {task!r}", cost)
        for one, two, link in links:
            if one not in index or two not in index:
                raise InvalidProblem(f"link {one!r} - {two!r} names a node that is not there; the nodes are {shown(list(index))}")
            h, k = index[one], index[two]
            if h == k:
                own += [one] if link is not None and math.isfinite(link) and link > 0 else []
                continue
            if link is None:
                raise InvalidProblem(f"link {one!r} - {two!r} has no speed; give a number, 0 if nothing can be sent")
            if link != math.inf:
                _check(f"the speed of link {one!r} - {two!r}", link)
            if (h, k) in given and rate[h, k] != link:
                raise InvalidProblem(f"link {one!r} - {two!r} has the speeds {rate[h, k]} and {link}; a link is the same both ways")
            given |= {(h, k), (k, h)}
            rate[h, k] = rate[k, h] = link
        graph = TaskGraph([task for task, _ in tasks], edges)
        costs, speeds = np.array([cost for _, cost in tasks], float), np.array([speed for _, speed in nodes], float)
        np.fill_diagonal(rate, np.inf)
        if not rate.all():
            check_transfers(graph.n_edges, size)
        problem = Problem(
            graph,
            Cluster([node for node, _ in nodes], bandwidth=rate),
            durations=quotient(costs[:, None], speeds[None, :]),
            transfers=None if rate.all() else quotient(graph.edge_bytes[:, None, None], rate[None]),
        )
    lost = (f"speeds of links of a node to itself, where sending takes no time: {', '.join(own)}",) if own else ()
    return Imported(problem, reference=Reference(unit=UNIT), lost=lost)


def _check(what: str, value: object) -> None:
    if not 0 <= number(value) < math.inf:
        raise InvalidProblem(f"{what} is {shown(value)}; it must be a number, at least 0")


def quotient(amount: FloatArray, rate: FloatArray) -> FloatArray:
    """Return amounts over rates; NaN where the rate is 0, inf, which a problem refuses, where they overflow."""
    with np.errstate(all="ignore"):
        return np.where(rate > 0, amount / rate, np.nan)


def stated(problem: Problem, what: str) -> tuple[list[float], list[float], list[Link]]:
    """Return the cost of each task, the speed of each node and the links of a problem of related devices.

    Raises `UnsupportedFeature` for any other problem.
    """
    seconds = problem.table[:, problem.column, 0]
    runs = np.isfinite(seconds)
    speed, cost = np.zeros(problem.n_devices), np.zeros(problem.n_tasks)
    able = np.flatnonzero(runs.any(axis=0)).tolist()
    names, devices = problem.graph.names, problem.cluster.names
    for k in able:
        if not runs[:, k].all():
            i = int(np.flatnonzero(~runs[:, k])[0])
            j = int(np.flatnonzero(runs[:, k])[0])
            raise UnsupportedFeature(
                f"{what} cannot state that {names[i]!r} does not run on {devices[k]!r} while {names[j]!r} does: a node has one speed"
            )
    if len(able):
        cost = seconds[:, able[0]]
        longest = int(np.argmax(cost))
        speed[able] = cost[longest] / seconds[longest, able] if cost[longest] > 0 and (seconds[longest, able] > 0).all() else 1.0
        for k in able:
            wrong = np.flatnonzero(~np.isclose(cost / speed[k], seconds[:, k], rtol=ROUNDING, atol=0.0))
            if len(wrong):
                first, other = names[longest], names[int(wrong[0])]
                raise UnsupportedFeature(
                    f"{what} has related devices only: {devices[k]!r} has another speed relative to {devices[able[0]]!r} for {other!r} "
                    f"than for {first!r}; keep the problem as a document (problem.write)"
                )
    links: list[Link] = []
    rate = problem.cluster.bandwidth
    for h, one in enumerate(devices):
        for k in range(h + 1, len(devices)):
            links += [(one, devices[k], float(rate[h, k]))] if rate[h, k] > 0 else []
    sizes = zip(problem.graph.edges.tolist(), problem.graph.edge_bytes.tolist(), strict=True)
    edges = [(names[i], names[j], size) for (i, j), size in sizes]
    tasks, nodes = list(zip(names, cost.tolist(), strict=True)), list(zip(devices, speed.tolist(), strict=True))
    check_same(problem, lambda: related(tasks, edges, nodes, links, WRITTEN).problem, what, ROUNDING)
    return cost.tolist(), speed.tolist(), links
