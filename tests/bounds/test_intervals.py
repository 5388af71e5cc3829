"""The bound by intervals: never above the optimum, and the optimum where forks and joins follow one another."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import hetsched as hs
from hetsched.bounds.combinatorial import critical_path
from hetsched.bounds.intervals import LARGEST, path_of_intervals
from hetsched.testing import brute_force
from hetsched.testing.profiles import examples


def forks_and_joins(widths: list[int], durations: list[list[float]], *, transfer: float = 2.0, **arguments) -> hs.Problem:
    """Return forks of some widths, each joined by the task that forks next, on devices with the columns of `durations`."""
    edges, last, n = [], 0, 1
    for width in widths:
        edges += [(last, i) for i in range(n, n + width)] + [(i, n + width) for i in range(n, n + width)]
        last, n = n + width, n + width + 1
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], [(f"t{i}", f"t{j}", transfer) for i, j in edges])
    cluster = hs.Cluster([f"d{k}" for k in range(len(durations[0]))], bandwidth=1.0)
    return hs.Problem(graph, cluster, durations=durations, **arguments)


@st.composite
def stacks(draw: DrawFn) -> hs.Problem:
    widths = draw(st.sampled_from([[2], [3], [4], [2, 1], [2, 2], [1, 2]]))
    n, devices = 1 + sum(widths) + len(widths), 2
    seconds = draw(st.lists(st.integers(0, 5), min_size=n * devices, max_size=n * devices))
    rows = np.array(seconds, float).reshape(n, devices)
    return forks_and_joins(
        widths,
        rows.tolist() if draw(st.booleans()) else rows[:, [0, 0]].tolist(),
        transfer=float(draw(st.integers(0, 4))),
        communication=draw(st.sampled_from(["delay", "channel", "port"])),
    )


@examples(60, HealthCheck.too_slow)
@given(problem=stacks())
def test_it_is_at_most_the_optimum_of_forks_and_joins(problem: hs.Problem):
    found = brute_force(problem)
    assert found is not None
    assert path_of_intervals(problem).value <= found.makespan * (1 + 1e-9)


def test_work_beside_the_longest_path_counts_at_every_fork():
    problem = forks_and_joins([2, 2], [[seconds] * 2 for seconds in (1.0, 5.0, 5.0, 1.0, 5.0, 5.0, 1.0)])
    assert critical_path(problem).value == 13.0  # one of two tasks of 5 s is free there
    found = brute_force(problem)
    assert found is not None
    assert found.makespan == 17.0  # a transfer of 2 s to where the join is too takes less than another task of 5 s
    assert np.isclose(path_of_intervals(problem).value, 17.0)


def test_what_follows_an_interval_starts_after_its_end_whatever_the_join_takes():
    durations = [[seconds] * 2 for seconds in (1.0, 5.0, 5.0, 1.0, 5.0, 1.0)]
    durations[3][1] = 10.0  # so the start of the join is known less well than its end
    problem = forks_and_joins([2, 1], durations, transfer=99.0)
    found = brute_force(problem)
    assert found is not None
    assert found.makespan == 18.0
    assert np.isclose(path_of_intervals(problem).value, 18.0)


def test_intervals_follow_one_another_in_a_graph_too_large_for_one():
    widths = [3] * LARGEST
    n = 1 + 4 * LARGEST
    problem = forks_and_joins(widths, [[1.0, 1.0]] * n, transfer=9.0)
    assert np.isclose(path_of_intervals(problem).value, n, rtol=1e-5)  # nothing is worth a transfer


def test_a_task_without_a_device_leaves_nothing_to_bound():
    problem = forks_and_joins([2], [[1.0, 1.0]] * 4)
    big = problem.graph.replace(weight_bytes=[9.0, 0.0, 0.0, 0.0])
    small = problem.cluster.replace(devices=[hs.Device(f"d{k}", memory_bytes=5.0) for k in range(2)])
    assert path_of_intervals(problem.replace(graph=big, cluster=small)).value == np.inf
