"""Who runs what, when inputs stream through and only loads count: the exact model of the period."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.analysis import model_size
from hetsched.analysis.symmetry import exchanges
from hetsched.arguments import checked, one_of
from hetsched.arrays import FloatArray
from hetsched.errors import UnsupportedFeature
from hetsched.models import components as parts
from hetsched.models.assignment import Assignment
from hetsched.models.formulation import TOLERANCE, Component, fill_in
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.steady import find_objective, host_times
from hetsched.search import Monitor
from hetsched.solution import Bound
from hetsched.stopping import NEVER, Deadline

LARGEST = 1e12
"""Of coefficients, where the least work takes 1000 or more: beyond it only solvers make a difference."""


def scaled(f: Any, ticks: Any) -> Any:
    """Return times of the model as coefficients of the objective's rows; smaller ones than true leave a bound a bound."""
    return np.minimum(ticks * f.factor, LARGEST)


class Load:
    """The objective is at least the time that each device computes."""

    def add_to(self, f: Any) -> None:
        work = np.where(f.possible, f.seconds, np.inf).min(axis=1, initial=np.inf)
        total = work[np.isfinite(work)].sum()
        # In units of its own: slow devices make the time of the model coarse.
        f.factor = max(1.0, 1000.0 / total) if total > 0 else 1.0
        f.value = f.model.time("load", (), lower=0.0)
        f.model.add(f.value >= (f.on * scaled(f, f.seconds)).sum(axis=0), tag="load")
        f.model.minimise(f.value)

    def fill(self, f: Any, schedule: Schedule, values: Any) -> None:
        fill_in(values, f.value, find_objective(f.objective)(f.problem, schedule) * f.unit)


class LinkLoad:
    """The objective is at least the time that each channel, or port, is busy."""

    def add_to(self, f: Any) -> None:
        problem = f.problem
        times = parts.transfer_ticks(f)
        finite = np.where(np.isfinite(times), times, 0.0)
        apart = problem.unit[problem.graph.source] != problem.unit[problem.graph.target]
        self.edges = np.flatnonzero(apart & (finite > 0).any(axis=(1, 2)))
        if not len(self.edges):
            return
        self.pair = parts.flows(f, "pair", self.edges, times[self.edges])
        busy = (self.pair * scaled(f, finite[self.edges])).sum(axis=0)
        if problem.communication == "port":
            f.model.add(f.value >= busy.sum(axis=0), tag="receiving")
            f.model.add(f.value >= busy.sum(axis=1), tag="sending")
        else:
            f.model.add(f.value >= busy, tag="channel")

    def fill(self, f: Any, schedule: Schedule, values: Any) -> None:
        if len(self.edges):
            parts.fill_flows(f, self.pair, self.edges, values)


class HostLoad:
    """The objective is at least the time that each device computes and moves tensors to and from the host, once each."""

    def add_to(self, f: Any) -> None:
        problem = f.problem
        graph, size = problem.graph, problem.n_devices
        enter, leave = (np.asarray(each) * f.second for each in host_times(problem))
        crossing = np.flatnonzero(problem.unit[graph.source] != problem.unit[graph.target])
        self.source, self.target = graph.source[crossing], graph.target[crossing]
        self.tensors, place = np.unique(self.source, return_inverse=True)
        place = place.reshape(-1)
        moved = (f.on * scaled(f, f.seconds)).sum(axis=0)
        for name, seconds, sign in (("enters", enter[self.tensors], 1), ("leaves", leave[self.tensors], -1)):
            finite = np.isfinite(seconds)
            columns = f.model.continuous(name, (len(self.tensors), size), upper=finite * 1.0)
            setattr(self, name, columns)
            f.model.add(columns[place] >= (f.on[self.target] - f.on[self.source]) * sign, tag=name)
            moved = moved + (columns * scaled(f, np.where(finite, seconds, 0.0))).sum(axis=0)
        f.model.add(f.value >= moved, tag="load")

    def fill(self, f: Any, schedule: Schedule, values: Any) -> None:
        on = values[f.on.column].reshape(f.on.shape)
        place = np.searchsorted(self.tensors, self.source)
        for columns, sign in ((self.enters, 1), (self.leaves, -1)):  # type: ignore[attr-defined]
            known = np.zeros(columns.shape)
            np.maximum.at(known, place, np.maximum(0.0, sign * (on[self.target] - on[self.source])))
            fill_in(values, columns, known)


class SteadyState(Assignment):
    """The least period, or max-load, of a problem for one input, within static memory.

    Device and link loads are as in `hetsched.schedule.steady`, so the optimum is the optimum of the
    problem under that objective. The max-load model is Tarnawski et al.'s (NeurIPS 2020) without
    contiguity.

    Parameters
    ----------
    problem : Problem
    objective : "period" or "max-load"
    deadline : Deadline, optional
        See `Formulation`.
    """

    name = "steady state"

    @checked
    def __init__(self, problem: Problem, *, objective: str = "period", deadline: Deadline = NEVER) -> None:
        find_objective(objective)
        if objective == "makespan":
            raise UnsupportedFeature("this model is of the objectives 'period' and 'max-load'; use formulate(problem) for the makespan")
        self.objective = objective
        kinds = [device.kind for device in problem.cluster.devices]
        alike = all(kinds[int(a)] == kinds[int(b)] for pair in exchanges(problem) for a, b in zip(*pair, strict=True))
        super().__init__(problem, upper=math.inf, symmetry="tasks" if alike else None, deadline=deadline)

    @classmethod
    @checked
    def check(cls, problem: Problem) -> None:
        super().check(problem)
        if problem.inputs > 1:
            raise UnsupportedFeature(f"{cls.name} is a model for one input, not {problem.inputs}; use method 'load-search'")

    @classmethod
    @checked
    def columns(cls, problem: Problem) -> int:
        return model_size.assignments(problem) + model_size.flows(problem)

    def parts(self) -> list[Component]:
        links = HostLoad() if self.objective == "max-load" else LinkLoad()
        return [parts.Placement(), parts.Paths(), parts.StaticMemory(), Load(), links]

    @property
    def unit(self) -> float:
        """What the objective of the model counts to the second."""
        return float(self.second * self.factor)  # type: ignore[attr-defined]

    @property
    def is_makespan(self) -> bool:
        return self.model.objective is self.value  # type: ignore[attr-defined]

    @checked(solver=one_of(*TOLERANCE))
    def raise_bound(self, monitor: Monitor, value: float, solver: str) -> None:
        """Raise the bound by a solver's; every schedule is among those the model knows, so its proof holds for all."""
        name = f"{self.name} by {solver}"
        if math.isinf(value) and value > 0:
            monitor.raise_bound(Bound(value, name, "proven: no assignment keeps every rule", self.objective))
        elif value > 0:
            least = value / self.unit * (1 - TOLERANCE[solver])
            monitor.raise_bound(Bound(least, name, f"dual bound of {self.model!r}", self.objective))

    @checked
    def offer(self, monitor: Monitor, values: FloatArray) -> None:
        monitor.offer(self.decode(values))
