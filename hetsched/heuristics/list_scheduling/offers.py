"""Offers of the results of placement kernels, and notes on tasks that fit no device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.arrays import FloatArray, IntArray, readonly
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Monitor
from hetsched.stopping import Deadline

if TYPE_CHECKING:
    from hetsched.heuristics.list_scheduling.dynamic_kernels import Choosing
    from hetsched.heuristics.list_scheduling.kernels import ListProblem, Placed
    from hetsched.heuristics.list_scheduling.static_kernels import Rule


def descending(order: IntArray) -> FloatArray:
    """Return priorities, [n], that put tasks in the given order."""
    priority = np.empty(len(order))
    priority[order] = -np.arange(len(order), dtype=np.float64)
    return priority


def offer(monitor: Monitor, place: Callable[[FloatArray], Any]) -> None:
    """Offer the placement ``place(need)``, from optimistic to conservative claims; note why where none fits."""
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
    """Offer the placement of ``static_kernels.in_order`` with a priority per task, [n].

    `criterion` is minimised over the devices: ``"finish"`` (plus `bias` [n, K], if given), ``"start"``, ``"duration"``, or
    ``"available"`` (the time at which the device becomes idle); or ``"adjust"``, the start, if it is earlier by more than
    `bias` [n, 1] than on the device of the previous task. `only` [n] is a preferred device per task, -1 for none.
    """
    from hetsched.heuristics.list_scheduling import static_kernels

    code = {
        "finish": static_kernels.FINISH,
        "start": static_kernels.START,
        "duration": static_kernels.DURATION,
        "available": static_kernels.AVAILABLE,
        "adjust": static_kernels.ADJUST,
    }[criterion]
    bias = np.empty((0, 0)) if bias is None else bias
    only = np.empty(0, np.int64) if only is None else only
    rule = static_kernels.Rule(code, insertion, priority, bias, only)
    offer(monitor, lambda need: place_in_order(list_problem(monitor.problem, need), rule))


def list_problem(problem: Problem, need: FloatArray, durations: FloatArray | None = None) -> ListProblem:
    """Return the data of list scheduling kernels; `need` [n_units] is in bytes, `durations` [n, K] replaces that of the problem."""
    from hetsched.heuristics.list_scheduling.kernels import ListProblem

    column = problem.device_class if durations is None else readonly(np.arange(problem.n_devices))
    durations = problem.class_whole_durations if durations is None else readonly(durations)
    return ListProblem(problem.arrays, durations, column, problem.unit, np.array(need), problem.cluster.memory_bytes)


def place_in_order(data: ListProblem, rule: Rule) -> Placed:
    """Return the placement of ``static_kernels.in_order``."""
    from hetsched.heuristics.list_scheduling import static_kernels

    state = static_kernels.new_state(len(data.durations), len(data.column), len(data.need))
    stuck = static_kernels.in_order(data, rule, state)
    return state.device, state.sequence, stuck


def in_slices(work: Callable[[Choosing, int], int], state: Choosing, deadline: Deadline, what: str) -> Placed:
    """Call ``work(state, most)`` until all tasks are placed or one fits nowhere; a call examines at most `most` ready tasks.

    `work` returns -1 if all tasks are placed, the task that fits nowhere, or ``dynamic_kernels.MORE``. Raises `OutOfTime` after the
    deadline, but not before the end of the first call.
    """
    from hetsched.heuristics.list_scheduling import dynamic_kernels

    while (stuck := work(state, dynamic_kernels.SLICE)) == dynamic_kernels.MORE:
        deadline.check(what)
    return state.device, state.sequence, stuck


def _explain(monitor: Monitor, need: FloatArray, device: Any, stuck: int) -> None:
    """Note why a task fits no device after the others have been placed."""
    problem = monitor.problem
    placed = np.unique(problem.unit[device >= 0])
    where = np.full(problem.n_units, -1)
    where[problem.unit[device >= 0]] = device[device >= 0]
    used = np.bincount(where[placed], need[placed], problem.n_devices)
    runs = np.isfinite(problem.class_whole_durations[stuck])[problem.device_class]
    free = np.maximum(problem.cluster.memory_bytes - used, 0.0)
    claim = need[problem.unit[stuck]]
    room = ", ".join(f"{free[k]:.6g} on {problem.cluster.names[k]!r}" for k in np.flatnonzero(runs))
    what = f"task {problem.graph.names[stuck]!r}"
    if (free[runs] * (1 + 1e-9) < claim).all():
        monitor.note(f"found no place for {what}, which with its co-located tasks claims {claim:.6g} bytes; left: {room}")
    else:
        monitor.note(f"found no place for {what}: the devices with room for it are out of reach of its parents or its co-located tasks")
