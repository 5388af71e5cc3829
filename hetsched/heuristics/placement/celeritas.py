"""Celeritas: placement of a graph fused to clusters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hetsched.analysis.levels import unit_sums
from hetsched.arrays import IntArray
from hetsched.coarsening.coarse import mean_transfers
from hetsched.coarsening.sequential import topological_order
from hetsched.heuristics.list_scheduling.offers import descending, offer_in_order
from hetsched.heuristics.placement.offers import filled, fused, listed, offer_by_claims, offer_within
from hetsched.heuristics.repair import repair
from hetsched.problem.problem import Problem, stated
from hetsched.search import Auto, Kind, Monitor, Role, Supports, always, large, method

CELERITAS = "Celeritas (Xu et al. 2022)"


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
    """Place clusters in CPD-TOPO order, each on the device of the previous one or, if it starts earlier enough, on another.

    A cluster changes the device if its start is earlier by more than a transfer back. It has at most `window` tasks and the
    share `memory` of the smallest device's memory. If it fits no device, it is placed on the one with the most memory left: a best
    effort. Line 20 of Algorithm 2 prints the arg min of the memory left; the text of the paper (sections 5.2 and 6.3) takes the
    device with the lowest memory usage, as this does. Co-location labels do not divide clusters: all tasks of a label follow the first that
    is placed, and the memory is repaired if this exceeds it. Under peak memory, which cannot be repaired so, labels do divide clusters.
    """
    _offer_fused(monitor, adjusting, window, memory)


def adjusting(problem: Problem, monitor: Monitor) -> None:
    """Offer Adjusting Placement of a graph (Celeritas, Algorithm 2); the back cost of a task is its longest transfer to a successor."""
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
    """Fill one device after another up to its memory with clusters in CPD-TOPO order; co-location labels are as for celeritas."""
    _offer_fused(monitor, filling, window, memory)


def filling(problem: Problem, monitor: Monitor) -> None:
    """Offer Order-Place of a graph."""
    _offer_filled(monitor, topological_order(problem))


@method(
    "dfs-topo",
    summary="depth-first order, one device after another filled to its memory, the fastest first",
    source=CELERITAS,
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=225,
)
def dfs_topo(problem: Problem, monitor: Monitor) -> None:
    """Fill one device after another up to its memory with tasks in DFS-TOPO order: the sequential placement of the Standard Evaluation.

    All tasks of a co-location label follow its first one. If no device has room, the one with the most memory left is taken: a best
    effort.
    """
    _offer_filled(monitor, topological_order(problem, "dfs-topo"))


def _offer_filled(monitor: Monitor, order: IntArray) -> None:
    """Offer tasks in a given order, [n], that fill one device after another."""
    problem = monitor.problem
    capacity = problem.cluster.memory_bytes
    offer_by_claims(monitor, lambda need: listed(problem, filled(problem, order, need, capacity), descending(order)))


def _offer_fused(monitor: Monitor, decide: Callable[[Problem, Monitor], None], window: int, memory: float) -> None:
    """Run a method on the coarse problem, without labels, and offer the lifted schedule, or best effort, with them."""
    problem = monitor.problem
    labelled = problem.n_units < problem.n_tasks and problem.memory != "peak"
    coarsening = fused(_without_labels(problem) if labelled else problem, monitor, window=window, memory=memory)
    inner = Monitor(coarsening.coarse, seed=monitor.seed, parent=monitor, objective=monitor.objective)
    decide(coarsening.coarse, inner)
    monitor.evaluated(inner.evaluations)
    solution = inner.solution(monitor.source)
    for message in solution.messages:
        monitor.note(message)
    schedule = solution.schedule if solution.best_effort is None else solution.best_effort.schedule
    if schedule is None:
        return
    lifted = coarsening.lift(schedule.decision)
    if not labelled:
        monitor.offer(lifted)
        return
    place = np.argsort(topological_order(coarsening.coarse))[coarsening.cluster]
    order = np.lexsort((problem.graph.rank, place))
    device = np.empty(problem.n_tasks, np.int64)
    device[lifted.task] = lifted.device
    first = order[np.unique(problem.unit[order], return_index=True)[1]]
    together = listed(problem, device[first][problem.unit], descending(order))
    if not offer_within(monitor, together) and together is not None:
        repaired = repair(problem, together)
        if repaired is not None:
            monitor.offer(repaired)


def _without_labels(problem: Problem) -> Problem:
    """Return the problem without co-location labels; each task has the devices that run a batch of all inputs of its label."""
    unable = unit_sums(problem, np.isinf(problem.whole_durations).astype(np.float64))[problem.unit] > 0
    unable &= ~unable.all(axis=1, keepdims=True)
    durations = np.where(unable[:, :, None], np.nan, stated(problem.usable_durations))
    return problem.replace(graph=problem.graph.replace(colocation=None), durations=durations)
