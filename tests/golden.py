"""Published instances with their values, and other instances shared by tests."""

from __future__ import annotations

import numpy as np
from instances import arabnejad, topcuoglu

import hetsched as hs

__all__ = ["UPWARD_RANKS", "arabnejad", "distant", "topcuoglu"]

UPWARD_RANKS = np.array([108, 77, 80, 80, 69, 190 / 3, 128 / 3, 107 / 3, 133 / 3, 44 / 3])
"""HEFT's upward ranks on `topcuoglu`, table 3 of the paper."""


def distant(seed: int, n: int = 15) -> hs.Problem:
    """Return a random problem of one input on three devices with latencies as long as the seconds of the bytes."""
    rng = np.random.default_rng(seed)
    edges = np.unique(np.sort(rng.integers(0, n, (3 * n, 2)), axis=1), axis=0)
    edges = edges[edges[:, 0] < edges[:, 1]]
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges, edge_bytes=rng.integers(0, 4, len(edges)).astype(float))
    cluster = hs.Cluster(["x", "y", "z"], bandwidth=rng.choice([1, 2, 4], (3, 3)), latency=rng.integers(0, 4, (3, 3)))
    return hs.Problem(graph, cluster, durations=rng.integers(1, 9, (n, 3)).astype(float))
