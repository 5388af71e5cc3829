"""Problems on large clusters with one device in place of all those that a bound cannot distinguish."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.problem.cluster import Cluster
from hetsched.problem.problem import Problem, stated

MOST_DISTINCT = 32
"""Smaller clusters are left as they are."""


def merged(problem: Problem) -> tuple[Problem, IntArray]:
    """Return the problem with one device for each class of equal devices, and the number of devices of each class.

    Devices of a class run all tasks in equal times and have equal capacities, and have equal shortest transfers to and from each
    other class. So the levels of a task, whose transfers are to the best device and within a device take no time, are equal on all
    devices of a class, and are those of the merged problem, to the bit. The least load too is found by it: averaged over
    the devices of a class, fractions of tasks keep the load of each at most the largest load, so the sum over a class is at most
    the number of its devices times that. The problem is returned as it is, with classes of one device, if it has at most
    `MOST_DISTINCT` devices, times for transfers instead of bandwidths, or between two classes no transfer that is shortest for every size.
    """
    unmerged = problem, np.ones(problem.n_devices, np.int64)
    if problem.n_devices <= MOST_DISTINCT or problem.transfers is not None:
        return unmerged
    latency, bandwidth = problem.cluster.route_latency.copy(), problem.cluster.route_bandwidth.copy()
    np.fill_diagonal(latency, np.inf)  # only transfers between devices
    np.fill_diagonal(bandwidth, 0.0)
    classes = _numbered(_contents(problem))
    while True:
        outward, inward = _shortest(latency, bandwidth, classes), _shortest(latency.T, bandwidth.T, classes)
        if outward is None or inward is None:
            return unmerged
        own = np.arange(outward.latency.shape[1]) == classes[:, None]
        rows = np.hstack([classes[:, None], *(np.where(own, 0.0, part) for part in (*outward, *inward))])
        finer = _numbered([row.tobytes() for row in rows])
        if finer.max() == classes.max():
            break
        classes = finer
    first = np.unique(classes, return_index=True)[1]
    if len(first) == problem.n_devices:
        return unmerged
    devices, seconds = [problem.cluster.devices[k] for k in first], outward.latency[first]
    cluster = Cluster(devices, outward.bandwidth[first], np.where(np.isfinite(seconds), seconds, 0.0))
    small = Problem(
        problem.graph.replace(devices=None) if any(problem.graph.devices) else problem.graph,
        cluster,
        durations=stated(problem.arrays.durations[:, problem.device_class[first]]),
        batch_sizes=problem.batch_sizes,
        inputs=problem.inputs,
        batching="free",  # on fewer devices, not every task may have enough batches that are all on different ones
        communication=problem.communication,
        memory=problem.memory,
    )
    return small, np.bincount(classes)


def _contents(problem: Problem) -> list[bytes]:
    """Return for each device a key of what it runs, in which time, and of its capacity."""
    table = problem.arrays.durations
    columns = [table[:, c].tobytes() for c in range(table.shape[1])]
    capacities = [capacity.tobytes() for capacity in problem.cluster.memory_bytes]
    return [columns[c] + capacity for c, capacity in zip(problem.device_class.tolist(), capacities, strict=True)]


def _numbered(keys: list[bytes]) -> IntArray:
    """Return the number of each key, equal for equal keys, in order of first occurrence."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


class Shortest(NamedTuple):
    """The shortest transfers from each device to a device of each class, [K, classes] each."""

    latency: FloatArray
    bandwidth: FloatArray


def _shortest(latency: FloatArray, bandwidth: FloatArray, classes: IntArray) -> Shortest | None:
    """Return the shortest transfers; None if from some device to another class none has both the least latency and the most bandwidth."""
    order = np.argsort(classes, kind="stable")
    starts = np.searchsorted(classes[order], np.arange(classes.max() + 1))
    least = np.minimum.reduceat(latency[:, order], starts, axis=1)
    widest = np.maximum.reduceat(bandwidth[:, order], starts, axis=1)
    best: BoolArray = (latency == least[:, classes]) & (bandwidth == widest[:, classes])
    found = np.logical_or.reduceat(best[:, order], starts, axis=1)
    found[np.arange(len(classes)), classes] = True
    return Shortest(least, widest) if found.all() else None
