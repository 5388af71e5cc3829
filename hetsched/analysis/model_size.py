"""About how large the model of a problem is, known before it is made."""

from __future__ import annotations

from hetsched.problem.problem import Problem


def assignments(problem: Problem) -> int:
    """Return the number of (task, device, input): the columns that say who runs what."""
    return problem.n_tasks * problem.n_devices * problem.inputs


def flows(problem: Problem) -> int:
    """Return the number of (edge, source device, target device): the columns that say where a tensor goes."""
    return problem.graph.n_edges * problem.n_devices**2


def columns(problem: Problem) -> int:
    """Return about how many columns a formulation of the makespan has, orders of tasks not counted."""
    return assignments(problem) + (flows(problem) if problem.links.contended else 0)
