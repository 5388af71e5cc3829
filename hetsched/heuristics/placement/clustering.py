"""Clustering without a limit on the number of clusters, which are then mapped to devices: linear clustering and DSC."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.coarsening.coarse import Coarsening, mean_durations, mean_transfers, memory_share, settled, united
from hetsched.heuristics.placement.offers import fused, listed, offer_by_claims
from hetsched.problem.problem import Problem
from hetsched.search import Auto, Kind, Monitor, Role, Supports, always, large, method

LARGEST = 10_000
"""Number of tasks above which linear clustering, whose time grows with the square of it, uses Celeritas' coarse graph."""

LARGEST_SHARE = 0.25
"""Maximum need of clusters joined by co-location labels, as a share of the smallest device's memory."""


@method(
    "linear-clustering",
    summary="the longest path, then that of the rest, and so on, as clusters; mapped by guided load balancing",
    source="Kim and Browne 1988; Radulescu and van Gemund 1998 for the mapping",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=230,
)
def linear_clustering(problem: Problem, monitor: Monitor) -> None:
    """Cluster along longest paths of mean durations and transfers; coarsen graphs of more than 10,000 tasks as `celeritas` does."""
    from hetsched.heuristics.placement import kernels

    coarsening = fused(problem, monitor) if problem.n_tasks > LARGEST else Coarsening.through(problem, ())
    coarse, graph = coarsening.coarse, coarsening.coarse.graph
    cluster = kernels.linear_clusters(coarse.arrays, graph.topological_order, mean_durations(coarse), mean_transfers(coarse))
    cluster_of = cluster[coarsening.cluster]
    begin = _first_met(problem, cluster_of)
    offer_by_claims(monitor, lambda need: listed(problem, _mapped(problem, cluster_of, begin, need)))


@method(
    "dsc",
    summary="dominant sequence clustering: tasks join the cluster of the parent they wait for; mapped by guided load balancing",
    source="Yang and Gerasoulis 1994; Radulescu and van Gemund 1998 for the mapping",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=180,
    auto=Auto(when=large),
)
def dsc(problem: Problem, monitor: Monitor) -> None:
    """Cluster by dominant sequences: of the tasks whose parents are clustered, the one on the longest path is next.

    The paper's guarantee for tasks that are not ready yet (DSRW) is omitted, as in most implementations.
    """
    cluster, begin = dominant_sequences(problem)
    offer_by_claims(monitor, lambda need: listed(problem, _mapped(problem, cluster, begin, need)))


def dominant_sequences(problem: Problem, factor: float = 1.0) -> tuple[IntArray, FloatArray]:
    """Return the cluster of each task, [n], and the start of each cluster in seconds, by dominant sequences.

    Durations and transfers are means over devices, transfers `factor` times as long. Units are ignored.
    """
    from hetsched.analysis import ranking_kernels
    from hetsched.heuristics.placement import kernels

    weight, transfer = mean_durations(problem), factor * mean_transfers(problem)
    below = ranking_kernels.upward(problem.arrays, problem.graph.topological_order, weight, transfer)
    return kernels.dominant_sequence(problem.arrays, weight, transfer, below)


def _first_met(problem: Problem, cluster: IntArray) -> FloatArray:
    """Return the position of each cluster's first task in the topological order."""
    first = np.full(int(cluster.max(initial=-1)) + 1, np.inf)
    order = problem.graph.topological_order
    np.minimum.at(first, cluster[order], np.arange(len(order)))
    return first


def _mapped(problem: Problem, cluster: IntArray, begin: FloatArray, need: FloatArray) -> IntArray:
    """Return the device of each task by guided load balancing: clusters in order of start, each on the device of least load.

    Clusters joined by co-location labels share a device and claim the `need` [n_units] of their units; those that no device can
    run, or that need too much memory, are cut.
    """
    from hetsched.heuristics.placement import kernels

    number = settled(problem, cluster, memory_share(problem, LARGEST_SHARE))
    count = int(number.max(initial=-1)) + 1
    start = np.full(count, np.inf)
    np.minimum.at(start, number, begin[cluster])
    group = np.unique(united(problem, number, count)[number], return_inverse=True)[1]
    groups = int(group.max(initial=-1)) + 1
    earliest = np.full(groups, np.inf)
    np.minimum.at(earliest, group, start[number])
    seconds = np.zeros((groups, problem.n_devices))
    np.add.at(seconds, group, problem.whole_durations)
    claim = np.zeros(groups)
    np.add.at(claim, group[np.unique(problem.unit, return_index=True)[1]], need)
    device = kernels.spread(np.argsort(earliest, kind="stable"), seconds, claim, problem.cluster.memory_bytes)
    return device[group]
