"""Propagators: what they exclude is excluded by the rows, and solvers that call them find the same optima."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.modeling import Model
from hetsched.modeling.backends import backend
from hetsched.modeling.program import Propagator
from hetsched.models import BatchedMakespan
from hetsched.problem.links import UNCONTENDED
from hetsched.testing import brute_force, decisions, problems
from hetsched.testing.profiles import examples

few = examples(25)
small = problems(memory="static", inputs=1, n_tasks=st.integers(1, 5), communication=st.sampled_from(UNCONTENDED))


def propagator(formulation: BatchedMakespan) -> Propagator:
    (only,) = formulation.model.program.propagators
    return only


@few
@given(problem=small, data=st.data())
def test_no_schedule_within_the_bounds_of_a_node_is_excluded(problem: hs.Problem, data: st.DataObject) -> None:
    schedule = hs.simulate(problem, data.draw(decisions(problem)))
    assume(not hs.verify(problem, schedule))  # the memory may not suffice
    formulation = BatchedMakespan(problem, upper=1.5 * schedule.makespan or 1.0)
    task = propagator(formulation)
    values = formulation.encode(schedule)[task.columns]
    program = formulation.model.program
    # Each bound is that of the model, or as near to the schedule's value as a branching could bring it.
    lower, upper = program.lower[task.columns], program.upper[task.columns]
    tight = np.array(data.draw(st.lists(st.booleans(), min_size=2 * len(values), max_size=2 * len(values)))).reshape(2, -1)
    lower, upper = np.where(tight[0], values, lower), np.where(tight[1], values, upper)
    before = lower.copy(), upper.copy()
    choice = task.tighten(lower, upper)
    assert choice is not None
    assert (lower <= values + 1e-5).all()
    assert (values - 1e-5 <= upper).all()
    assert (lower >= before[0]).all()
    assert (upper <= before[1]).all()
    assert choice == -1 or lower[choice] + 0.5 < upper[choice]


@few
@given(problem=small)
def test_a_schedule_as_long_as_the_upper_bound_is_found_without_a_start(problem: hs.Problem) -> None:
    optimum = brute_force(problem)
    if optimum is None or optimum.makespan == 0:
        return
    formulation = BatchedMakespan(problem, upper=optimum.makespan)
    outcome = formulation.model.solve(backend("scip"))
    assert outcome.proven == "optimal"
    assert outcome.objective / formulation.second == pytest.approx(optimum.makespan, rel=1e-6)


def test_two_contradicting_devices_are_refuted() -> None:
    """A chain of two tasks that take 1 s on one device, but 1 + 5 + 1 s on two, within 3 s."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 5.0)])
    problem = hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=1.0), durations=np.ones((2, 2)))
    formulation = BatchedMakespan(problem, upper=3.0)
    task, program = propagator(formulation), formulation.model.program
    lower, upper = program.lower[task.columns], program.upper[task.columns]
    upper[0] = 0.0
    assert task.tighten(lower, upper) is not None
    assert upper[:4].tolist() == [0.0, 1.0, 0.0, 1.0], "b follows a to v"
    assert lower[-1] / formulation.second == pytest.approx(2.0)
    upper[3] = 0.0
    assert task.tighten(lower, upper) is None


def knapsack(tighten: object, *, columns: int = 3) -> Model:
    model = Model()
    x = model.binary("x", 3)
    model.add(np.array([5, 4, 3]) @ x <= 8, tag="weight")
    model.propagate(x[:columns], tighten, tag="some")  # type: ignore[arg-type]
    model.maximise(np.array([10, 7, 6]) @ x)
    return model


def stay(lower: np.ndarray, upper: np.ndarray) -> int:
    return -1


def test_backends_without_propagators_ignore_them_and_so_do_all_without_cuts() -> None:
    def never(lower: np.ndarray, upper: np.ndarray) -> int:
        raise AssertionError("called")

    model = knapsack(never)
    assert model.solve(backend("highs")).objective == 16
    assert model.solve(backend("scip"), cuts=False).objective == 16


def test_an_error_of_a_propagator_stops_the_solve_and_is_raised() -> None:
    def broken(lower: np.ndarray, upper: np.ndarray) -> int:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        hard(broken).solve(backend("scip"))


def hard(tighten: object) -> Model:
    """Return a model that presolving does not solve."""
    rng = np.random.default_rng(0)
    model = Model()
    x = model.binary("x", 40)
    for _ in range(5):
        model.add(rng.integers(10, 99, 40) @ x <= 900)
    model.propagate(x, tighten)  # type: ignore[arg-type]
    model.maximise(rng.integers(10, 99, 40) @ x)
    return model


def test_a_propagator_that_is_added_is_called_by_a_backend_that_has_kept_the_model() -> None:
    solver, calls = backend("scip"), []
    model = hard(stay)
    first = model.solve(solver, options={"limits/totalnodes": 20}).objective
    model.propagate(model.binary("y", 1), lambda lower, upper: calls.append(1) or -1)
    assert first > 0
    model.solve(solver, options={"limits/totalnodes": 20})
    assert calls


def test_a_function_that_cannot_be_sent_to_another_process_is_named() -> None:
    with pytest.raises(hs.UnsupportedFeature, match="the function of the propagator 'some' cannot be sent to the process of scip"):
        knapsack(lambda lower, upper: -1).solve("scip")


def test_a_function_of_a_module_is_sent_to_another_process() -> None:
    assert knapsack(stay).solve("scip").objective == 16


def test_a_column_is_named_once() -> None:
    model = Model()
    x = model.binary("x", 2)
    with pytest.raises(hs.InvalidModel, match="names a column twice; name each once"):
        model.propagate(x[np.array([0, 0])], stay)
