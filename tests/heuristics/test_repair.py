"""Repaired decisions keep co-location and memory, and change nothing without need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.heuristics.repair import packed, repair
from hetsched.problem.links import UNCONTENDED
from hetsched.schedule.memory import over_capacity, static
from hetsched.testing import decisions, problems


def loosened(problem):
    """Return the problem without labels and memory limits."""
    cluster = hs.Cluster(
        [hs.Device(name) for name in problem.cluster.names], bandwidth=problem.cluster.bandwidth, latency=problem.cluster.latency
    )
    return problem.replace(cluster=cluster, graph=problem.graph.replace(colocation=None))


@pytest.mark.slow
@given(problems(memory="static", communication=st.sampled_from(UNCONTENDED)), st.data())
def test_repaired_decisions_are_valid(problem, data):
    decision = data.draw(decisions(loosened(problem)))
    repaired = repair(problem, decision)
    if repaired is None:
        return
    schedule = hs.simulate(problem, repaired)
    assert hs.verify(problem, schedule) == []


@given(problems(memory="static"), st.data())
def test_decisions_that_keep_the_rules_do_not_change(problem, data):
    decision = data.draw(decisions(problem))
    if not over_capacity(problem, static(problem, decision)).any():
        assert repair(problem, decision) is decision


def test_the_unit_that_loses_least_is_moved():
    graph = hs.TaskGraph(["a", "b", "c"], weight_bytes=[4.0, 4.0, 4.0])
    cluster = hs.Cluster([hs.Device("fast", memory_bytes=9.0), hs.Device("slow", memory_bytes=9.0)], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.array([[1.0, 9.0], [1.0, 2.0], [1.0, 5.0]]))
    repaired = repair(problem, hs.Decision([0, 1, 2], [0, 0, 0]))
    assert repaired is not None
    assert dict(zip(repaired.task.tolist(), repaired.device.tolist(), strict=True)) == {0: 0, 1: 1, 2: 0}


def test_no_room_anywhere_is_reported():
    graph = hs.TaskGraph(["a", "b"], weight_bytes=[4.0, 4.0])
    cluster = hs.Cluster([hs.Device("one", memory_bytes=5.0), hs.Device("two", memory_bytes=3.0)], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.ones((2, 2)))
    assert repair(problem, hs.Decision([0, 1], [0, 0])) is None


@given(problems(memory="static"))
def test_packed_decisions_are_valid_and_complete(problem):
    decision = packed(problem)
    if decision is not None:
        assert hs.verify(problem, hs.simulate(problem, decision)) == []
        assert len(decision.task) == problem.n_tasks


def tight(n_devices: int, slack: float) -> hs.Problem:
    """Return layers of tasks that fill the memory of all devices but for a share."""
    rng, n = np.random.default_rng(0), 60
    target = np.arange(5, n).repeat(3)
    edges = np.unique(np.column_stack([(target // 5 - 1) * 5 + rng.integers(0, 5, len(target)), target]), axis=0)
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges, output_bytes=rng.uniform(0.1, 1, n), weight_bytes=rng.uniform(1, 10, n))
    claimed = hs.Problem(graph, hs.Cluster(["x"]), durations=np.ones((n, 1))).static_bytes.sum()
    cluster = hs.Cluster([hs.Device(f"d{k}", memory_bytes=claimed / n_devices * (1 + slack)) for k in range(n_devices)], bandwidth=1.0)
    return hs.Problem(graph, cluster, durations=rng.uniform(1, 100, (n, 1)) / 2.0 ** np.arange(n_devices))


def test_packing_finds_a_place_where_list_schedulers_find_none():
    problem = tight(3, 0.003)
    for name in ("best-device", "heft", "bheft"):
        assert hs.solve(problem, name).schedule is None
    solution = hs.solve(problem, "packing")
    assert hs.verify(problem, solution.schedule) == []
    for name in ("annealing", "tabu", "evolution", "ea", "sa"):
        better = hs.solve(problem, name, evaluations=3000)
        assert better.makespan <= solution.makespan
        assert hs.verify(problem, better.schedule) == []


def test_tasks_change_places_where_nothing_else_fits():
    problem = tight(3, 0.003)
    start = hs.solve(problem, "packing").makespan
    assert hs.solve(problem, "annealing", evaluations=100_000).makespan < 0.6 * start


def test_no_path_between_the_fastest_devices_is_reported():
    cluster = hs.Cluster(["x", "y"], bandwidth=[[0.0, 0.0], [0.0, 0.0]])
    problem = hs.Problem(hs.TaskGraph(["a", "b"], [("a", "b", 1.0)]), cluster, durations=[[1.0, 2.0], [2.0, 1.0]])
    solution = hs.solve(problem, "packing")
    assert solution.schedule is None
    assert "found no place" in solution.messages[0]
