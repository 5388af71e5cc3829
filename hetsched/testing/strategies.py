"""Hypothesis strategies for task graphs, clusters, problems and decisions.

Every argument is keyword-only and is a value or a strategy. By default sizes are small, numbers are
multiples of 1/8 and bandwidths are powers of two, so that arithmetic is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from hetsched.arguments import checked
from hetsched.arrays import FloatArray, row_starts
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.links import MODELS, Communication
from hetsched.problem.problem import Batching, Memory, Problem
from hetsched.schedule.decision import Decision
from hetsched.testing.choices import Choices

T = TypeVar("T")
Given: TypeAlias = T | SearchStrategy[T]
"""A value, or a strategy for it."""

_MOST_VECTORS = 4096
"""The most assignments of a unit's inputs to devices that are enumerated."""


@checked
def numbers(*, largest: int = 4) -> SearchStrategy[float]:
    """Return a strategy for 0, small whole numbers and multiples of 1/8, up to `largest`."""
    return st.one_of(st.integers(0, largest).map(float), st.integers(0, 8 * largest).map(lambda eighths: eighths / 8))


FLAGS = st.booleans()
AMOUNTS = numbers()
LATENCIES = numbers(largest=2)
BANDWIDTHS = st.sampled_from([0.5, 1.0, 2.0, 4.0])
FEW = st.integers(1, 3)
SOME = st.integers(1, 4)
INPUTS = st.sampled_from([1, 1, 2])
BATCHINGS: SearchStrategy[Batching] = st.sampled_from(["once", "free"])
COMMUNICATIONS: SearchStrategy[Communication] = st.sampled_from(list(MODELS))
MEMORIES: SearchStrategy[Memory] = st.sampled_from(["static", "peak"])


def _value(draw: DrawFn, given: Given[T]) -> T:
    return draw(given) if isinstance(given, SearchStrategy) else given


def _each(draw: DrawFn, given: Given[float], count: int) -> list[float]:
    """Draw `count` numbers."""
    if isinstance(given, SearchStrategy):
        return draw(st.lists(given, min_size=count, max_size=count))
    return [given] * count


@st.composite
def task_graphs(
    draw: DrawFn,
    *,
    n_tasks: Given[int] = SOME,
    weight_bytes: Given[float] = AMOUNTS,
    input_bytes: Given[float] = AMOUNTS,
    output_bytes: Given[float] = AMOUNTS,
    edge_bytes: Given[float] = AMOUNTS,
    colocation: Given[bool] = FLAGS,
    devices: Sequence[str] = (),
    pins: Given[bool] = FLAGS,
) -> TaskGraph:
    """Draw a task graph whose tasks t0, t1, ... are in no particular order.

    Parameters
    ----------
    n_tasks : int
    weight_bytes, input_bytes, output_bytes, edge_bytes : float
        Bytes of one task or edge.
    colocation : bool
        Whether tasks may have co-location labels.
    devices : sequence of str
        Names of the devices that tasks may be pinned to; if empty, no task is pinned.
    pins : bool
        Whether tasks may be pinned.
    """
    n = _value(draw, n_tasks)
    pairs = [(i, j) for j in range(n) for i in range(j)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2 * n)) if pairs else []
    place = draw(st.permutations(range(n)))
    labels: list[str | None] = [None] * n
    if _value(draw, colocation):
        labels = draw(st.lists(st.sampled_from([None, None, "red", "blue"]), min_size=n, max_size=n))
    pinned: list[list[str] | None] = [None] * n
    may_pin = _value(draw, pins)
    if devices and may_pin:
        pin = st.none() | st.lists(st.sampled_from(list(devices)), unique=True, min_size=1)
        pinned = draw(st.lists(pin, min_size=n, max_size=n))
    return TaskGraph(
        [f"t{i}" for i in range(n)],
        np.array([(place[i], place[j]) for i, j in chosen], np.int64).reshape(-1, 2),
        edge_bytes=_each(draw, edge_bytes, len(chosen)),
        weight_bytes=_each(draw, weight_bytes, n),
        input_bytes=_each(draw, input_bytes, n),
        output_bytes=_each(draw, output_bytes, n),
        colocation=labels,
        devices=pinned,
    )


@st.composite
def clusters(
    draw: DrawFn,
    *,
    n_devices: Given[int] = FEW,
    memory_bytes: Given[float] = math.inf,
    bandwidth: Given[float] = BANDWIDTHS,
    latency: Given[float] = LATENCIES,
    missing_links: Given[bool] = FLAGS,
    nodes: Given[bool] = FLAGS,
) -> Cluster:
    """Draw a cluster of devices d0, d1, ...

    Parameters
    ----------
    n_devices : int
    memory_bytes : float
        Capacity of one device.
    bandwidth, latency : float
        Bandwidth and latency of one channel.
    missing_links : bool
        Whether some pairs of devices may have no direct link.
    nodes : bool
        Whether devices may share a node.
    """
    size = _value(draw, n_devices)
    beta = np.array(_each(draw, bandwidth, size * size)).reshape(size, size)
    if size > 1 and _value(draw, missing_links):
        for h, k in draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=size * size)):
            beta[h, k] = 0.0
    alpha = np.array(_each(draw, latency, size * size)).reshape(size, size)
    room = _each(draw, memory_bytes, size)
    hosts = [""] * size
    if size > 1 and _value(draw, nodes):
        hosts = draw(st.lists(st.sampled_from(["", "a", "b"]), min_size=size, max_size=size))
    return Cluster([Device(f"d{k}", node=hosts[k], memory_bytes=room[k]) for k in range(size)], beta, alpha)


@st.composite
def problems(
    draw: DrawFn,
    *,
    graph: Given[TaskGraph] | None = None,
    cluster: Given[Cluster] | None = None,
    n_tasks: Given[int] = SOME,
    n_devices: Given[int] = FEW,
    inputs: Given[int] = INPUTS,
    durations: Given[float] = AMOUNTS,
    batching: Given[Batching] = BATCHINGS,
    communication: Given[Communication] = COMMUNICATIONS,
    memory: Given[Memory] = MEMORIES,
    tight: Given[bool] = FLAGS,
    absent: Given[bool] = FLAGS,
    pins: Given[bool] = FLAGS,
    colocation: Given[bool] = FLAGS,
    missing_links: Given[bool] = FLAGS,
    nodes: Given[bool] = FLAGS,
    transfers: Given[bool] = FLAGS,
) -> Problem:
    """Draw a problem that is feasible except for its memory and for combinations of paths.

    Parameters
    ----------
    graph, cluster
        Default: `task_graphs` and `clusters`, with the sizes and features below.
    n_tasks, n_devices, inputs : int
    durations : float
        Seconds of one batch.
    batching, communication, memory : str
        See `Problem`.
    tight : bool
        Whether the cluster may have less memory than the graph needs, possibly too little.
    absent : bool
        Whether durations may be missing.
    pins, colocation, missing_links, nodes : bool
        Whether the problem may have them.
    transfers : bool
        Whether transfer times are explicit.
    """
    names = [f"d{k}" for k in range(_value(draw, n_devices))]
    if cluster is not None:
        network = _value(draw, cluster)
        names = list(network.names)
    tasks = _value(draw, task_graphs(n_tasks=n_tasks, colocation=colocation, devices=names, pins=pins) if graph is None else graph)
    count = _value(draw, inputs)
    if cluster is None:
        room: Given[float] = math.inf
        if _value(draw, tight):
            need = float((tasks.weight_bytes + count * (tasks.input_bytes + tasks.output_bytes)).sum())
            room = st.sampled_from([math.inf, need, need * 3 / 4, need / 2, need / 4])
        network = draw(clusters(n_devices=len(names), memory_bytes=room, missing_links=missing_links, nodes=nodes))
    sizes = sorted(draw(st.sets(st.integers(1, count), min_size=1)))
    shape = (tasks.n_tasks, len(names), len(sizes))
    times = np.array(_each(draw, durations, math.prod(shape))).reshape(shape)
    may_lack = _value(draw, absent)
    if may_lack:
        missing = draw(st.lists(st.sampled_from([False, False, True]), min_size=times.size, max_size=times.size))
        times[np.array(missing, np.bool_).reshape(shape)] = np.nan
    arguments: dict[str, Any] = {
        "inputs": count,
        "batching": _value(draw, batching),
        "communication": _value(draw, communication),
        "memory": _value(draw, memory),
        "transfers": _transfers(draw, tasks, len(names)) if _value(draw, transfers) else None,
    }
    try:
        return Problem(tasks, network, durations=times, batch_sizes=sizes, **arguments)
    except InvalidProblem:
        full = np.array(_each(draw, durations, math.prod(shape[:2]))).reshape(shape[:2])
        home = draw(st.integers(0, len(names) - 1))
        if may_lack:
            full[:, np.arange(len(names)) != home] = np.nan
        return _repaired(tasks, network, times, sizes, home, full, arguments)


def _transfers(draw: DrawFn, graph: TaskGraph, n_devices: int) -> FloatArray:
    shape = (graph.n_edges, n_devices, n_devices)
    possible = st.one_of(numbers(), numbers(), numbers(), st.just(math.nan))
    times = np.array(_each(draw, possible, math.prod(shape)), np.float64).reshape(shape)
    times[:, np.arange(n_devices), np.arange(n_devices)] = 0.0
    return times


def _repaired(
    graph: TaskGraph, cluster: Cluster, times: FloatArray, sizes: list[int], home: int, full: FloatArray, arguments: dict[str, Any]
) -> Problem:
    """Return the problem changed so that device `home` can run all inputs of every task, in `full` [n, K] seconds."""
    if arguments["inputs"] not in sizes:
        sizes = [*sizes, arguments["inputs"]]
        times = np.concatenate([times, full[:, :, None]], axis=2)
    column = times[:, home, sizes.index(arguments["inputs"])]
    column[np.isnan(column)] = full[np.isnan(column), home]
    name = cluster.names[home]
    pins = [None if pin is None else [*pin, name] for pin in graph.devices]
    return Problem(graph.replace(devices=pins), cluster, durations=times, batch_sizes=sizes, **arguments)


@st.composite
def decisions(draw: DrawFn, problem: Problem, *, transfer_order: Given[bool] = FLAGS) -> Decision:
    """Draw a decision that keeps every rule of `problem`, except possibly memory.

    Parameters
    ----------
    problem : Problem
    transfer_order : bool
        Whether to order transfers that contend.
    """
    choices = Choices(problem)
    devices = _devices(draw, choices)
    batches: list[tuple[int, int, list[int]]] = []
    for i in range(problem.n_tasks):
        row = devices[choices.unit_of[i]]
        for k in sorted(set(row)):
            items = draw(st.permutations([item for item, device in enumerate(row) if device == k]))
            while items:
                size = draw(st.sampled_from(choices.chunks(len(items), choices.sizes[i][k])))
                batches.append((i, k, sorted(items[:size])))
                items = items[size:]
    order, moves = _order(draw, problem, batches)
    place = {b: position for position, b in enumerate(order)}
    ordered = problem.links.contended and _value(draw, transfer_order)
    return Decision(
        [batches[b][0] for b in order],
        [batches[b][1] for b in order],
        row_starts([len(batches[b][2]) for b in order]),
        [item for b in order for item in batches[b][2]],
        transfer_order=np.array([(e, place[a], place[b]) for e, a, b in moves], np.int64).reshape(-1, 3) if ordered else None,
    )


def _devices(draw: DrawFn, choices: Choices) -> list[tuple[int, ...]]:
    """Draw the device of each (unit, input)."""
    problem = choices.problem
    if all(all(map(all, table)) for table in choices.paths):
        rows = []
        for u in range(len(choices.units)):
            spread = draw(st.sampled_from(choices.spreads(u)))
            rows.append(tuple(draw(st.permutations([k for k, count in enumerate(spread) for _ in range(count)]))))
        return rows
    if problem.n_devices**problem.inputs > _MOST_VECTORS:
        reject()
    options = [_vectors(choices, u) for u in range(len(choices.units))]
    start = draw(st.lists(st.integers(0, 2**16), min_size=len(options), max_size=len(options)))
    turned = [rows[s % len(rows) :] + rows[: s % len(rows)] for s, rows in zip(start, options, strict=True)]
    chosen = _compatible(choices, turned)
    return chosen if chosen is not None else reject()


def _vectors(choices: Choices, unit: int) -> list[tuple[int, ...]]:
    """Return every assignment of a unit's inputs to devices that its counts permit."""
    problem = choices.problem
    allowed = set(choices.spreads(unit))
    vectors: list[tuple[int, ...]] = [()]
    for _ in range(problem.inputs):
        vectors = [(*row, k) for row in vectors for k in range(problem.n_devices)]
    return [row for row in vectors if tuple(map(row.count, range(problem.n_devices))) in allowed]


def _compatible(choices: Choices, options: list[list[tuple[int, ...]]]) -> list[tuple[int, ...]] | None:
    """Return the first choice from `options` in which every edge has its paths, or None."""
    edges = [(e, choices.unit_of[i], choices.unit_of[j]) for e, (i, j) in enumerate(choices.problem.graph.edges.tolist())]
    chosen: list[tuple[int, ...]] = []

    def extend() -> bool:
        u = len(chosen)
        if u == len(options):
            return True
        for row in options[u]:
            chosen.append(row)
            near = [(e, a, b) for e, a, b in edges if max(a, b) == u]
            if all(choices.paths[e][h][k] for e, a, b in near for h, k in zip(chosen[a], chosen[b], strict=True)) and extend():
                return True
            chosen.pop()
        return False

    return chosen if extend() else None


def _order(draw: DrawFn, problem: Problem, batches: list[tuple[int, int, list[int]]]) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Draw a sequence of batches and transfers that respects precedence."""
    batch_of = {(i, item): b for b, (i, _, items) in enumerate(batches) for item in items}
    links = sorted(
        {
            (e, batch_of[i, item], batch_of[j, item])
            for e, (i, j) in enumerate(problem.graph.edges.tolist())
            for item in range(problem.inputs)
        }
    )
    before: dict[int, set[int]] = {x: set() for x in range(len(batches) + len(links))}
    for x, (_, a, b) in enumerate(links, len(batches)):
        before[x].add(a)
        before[b].add(x)
    order: list[int] = []
    while before:
        chosen = draw(st.sampled_from(sorted(x for x, waits in before.items() if not waits)))
        order.append(chosen)
        del before[chosen]
        for waits in before.values():
            waits.discard(chosen)
    moves = [links[x - len(batches)] for x in order if x >= len(batches)]
    return [x for x in order if x < len(batches)], [(e, a, b) for e, a, b in moves if batches[a][1] != batches[b][1]]
