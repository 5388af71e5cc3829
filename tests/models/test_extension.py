"""A whole formulation as a user would write it, outside the package: less energy, a power cap, a pinned first layer.

`make lint` checks the types of this file as strictly as those of the package.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.modeling.expression import Expression
from hetsched.models import BatchedMakespan, Component, CongestionAware, Formulation, components, redundant
from hetsched.testing import brute_force, task_graphs
from hetsched.testing.profiles import examples

SOLVERS = ("scip", "highs", "cpsat")


@dataclass(frozen=True, eq=False)
class EnergyVariables:
    """Columns that a component outside the package provides to others."""

    made_by: ClassVar[str] = "Energy"

    joules: Expression


class Energy(Component):
    """Joules of the schedule, from the watts of each busy device, within a budget; provides `EnergyVariables`."""

    def __init__(self, watts: list[float], budget: float) -> None:
        self.watts, self.budget = np.array(watts), budget

    def add_to(self, f: Formulation) -> None:
        joules = (f.assign.duration * self.watts).sum() * (1 / f.second)
        f.provide(EnergyVariables(joules))
        f.model.add(joules <= self.budget, tag="energy")


class PowerCap(Component):
    """Limit the mean power of a device over the makespan in watts; the makespan is extended if necessary."""

    def __init__(self, device: int, watts: float, cap: float) -> None:
        self.device, self.watts, self.cap = device, watts, cap

    def add_to(self, f: Formulation) -> None:
        f.model.add(f.assign.duration[:, self.device].sum() * self.watts <= self.cap * f.objective.expression, tag="power")


class FirstLayerOn(Component):
    """Tasks without parents run on one device."""

    def __init__(self, device: int) -> None:
        self.device = device

    def add_to(self, f: Formulation) -> None:
        for task in first_layer(f.problem):
            f.model.add(f.assign[task, self.device] == 1, tag="first layer")


class Frugal(Formulation):
    """Some components of the package, and those defined above."""

    name = "frugal"

    def recipe(self) -> Iterator[Component]:
        yield components.Placement()
        yield components.SharedTiming()
        yield components.Precedence()
        yield components.NonOverlap()
        yield components.Makespan()
        yield redundant.LoadCuts()


class QuietLink(Component):
    """Nothing is sent from one device to another."""

    def __init__(self, sender: int, receiver: int) -> None:
        self.sender, self.receiver = sender, receiver

    def add_to(self, f: Formulation) -> None:
        f.model.add(f.flows.moving[:, self.sender, self.receiver] <= 0, tag="quiet")


def first_layer(problem: hs.Problem) -> list[int]:
    """Return the tasks without parents."""
    return np.flatnonzero(np.diff(problem.graph.pred_ptr) == 0).tolist()


WATTS, CAP = [1.0, 6.0], 3.0


@st.composite
def cases(draw: st.DrawFn) -> hs.Problem:
    """Draw a problem for two devices; the second is faster and uses more power."""
    graph = draw(task_graphs(n_tasks=st.integers(1, 4)))
    slow = draw(st.lists(st.integers(1, 9), min_size=graph.n_tasks, max_size=graph.n_tasks))
    fast = draw(st.lists(st.integers(1, 4), min_size=graph.n_tasks, max_size=graph.n_tasks))
    return hs.Problem(graph, hs.Cluster(["cpu", "gpu"], bandwidth=2.0), durations=np.stack([slow, fast], axis=1))


def best(problem: hs.Problem, budget: float) -> float:
    """Return the least C over all placements; inf if none keeps the budget."""
    lowest = math.inf
    durations = problem.durations[:, :, 0]
    for where in itertools.product(range(2), repeat=problem.n_tasks):
        chosen = np.arange(2) == np.array(where)[:, None]
        busy = (durations * chosen).sum(axis=0)
        if any(where[task] != 0 for task in first_layer(problem)) or busy @ WATTS > budget:
            continue
        try:
            fixed = brute_force(problem.replace(durations=np.where(chosen, durations, np.nan)))
        except hs.InvalidProblem:  # co-located tasks are on different devices
            continue
        assert fixed is not None
        lowest = min(lowest, max(fixed.makespan, busy[1] * WATTS[1] / CAP))
    return lowest


@pytest.mark.parametrize("solver", SOLVERS)
@examples(12)
@given(problem=cases(), share=st.sampled_from([0.5, 0.8, 1.2]))
def test_a_formulation_from_outside_finds_its_optimum(solver: str, problem: hs.Problem, share: float) -> None:
    durations = problem.durations[:, :, 0]
    budget = float(share * (durations[:, 0] * WATTS[0]).sum()) + 0.25
    frugal = Frugal(problem, upper=float(durations.sum() * 3 + 100))
    for own in (Energy(WATTS, budget), PowerCap(1, WATTS[1], CAP), FirstLayerOn(0)):
        frugal.add(own)
    outcome = frugal.model.solve(solver, time_limit=60)
    optimum = best(problem, budget)
    if math.isinf(optimum):
        assert outcome.proven == "infeasible"
        return
    assert outcome.values is not None
    assert outcome.objective / frugal.second == pytest.approx(optimum, rel=2e-6)
    schedule = hs.simulate(problem, frugal.decode(outcome.values))
    assert hs.verify(problem, schedule) == []
    assert schedule.busy_time @ WATTS <= budget * (1 + 1e-6)
    assert all(schedule.device_of(problem.graph.names[task]) == "cpu" for task in first_layer(problem))


@pytest.mark.parametrize("solver", SOLVERS)
@examples(6)
@given(problem=cases(), communication=st.sampled_from(["channel", "port"]))
def test_rows_of_the_user_on_transfers_between_batches(solver: str, problem: hs.Problem, communication: str) -> None:
    durations = problem.durations * np.array([1.0, 1.5])
    graph = hs.TaskGraph(problem.graph.names, problem.graph.edges, edge_bytes=1.0 + np.arange(problem.graph.n_edges))
    both, one = np.full((2, 2), 2.0), np.array([[0.0, 0.0], [2.0, 0.0]])
    batches = {"durations": durations, "inputs": 2, "batch_sizes": [1, 2], "communication": communication}
    formulation = CongestionAware(hs.Problem(graph, hs.Cluster(["cpu", "gpu"], bandwidth=both), **batches), upper=200.0)
    formulation.add(QuietLink(0, 1))
    outcome = formulation.model.solve(solver, time_limit=60)
    optimum = brute_force(hs.Problem(graph, hs.Cluster(["cpu", "gpu"], bandwidth=one), **batches))
    assert optimum is not None
    assert outcome.objective / formulation.second == pytest.approx(optimum.makespan, rel=2e-6)


def test_an_objective_of_the_user_weighs_time_and_energy() -> None:
    problem = hs.Problem(hs.TaskGraph(["a", "b"]), hs.Cluster(["cpu", "gpu"], bandwidth=1.0), durations=[[4.0, 2.0], [4.0, 2.0]])
    values = {}
    for weight in (0.0, 10.0):
        formulation = BatchedMakespan(problem, upper=20.0)
        formulation.add(Energy(WATTS, math.inf))
        seconds = formulation.objective.expression * (1 / formulation.second)
        formulation.model.minimise(seconds + weight * formulation.variables(EnergyVariables).joules)
        solution = formulation.solve("scip")
        assert solution.schedule is not None
        values[weight] = solution.schedule.makespan, float(solution.schedule.busy_time @ WATTS)
    assert values == {0.0: (4.0, pytest.approx(values[0.0][1])), 10.0: (8.0, 8.0)}


def test_a_missing_component_is_named_in_the_error() -> None:
    problem = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["cpu"], bandwidth=1.0), durations=[[1.0]])
    with pytest.raises(hs.InvalidModel, match="NonOverlap needs TimeVariables; put SharedTiming or Timing before it"):
        BatchedMakespan(problem, upper=2.0, components=[components.Placement(), components.NonOverlap()])
    plain = BatchedMakespan(problem, upper=2.0)
    with pytest.raises(hs.InvalidModel, match="there are AssignmentVariables already; leave out one of the components"):
        plain.provide(plain.assign)
    with pytest.raises(hs.InvalidModel, match="needs EnergyVariables; put Energy before it"):
        plain.variables(EnergyVariables)
    with pytest.raises(hs.UnsupportedFeature, match="symmetry='time' and components are both given; add hs.models.redundant"):
        BatchedMakespan(problem, symmetry="time", components=[components.Placement()])
