"""Numba kernels for the most tokens per second that devices with given intervals of items pass on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner, kernel

SOURCE, SINK = 0, 1
ROUNDING = 1e-12
"""Share of a device's largest throughput below which what is left of a capacity is nothing."""


class Fleet(NamedTuple):
    """M devices and a chain of n items.

    Attributes
    ----------
    rates : float64 [M, n + 1]
        Tokens per second of a device by the number of items that it holds; 0 where it cannot.
    longest : int64 [M]
        The most items that a device can hold.
    links : float64 [M + 1, M + 1]
        Tokens per second between two devices; from and to the outside in the last row and column.
    limited : bool
        Whether any of them is finite.
    """

    rates: FloatArray
    longest: IntArray
    links: FloatArray
    limited: bool


class Network(NamedTuple):
    """Scratch: a network of at most N nodes.

    Attributes
    ----------
    residual : float64 [N, N]
        What the arc between two nodes may still carry; after the flow its reverse has what it carries.
    parent, queue : int64 [N]
    node : int64 [n + 1]
        Node of each position in the chain, or -1.
    """

    residual: FloatArray
    parent: IntArray
    queue: IntArray
    node: IntArray


def network(n_items: int, n_devices: int) -> Network:
    """Return the scratch for a number of items and of devices."""
    size = 2 * n_devices + 2
    return Network(np.empty((size, size)), np.empty(size, np.int64), np.empty(size, np.int64), np.empty(n_items + 1, np.int64))


@kernel
def throughput(fleet: Fleet, first: IntArray, end: IntArray, made: Network) -> float:
    """Return the tokens per second through the intervals [first, end) of the devices; an empty one carries nothing.

    If links are limited there is a node before and one behind each device, 2 + 2 d and 3 + 2 d, else one for each position at which
    an interval begins or ends.
    """
    size = _between_devices(fleet, first, end, made) if fleet.limited else _between_positions(fleet, first, end, made)
    least = 0.0
    for d in range(len(first)):
        least = max(least, fleet.rates[d, end[d] - first[d]])
    least *= ROUNDING
    total = 0.0
    while _augmenting_path(made, size, least):
        step = np.inf
        node = SINK
        while node != SOURCE:
            step = min(step, made.residual[made.parent[node], node])
            node = made.parent[node]
        node = SINK
        while node != SOURCE:
            before = made.parent[node]
            made.residual[before, node] -= step
            made.residual[node, before] += step
            node = before
        total += step
    return total


@inner
def _clear(made: Network, size: int) -> None:
    for a in range(size):
        for b in range(size):
            made.residual[a, b] = 0.0


@inner
def _between_devices(fleet: Fleet, first: IntArray, end: IntArray, made: Network) -> int:
    """Build the network in which devices are joined by links; return its number of nodes."""
    n, m = len(made.node) - 1, len(first)
    _clear(made, 2 * m + 2)
    for d in range(m):
        if end[d] == first[d]:
            continue
        made.residual[2 + 2 * d, 3 + 2 * d] = fleet.rates[d, end[d] - first[d]]
        if first[d] == 0:
            made.residual[SOURCE, 2 + 2 * d] = fleet.links[m, d]
        if end[d] == n:
            made.residual[3 + 2 * d, SINK] = fleet.links[d, m]
        for other in range(m):
            if first[other] == end[d] and end[other] > first[other]:
                made.residual[3 + 2 * d, 2 + 2 * other] = fleet.links[d, other]
    return 2 * m + 2


@inner
def _between_positions(fleet: Fleet, first: IntArray, end: IntArray, made: Network) -> int:
    """Build the network in which devices join positions of the chain; return its number of nodes."""
    n = len(made.node) - 1
    for position in range(n + 1):
        made.node[position] = -1
    made.node[0], made.node[n] = SOURCE, SINK
    size = 2
    for d in range(len(first)):
        for position in (first[d], end[d]):
            if end[d] > first[d] and made.node[position] < 0:
                made.node[position] = size
                size += 1
    _clear(made, size)
    for d in range(len(first)):
        if end[d] > first[d]:
            made.residual[made.node[first[d]], made.node[end[d]]] += fleet.rates[d, end[d] - first[d]]
    return size


@inner
def _augmenting_path(made: Network, size: int, least: float) -> bool:
    """Set the parents on a path of fewest arcs from the source to the sink that each carry more than `least`, if there is one."""
    for node in range(size):
        made.parent[node] = -1
    made.parent[SOURCE] = SOURCE
    made.queue[0] = SOURCE
    done, length = 0, 1
    while done < length:
        node = made.queue[done]
        done += 1
        for other in range(size):
            if made.parent[other] < 0 and made.residual[node, other] > least:
                made.parent[other] = node
                if other == SINK:
                    return True
                made.queue[length] = other
                length += 1
    return False
