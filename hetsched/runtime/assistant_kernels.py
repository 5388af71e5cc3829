"""How long an iteration would be if one node moved: what assistants estimate before they take it."""

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
    """Return the makespan with each unit of tasks moved to its target alone, [c].

    Devices run their tasks in the order of `sequence` [n], a topological order; transfers do not
    disturb one another. `seconds` [n, K], `device` [n]; the tasks of unit u are
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
    """Return when the last task finishes; `finish` [n] and `clock` [K] are room to work in."""
    clock[:] = 0.0
    last = 0.0
    for i in sequence:
        k = device[i]
        start = clock[k] if seconds[i, k] > 0 else 0.0  # what takes no time waits for no device
        for p in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
            j = arrays.pred[p]
            start = max(start, finish[j] + link_seconds(arrays.links, arrays.pred_edge[p], device[j], k, 1.0))
        finish[i] = start + seconds[i, k]
        if seconds[i, k] > 0:
            clock[k] = finish[i]
        last = max(last, finish[i])
    return last
