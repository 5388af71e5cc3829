"""Shortest paths through states in topological order.

Transitions [T] are sorted by their tail, which is less than their head; costs [K] are those of their kinds [T].
"""

from __future__ import annotations

import numpy as np

from hetsched.compiled import builder


@builder
def from_first(tail, head, kind, cost, states):  # type: ignore[no-untyped-def]
    """Return the distance of each state from the first, and the transition it is best reached by."""
    distance, last = np.full(states, np.inf), np.full(states, -1)
    distance[0] = 0.0
    for t in range(len(tail)):
        reached = distance[tail[t]] + cost[kind[t]]
        if reached < distance[head[t]]:
            distance[head[t]] = reached
            last[head[t]] = t
    return distance, last


@builder
def to_last(tail, head, kind, cost, states):  # type: ignore[no-untyped-def]
    """Return the distance of each state to the last."""
    distance = np.full(states, np.inf)
    distance[-1] = 0.0
    for t in range(len(tail) - 1, -1, -1):
        reached = distance[head[t]] + cost[kind[t]]
        distance[tail[t]] = min(distance[tail[t]], reached)
    return distance


@builder
def least_around(tail, head, kind, before, after, wanted):  # type: ignore[no-untyped-def]
    """Return the least cost of the rest of a path with a transition of a kind, from the distances before and after it."""
    least = np.inf
    for t in range(len(tail)):
        if kind[t] == wanted:
            least = min(least, before[tail[t]] + after[head[t]])
    return least


@builder
def on_short_paths(tail, head, kind, cost, before, after, most):  # type: ignore[no-untyped-def]
    """Return the transitions on paths that cost at most so much."""
    found = np.empty(len(tail), np.int64)
    used = 0
    for t in range(len(tail)):
        whole = before[tail[t]] + cost[kind[t]] + after[head[t]]
        if whole <= most and whole < np.inf:
            found[used] = t
            used += 1
    return found[:used].copy()
