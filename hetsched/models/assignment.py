"""Where tasks go if only the load of devices counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.analysis import model_size
from hetsched.arguments import checked
from hetsched.arrays import FloatArray, row_starts
from hetsched.errors import OutOfTime
from hetsched.models import components as parts
from hetsched.models.formulation import Component, Formulation, fill_in
from hetsched.problem.graph import named
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.stopping import NEVER, Deadline


class BusiestDevice:
    """C is at least the time that each device is busy; what runs when is left open."""

    def add_to(self, f: Any) -> None:
        f.makespan = f.model.time("C", (), lower=0.0, upper=f.ticks)
        f.model.add(f.makespan >= f.duration.sum(axis=0), tag="load")
        f.model.minimise(f.makespan)

    def fill(self, f: Any, schedule: Schedule, values: Any) -> None:
        fill_in(values, f.makespan, schedule.busy_time.max(initial=0.0) * f.second)


class Assignment(Formulation):
    """The least load of the busiest device, within memory: a relaxation of every other formulation.

    No precedence, no order, of transfers only whether there is a path; so it stays solvable for thousands of tasks. Its optimum is a
    bound on the makespan; the devices it chooses, in topological order, make a schedule. A bound for
    several inputs holds for ``batching="once"``.
    """

    name = "assignment"

    @classmethod
    @checked
    def columns(cls, problem: Problem) -> int:
        return model_size.assignments(problem)

    def parts(self) -> list[Component]:
        return [parts.Placement(), parts.Paths(), parts.StaticMemory(), BusiestDevice()]

    @checked
    def decode(self, values: FloatArray) -> Decision:
        """Return the tasks on their devices in topological order."""
        x = self.x.value(values) > 0.5  # type: ignore[attr-defined]
        order = self.problem.graph.topological_order
        place, device = np.nonzero(x.any(axis=2)[order])
        task = order[place]
        items = [np.flatnonzero(x[i, u]) for i, u in zip(task.tolist(), device.tolist(), strict=True)]
        pointers = row_starts([len(each) for each in items])
        return Decision(task, device, pointers, np.concatenate([np.zeros(0, np.int64), *items]))


class Excess:
    """Bytes beyond a device's memory, as few as can be: ``excess[k]`` as shares of what all tasks need."""

    def add_to(self, f: Any) -> None:
        problem = f.problem
        weight, activation = problem.graph.weight_bytes, problem.static_bytes[:, 1]
        self.all = max(float(weight.sum() + problem.inputs * activation.sum()), 1e-300)
        needed = (f.on * (weight / self.all)[:, None]).sum(axis=0) + (f.x.sum(axis=2) * (activation / self.all)[:, None]).sum(axis=0)
        limited = np.flatnonzero(np.isfinite(problem.cluster.memory_bytes))
        f.excess = f.model.continuous("excess", problem.n_devices)
        f.model.add(needed[limited] - f.excess[limited] <= problem.cluster.memory_bytes[limited] / self.all, tag="(6)")
        f.model.minimise(f.excess.sum())


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
        said = Assignment(problem, faithful=True, upper=math.inf, components=[parts.Placement(), excess], deadline=end)
    except OutOfTime:
        return ""
    outcome = said.model.solve(solver, deadline=end)
    if outcome.values is None or outcome.bound * excess.all <= 1e-6 * excess.all:
        return ""
    names, cluster = problem.graph.names, problem.cluster
    runs = said.x.value(outcome.values).max(axis=2) > 0.5  # type: ignore[attr-defined]
    over = said.excess.value(outcome.values) * excess.all  # type: ignore[attr-defined]
    places = [
        f"{over[k]:.6g} on {cluster.names[k]!r} ({cluster.memory_bytes[k]:.6g} there) with {named(np.flatnonzero(runs[:, k]), names)}"
        for k in np.flatnonzero(over > 1e-9 * excess.all).tolist()
    ]
    return (
        f"memory: at least {outcome.bound * excess.all:.6g} bytes are missing, however the tasks are placed; "
        f"{'placed best' if outcome.proven == 'optimal' else 'for instance'}, {' and '.join(places)}"
    )
