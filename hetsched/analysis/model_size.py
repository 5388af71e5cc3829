"""About how large the model of a problem is, known before it is made."""

from __future__ import annotations

from hetsched.problem.problem import Problem
from hetsched.search import When

TINY = 60
"""Columns of a model that CP-SAT proves within a fraction of a second."""
LARGEST = 20_000
"""Columns beyond which `auto` hands no model to any solver: making it alone would take seconds and gigabytes."""


def assignments(problem: Problem) -> int:
    """Return the number of (task, device, input): the columns that say who runs what."""
    return problem.n_tasks * problem.n_devices * problem.inputs


def flows(problem: Problem) -> int:
    """Return the number of (edge, source device, target device): the columns that say where a tensor goes."""
    return problem.graph.n_edges * problem.n_devices**2


def columns(problem: Problem) -> int:
    """Return about how many columns a formulation of the makespan has, orders of tasks not counted."""
    return assignments(problem) + (flows(problem) if problem.links.contended else 0)


def columns_up_to(n: int) -> When:
    """Return the condition that a formulation of the makespan has at most about `n` columns."""
    return lambda problem: columns(problem) <= n
