"""Instances of the benchmarks and of the tests: readers of third-party instances, which are not in the repository, and generators."""

from __future__ import annotations

import csv
import functools
from pathlib import Path
from typing import Any

import numpy as np

import hetsched as hs
from hetsched.papers.diviml.stacks import profiled as profiled
from hetsched.papers.diviml.stacks import quarters
from hetsched.search import Kind, select

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""The default folder of the public instances."""


def rows(folder: Path) -> list[dict[str, str]]:
    """Return all rows of a folder's reference.csv; names need not be unique."""
    with open(folder / "reference.csv") as file:
        return list(csv.DictReader(file))


def read(path: Path, **options: Any) -> hs.Problem:
    """Read a problem in another format, with the options of its reader."""
    return hs.frontends.read(path, **options).problem


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


def short(n: int, modules: int, *, channels: int = 1, inputs: int = 1, seed: int = 0) -> hs.Problem:
    """Generate a stack as `profiled` does, with short tasks, for which transfers matter more, and batches that gain less.

    A task takes exp(0.25)/320 of the time of DiviML's networks on average. Each further input of a batch adds 1 (CPU), 0.6 (T4) or 0.35
    (A100) of the time of one.
    """
    alone = profiled(n, modules, channels=channels, seed=seed)
    times = alone.durations[:, :, :1] * (n / 320 * np.exp(0.25))
    sizes = quarters(inputs)
    growth = 1 + np.array([1.0, 0.6, 0.35])[:, None] * (np.array(sizes) - 1)
    return alone.replace(durations=times * growth, inputs=inputs, batch_sizes=sizes)


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


def identical(kind: str, n: int, processors: int, *, ccr: float = 0.0, seed: int = 0, data: Path = DATA) -> hs.Problem:
    """Generate a graph of `n` tasks, or cut it from an STG file, on identical processors that are all connected.

    Durations are whole numbers from 1 to 10 (`stg`: those of the file), transfers whole numbers, `ccr` times as long on average; with
    0 there is no communication. `layered`: up to three parents in the layer before; `erdos`: each of the pairs is an edge with
    probability 4 / n; `fork-join`: all tasks but the first and the last lie between these; `out-tree`: every task but the first has a
    parent among those before it, `in-tree`: a child among those behind it; `independent`: no edges, and durations up to 100; `stg`: the
    first tasks of a file.
    """
    rng = np.random.default_rng([seed, n, KINDS.index(kind)])
    time = rng.integers(1, 11, n)
    if kind == "stg":
        files = sorted((data / "stg").glob("*.stg"))
        whole = read(files[seed % len(files)], processors=1)
        first = np.flatnonzero(whole.durations[:, 0, 0] > 0)[:n]  # the rows of the file are in topological order
        time = whole.durations[first, 0, 0]
        edges = whole.graph.edges[np.isin(whole.graph.edges, first).all(axis=1)] - first[0]
    elif kind == "layered":
        width = max(2, round(n**0.5))
        target = np.arange(width, n).repeat(3)
        edges = np.unique(np.column_stack([(target // width - 1) * width + rng.integers(0, width, len(target)), target]), axis=0)
    elif kind == "erdos":
        edges = np.argwhere(np.triu(rng.random((n, n)) < 4 / n, 1))
    elif kind == "out-tree":
        edges = np.column_stack([rng.integers(0, np.arange(1, n)), np.arange(1, n)])
    elif kind == "in-tree":
        edges = np.column_stack([np.arange(n - 1), rng.integers(np.arange(1, n), n)])
    elif kind == "independent":
        time, edges = rng.integers(1, 101, n), np.empty((0, 2), np.int64)
    else:
        inner = np.arange(1, n - 1)
        edges = np.vstack([np.column_stack([0 * inner, inner]), np.column_stack([inner, 0 * inner + n - 1])])
    size = rng.integers(1, max(2, round(2 * ccr * time.mean())), len(edges)) if ccr else 0
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges, edge_bytes=size)
    cluster = hs.Cluster([f"p{k}" for k in range(processors)], bandwidth=1.0 if ccr else np.inf)
    return hs.Problem(graph, cluster, durations=np.tile(time[:, None], processors))


KINDS = ("stg", "layered", "erdos", "fork-join", "out-tree", "in-tree", "independent")
