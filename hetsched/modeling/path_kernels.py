"""Numba kernels of shortest paths through states in topological order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder, kernel


class Transitions(NamedTuple):
    """Transitions sorted by their tail, which is less than their head, [T] each; see `transitions`."""

    tail: IntArray
    head: IntArray
    kind: IntArray
    """The kind of each transition; costs [K] are per kind."""


def transitions(tail: npt.NDArray[np.integer[Any]], head: npt.NDArray[np.integer[Any]], kind: npt.NDArray[np.integer[Any]]) -> Transitions:
    """Return transitions for the kernels: int64 and read-only; int64 arrays are not copied."""
    columns = [np.ascontiguousarray(column, np.int64).view() for column in (tail, head, kind)]
    for column in columns:
        column.setflags(write=False)
    return Transitions(*columns)


@builder
def from_first(paths: Transitions, cost: FloatArray, states: int) -> tuple[FloatArray, IntArray]:
    """Return the distance of each state from the first, and the last transition of a shortest path to it, or -1."""
    distance, last = np.full(states, np.inf), np.full(states, -1)
    distance[0] = 0.0
    for t in range(len(paths.tail)):
        head = paths.head[t]
        reached = distance[paths.tail[t]] + cost[paths.kind[t]]
        if reached < distance[head]:
            distance[head] = reached
            last[head] = t
    return distance, last


@builder
def to_last(paths: Transitions, cost: FloatArray, states: int) -> FloatArray:
    """Return the distance of each state to the last."""
    distance = np.full(states, np.inf)
    distance[-1] = 0.0
    for t in range(len(paths.tail) - 1, -1, -1):
        tail = paths.tail[t]
        distance[tail] = min(distance[tail], distance[paths.head[t]] + cost[paths.kind[t]])
    return distance


@kernel
def least_around(paths: Transitions, before: FloatArray, after: FloatArray, kind: int) -> float:
    """Return the least sum of the distances before and after a transition of a kind: the cost of the rest of a path through it."""
    least = np.inf
    for t in range(len(paths.tail)):
        if paths.kind[t] == kind:
            least = min(least, before[paths.tail[t]] + after[paths.head[t]])
    return least


@builder
def on_short_paths(paths: Transitions, cost: FloatArray, before: FloatArray, after: FloatArray, most: float) -> IntArray:
    """Return the transitions on paths of a cost of at most `most`."""
    chosen = np.empty(len(paths.tail), np.int64)
    used = 0
    for t in range(len(paths.tail)):
        whole = before[paths.tail[t]] + cost[paths.kind[t]] + after[paths.head[t]]
        if whole <= most and whole < np.inf:
            chosen[used] = t
            used += 1
    return chosen[:used].copy()
