"""The bound by the mean of all inputs: never above the optimum of several inputs, and more than work and paths by themselves."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.bounds.combinatorial import critical_path, load
from hetsched.bounds.mean_input import batched, few_batches, mean_input, whole_batches
from hetsched.errors import UnsupportedFeature
from hetsched.stopping import Deadline
from hetsched.testing import brute_force, strategies
from hetsched.testing.profiles import examples

SEVERAL = strategies.problems(inputs=st.integers(2, 4), n_devices=st.integers(1, 3))


def optimum(problem: hs.Problem) -> float:
    """Return the least makespan, inf without a schedule; problems that are too large for the enumeration are not examples."""
    try:
        found = brute_force(problem, limit=20_000)
    except UnsupportedFeature:
        assume(False)
    return math.inf if found is None else found.makespan


def chain(*, batching: str = "once") -> hs.Problem:
    """Return a chain of three tasks and two inputs on equal devices; a batch of both takes 1.5 times as long as one of one."""
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 0.0), ("b", "c", 0.0)])
    cluster = hs.Cluster(["x", "y"], bandwidth=1.0)
    return hs.Problem(graph, cluster, durations=[[[2.0, 3.0]] * 2] * 3, inputs=2, batch_sizes=[1, 2], batching=batching)


@examples(300, HealthCheck.filter_too_much, HealthCheck.too_slow)
@given(problem=SEVERAL)
def test_it_is_at_most_the_optimum_of_several_inputs(problem: hs.Problem):
    assume(batched(problem))
    assert mean_input(problem).value <= optimum(problem) * (1 + 1e-9)


@pytest.mark.slow
@examples(40, HealthCheck.filter_too_much, HealthCheck.too_slow)
@given(problem=SEVERAL)
def test_whole_batches_are_between_the_mean_input_and_the_optimum(problem: hs.Problem):
    assume(few_batches(problem))
    value = whole_batches(problem, deadline=Deadline.after(60.0)).value
    assert mean_input(problem).value <= value <= optimum(problem) * (1 + 1e-9)


def test_a_batch_is_not_both_efficient_and_short():
    problem = chain()
    assert critical_path(problem).value == 6.0  # in batches of one
    assert load(problem).value == pytest.approx(4.5)  # in batches of two
    assert mean_input(problem).value == pytest.approx(6.0)
    one = problem.replace(cluster=hs.Cluster(["x"], bandwidth=1.0), durations=[[[2.0, 3.0]]] * 3, batch_sizes=[1, 2])
    assert mean_input(one).value == pytest.approx(9.0)  # one batch on the only device


def test_tasks_between_two_others_follow_one_another_on_a_device():
    graph = hs.TaskGraph(["a", "b", "c", "d"], [("a", "b", 0.0), ("a", "c", 0.0), ("b", "d", 0.0), ("c", "d", 0.0)])
    whole = [[[4.0]], [[3.0]], [[5.0]], [[1.0]]]
    problem = hs.Problem(graph, hs.Cluster(["x"], bandwidth=1.0), durations=whole, inputs=3, batch_sizes=[3])
    pinned = problem.replace(cluster=hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[w[0], [math.nan]] for w in whole], batch_sizes=[3])
    assert mean_input(problem).value == pytest.approx(13.0)
    slow = [[[4.0], [4.0]], [[3.0], [3.0]], [[5.0], [5.0]], [[1.0], [1.0]]]
    free = pinned.replace(durations=slow, batch_sizes=[3])
    assert load(free).value == pytest.approx(6.5)
    assert critical_path(free).value == 10.0
    assert mean_input(pinned).value == pytest.approx(13.0)


def test_stacks_have_a_better_bound_than_work_alone():
    problem = hs.workloads.rwnn("er", 10, modules=2, seed=0)
    cluster = hs.workloads.clusters.diviml()
    times = [[[8.0, 12.0], [2.0, 2.8], [1.0, 1.3]]] * problem.n_tasks
    two = hs.Problem(problem, cluster, durations=times, inputs=2, batch_sizes=[1, 2])
    found = hs.solve(two, "annealing", evaluations=2000)
    before = max(load(two).value, critical_path(two).value)
    assert before * 1.05 < mean_input(two).value <= found.makespan


def test_it_is_asked_for_several_inputs_only():
    assert batched(chain())
    assert few_batches(chain(batching="free"))
    assert not batched(hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["x"], bandwidth=1.0), durations=[[1.0]]))
