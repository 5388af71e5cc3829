"""The enumeration against a plainer one, and against optima from other sources."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.problem.links import MODELS
from hetsched.testing import brute_force, conformance, decisions, problems
from hetsched.testing.profiles import examples
from tests.resources import held_resources


def plainly(problem: hs.Problem) -> float | None:
    """Return the least makespan over all assignments and all orders of batches and transfers, for one input."""
    best = None
    n, edges = problem.n_tasks, problem.graph.edges.tolist()
    for device in itertools.product(range(problem.n_devices), repeat=n):
        for sequence in itertools.permutations(range(n)):
            moves = [(e, sequence.index(i), sequence.index(j)) for e, (i, j) in enumerate(edges) if device[i] != device[j]]
            contended = problem.links.contended
            for order in itertools.permutations(moves) if contended else [None]:
                chosen = hs.Decision(sequence, [device[i] for i in sequence], transfer_order=order)
                try:
                    schedule = hs.simulate(problem, chosen)
                except hs.InvalidSchedule:
                    continue
                if not hs.verify(problem, schedule):
                    best = schedule.makespan if best is None else min(best, schedule.makespan)
    return best


@examples(60)
@given(problems(n_tasks=st.integers(1, 3), n_devices=st.integers(1, 2), inputs=1))
def test_it_is_the_least_of_all_orders(problem):
    optimum = brute_force(problem)
    assert (optimum and optimum.makespan) == plainly(problem)


@pytest.mark.slow
@given(st.data())
def test_no_random_decision_beats_it(data):
    problem = data.draw(problems(n_tasks=st.integers(2, 4), n_devices=2, inputs=st.integers(1, 2)))
    schedule = hs.simulate(problem, data.draw(decisions(problem)))
    optimum = brute_force(problem, limit=20_000)
    if not hs.verify(problem, schedule):
        assert optimum is not None
        assert optimum.makespan <= schedule.makespan


@examples(50)
@given(problems(n_tasks=st.integers(1, 3), n_devices=2, inputs=st.integers(1, 2)))
def test_its_result_is_a_valid_schedule_of_its_decision(problem):
    optimum = brute_force(problem)
    if optimum is not None:
        assert hs.verify(problem, optimum.schedule) == []
        assert hs.simulate(problem, optimum.decision) == optimum.schedule
        assert optimum.makespan == optimum.schedule.makespan


@examples(50)
@given(st.data())
def test_numbering_does_not_matter(data):
    problem = data.draw(problems(n_tasks=3, n_devices=2, inputs=st.integers(1, 2)))
    tasks, devices = (data.draw(st.permutations(range(size))) for size in (problem.n_tasks, problem.n_devices))
    one, other = brute_force(problem), brute_force(conformance.renumbered(problem, tasks, devices))
    assert (one and one.makespan) == (other and other.makespan)


def test_batches_are_enumerated():
    graph = hs.TaskGraph(["a", "b"], [("a", "b")])
    cluster = hs.Cluster(["x", "y"], bandwidth=np.inf)
    times = np.array([[[1, 4], [9, 9]], [[9, 9], [1, 4]]], float)
    problem = hs.Problem(graph, cluster, durations=times, batch_sizes=[1, 3], inputs=3)
    assert brute_force(problem).makespan == 8, "one batch of three after another, as a second batch on a device is not allowed"
    assert brute_force(problem.replace(batching="free")).makespan == 4, "single inputs overlap"


def test_transfer_orders_are_enumerated():
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 2.0), ("a", "c", 2.0)])
    cluster = hs.Cluster(["x", "y"], bandwidth=1.0)
    times = [[1, np.nan], [np.nan, 1], [np.nan, 5]]
    problem = hs.Problem(graph, cluster, durations=times, communication="channel")
    served = hs.simulate(problem, hs.Decision.from_assignment(problem, {"a": "x", "b": "y", "c": "y"}, ["a", "b", "c"]))
    assert served.makespan == 10, "first come, first served moves b's input before c's"
    optimum = brute_force(problem)
    assert optimum.makespan == 9
    assert optimum.decision.transfer_order[0, 0] == 1
    assert brute_force(problem.replace(communication="delay")).makespan == 9


def test_memory_may_leave_nothing():
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 1.0)], weight_bytes=3, output_bytes=[2, 0])
    cluster = hs.Cluster([hs.Device("x", memory_bytes=7), hs.Device("y", memory_bytes=1)], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.ones((2, 2)))
    assert brute_force(problem) is None
    assert brute_force(problem.replace(memory="peak")) is None
    roomier = hs.Cluster([hs.Device("x", memory_bytes=8), hs.Device("y", memory_bytes=1)], bandwidth=1.0)
    assert brute_force(problem.replace(cluster=roomier)).makespan == 2


def test_paths_may_leave_nothing():
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "c"), ("b", "c")], devices=["x", "y", None])
    problem = hs.Problem(graph, hs.Cluster(["x", "y", "z"], [[0, 1, 1], [1, 0, 0], [0, 0, 0]]), durations=np.ones((3, 3)))
    assert brute_force(problem).makespan == 2
    with pytest.raises(hs.InvalidProblem, match="no path"):
        hs.Problem(graph, hs.Cluster(["x", "y", "z"], np.zeros((3, 3))), durations=np.ones((3, 3)))


def test_large_problems_are_refused():
    graph = hs.TaskGraph([f"t{i}" for i in range(12)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=np.ones((12, 2)))
    with pytest.raises(hs.UnsupportedFeature, match="too large to enumerate: more than limit=1000 partial schedules; take fewer tasks"):
        brute_force(problem, limit=1000)


def test_the_limit_holds_for_batches_of_many_inputs():
    graph = hs.TaskGraph(["a", "b", "c", "d"], [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
    problem = hs.Problem(
        graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=np.ones((4, 2, 4)), batch_sizes=[4, 8, 12, 16], inputs=16, batching="free"
    )
    with pytest.raises(hs.UnsupportedFeature, match="more than limit=1000 partial schedules"):
        brute_force(problem, limit=1000)


@pytest.mark.parametrize("communication", MODELS)
def test_two_transfers_wait_for_one_another_where_they_hold_the_same_resource(communication: str) -> None:
    """Each transfer takes a second; the tasks take no time, so nothing else waits."""
    cluster = hs.Cluster([hs.Device(name, node=node) for name, node in (("x", "n"), ("y", "n"), ("z", ""))], bandwidth=1.0, latency=1.0)
    for one, other in itertools.product(itertools.permutations(range(3), 2), repeat=2):
        pins = [[cluster.names[k]] for k in (*one, *other)]
        graph = hs.TaskGraph(list("abcd"), [("a", "b"), ("c", "d")], devices=pins)
        optimum = brute_force(hs.Problem(graph, cluster, durations=np.zeros((4, 3)), communication=communication))
        waits = MODELS[communication].contended and held_resources(communication, cluster, *one) & held_resources(
            communication, cluster, *other
        )
        assert optimum is not None
        assert optimum.makespan == (2.0 if waits else 1.0), f"{cluster.names}: {one}, {other}; see `_link` in brute_force"


def test_transfers_within_a_node_hold_no_port_and_take_their_time() -> None:
    graph = hs.TaskGraph(["a", "b"], [("a", "b")])
    cluster = hs.Cluster([hs.Device("x", node="n"), hs.Device("y", node="n")], bandwidth=1.0, latency=1.0)
    nan = float("nan")
    problem = hs.Problem(graph, cluster, durations=[[1.0, nan], [nan, 1.0]], communication="node")
    optimum = brute_force(problem)
    assert optimum is not None
    assert optimum.makespan == 3.0
