"""The transitive closure of a task graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hetsched.arrays import BoolArray, IntArray
from hetsched.problem.graph import TaskGraph
from hetsched.stopping import NEVER, Deadline

BLOCK = 2**22
"""Pairs compared in one array operation."""
COMPARING = "the comparing of all pairs"


def ancestors(graph: TaskGraph, deadline: Deadline = NEVER) -> BoolArray:
    """Return the [n, n] matrix whose entry (j, i) is whether a path leads from task i to task j.

    It takes n^2 bytes; its transpose has the descendants. Raises `OutOfTime` after the deadline.
    """
    result = np.zeros((graph.n_tasks, graph.n_tasks), bool)
    pointer, pred = graph.pred_ptr.tolist(), graph.pred
    for j in deadline.watch(graph.topological_order.tolist(), COMPARING):
        parents = pred[pointer[j] : pointer[j + 1]]
        if len(parents):
            np.logical_or.reduce(result[parents], axis=0, out=result[j])
            result[j, parents] = True
    return result


def unordered(size: int, ordered: Callable[[slice], BoolArray], deadline: Deadline = NEVER) -> IntArray:
    """Return the pairs i < j of 0, ..., size - 1 that are not ordered, [P, 2].

    Parameters
    ----------
    size : int
    ordered : callable
        Maps a range of m elements to whether each is before or after each of all elements, [m, size].
    deadline : Deadline, optional
        After it `OutOfTime` is raised.
    """
    blocks = [np.zeros((0, 2), np.int64)]
    height = max(1, BLOCK // max(size, 1))
    for first in deadline.watch(range(0, size, height), COMPARING, every=1):
        free = ~ordered(slice(first, first + height))
        pairs = np.argwhere(np.triu(free, first + 1))
        pairs[:, 0] += first
        blocks.append(pairs)
    return np.concatenate(blocks)
