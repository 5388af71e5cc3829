"""Numba kernels that walk the graph once forward or backward, device by device."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder
from hetsched.problem.link_kernels import link_seconds
from hetsched.problem.problem import ProblemArrays


@builder
def earliest_starts(
    arrays: ProblemArrays, order: IntArray, unit: IntArray, least: FloatArray, release: FloatArray, start: FloatArray
) -> None:
    """Write into `start` [n, K] when each task can start on each device at the earliest; inf = never.

    A parent chooses its best device anew for every child and device, unless a co-location unit
    binds the two; `least` [n, K] is inf where a task cannot run, `release` [n, K] holds from outside.
    """
    size = least.shape[1]
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


@builder
def tails(arrays: ProblemArrays, order: IntArray, unit: IntArray, least: FloatArray, delivery: FloatArray, tail: FloatArray) -> None:
    """Write into `tail` [n, K] the least time from a task's finish on a device to the end of everything.

    The mirror image of `earliest_starts`, with `delivery` [n, K] for `release`.
    """
    size = least.shape[1]
    for i in order[::-1]:
        for k in range(size):
            tail[i, k] = delivery[i, k] if least[i, k] < np.inf else np.inf
        for x in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
            c, e = arrays.succ[x], arrays.succ_edge[x]
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


@builder
def narrow(
    arrays: ProblemArrays,
    order: IntArray,
    unit: IntArray,
    least: FloatArray,
    release: FloatArray,
    delivery: FloatArray,
    horizon: float,
    start: FloatArray,
    tail: FloatArray,
) -> bool:
    """Take from `least` every (task, device) that cannot lie on a schedule of makespan `horizon`.

    Repeats until nothing changes; `least` (inf = taken away), `start` and `tail` are written.
    Returns False if some task is left without a device: there is no such schedule.
    """
    n, size = least.shape
    latest = horizon * (1.0 + 8.0 * n * 2.2e-16)  # so that rounding along a path takes nothing away
    while True:
        earliest_starts(arrays, order, unit, least, release, start)
        tails(arrays, order, unit, least, delivery, tail)
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
