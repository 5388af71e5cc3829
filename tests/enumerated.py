"""Loads of assignments, computed in plain Python, and the optimum over all assignments, as references for methods."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
from hypothesis import strategies as st

import hetsched as hs
from hetsched.testing import strategies
from tests.resources import held_resources


def assignments(problem: hs.Problem) -> Iterator[tuple[int, ...]]:
    """Yield every assignment of tasks to devices, for one input, that keeps the rules and the static memory."""
    graph, cluster = problem.graph, problem.cluster
    size = problem.batch_sizes.tolist().index(1)
    for where in product(range(problem.n_devices), repeat=problem.n_tasks):
        names = [cluster.names[k] for k in where]
        if any(math.isnan(problem.durations[i, k, size]) for i, k in enumerate(where)):
            continue
        if any(pin is not None and name not in pin for pin, name in zip(graph.devices, names, strict=True)):
            continue
        labels = {(label, k) for label, k in zip(graph.colocation, where, strict=True) if label is not None}
        if len(labels) > len({label for label, _ in labels}):
            continue
        if any(math.isinf(seconds(problem, e, where[i], where[j])) for e, (i, j) in enumerate(graph.edges.tolist())):
            continue
        held = [0.0] * problem.n_devices
        for i, k in enumerate(where):
            held[k] += graph.weight_bytes[i] + graph.input_bytes[i] + graph.output_bytes[i]
        if all(bytes_ <= room * (1 + 1e-9) for bytes_, room in zip(held, cluster.memory_bytes, strict=True)):
            yield where


def seconds(problem: hs.Problem, edge: int, h: int, k: int) -> float:
    """Return the seconds of the transfer of an edge for one input."""
    return float(problem.transfer_times(edge, h, k, 1))


def value(problem: hs.Problem, where: tuple[int, ...], objective: str) -> float:
    """Return the largest load of an assignment."""
    size = problem.batch_sizes.tolist().index(1)
    load: dict[object, float] = {}

    def add(resource: object, amount: float) -> None:
        load[resource] = load.get(resource, 0.0) + amount

    for i, k in enumerate(where):
        add(k, float(problem.durations[i, k, size]))
    edges = problem.graph.edges.tolist()
    if objective == "period":
        for e, (i, j) in enumerate(edges):
            for resource in held_resources(problem.communication, problem.cluster, where[i], where[j]):
                add(resource, seconds(problem, e, where[i], where[j]))
        return max(load.values(), default=0.0)
    kinds = [device.kind for device in problem.cluster.devices]
    main = kinds.index("cpu")
    for i in range(problem.n_tasks):
        mine = [e for e, (source, _) in enumerate(edges) if source == i]
        elsewhere = {where[edges[e][1]] for e in mine} - {where[i]}
        if elsewhere and kinds[where[i]] != "cpu":
            add(where[i], max(seconds(problem, e, where[i], main) for e in mine))
        for k in elsewhere:
            if kinds[k] != "cpu":
                add(k, max(seconds(problem, e, main, k) for e in mine))
    return max(load.values(), default=0.0)


def optimum(problem: hs.Problem, objective: str) -> float:
    """Return the least value over all assignments for one input, inf if there are none."""
    return min((value(problem, where, objective) for where in assignments(problem)), default=math.inf)


def is_contiguous(where: tuple[int, ...], unit: np.ndarray, pairs: np.ndarray) -> bool:
    """Return whether some order of the devices agrees with all pairs of units (before, after)."""
    home = dict(zip(unit.tolist(), where, strict=True))
    arcs = {(home[a], home[b]) for a, b in pairs.tolist() if home[a] != home[b]}
    devices = set(where)
    while devices:
        first = {k for k in devices if not any(b == k and a in devices for a, b in arcs)}
        if not first:
            return False
        devices -= first
    return True


def problems(**features: object) -> st.SearchStrategy[hs.Problem]:
    """Return small problems for one input with static memory."""
    sizes = {"n_tasks": st.integers(1, 5), "n_devices": st.integers(1, 3)}
    return strategies.problems(inputs=1, memory="static", **{**sizes, **features})


def with_host(problem: hs.Problem) -> hs.Problem:
    """Return the problem with its last device as the host."""
    cluster = problem.cluster
    devices = [hs.Device(name, memory_bytes=room) for name, room in zip(cluster.names, cluster.memory_bytes, strict=True)]
    devices[-1] = hs.Device(cluster.names[-1], kind="cpu", memory_bytes=cluster.memory_bytes[-1])
    return problem.replace(cluster=cluster.replace(devices=devices))


@st.composite
def objectives(draw: st.DrawFn, **features: object) -> tuple[hs.Problem, str]:
    """Draw a problem and an objective that is a load."""
    problem, objective = draw(problems(**features)), draw(st.sampled_from(["period", "max-load"]))
    return (with_host(problem) if objective == "max-load" else problem), objective


def uniform(n_devices: int = 3) -> hs.Cluster:
    """Return a cluster in which all links are equal."""
    return hs.Cluster([f"d{k}" for k in range(n_devices)], bandwidth=2.0, latency=0.25)
