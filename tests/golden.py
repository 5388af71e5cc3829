"""Published instances and their values, shared by tests."""

from __future__ import annotations

import numpy as np

import hetsched as hs


def _instance(times: str, edges: str) -> hs.Problem:
    durations = [[float(value) for value in row.split(",")] for row in times.split(";")]
    arcs = []
    for edge in edges.split(","):
        ends, size = edge.split(":")
        source, target = ends.strip().split("-")
        arcs.append((f"n{source}", f"n{target}", float(size)))
    graph = hs.TaskGraph([f"n{i + 1}" for i in range(len(durations))], arcs)
    return hs.Problem(graph, hs.Cluster(["P1", "P2", "P3"], bandwidth=1.0), durations=durations)


def topcuoglu() -> hs.Problem:
    """Topcuoglu, Hariri and Wu 2002, figure 1 and table 1: optimum 73."""
    return _instance(
        "14,16,9; 13,19,18; 11,13,19; 13,8,17; 12,13,10; 13,16,9; 7,15,11; 5,11,14; 18,12,20; 21,7,16",
        "1-2:18, 1-3:12, 1-4:9, 1-5:11, 1-6:14, 2-8:19, 2-9:16, 3-7:23, 4-8:27, 4-9:23, 5-9:13, 6-8:15, 7-10:17, 8-10:11, 9-10:13",
    )


def arabnejad() -> hs.Problem:
    """Arabnejad and Barbosa 2014, figure 1: optimum 113."""
    return _instance(
        "22,21,36; 22,18,18; 32,27,43; 7,10,4; 29,27,35; 26,17,24; 14,25,30; 29,23,36; 15,21,8; 13,16,33",
        "1-2:17, 1-3:31, 1-4:29, 1-5:13, 1-6:7, 2-8:3, 2-9:30, 3-7:16, 4-8:11, 4-9:7, 5-9:57, 6-8:5, 7-10:9, 8-10:42, 9-10:7",
    )


UPWARD_RANKS = np.array([108, 77, 80, 80, 69, 190 / 3, 128 / 3, 107 / 3, 133 / 3, 44 / 3])
"""HEFT's upward ranks on `topcuoglu`, table 3 of the paper."""
