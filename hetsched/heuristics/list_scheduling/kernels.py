"""Numba kernels and records shared by list schedulers, which place tasks on devices one after another.

Every task is one batch of all inputs. Here transfers do not disturb one another; ``transfer_kernels`` plans those that contend.
When the first member of a co-location unit is placed, the device of the unit is fixed, and the unit
claims the memory of all its members there.
"""

from __future__ import annotations

from typing import NamedTuple

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner
from hetsched.problem.link_kernels import bytes_seconds, multiplier
from hetsched.problem.problem import ProblemArrays

Placed = tuple[IntArray, IntArray, int]
"""Device per task [n], a sequence of all tasks [n], and the task that fits nowhere, or -1."""

MEMORY_SLACK = 1 + 1e-9
NONE = -1


class ListProblem(NamedTuple):
    """Data of list schedulers; all arrays but `need` are read-only."""

    arrays: ProblemArrays
    durations: FloatArray
    """[n, C] seconds of one batch of all inputs on a device of each class; inf where it cannot run."""
    column: IntArray
    """[K], the class of each device."""
    unit: IntArray
    """[n]: the co-location unit of each task."""
    need: FloatArray
    """[n_units]: bytes that each unit claims."""
    capacity: FloatArray
    """[K] bytes"""


@inner
def arrivals(arrays: ProblemArrays, i: int, device: IntArray, finish: FloatArray, ready: FloatArray) -> None:
    """Write into `ready` [K] the earliest time at which all data of task i are on each device."""
    links, pred, pred_edge = arrays.links, arrays.pred, arrays.pred_edge
    size, factor = len(ready), multiplier(arrays.links, arrays.inputs)
    for k in range(size):
        ready[k] = 0.0
    for x in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
        e = pred_edge[x]
        h, done = device[pred[x]], finish[pred[x]]
        if links.given:
            for k in range(size):
                ready[k] = max(ready[k], done + links.transfers[e, h, k] * factor)
        else:
            amount = links.edge_bytes[e] * factor
            for k in range(size):
                ready[k] = max(ready[k], done + bytes_seconds(links, amount, h, k))
