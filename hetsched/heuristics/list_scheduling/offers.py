"""Offers of the results of placement kernels, and notes on tasks that fit no device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.arrays import FloatArray, IntArray, readonly
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision, sent_in_order
from hetsched.search import Monitor
from hetsched.stopping import Deadline

if TYPE_CHECKING:
    from hetsched.heuristics.list_scheduling.dynamic_kernels import Choosing
    from hetsched.heuristics.list_scheduling.kernels import ListProblem, Placed
    from hetsched.heuristics.list_scheduling.static_kernels import Rule
    from hetsched.heuristics.list_scheduling.transfer_kernels import Transfers


def descending(order: IntArray) -> FloatArray:
    """Return priorities, [n], that put tasks in the given order."""
    priority = np.empty(len(order))
    priority[order] = -np.arange(len(order), dtype=np.float64)
    return priority


def plans(problem: Problem, contention: bool | None) -> tuple[bool, ...]:
    """Return, for each placement that a list scheduler offers, whether transfers are planned in it; see ``transfer_kernels``.

    Where transfers contend, `contention` says whether they are planned; with None both placements are offered, because neither is
    always the better one: so the schedule is never worse than without contention in the plan.
    """
    if not problem.links.contended:
        return (False,)
    return (False, True) if contention is None else (contention,)


def offer(
    monitor: Monitor, place: Callable[[FloatArray, Transfers | None], Any], contention: bool | None = False, *, again: bool = False
) -> None:
    """Offer the placements ``place(need, transfers)``, from optimistic to conservative claims; note why where none fits.

    `transfers`, where they are planned, see `plans`, is changed in place; `again` is as for ``new_transfers``.
    """
    problem = monitor.problem
    for need in memory_needs(problem):
        fits = False
        for planned in plans(problem, contention):
            transfers = _new_transfers(problem, again) if planned else None
            device, sequence, stuck = place(need, transfers)
            if stuck >= 0:
                _explain(monitor, need, device, stuck)
            else:
                fits = bool(np.isfinite(monitor.offer(decision_of(problem, (device, sequence, stuck), transfers)))) or fits
            if monitor.should_stop:
                return
        if fits:
            return


def _new_transfers(problem: Problem, again: bool) -> Transfers:
    from hetsched.heuristics.list_scheduling import transfer_kernels

    return transfer_kernels.new_transfers(problem.arrays, again)


def decision_of(problem: Problem, placed: Placed, transfers: Transfers | None) -> Decision:
    """Return the decision of a placement of all tasks, with the order of its transfers if they are planned."""
    device, sequence, _ = placed
    decision = Decision.whole(problem, device, sequence)
    if transfers is None:
        return decision
    edge, booked = transfers.edge, transfers.sizes[0]
    return sent_in_order(problem, decision, edge[np.lexsort((transfers.finish[:booked], transfers.start[:booked]))])


def offer_in_order(
    monitor: Monitor,
    priority: FloatArray,
    *,
    criterion: str,
    insertion: bool,
    bias: FloatArray | None = None,
    only: IntArray | None = None,
    contention: bool | None = None,
) -> None:
    """Offer the placement of ``static_kernels.in_order`` with a priority per task, [n].

    `criterion` is minimised over the devices: ``"finish"`` (plus `bias` [n, K], if given), ``"start"``, ``"duration"``, or
    ``"available"`` (the time at which the device becomes idle); or ``"adjust"``, the start, if it is earlier by more than
    `bias` [n, 1] than on the device of the previous task. `only` [n] is a preferred device per task, -1 for none. `contention` is as
    for `plans`.
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
    offer(monitor, lambda need, transfers: place_in_order(list_problem(monitor.problem, need), rule, transfers), contention)


def list_problem(problem: Problem, need: FloatArray, durations: FloatArray | None = None) -> ListProblem:
    """Return the data of list scheduling kernels; `need` [n_units] is in bytes, `durations` [n, K] replaces that of the problem."""
    from hetsched.heuristics.list_scheduling.kernels import ListProblem

    column = problem.device_class if durations is None else readonly(np.arange(problem.n_devices))
    durations = problem.class_whole_durations if durations is None else readonly(durations)
    return ListProblem(problem.arrays, durations, column, problem.unit, np.array(need), problem.cluster.memory_bytes)


def place_in_order(data: ListProblem, rule: Rule, transfers: Transfers | None = None) -> Placed:
    """Return the placement of ``static_kernels.in_order``, or `in_planned_order`, which changes `transfers` in place."""
    from hetsched.heuristics.list_scheduling import static_kernels

    state = static_kernels.new_state(len(data.durations), len(data.column), len(data.need))
    if transfers is None:
        stuck = static_kernels.in_order(data, rule, state)
    else:
        stuck = static_kernels.in_planned_order(data, rule, state, transfers)
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
