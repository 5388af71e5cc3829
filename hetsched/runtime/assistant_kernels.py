"""Numba kernels that estimate the duration of an iteration after a move of one unit to an assistant."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder
from hetsched.problem.link_kernels import link_seconds
from hetsched.problem.problem import ProblemArrays


@builder
def moved_makespans(
    arrays: ProblemArrays,
    sequence: IntArray,
    seconds: FloatArray,
    device: IntArray,
    member_ptr: IntArray,
    members: IntArray,
    units: IntArray,
    targets: IntArray,
) -> FloatArray:
    """Return the makespan after the move of each single unit of tasks to its target, [c].

    Devices run their tasks in the order of `sequence` [n], a topological order, without contention of
    transfers. `seconds` is [n, K], `device` [n]; the tasks of unit u are
    ``members[member_ptr[u]:member_ptr[u + 1]]``.
    """
    trial = device.copy()
    finish, clock = np.empty(len(device)), np.empty(seconds.shape[1])
    result = np.empty(len(units))
    for c in range(len(units)):
        own = members[member_ptr[units[c]] : member_ptr[units[c] + 1]]
        for i in own:
            trial[i] = targets[c]
        result[c] = _makespan(arrays, sequence, seconds, trial, finish, clock)
        for i in own:
            trial[i] = device[i]
    return result


@builder
def _makespan(
    arrays: ProblemArrays, sequence: IntArray, seconds: FloatArray, device: IntArray, finish: FloatArray, clock: FloatArray
) -> float:
    """Return the last finish in seconds; `finish` [n] and `clock` [K] are scratch."""
    clock[:] = 0.0
    last = 0.0
    for i in sequence:
        k = device[i]
        start = clock[k] if seconds[i, k] > 0 else 0.0  # tasks of duration 0 do not wait for a device
        for p in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
            j = arrays.pred[p]
            start = max(start, finish[j] + link_seconds(arrays.links, arrays.pred_edge[p], device[j], k, 1.0))
        finish[i] = start + seconds[i, k]
        if seconds[i, k] > 0:
            clock[k] = finish[i]
        last = max(last, finish[i])
    return last
