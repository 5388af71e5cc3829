"""The exact model of the period and max-load objectives: assignment of tasks to devices, without times."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hetsched.analysis import model_size
from hetsched.analysis.symmetry import exchanges
from hetsched.arguments import checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import UnsupportedFeature
from hetsched.modeling.expression import Expression, stack
from hetsched.models.assignment import Assignment
from hetsched.models.components import (
    Paths,
    Placement,
    StaticMemory,
    add_flows,
    fill_flows,
    fill_objective,
    shared_resources,
    transfer_ticks,
)
from hetsched.models.formulation import Component, Formulation
from hetsched.models.redundant import symmetry_order
from hetsched.models.variables import Objective, Values
from hetsched.problem.problem import Problem
from hetsched.schedule.objectives import find_objective, host_times
from hetsched.schedule.schedule import Schedule
from hetsched.search import Supports
from hetsched.stopping import NEVER, Deadline

LARGEST = 1e12
"""Upper limit on coefficients of rows in which the total work is at least 1000; larger ones only cause numerical trouble."""


@dataclass(frozen=True)
class LoadScale:
    """The scale of loads: with slow devices the model's unit of time is too coarse for them."""

    made_by: ClassVar[str] = "Load"

    factor: float
    """Units of the objective per unit of the model's time."""


def _coefficients(f: Formulation, ticks: FloatArray) -> FloatArray:
    """Return times of the model as coefficients of the objective's rows; values above `LARGEST` are reduced, which keeps bounds valid."""
    return np.minimum(ticks * f.variables(LoadScale).factor, LARGEST)


class Load(Component):
    """Rows: the objective is at least the computing time of each device."""

    def __init__(self, objective: str) -> None:
        self.objective = objective

    def add_to(self, f: Formulation) -> None:
        work = np.where(f.possible, f.assign.seconds, np.inf).min(axis=1, initial=np.inf)
        total = work[np.isfinite(work)].sum()
        factor = max(1.0, 1000.0 / total) if total > 0 else 1.0
        f.provide(LoadScale(factor))
        load = f.model.time("load", (), lower=0.0)
        objective = Objective(load, self.objective, f.second * factor, find_objective(self.objective))
        f.model.add(load >= (f.assign.on * _coefficients(f, f.assign.seconds)).sum(axis=0), tag="load")
        f.minimise(objective)

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        fill_objective(f, schedule, values)


class LinkLoad(Component):
    """Rows: the objective is at least the busy time of each resource of links."""

    flows: tuple[Expression, IntArray] | None = None
    """The columns of `add_flows` and their edges."""

    def add_to(self, f: Formulation) -> None:
        problem, load = f.problem, f.objective.expression
        times = transfer_ticks(f)
        finite = np.where(np.isfinite(times), times, 0.0)
        apart = problem.unit[problem.graph.source] != problem.unit[problem.graph.target]
        edges = np.flatnonzero(apart & (finite > 0).any(axis=(1, 2)))
        if not len(edges):
            return
        pair = add_flows(f, "pair", edges, times[edges])
        self.flows = pair, edges
        busy = (pair * _coefficients(f, finite[edges])).sum(axis=0)
        groups = shared_resources(problem.links)
        if groups is None:
            f.model.add(load >= busy, tag="channel")
        for name, group in [*zip(("sending", "receiving"), groups or (), strict=False)][::-1]:
            f.model.add(load >= stack([(busy * held).sum() for held in group]), tag=name)

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        if self.flows is not None:
            fill_flows(f, *self.flows, values)


class HostLoad(Component):
    """Rows: the objective is at least the computing time of each device plus that of moving each tensor to or from the host once."""

    source: IntArray
    target: IntArray
    """Ends of the edges between co-location units."""
    tensors: IntArray
    """[T]: the tasks that are sources of these edges."""
    moves: tuple[tuple[Expression, int], ...] = ()
    """[T, K] columns: whether a tensor enters (sign 1) or leaves (sign -1) a device."""

    def add_to(self, f: Formulation) -> None:
        problem = f.problem
        graph, size, on = problem.graph, problem.n_devices, f.assign.on
        enter, leave = (np.asarray(seconds) * f.second for seconds in host_times(problem))
        crossing = np.flatnonzero(problem.unit[graph.source] != problem.unit[graph.target])
        self.source, self.target = graph.source[crossing], graph.target[crossing]
        self.tensors, place = np.unique(self.source, return_inverse=True)
        place = place.reshape(-1)
        busy = (on * _coefficients(f, f.assign.seconds)).sum(axis=0)
        for name, seconds, sign in (("enters", enter[self.tensors], 1), ("leaves", leave[self.tensors], -1)):
            finite = np.isfinite(seconds)
            columns = f.model.continuous(name, (len(self.tensors), size), upper=finite * 1.0)
            self.moves = (*self.moves, (columns, sign))
            f.model.add(columns[place] >= (on[self.target] - on[self.source]) * sign, tag=name)
            busy = busy + (columns * _coefficients(f, np.where(finite, seconds, 0.0))).sum(axis=0)
        f.model.add(f.objective.expression >= busy, tag="load")

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        on = values[f.assign.on]
        place = np.searchsorted(self.tensors, self.source)
        for columns, sign in self.moves:
            moved = np.zeros(columns.shape)
            np.maximum.at(moved, place, np.maximum(0.0, sign * (on[self.target] - on[self.source])))
            values[columns] = moved


class SteadyState(Assignment):
    """Minimum period or max-load of a problem with one input and static memory.

    Loads of devices and links are defined as in `hetsched.schedule.objectives`, so the optimum of the model
    is the optimum of the problem under that objective. The max-load model is Tarnawski et al.'s (NeurIPS 2020) without
    contiguity.

    Parameters
    ----------
    problem : Problem
    objective : "period" or "max-load"
    deadline : Deadline, optional
        See `Formulation`.
    """

    name = "steady state"
    supports = Supports(inputs="one", memory=("static",))

    @checked
    def __init__(self, problem: Problem, *, objective: str = "period", deadline: Deadline = NEVER) -> None:
        find_objective(objective)
        if objective == "makespan":
            raise UnsupportedFeature("this model is for the objectives 'period' and 'max-load'; use formulate(problem) for the makespan")
        self.minimised = objective
        kinds = [device.kind for device in problem.cluster.devices]
        alike = all(kinds[int(a)] == kinds[int(b)] for pair in exchanges(problem) for a, b in zip(*pair, strict=True))
        super().__init__(problem, upper=math.inf, symmetry="tasks" if alike else None, deadline=deadline)

    @classmethod
    @checked
    def columns(cls, problem: Problem) -> int:
        return model_size.assignments(problem) + model_size.flows(problem)

    def recipe(self) -> Iterator[Component]:
        yield Placement()
        yield Paths()
        yield StaticMemory()
        yield Load(self.minimised)
        yield HostLoad() if self.minimised == "max-load" else LinkLoad()
        yield from symmetry_order(self.symmetry)
