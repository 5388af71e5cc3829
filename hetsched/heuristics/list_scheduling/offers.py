"""From a placement kernel to an offer, and a word to the user when there is no place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.schedule.decision import Decision
from hetsched.search import Monitor


def descending(order: IntArray) -> FloatArray:
    """Return priorities by which tasks come in a given order, [n]."""
    priority = np.empty(len(order))
    priority[order] = -np.arange(len(order), dtype=np.float64)
    return priority


def offer(monitor: Monitor, place: Callable[[FloatArray], Any]) -> None:
    """Offer the placement that ``place(need)`` makes; note why where it makes none that fits."""
    problem = monitor.problem
    for need in memory_needs(problem):
        device, sequence, stuck = place(need)
        if stuck >= 0:
            _explain(monitor, need, device, stuck)
        elif np.isfinite(monitor.offer(Decision.whole(problem, device, sequence))):
            return
        if monitor.should_stop:
            return


def offer_in_order(
    monitor: Monitor, priority: FloatArray, *, criterion: str, insertion: bool, bias: FloatArray | None = None, only: IntArray | None = None
) -> None:
    """Offer what ``kernels.in_order`` makes of a priority per task, [n].

    `criterion` is what is least on the chosen device: ``"finish"`` (plus `bias` [n, K], if given),
    ``"start"``, ``"duration"``, or ``"available"`` (when the device falls idle); or ``"adjust"``, the start, if it is earlier
    by more than `bias` [n, 1] than on the device of the task before. `only` [n] is a preferred device per task, -1 for none.
    """
    from hetsched.heuristics.list_scheduling import kernels

    problem = monitor.problem
    code = {
        "finish": kernels.FINISH,
        "start": kernels.START,
        "duration": kernels.DURATION,
        "available": kernels.AVAILABLE,
        "adjust": kernels.ADJUST,
    }[criterion]
    bias = np.empty((0, 0)) if bias is None else bias
    only = np.empty(0, np.int64) if only is None else only
    offer(
        monitor,
        lambda need: kernels.in_order(
            problem.arrays, problem.whole_durations, priority, bias, only, problem.unit, need, problem.cluster.memory_bytes, code, insertion
        ),
    )


def _explain(monitor: Monitor, need: FloatArray, device: Any, stuck: int) -> None:
    """Say why a task found no place after the others were placed."""
    problem = monitor.problem
    placed = np.unique(problem.unit[device >= 0])
    where = np.full(problem.n_units, -1)
    where[problem.unit[device >= 0]] = device[device >= 0]
    used = np.bincount(where[placed], need[placed], problem.n_devices)
    runs = np.isfinite(problem.whole_durations[stuck])
    free = np.maximum(problem.cluster.memory_bytes - used, 0.0)
    claim = need[problem.unit[stuck]]
    room = ", ".join(f"{free[k]:.6g} on {problem.cluster.names[k]!r}" for k in np.flatnonzero(runs))
    what = f"task {problem.graph.names[stuck]!r}"
    if (free[runs] * (1 + 1e-9) < claim).all():
        monitor.note(f"found no place for {what}, which with its co-located tasks claims {claim:.6g} bytes; left: {room}")
    else:
        monitor.note(f"found no place for {what}: the devices with room for it are out of reach of its parents or its co-located tasks")
