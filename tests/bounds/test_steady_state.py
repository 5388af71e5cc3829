"""Bounds on loads are at most the load of every assignment, and differ from bounds on the makespan."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.bounds import best
from hetsched.schedule.objectives import period
from hetsched.testing import strategies
from hetsched.testing.brute_force import _assignments, _Count
from hetsched.testing.profiles import examples
from tests.enumerated import objectives, optimum


@pytest.mark.slow
@examples(80)
@given(drawn=objectives(tight=True))
def test_bounds_are_at_most_the_optimum(drawn: tuple[hs.Problem, str]) -> None:
    problem, objective = drawn
    smallest = optimum(problem, objective)
    for bound in best.every(problem, objective=objective):
        assert bound.objective == objective
        assert bound.value <= smallest * (1 + 1e-12), bound


@examples(40)
@given(problem=strategies.problems(inputs=st.integers(2, 3), n_tasks=st.integers(1, 3), n_devices=2, memory="static"))
def test_bounds_are_at_most_the_load_of_every_batching(problem: hs.Problem) -> None:
    bounds = list(best.every(problem, objective="period"))
    for assignment in _assignments(problem, _Count(20_000)):
        assert max(bound.value for bound in bounds) <= busiest(problem, assignment) * (1 + 1e-12)


def busiest(problem: hs.Problem, assignment: object) -> float:
    """Return the busy time per input of the busiest device, batch by batch."""
    sizes = problem.batch_sizes.tolist()
    load = [0.0] * problem.n_devices
    for i, row in enumerate(assignment):
        for label in set(row):
            load[label[0]] += float(problem.durations[i, label[0], sizes.index(row.count(label))])
    return max(load) / problem.inputs


@examples(60)
@given(data=st.data())
def test_the_period_of_any_schedule_is_above_the_bounds(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    schedule = hs.simulate(problem, data.draw(strategies.decisions(problem)))
    assume(not hs.verify(problem, schedule))
    assert max(bound.value for bound in best.every(problem, objective="period")) <= period(problem, schedule) * (1 + 1e-9)


def test_bounds_on_the_makespan_are_not_bounds_on_the_period() -> None:
    chain = hs.TaskGraph(["a", "b"], [("a", "b", 0.0)])
    problem = hs.Problem(chain, hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[1, 1], [1, 1]])
    assert hs.bound(problem).value == 2
    for method in ("heft", "milp", "assignment", "load-search", "bounds", "auto"):
        solution = hs.solve(problem, method, objective="period", time_limit=60)
        assert solution.bound == pytest.approx(1.0)
        assert solution.proof.objective == "period"
    solution = hs.solve(problem, "load-search", objective="period")
    assert (solution.status, solution.value, solution.makespan) == ("optimal", 1.0, 2.0)


def test_memory_that_is_not_there_is_a_proof_under_every_objective() -> None:
    problem = hs.Problem(hs.TaskGraph(["a"], weight_bytes=5), hs.Cluster([hs.Device("x", memory_bytes=4)]), durations=[[1]])
    solution = hs.solve(problem, objective="period")
    assert solution.status == "infeasible"
    assert math.isinf(solution.value)
    assert math.isinf(next(best.quick(problem)).value)
