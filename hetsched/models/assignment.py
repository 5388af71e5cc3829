"""Where tasks go if only the load of devices counts."""

from __future__ import annotations

from collections.abc import Iterator

from hetsched.analysis import model_size
from hetsched.arguments import checked
from hetsched.models.components import Paths, Placement, StaticMemory, fill_objective
from hetsched.models.formulation import Component, Formulation
from hetsched.models.redundant import symmetry_order
from hetsched.models.variables import Objective, Values
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule


class BusiestDevice(Component):
    """C is at least the time that each device is busy; what runs when is left open."""

    def add_to(self, f: Formulation) -> None:
        least = f.model.time("C", (), lower=0.0, upper=f.ticks)
        f.model.add(least >= f.assign.duration.sum(axis=0), tag="load")
        f.minimise(Objective(least, "makespan", f.second, lambda _, schedule: float(schedule.busy_time.max(initial=0.0))))

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        fill_objective(f, schedule, values)


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

    def recipe(self) -> Iterator[Component]:
        yield Placement()
        yield Paths()
        yield StaticMemory()
        yield BusiestDevice()
        yield from symmetry_order(self.symmetry)
