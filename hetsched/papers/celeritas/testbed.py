"""The graphs and the four V100 of Celeritas' experiments."""

from __future__ import annotations

import functools
import math

from hetsched.costs.devices import device
from hetsched.costs.roofline import Roofline
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.workloads import clusters

COLUMNS = {
    "inception_v3": "Inception_V3",
    "nmt": "NMT",
    "transformer, heads apart": "Transformer",
    "holography": "Tensor Holography",
    "transformer": "",
}
"""Our graphs, and which of the paper's models each is compared with."""
PAPERS = tuple(name for name, model in COLUMNS.items() if model)
QUICK = ("holography",)
ROOM = 1.2
"""Memory of a device as a multiple of a quarter of the claims of all tasks: the graph fits all devices together, but none alone."""


def four_v100(memory_bytes: float = math.inf) -> Cluster:
    """Return four V100 on PCIe 3.0 (half of 4.0)."""
    gpus = [device("v100", f"gpu{i}", memory_bytes=memory_bytes) for i in range(4)]
    return Cluster(gpus, bandwidth=clusters.PCIE4_X16 / 2, latency=clusters.LATENCY)


def placed(graph: TaskGraph) -> Problem:
    """Return the problem of placing a graph on four V100 that hold it only together, with congestion as in section 6.1."""
    wide = Problem(graph, four_v100(), costs=Roofline(), communication="port")
    return wide.replace(cluster=four_v100(ROOM / 4 * float(wide.static_bytes.sum())))


@functools.cache
def problem(name: str) -> Problem:
    """Return the problem of a training step of the paper."""
    from hetsched.papers import models

    return placed(models.training()[name].capture())
