"""The assignment of tasks to devices that minimises the load of the busiest device."""

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
    """C is at least the time that each device is busy; there is no order of tasks."""

    def add_to(self, f: Formulation) -> None:
        makespan = f.model.time("C", (), lower=0.0, upper=f.ticks)
        f.model.add(makespan >= f.assign.duration.sum(axis=0), tag="load")
        f.minimise(Objective(makespan, "makespan", f.second, lambda _, schedule: float(schedule.busy_time.max(initial=0.0))))

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        fill_objective(f, schedule, values)


class Assignment(Formulation):
    """The least load of the busiest device, within memory: a relaxation of every other formulation.

    It has no precedence and no order, and of transfers only the existence of paths, so that it can be solved for thousands of
    tasks. Its optimum is a bound on the makespan; its devices, with tasks in topological order, give a schedule. With
    several inputs the bound holds for ``batching="once"``.
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
