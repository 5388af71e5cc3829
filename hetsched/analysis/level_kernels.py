"""Numba kernels for earliest starts and tails on each device: one forward or backward pass over the graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import kernel, nearly_linear
from hetsched.problem.link_kernels import link_seconds
from hetsched.problem.problem import ProblemArrays


class HeadsAndTails(NamedTuple):
    """Seconds of each task on each device, [n, K] each."""

    least: FloatArray
    """Duration of the shortest batch; inf where the task cannot run."""
    release: FloatArray
    delivery: FloatArray
    """Lower bounds from other sources: on the start, and on the time from the finish to the makespan."""
    start: FloatArray
    tail: FloatArray
    """Written by the kernels: the earliest start, inf = never, and the least time from the finish to the makespan."""


def heads_and_tails(least: FloatArray, release: FloatArray | None = None, delivery: FloatArray | None = None) -> HeadsAndTails:
    """Return copies of the arguments, releases and deliveries 0 by default, with uninitialised heads and tails."""
    release, delivery = (np.zeros(least.shape) if column is None else np.array(column, order="C") for column in (release, delivery))
    return HeadsAndTails(np.array(least, order="C"), release, delivery, np.empty(least.shape), np.empty(least.shape))


@nearly_linear
@kernel
def earliest_starts(arrays: ProblemArrays, order: IntArray, unit: IntArray, w: HeadsAndTails) -> None:
    """Write the earliest starts.

    Each parent is on its best device for the child and the child's device, or on the same device if both are of one unit.
    """
    least, release, start, size = w.least, w.release, w.start, w.least.shape[1]
    for i in order:
        for k in range(size):
            start[i, k] = release[i, k] if least[i, k] < np.inf else np.inf
        for x in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
            p, e = arrays.pred[x], arrays.pred_edge[x]
            bound = unit[p] == unit[i]
            for k in range(size):
                if start[i, k] == np.inf:
                    continue
                arrival = start[p, k] + least[p, k]
                if not bound:
                    for h in range(size):
                        if h != k and start[p, h] + least[p, h] < arrival:
                            arrival = min(arrival, start[p, h] + least[p, h] + link_seconds(arrays.links, e, h, k, 1.0))
                start[i, k] = max(start[i, k], arrival)


@nearly_linear
@kernel
def tails(arrays: ProblemArrays, order: IntArray, unit: IntArray, w: HeadsAndTails) -> None:
    """Write the tails: the mirror image of `earliest_starts`, with `delivery` for `release`."""
    least, delivery, tail, size = w.least, w.delivery, w.tail, w.least.shape[1]
    for x in range(len(order) - 1, -1, -1):
        i = order[x]
        for k in range(size):
            tail[i, k] = delivery[i, k] if least[i, k] < np.inf else np.inf
        for y in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
            c, e = arrays.succ[y], arrays.succ_edge[y]
            bound = unit[c] == unit[i]
            for k in range(size):
                if tail[i, k] == np.inf:
                    continue
                remaining = least[c, k] + tail[c, k]
                if not bound:
                    for h in range(size):
                        if h != k and least[c, h] + tail[c, h] < remaining:
                            remaining = min(remaining, link_seconds(arrays.links, e, k, h, 1.0) + least[c, h] + tail[c, h])
                tail[i, k] = max(tail[i, k], remaining)


@nearly_linear
@kernel
def follow(arrays: ProblemArrays, unit: IntArray, level: FloatArray, i: int, k: int, forward: bool, path: IntArray) -> int:
    """Write into `path` [n] the chain of tasks that determine the level of task i on device k; return their number.

    The next one is the child (or parent, unless `forward`) whose `level` [n, K] on its best device, transfer included, is largest.
    """
    size, count = level.shape[1], 0
    pointer = arrays.succ_ptr if forward else arrays.pred_ptr
    neighbours, edges = (arrays.succ, arrays.succ_edge) if forward else (arrays.pred, arrays.pred_edge)
    while pointer[i] < pointer[i + 1]:
        largest, chosen, device = -np.inf, 0, 0
        for x in range(pointer[i], pointer[i + 1]):
            j, least, best = neighbours[x], np.inf, 0
            for h in range(size):
                if h != k and unit[j] == unit[i]:
                    continue
                a, b = (k, h) if forward else (h, k)
                reach = level[j, h] + link_seconds(arrays.links, edges[x], a, b, 1.0)
                if reach < least:
                    least, best = reach, h
            if least > largest:
                largest, chosen, device = least, j, best
        i, k = chosen, device
        path[count] = i
        count += 1
    return count


@nearly_linear
@kernel
def narrow(arrays: ProblemArrays, order: IntArray, unit: IntArray, w: HeadsAndTails, horizon: float) -> bool:
    """Remove from `least` every (task, device) that no schedule of makespan `horizon` can contain.

    Repeats until nothing changes; writes `least` (inf = removed), `start` and `tail`. Returns False if
    some task has no device left: there is no such schedule.
    """
    least, start, tail = w.least, w.start, w.tail
    n, size = least.shape
    latest = horizon * (1.0 + 8.0 * n * 2.2e-16)  # rounding along a path must not remove a device
    while True:
        earliest_starts(arrays, order, unit, w)
        tails(arrays, order, unit, w)
        changed = False
        for i in range(n):
            possible = False
            for k in range(size):
                if least[i, k] == np.inf:
                    continue
                if start[i, k] + least[i, k] + tail[i, k] > latest:
                    least[i, k] = np.inf
                    changed = True
                else:
                    possible = True
            if not possible:
                return False
        if not changed:
            return True
