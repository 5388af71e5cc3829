"""Why memory alone allows no schedule: how many bytes are missing at the least, where, and for which tasks."""

from __future__ import annotations

import math

import numpy as np

from hetsched.arguments import checked
from hetsched.errors import OutOfTime
from hetsched.modeling.expression import Expression
from hetsched.models.assignment import Assignment
from hetsched.models.components import Placement
from hetsched.models.formulation import Component, Formulation
from hetsched.problem.graph import named
from hetsched.problem.problem import Problem
from hetsched.stopping import NEVER, Deadline


class Excess(Component):
    """Bytes beyond a device's memory, as few as can be."""

    total: float
    """Bytes that all tasks need."""
    shares: Expression
    """[K]: bytes beyond, as shares of `total`."""

    def add_to(self, f: Formulation) -> None:
        problem = f.problem
        weight, activation = problem.graph.weight_bytes, problem.static_bytes[:, 1]
        self.total = max(float(weight.sum() + problem.inputs * activation.sum()), 1e-300)
        weight, activation = weight[:, None] / self.total, activation[:, None] / self.total
        needed = (f.assign.on * weight).sum(axis=0) + (f.assign.x.sum(axis=2) * activation).sum(axis=0)
        limited = np.flatnonzero(np.isfinite(problem.cluster.memory_bytes))
        self.shares = f.model.continuous("excess", problem.n_devices)
        f.model.add(needed[limited] - self.shares[limited] <= problem.cluster.memory_bytes[limited] / self.total, tag="(6)")
        f.model.minimise(self.shares.sum())


SECONDS = 5.0
"""That explaining missing memory may take."""
LARGEST = 5000
"""Pairs of a unit and a device, up to which missing memory is explained."""


@checked
def shortage(problem: Problem, *, solver: str = "scip", deadline: Deadline = NEVER) -> str:
    """Return why memory alone allows no schedule: how many bytes are missing at the least, where, and for which tasks.

    An empty string if it allows one, or if that is not known by the deadline or within `SECONDS`, or is not asked for the
    problem's size. Counts what ``memory="static"`` does.
    """
    large = problem.n_units * problem.n_devices > LARGEST
    if large or problem.memory != "static" or np.isinf(problem.cluster.memory_bytes).all():
        return ""
    excess = Excess()
    end = Deadline.after(SECONDS, deadline.clock).earlier(deadline)
    try:
        formulation = Assignment(problem, faithful=True, upper=math.inf, components=[Placement(), excess], deadline=end)
    except OutOfTime:
        return ""
    outcome = formulation.model.solve(solver, deadline=end)
    if outcome.values is None or outcome.bound * excess.total <= 1e-6 * excess.total:
        return ""
    names, cluster = problem.graph.names, problem.cluster
    runs = formulation.assign.x.value(outcome.values).max(axis=2) > 0.5
    over = excess.shares.value(outcome.values) * excess.total
    places = [
        f"{over[k]:.6g} on {cluster.names[k]!r} ({cluster.memory_bytes[k]:.6g} there) with {named(np.flatnonzero(runs[:, k]), names)}"
        for k in np.flatnonzero(over > 1e-9 * excess.total).tolist()
    ]
    return (
        f"memory: at least {outcome.bound * excess.total:.6g} bytes are missing, however the tasks are placed; "
        f"{'placed best' if outcome.proven == 'optimal' else 'for instance'}, {' and '.join(places)}"
    )
