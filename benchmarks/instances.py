"""Instances of the benchmarks and of the tests: readers of third-party instances, which are not in the repository, and generators."""

from __future__ import annotations

import csv
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

import hetsched as hs
from hetsched.papers.diviml.stacks import profiled as profiled
from hetsched.search import Kind, select

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""The default folder of the public instances."""


def rows(folder: Path) -> list[dict[str, str]]:
    """Return all rows of a folder's reference.csv; names need not be unique."""
    with open(folder / "reference.csv") as file:
        return list(csv.DictReader(file))


def flexible_job_shop(path: Path) -> hs.Problem:
    """Read a flexible job shop: chains or DAGs of operations, eligible machines, no communication."""
    data = json.loads(path.read_text())
    rows = data["operations"]
    n = max(row["operation"] for row in rows) + 1
    n_machines = max(row["machine"] for row in rows) + 1
    durations = np.full((n, n_machines), np.nan)
    for row in rows:
        durations[row["operation"], row["machine"]] = row["duration"]
    arcs = [(f"o{row['before']}", f"o{row['after']}") for row in data["precedences"]]
    cluster = hs.Cluster([f"m{k}" for k in range(n_machines)], bandwidth=np.inf)
    return hs.Problem(hs.TaskGraph([f"o{i}" for i in range(n)], arcs), cluster, durations=durations)


def standard_task_graph(path: Path, processors: int) -> hs.Problem:
    """Read a graph of the Standard Task Graph set for identical processors, no communication."""
    numbers = [[int(word) for word in line.split()] for line in path.read_text().splitlines() if line.strip() and line[0] != "#"]
    rows = numbers[1:]
    arcs = [(f"t{parent}", f"t{row[0]}") for row in rows for parent in row[3 : 3 + row[2]]]
    durations = np.repeat(np.array([[row[1]] for row in rows], float), processors, axis=1)
    cluster = hs.Cluster([f"p{k}" for k in range(processors)], bandwidth=np.inf)
    return hs.Problem(hs.TaskGraph([f"t{row[0]}" for row in rows], arcs), cluster, durations=durations)


def moirai(path: Path, communication: str = "delay") -> hs.Problem:
    """Read one of Moirai's profiled graphs: unrelated devices, a transfer time per edge and device pair."""
    data = json.loads(path.read_text())
    size = len(data["devices"])
    graph = hs.TaskGraph(
        [f"t{task['id']}" for task in data["tasks"]],
        [(f"t{edge['src']}", f"t{edge['dst']}", 0.0) for edge in data["edges"]],
        weight_bytes=[task["memory"] for task in data["tasks"]],
    )
    index = {tuple(edge): e for e, edge in enumerate(graph.edges.tolist())}
    transfers = np.zeros((graph.n_edges, size, size))
    for edge in data["edges"]:
        e = index[graph.index[f"t{edge['src']}"], graph.index[f"t{edge['dst']}"]]
        transfers[e] += edge.get("comm_time", np.zeros((size, size)))
    devices = [hs.Device(f"d{device['id']}", memory_bytes=device["memory"]) for device in data["devices"]]
    return hs.Problem(
        graph,
        hs.Cluster(devices, bandwidth=np.inf),
        durations=[task["time"] for task in data["tasks"]],
        transfers=transfers,
        communication=communication,
    )


def dnn_partitioning(path: Path) -> hs.Problem:
    """Read a profiled network of msr-fiddle/dnn-partitioning: accelerators, and a host that their transfers pass through.

    Nodes of one colour share a device. Memory is limited on accelerators only. An edge's cost is the
    time between an accelerator and the host's memory, so it counts twice between two accelerators; the
    objective ``"max-load"`` is that of the authors.
    """
    data = json.loads(path.read_text())
    nodes, accelerators, hosts = data["nodes"], data["maxFPGAs"], data["maxCPUs"]
    graph = hs.TaskGraph(
        [f"n{node['id']}" for node in nodes],
        [(f"n{edge['sourceId']}", f"n{edge['destId']}", 0.0) for edge in data["edges"]],
        weight_bytes=[node["size"] for node in nodes],
        colocation=[None if node.get("colorClass") is None else f"colour {node['colorClass']}" for node in nodes],
    )
    fast = [[node["fpgaLatency"] if node["supportedOnFpga"] else np.nan] * accelerators for node in nodes]
    durations = [[*row, *[node["cpuLatency"]] * hosts] for row, node in zip(fast, nodes, strict=True)]
    far = np.repeat([1.0, 0.0], [accelerators, hosts])
    hops = (far[:, None] + far) * (1.0 - np.eye(len(far)))
    index = {tuple(edge): e for e, edge in enumerate(graph.edges.tolist())}
    transfers = np.zeros((graph.n_edges, len(far), len(far)))
    for edge in data["edges"]:
        transfers[index[graph.index[f"n{edge['sourceId']}"], graph.index[f"n{edge['destId']}"]]] += edge["cost"] * hops
    devices = [hs.Device(f"accelerator{k}", kind="accelerator", memory_bytes=data["maxSizePerFPGA"]) for k in range(accelerators)]
    devices += [hs.Device(f"host{k}", kind="cpu") for k in range(hosts)]
    return hs.Problem(graph, hs.Cluster(devices, bandwidth=np.inf), durations=durations, transfers=transfers)


def topcuoglu() -> hs.Problem:
    """Topcuoglu, Hariri and Wu 2002, figure 1 and table 1: optimum 73."""
    return _example(
        "14,16,9; 13,19,18; 11,13,19; 13,8,17; 12,13,10; 13,16,9; 7,15,11; 5,11,14; 18,12,20; 21,7,16",
        "1-2:18, 1-3:12, 1-4:9, 1-5:11, 1-6:14, 2-8:19, 2-9:16, 3-7:23, 4-8:27, 4-9:23, 5-9:13, 6-8:15, 7-10:17, 8-10:11, 9-10:13",
    )


def arabnejad() -> hs.Problem:
    """Arabnejad and Barbosa 2014, figure 1: optimum 113."""
    return _example(
        "22,21,36; 22,18,18; 32,27,43; 7,10,4; 29,27,35; 26,17,24; 14,25,30; 29,23,36; 15,21,8; 13,16,33",
        "1-2:17, 1-3:31, 1-4:29, 1-5:13, 1-6:7, 2-8:3, 2-9:30, 3-7:16, 4-8:11, 4-9:7, 5-9:57, 6-8:5, 7-10:9, 8-10:42, 9-10:7",
    )


def _example(times: str, edges: str) -> hs.Problem:
    """Return a problem on three devices from its table of times and the transfer times of its edges between any two devices."""
    durations = [[float(value) for value in row.split(",")] for row in times.split(";")]
    arcs = []
    for edge in edges.split(","):
        ends, size = edge.split(":")
        source, target = ends.strip().split("-")
        arcs.append((f"n{source}", f"n{target}", float(size)))
    graph = hs.TaskGraph([f"n{i + 1}" for i in range(len(durations))], arcs)
    return hs.Problem(graph, hs.Cluster(["P1", "P2", "P3"], bandwidth=1.0), durations=durations)


def peer(data: dict[str, Any]) -> hs.Problem:
    """Return the problem in a peer instance: n, m, edges, size[edge], exec[task][device], bw[device][device]."""
    graph = hs.TaskGraph([f"t{i}" for i in range(data["n"])], np.array(data["edges"]), edge_bytes=data["size"])
    return hs.Problem(graph, hs.Cluster([f"d{k}" for k in range(data["m"])], bandwidth=data["bw"]), durations=data["exec"])


def module(kind: str, n: int, seed: int, *, unrelated: bool = False) -> hs.Problem:
    """Generate one randomly wired module on three devices, see `stack`."""
    return stack(kind, n, 1, seed=seed, unrelated=unrelated)


def stack(
    kind: str, n: int, modules: int, *, channels: int = 1, dependence: str = "sdep", seed: int = 0, unrelated: bool = False
) -> hs.Problem:
    """Generate a stack of randomly wired modules on three devices, transfers about as long as tasks.

    The costs of tasks are uniform on 1 to 100, the devices 1, 1.5 and 2 times as fast; if `unrelated`
    each time is multiplied by a uniform number of 0.5 to 1.5.
    """
    rng = np.random.default_rng(seed)
    wiring = hs.workloads.rwnn(kind, n, modules=modules, channels=channels, dependence=dependence, seed=seed)  # type: ignore[arg-type]
    durations = rng.uniform(1, 100, (wiring.n_tasks, 1)) / np.array([1.0, 1.5, 2.0])
    if unrelated:
        durations *= rng.uniform(0.5, 1.5, durations.shape)
    links = rng.uniform(0.5, 1.5, (3, 3))
    size = rng.uniform(1, 2 * durations.mean(), wiring.n_edges)
    graph = hs.TaskGraph(wiring.names, wiring.edges, edge_bytes=size)
    cluster = hs.Cluster(["d0", "d1", "d2"], bandwidth=(links + links.T) / 2)
    return hs.Problem(graph, cluster, durations=durations)


def layered(n: int, width: int, *, speeds: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0), seed: int = 0) -> dict[str, Any]:
    """Generate layers of `width` tasks, each task with up to three parents in the layer before.

    Related devices (cost divided by speed), symmetric links, transfers about as long as tasks. Returns a
    peer instance, with the `cost` and `speed` that anrg-saga needs.
    """
    rng = np.random.default_rng(seed)
    target = np.arange(width, n).repeat(3)
    source = (target // width - 1) * width + rng.integers(0, width, len(target))
    edges = np.unique(np.column_stack([source, target]), axis=0)
    cost, links = rng.uniform(1, 100, n), rng.uniform(0.5, 1.5, (len(speeds), len(speeds)))
    return {
        "n": n,
        "m": len(speeds),
        "cost": cost.tolist(),
        "speed": list(speeds),
        "exec": (cost[:, None] / np.array(speeds)).tolist(),
        "edges": edges.tolist(),
        "size": rng.uniform(1, 50, len(edges)).tolist(),
        "bw": ((links + links.T) / 2).tolist(),
    }


@functools.cache
def list_schedulers() -> tuple[str, ...]:
    """Return the list schedulers that `auto` runs on a small problem with one input."""
    small = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["x"], bandwidth=1.0), durations=[[1.0]])
    return tuple(method.name for method in select(kind=Kind.CONSTRUCTIVE, auto=True, problem=small))
