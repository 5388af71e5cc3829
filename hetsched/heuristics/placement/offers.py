"""Functions that the methods of placement share: from devices of tasks to offers, speeds of devices, and coarse graphs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched.arrays import FloatArray, IntArray, readonly
from hetsched.coarsening.coarse import Coarsening, mean_durations
from hetsched.coarsening.sequential import operation_fusion
from hetsched.errors import InvalidProblem
from hetsched.heuristics.list_scheduling.offers import list_problem, place_in_order
from hetsched.heuristics.list_scheduling.static import ranks
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Monitor


def fused(problem: Problem, monitor: Monitor, **options: Any) -> Coarsening:
    """Return Celeritas' coarsening, or the trivial one, with a note, if the coarse problem is invalid."""
    try:
        return operation_fusion(problem, **options)
    except InvalidProblem as refusal:  # clusters without a path between them
        monitor.note(f"the graph is taken as it is, for its coarse one is no problem: {refusal}")
        return Coarsening.through(problem, ())


def offer_devices(monitor: Monitor, device: IntArray) -> None:
    """Offer the decision of `listed` for given devices of tasks, [n]; over the memory it becomes a best effort."""
    offer_within(monitor, listed(monitor.problem, device))


def offer_within(monitor: Monitor, decision: Decision | None) -> bool:
    """Offer a decision if there is one; return whether it is within the memory."""
    if decision is None:
        monitor.note("some tasks were given to devices where no path leads from their parents")
    return decision is not None and math.isfinite(monitor.offer(decision))


def offer_by_claims(monitor: Monitor, *places: Callable[[FloatArray], Decision | None]) -> None:
    """Offer each ``place(need)`` for the bytes that units claim, [n_units], optimistic before conservative, until one fits."""
    for need in memory_needs(monitor.problem):
        fits = False
        for place in places:
            fits = offer_within(monitor, place(need)) or fits
            if monitor.should_stop:
                return
        if fits:
            return


def listed(problem: Problem, device: IntArray, priority: FloatArray | None = None) -> Decision | None:
    """Return the decision for given devices of tasks, [n]; None if some task has no path from a parent.

    Tasks of a device run by descending `priority` [n], default the upward rank, each in the first gap. Memory is ignored.
    """
    from hetsched.heuristics.list_scheduling import static_kernels

    if priority is None:
        priority, _ = ranks(problem)
    here = np.arange(problem.n_devices) == device[:, None]
    rule = static_kernels.Rule(static_kernels.FINISH, True, np.array(priority), np.empty((0, 0)), np.empty(0, np.int64))
    data = list_problem(problem, np.zeros(problem.n_units), np.where(here, problem.whole_durations, np.inf))
    _, sequence, stuck = place_in_order(data, rule)
    return None if stuck >= 0 else Decision.whole(problem, device, sequence)


def carried_back(coarsening: Coarsening, decision: Decision) -> list[Decision]:
    """Return decisions on the finer graph: the members of a cluster in its position, and the same devices in order of upward ranks."""
    lifted = coarsening.lift(decision)
    ranked = listed(coarsening.problem, main_devices(coarsening.problem, lifted))
    return [lifted] if ranked is None else [lifted, ranked]


def main_devices(problem: Problem, decision: Decision) -> IntArray:
    """Return a device for each task, [n]: the one that runs most of its inputs."""
    work = np.zeros((problem.n_tasks, problem.n_devices))
    np.add.at(work, (decision.task, decision.device), np.diff(decision.item_ptr))
    return np.asarray(work.argmax(axis=1))


def by_speed(problem: Problem) -> IntArray:
    """Return the devices by descending number of tasks that they can run, then by ascending seconds for these."""
    seconds = problem.whole_durations
    able = np.isfinite(seconds)
    total = np.where(able, seconds, 0.0).sum(axis=0)
    return np.lexsort((total, -able.sum(axis=0)))


def shares(problem: Problem) -> FloatArray:
    """Return the share of the work that each device should have, in proportion to its speed, [K]."""
    speed = speeds(problem)
    return np.asarray(speed / speed.sum() if speed.sum() > 0 else np.full(problem.n_devices, 1 / problem.n_devices))


def speeds(problem: Problem) -> FloatArray:
    """Return the speed of each device, [K]: the work of the tasks that it can run, by mean durations, over its seconds for them."""
    seconds, work = problem.whole_durations, mean_durations(problem)
    able = np.isfinite(seconds)
    own = np.where(able, seconds, 0.0).sum(axis=0)
    return np.where(own > 0, (able * work[:, None]).sum(axis=0) / np.where(own > 0, own, 1.0), 0.0)


def filled(problem: Problem, order: IntArray, need: FloatArray, limit: FloatArray) -> IntArray:
    """Return the device of each task, [n], after devices are filled one after another, the fastest first."""
    from hetsched.heuristics.placement import kernels

    device = kernels.fill(readonly(order), problem.unit, readonly(need), readonly(limit), problem.whole_durations, by_speed(problem))
    return device[problem.unit]
