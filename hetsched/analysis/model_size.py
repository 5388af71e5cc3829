"""Estimates of the size of the model of a problem, before it is built."""

from __future__ import annotations

import numpy as np

from hetsched.problem.problem import Problem
from hetsched.search import When

TINY = 60
"""Columns, without those for orders, of a problem that is not worth splitting."""
AT_ONCE = 700
"""Columns, with those for orders, of a model that CP-SAT solves to optimality within a second."""
LARGEST = 20_000
"""Columns above which `auto` uses no solver: building the model alone would take seconds and gigabytes."""


def assignments(problem: Problem) -> int:
    """Return the number of (task, device, input): the columns that assign inputs of tasks to devices."""
    return problem.n_tasks * problem.n_devices * problem.inputs


def flows(problem: Problem) -> int:
    """Return the number of (edge, source device, target device): the columns of transfers of one input."""
    return problem.graph.n_edges * problem.n_devices**2


def timed_flows(problem: Problem) -> int:
    """Return the number of columns of transfers that contend.

    Several inputs have one each for an edge and two devices, and so have the existence and the two times of the transfer.
    """
    return flows(problem) * (1 if problem.inputs == 1 else problem.inputs + 3)


def columns(problem: Problem) -> int:
    """Return the approximate number of columns of a formulation of the makespan, without those for orders of tasks."""
    return assignments(problem) + (timed_flows(problem) if problem.links.contended else 0)


def pairs(problem: Problem) -> tuple[int, int]:
    """Return the number of pairs of tasks that a device can run both of, and of those of them that it can run in either order.

    A pair counts once for each such device. Sets of tasks are whole numbers, with a bit for each.
    """
    graph = problem.graph
    runs, devices = np.unique(problem.eligible[graph.topological_order], axis=1, return_counts=True)
    sets = [int.from_bytes(np.packbits(column, bitorder="little").tobytes(), "little") for column in runs.T]
    parents = np.split(graph.rank[graph.pred], graph.pred_ptr[1:-1])
    ancestors: list[int] = []
    ordered = 0
    for place, task in enumerate(graph.topological_order):
        bit, before = 1 << place, 0
        for parent in parents[task].tolist():
            before |= ancestors[parent] | 1 << parent
        ancestors.append(before)
        for column, count in zip(sets, devices.tolist(), strict=True):
            if column & bit:
                ordered += count * (column & before).bit_count()
    sizes = (column.bit_count() for column in sets)
    together = sum(count * size * (size - 1) // 2 for size, count in zip(sizes, devices.tolist(), strict=True))
    return together, together - ordered


def with_orders(problem: Problem) -> int:
    """Return `columns` and about as many as there are for orders: for each device, one for two tasks that it can run in either order.

    Batches of different inputs have no order, so of several inputs all pairs count, once for each input.
    """
    together, free = pairs(problem)
    return columns(problem) + (free if problem.inputs == 1 else together * problem.inputs)


def columns_up_to(n: int) -> When:
    """Return the condition that a formulation of the makespan has at most about `n` columns."""
    return lambda problem: columns(problem) <= n
