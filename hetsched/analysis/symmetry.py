"""Symmetries of a problem: devices that can be exchanged without changing any time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hetsched.arrays import IntArray
from hetsched.problem.problem import Problem

Exchange = tuple[IntArray, IntArray]


def exchanges(problem: Problem) -> list[Exchange]:
    """Return pairs of groups of devices (first, second), [m] each, that can be exchanged.

    If the batches of every device ``first[i]`` and ``second[i]`` are exchanged, a valid schedule stays
    valid and keeps its times. Identical devices come first, one pair (m = 1) for each two consecutive
    ones of a class; then identical nodes, whose devices are exchanged together, if none of their devices
    is identical to a device of another node.
    """
    devices = range(problem.n_devices)
    classes = _classes([np.array([k]) for k in devices], problem)
    nodes = [device.node for device in problem.cluster.devices]
    crossing = {nodes[int(k[0])] for same in classes for k in same if len({nodes[int(other[0])] for other in same}) > 1}
    sorts = {int(k[0]): number for number, same in enumerate(classes) for k in same}
    members: dict[str, list[int]] = {}
    for k in sorted(devices, key=lambda k: (_signature(problem, k), sorts[k])):
        if nodes[k] and nodes[k] not in crossing:
            members.setdefault(nodes[k], []).append(k)
    groups = [np.array(group) for group in members.values() if len(group) > 1]
    return [pair for partition in (classes, _classes(groups, problem)) for same in partition for pair in pairwise(same)]


def _classes(groups: list[IntArray], problem: Problem) -> list[list[IntArray]]:
    """Return the groups in classes; any two groups of a class can be exchanged."""
    classes: list[list[IntArray]] = []
    for group in groups:
        for same in classes:
            if len(same[0]) == len(group) and _interchangeable(problem, same[0], group):
                same.append(group)
                break
        else:
            classes.append([group])
    return classes


def _signature(problem: Problem, k: int) -> bytes:
    """Return a key of the durations, eligibility and capacity of a device; exchangeable devices have equal keys."""
    capacity = problem.cluster.memory_bytes[k]
    return problem.durations[:, k].tobytes() + problem.eligible[:, k].tobytes() + np.float64(capacity).tobytes()


def _interchangeable(problem: Problem, first: IntArray, second: IntArray) -> bool:
    """Return whether exchanging two groups of devices maps the problem to itself."""
    image = np.arange(problem.n_devices)
    image[first], image[second] = second, first
    cluster, touched = problem.cluster, np.concatenate([first, second])
    if any(_signature(problem, int(k)) != _signature(problem, int(image[k])) for k in touched):
        return False
    if not _renumbered(problem.links.resource, image, problem.links.n_resources):
        return False
    if problem.transfers is not None:
        apart = problem.transfers * (1.0 - np.eye(problem.n_devices))  # the time within a device does not matter
        return np.array_equal(apart[:, image][:, :, image], apart, equal_nan=True)
    off = ~np.eye(problem.n_devices, dtype=bool)
    return all(
        np.array_equal(link[np.ix_(image, image)][off], link[off], equal_nan=True)
        for link in (cluster.route_bandwidth, cluster.route_latency)
    )


def _renumbered(resource: IntArray, image: IntArray, n_resources: int) -> bool:
    """Return whether exchanging devices leaves the table of resources [K, K, 2] as it is, up to the numbers of the resources."""
    exchanged = resource[image][:, image]
    there, back = np.full(n_resources + 1, -1), np.full(n_resources + 1, -1)  # last entry: transfers that hold none
    there[exchanged], back[resource] = resource, exchanged
    return bool((there[-1] < 0) and (there[exchanged] == resource).all() and (back[resource] == exchanged).all())
