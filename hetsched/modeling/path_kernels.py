"""Shortest paths through states in topological order."""

from __future__ import annotations

import numba


@numba.njit(cache=True, nogil=True)
def forward(tail, head, cost, distance, last):  # type: ignore[no-untyped-def]
    """Fill `distance` [S] from those states that have one, and `last` [S] with the transition each is best reached by.

    Transitions [T] are sorted by their tail, which is less than their head.
    """
    for t in range(len(tail)):
        reached = distance[tail[t]] + cost[t]
        if reached < distance[head[t]]:
            distance[head[t]] = reached
            last[head[t]] = t


@numba.njit(cache=True, nogil=True)
def backward(tail, head, cost, distance):  # type: ignore[no-untyped-def]
    """Fill `distance` [S] to those states that have one."""
    for t in range(len(tail) - 1, -1, -1):
        reached = distance[head[t]] + cost[t]
        distance[tail[t]] = min(distance[tail[t]], reached)
