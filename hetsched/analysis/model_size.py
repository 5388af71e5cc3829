"""Estimates of the size of the model of a problem, before it is built."""

from __future__ import annotations

from hetsched.problem.problem import Problem
from hetsched.search import When

TINY = 60
"""Columns of a model that CP-SAT solves to optimality within a fraction of a second."""
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


def columns_up_to(n: int) -> When:
    """Return the condition that a formulation of the makespan has at most about `n` columns."""
    return lambda problem: columns(problem) <= n
