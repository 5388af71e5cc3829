"""The bound by loads before and after a task: never above the optimum, and the optimum where all meet in one task."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import hetsched as hs
from hetsched.bounds import load_around as module
from hetsched.bounds.combinatorial import critical_path, head_tail_load
from hetsched.bounds.load_around import load_around
from hetsched.testing import brute_force
from hetsched.testing.profiles import examples


def waist(before: int, after: int, *, together: int = 0, devices: int = 2, **arguments) -> hs.Problem:
    """Return tasks of 1 s that all are read by one, whose output others read; the first `together` are co-located."""
    names = [*(f"b{i}" for i in range(before)), "middle", *(f"a{i}" for i in range(after))]
    edges = [(f"b{i}", "middle", 0.0) for i in range(before)] + [("middle", f"a{i}", 0.0) for i in range(after)]
    graph = hs.TaskGraph(names, edges, colocation=["same" if i < together else None for i in range(len(names))])
    cluster = hs.Cluster([f"d{k}" for k in range(devices)], bandwidth=1.0)
    return hs.Problem(graph, cluster, durations=np.ones((len(names), devices)), **arguments)


def test_what_is_before_a_task_and_after_it_adds_up():
    problem = waist(4, 6)
    assert max(critical_path(problem).value, head_tail_load(problem).value) < 5.6
    assert np.isclose(load_around(problem).value, 6.0)  # 4 tasks on 2 devices, 1, 6 tasks on 2 devices
    found = brute_force(waist(3, 2))
    assert found is not None
    assert np.isclose(load_around(waist(3, 2)).value, 3.5)
    assert found.makespan == 4.0


def test_co_located_tasks_before_a_task_run_on_one_device():
    problem = waist(4, 6, together=4)
    assert np.isclose(load_around(problem).value, 8.0)
    assert hs.solve(problem, "heft").makespan == 8.0


def test_heads_are_raised_pass_by_pass():
    """What is co-located has heads by the load of what is before it."""
    problem = waist(4, 3)
    graph = problem.graph
    more = hs.TaskGraph(
        [*graph.names, "end"],
        [(graph.names[i], graph.names[j], 0.0) for i, j in graph.edges.tolist()] + [(f"a{i}", "end", 0.0) for i in range(3)],
        colocation=["same" if name.startswith("a") else None for name in (*graph.names, "end")],
    )
    problem = hs.Problem(more, problem.cluster, durations=np.ones((9, 2)))
    assert np.isclose(load_around(problem).value, 7.0)  # 2, 1, 3 on one device, 1
    assert hs.solve(problem, "heft").makespan == 7.0


@st.composite
def waists(draw: DrawFn) -> hs.Problem:
    before, after = draw(st.integers(0, 4)), draw(st.integers(0, 3))
    n = before + 1 + after
    seconds = np.array(draw(st.lists(st.integers(0, 5), min_size=2 * n, max_size=2 * n)), float).reshape(n, 2)
    labels = [None, "x", "y"]
    colocation = draw(st.lists(st.sampled_from(labels), min_size=n, max_size=n))
    edges = [(i, before) for i in range(before)] + [(before, j) for j in range(before + 1, n)]
    edges += draw(st.lists(st.sampled_from([(i, j) for i in range(n) for j in range(i + 1, n)] or [(0, 0)]), max_size=3)) if n > 1 else []
    graph = hs.TaskGraph(
        [f"t{i}" for i in range(n)],
        [(f"t{i}", f"t{j}", float(draw(st.integers(0, 3)))) for i, j in dict.fromkeys(edges)],
        colocation=colocation,
    )
    durations = seconds if draw(st.booleans()) else seconds[:, [0, 0]]
    return hs.Problem(
        graph,
        hs.Cluster(["d0", "d1"], bandwidth=1.0),
        durations=durations,
        communication=draw(st.sampled_from(["delay", "channel", "port"])),
    )


@examples(100, HealthCheck.too_slow)
@given(problem=waists())
def test_it_is_at_most_the_optimum_of_what_meets_in_one_task(problem: hs.Problem):
    found = brute_force(problem)
    assert found is not None
    assert load_around(problem).value <= found.makespan * (1 + 1e-9)


def test_some_tasks_are_enough_in_a_large_graph(monkeypatch: pytest.MonkeyPatch):
    problem = waist(40, 60, together=10)
    every = load_around(problem).value
    monkeypatch.setattr(module, "_WORK", 1000.0)
    assert len(module._chosen(problem)) < problem.n_tasks
    assert np.isclose(load_around(problem).value, every)


def test_a_task_without_a_device_leaves_the_critical_path():
    problem = waist(2, 2)
    small = problem.cluster.replace(devices=[hs.Device(name, memory_bytes=1.0) for name in problem.cluster.names])
    big = problem.graph.replace(weight_bytes=[0.0, 2.0, 0.0, 0.0, 0.0])
    assert load_around(problem.replace(graph=big, cluster=small)).value == np.inf
