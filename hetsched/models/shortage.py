"""Explanation of insufficient memory: the least number of missing bytes, with devices and tasks."""

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
    """The least number of bytes over the memory of devices."""

    total: float
    """Bytes needed by all tasks."""
    shares: Expression
    """[K]: bytes over the memory, as shares of `total`."""

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
"""Time limit of the explanation."""
LARGEST = 5000
"""The most pairs of a unit and a device for which there is an explanation."""


@checked
def shortage(problem: Problem, *, solver: str = "scip", deadline: Deadline = NEVER) -> str:
    """Return why memory alone excludes every schedule: the least number of missing bytes, with devices and tasks.

    The result is empty if a placement fits, if the answer is not known by the deadline or within `SECONDS`, or if the
    problem is too large. Bytes are counted as for ``memory="static"``.
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
