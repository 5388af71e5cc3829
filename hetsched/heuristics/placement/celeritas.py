"""Celeritas: placement of a graph fused to clusters; and what the methods of placement share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched.arrays import FloatArray, IntArray, readonly
from hetsched.coarsening.coarse import Coarsening, mean_durations, mean_transfers
from hetsched.coarsening.sequential import operation_fusion, topological_order
from hetsched.errors import InvalidProblem
from hetsched.heuristics.list_scheduling.offers import descending, list_problem, offer_in_order, place_in_order
from hetsched.heuristics.list_scheduling.static import ranks
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Auto, Kind, Monitor, Role, Supports, always, large, method

CELERITAS = "Celeritas (Xu et al. 2022)"


# ---------------------------------------------------------------------- what the methods share


def fused(problem: Problem, monitor: Monitor, **options: Any) -> Coarsening:
    """Return Celeritas' coarsening, or the problem as it is where its coarse problem would be none."""
    try:
        return operation_fusion(problem, **options)
    except InvalidProblem as refusal:  # clusters without a path between them
        monitor.note(f"the graph is taken as it is, for its coarse one is no problem: {refusal}")
        return Coarsening.through(problem, ())


def offer_lifted(monitor: Monitor, found: Coarsening, decide: Callable[[Problem, Monitor], None]) -> None:
    """Let a method decide on a coarse problem, and offer what it finds, within memory or over it, on the fine one."""
    inner = Monitor(found.coarse, seed=monitor.seed, parent=monitor, objective=monitor.objective)
    decide(found.coarse, inner)
    monitor.evaluated(inner.evaluations)
    solution = inner.solution(monitor.source)
    for message in solution.messages:
        monitor.note(message)
    schedule = solution.schedule if solution.best_effort is None else solution.best_effort.schedule
    if schedule is not None:
        monitor.offer(found.lift(schedule.decision))


def offer_devices(monitor: Monitor, device: IntArray) -> None:
    """Offer a device for each task, [n], as `listed` says; what is over the memory becomes a best effort."""
    offer_within(monitor, listed(monitor.problem, device))


def offer_within(monitor: Monitor, decision: Decision | None) -> bool:
    """Offer a decision if there is one; tell whether it is within memory."""
    if decision is None:
        monitor.note("some tasks were given to devices where no path leads from their parents")
    return decision is not None and math.isfinite(monitor.offer(decision))


def offer_bold_to_safe(monitor: Monitor, place: Callable[[FloatArray], Decision | None]) -> None:
    """Offer what ``place(need)`` makes of the bytes that units claim, those that peak memory may do with first."""
    for need in memory_needs(monitor.problem):
        if offer_within(monitor, place(need)) or monitor.should_stop:
            return


def listed(problem: Problem, device: IntArray, priority: FloatArray | None = None) -> Decision | None:
    """Return the decision for given devices of tasks, [n]; None if some task has no path from a parent.

    Tasks of a device run by descending `priority` [n], default the upward rank, each in the first gap. Memory is ignored.
    """
    from hetsched.heuristics.list_scheduling import kernels as list_kernels

    if priority is None:
        priority, _ = ranks(problem)
    here = np.arange(problem.n_devices) == device[:, None]
    rule = list_kernels.Rule(list_kernels.FINISH, True, np.array(priority), np.empty((0, 0)), np.empty(0, np.int64))
    given = list_problem(problem, np.zeros(problem.n_units), np.where(here, problem.whole_durations, np.inf))
    _, sequence, stuck = place_in_order(given, rule)
    return None if stuck >= 0 else Decision.whole(problem, device, sequence)


def by_speed(problem: Problem) -> IntArray:
    """Return the devices, the fastest for the whole graph first; those that cannot run all of it by the share that they can."""
    seconds = problem.whole_durations
    able = np.isfinite(seconds)
    total = np.where(able, seconds, 0.0).sum(axis=0)
    return np.lexsort((total, -able.sum(axis=0)))


def shares(problem: Problem) -> FloatArray:
    """Return the share of the work that each device should have, in proportion to its speed, [K].

    Its speed is the work of the tasks that it can run, by their mean durations, over its seconds for them.
    """
    seconds, work = problem.whole_durations, mean_durations(problem)
    able = np.isfinite(seconds)
    own = np.where(able, seconds, 0.0).sum(axis=0)
    speed = np.where(own > 0, (able * work[:, None]).sum(axis=0) / np.where(own > 0, own, 1.0), 0.0)
    return np.asarray(speed / speed.sum() if speed.sum() > 0 else np.full(problem.n_devices, 1 / problem.n_devices))


# ---------------------------------------------------------------------- Celeritas


@method(
    "celeritas",
    summary="optimal operation fusion, then Adjusting Placement of the coarse graph: made for 50,000 operators in a second",
    source=CELERITAS,
    kind=Kind.CONSTRUCTIVE,
    roles={Role.PACKING: always, Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=190,
    auto=Auto(when=large),
)
def celeritas(problem: Problem, monitor: Monitor, *, window: int = 200, memory: float = 0.25) -> None:
    """Clusters in CPD-TOPO order stay on the device of the one before unless they start earlier elsewhere by more than a transfer back.

    A cluster has at most `window` tasks and `memory` of the smallest device. If no device has room for one, it goes
    where most is left: a best effort.
    """
    offer_lifted(monitor, fused(problem, monitor, window=window, memory=memory), adjusting)


def adjusting(problem: Problem, monitor: Monitor) -> None:
    """Offer Adjusting Placement of a graph as it is (Celeritas, Algorithm 2): its back cost is the longest transfer to a successor."""
    back = np.zeros(problem.n_tasks)
    np.maximum.at(back, problem.graph.source, mean_transfers(problem))
    order = descending(topological_order(problem))
    offer_in_order(monitor, order, criterion="adjust", insertion=True, bias=back[:, None])


@method(
    "order-place",
    summary="optimal operation fusion, then one device after another filled to its memory, the fastest first",
    source=CELERITAS,
    kind=Kind.CONSTRUCTIVE,
    roles={Role.PACKING: always, Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=200,
    auto=Auto(when=large),
)
def order_place(problem: Problem, monitor: Monitor, *, window: int = 200, memory: float = 0.25) -> None:
    """Clusters in CPD-TOPO order fill one device up to its memory, then the next."""
    offer_lifted(monitor, fused(problem, monitor, window=window, memory=memory), filling)


def filling(problem: Problem, monitor: Monitor) -> None:
    """Offer Order-Place of a graph as it is."""
    order = topological_order(problem)
    capacity = problem.cluster.memory_bytes
    offer_bold_to_safe(monitor, lambda need: listed(problem, filled(problem, order, need, capacity), descending(order)))


def filled(problem: Problem, order: IntArray, need: FloatArray, limit: FloatArray) -> IntArray:
    """Return the device of each task, [n], where devices are filled one after another, the fastest first."""
    from hetsched.heuristics.placement import kernels

    found = kernels.fill(readonly(order), problem.unit, readonly(need), readonly(limit), problem.whole_durations, by_speed(problem))
    return found[problem.unit]
