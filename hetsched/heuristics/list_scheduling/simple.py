"""Baselines without lookahead: best single device, MET, MCT, OLB, greedy, packing. The option `contention` is that of `plans`."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray, IntArray, row_starts
from hetsched.heuristics.list_scheduling.offers import descending, offer_in_order
from hetsched.heuristics.repair import packed
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import ALL, Auto, Kind, Monitor, Role, Supports, always, method


@method(
    "best-device",
    summary="everything on the single device that is fastest for it",
    source="baseline of every paper; with batching='free' the batch sizes are chosen by dynamic programming",
    kind=Kind.CONSTRUCTIVE,
    objectives=ALL,
    roles={Role.START: always, Role.UPPER: always, Role.BASELINE: always},
    turn=10,
    auto=Auto(),
)
def best_device(problem: Problem, monitor: Monitor) -> None:
    """Offer all tasks on one device, from the fastest to the slowest, until an offer fits the memory."""
    cost, choice = _cheapest_batches(problem)
    total = np.where(problem.eligible.all(axis=0), cost.sum(axis=0), np.inf)
    if np.isinf(total).all():
        monitor.note("no single device can run every task on all inputs")
    for k in np.argsort(total, kind="stable"):
        if np.isinf(total[k]) or np.isfinite(monitor.offer(_on_one_device(problem, int(k), choice))):
            return


def _cheapest_batches(problem: Problem) -> tuple[FloatArray, IntArray | None]:
    """Return the least seconds for all inputs of each task on each device, [n, K], and the batch sizes that take them.

    The sizes, [L + 1, n, K], hold the last batch size of the fastest partition of q inputs; None stands for one batch of all.
    """
    if problem.batching == "once" or problem.inputs == 1:
        return problem.whole_durations, None
    durations, shape = problem.usable_durations, (problem.n_tasks, problem.n_devices)
    cost = np.full((problem.inputs + 1, *shape), np.inf)
    choice = np.zeros((problem.inputs + 1, *shape), np.int64)
    cost[0] = 0.0
    for q in range(1, problem.inputs + 1):
        for place, size in enumerate(problem.batch_sizes.tolist()):
            if size <= q:
                through = cost[q - size] + durations[:, :, place]
                better = through < cost[q]
                cost[q] = np.where(better, through, cost[q])
                choice[q] = np.where(better, size, choice[q])
    return cost[-1], choice


def _on_one_device(problem: Problem, k: int, choice: IntArray | None) -> Decision:
    order = problem.graph.topological_order
    if choice is None:
        return Decision.whole(problem, np.full(problem.n_tasks, k), order)
    task: list[int] = []
    sizes: list[int] = []
    for i in order.tolist():
        left = problem.inputs
        while left:
            task.append(i)
            sizes.append(int(choice[left, i, k]))
            left -= sizes[-1]
    return Decision(task, np.full(len(task), k), row_starts(sizes), np.tile(np.arange(problem.inputs), problem.n_tasks))


def _by_index(problem: Problem) -> FloatArray:
    """Return equal priorities, [n], under which the ready task of lowest index is first."""
    return np.zeros(problem.n_tasks)


@method(
    "met",
    summary="minimum execution time: each task on its fastest device, whatever the queue there",
    source="Armstrong et al. 1998; Braun et al. 2001",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=120,
    auto=Auto(),
)
def met(problem: Problem, monitor: Monitor, *, contention: bool | None = None) -> None:
    """Place ready tasks in index order, each on its fastest device."""
    offer_in_order(monitor, _by_index(problem), criterion="duration", insertion=False, contention=contention)


@method(
    "mct",
    summary="minimum completion time: ready tasks in index order, each where it finishes first",
    source="Armstrong et al. 1998; Braun et al. 2001",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=130,
    auto=Auto(),
)
def mct(problem: Problem, monitor: Monitor, *, contention: bool | None = None) -> None:
    """Append ready tasks in index order, each to the device of its earliest finish."""
    offer_in_order(monitor, _by_index(problem), criterion="finish", insertion=False, contention=contention)


@method(
    "olb",
    summary="opportunistic load balancing: each task on the device that is free first",
    source="Armstrong et al. 1998; Braun et al. 2001",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=140,
    auto=Auto(),
)
def olb(problem: Problem, monitor: Monitor, *, contention: bool | None = None) -> None:
    """Place ready tasks in index order, each on the device that becomes idle first."""
    offer_in_order(monitor, _by_index(problem), criterion="available", insertion=False, contention=contention)


@method(
    "greedy",
    summary="breadth-first topological order, each task where it finishes first",
    source="the greedy baseline of DiviML (Ghannane and Abdelfattah), in our reading",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=110,
    auto=Auto(),
)
def greedy(problem: Problem, monitor: Monitor, *, contention: bool | None = None) -> None:
    """Append tasks in breadth-first topological order, each to the device of its earliest finish."""
    offer_in_order(monitor, descending(problem.graph.topological_order), criterion="finish", insertion=False, contention=contention)


@method(
    "packing",
    summary="each task on its fastest device as far as memory allows, else the largest first where most is left",
    source="largest first: Graham 1969; ours besides",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.PACKING: always},
    supports=Supports(inputs="whole"),
    turn=174,
)
def packing(problem: Problem, monitor: Monitor) -> None:
    """Offer an assignment by memory, tasks in topological order: a start where list schedulers cannot place all tasks."""
    decision = packed(problem)
    if decision is None:
        monitor.note("found no place for all tasks, which does not say that there is none")
    else:
        monitor.offer(decision)
