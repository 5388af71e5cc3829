"""Mended decisions keep co-location and memory, and change nothing without need."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.heuristics.mending import mend
from hetsched.schedule.memory import over_capacity, static
from hetsched.testing import decisions, problems


def loosened(problem):
    """The problem without labels and with room for everything."""
    cluster = hs.Cluster(
        [hs.Device(name) for name in problem.cluster.names], bandwidth=problem.cluster.bandwidth, latency=problem.cluster.latency
    )  # fmt: skip
    return problem.replace(cluster=cluster, graph=problem.graph.replace(colocation=None))


@given(problems(memory="static", communication=st.sampled_from(["delay", "per-input"])), st.data())
def test_what_is_mended_is_valid(problem, data):
    decision = data.draw(decisions(loosened(problem)))
    found = mend(problem, decision)
    if found is None:
        return
    schedule = hs.simulate(problem, found)
    assert hs.verify(problem, schedule) == []


@given(problems(memory="static"), st.data())
def test_what_is_whole_stays_as_it_is(problem, data):
    decision = data.draw(decisions(problem))
    if not over_capacity(problem, static(problem, decision)).any():
        assert mend(problem, decision) is decision


def test_the_unit_goes_that_loses_least():
    graph = hs.TaskGraph(["a", "b", "c"], weight_bytes=[4.0, 4.0, 4.0])
    cluster = hs.Cluster([hs.Device("fast", memory_bytes=9.0), hs.Device("slow", memory_bytes=9.0)], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.array([[1.0, 9.0], [1.0, 2.0], [1.0, 5.0]]))
    found = mend(problem, hs.Decision([0, 1, 2], [0, 0, 0]))
    assert found is not None
    assert dict(zip(found.task.tolist(), found.device.tolist(), strict=True)) == {0: 0, 1: 1, 2: 0}


def test_no_room_anywhere_is_said():
    graph = hs.TaskGraph(["a", "b"], weight_bytes=[4.0, 4.0])
    cluster = hs.Cluster([hs.Device("one", memory_bytes=5.0), hs.Device("two", memory_bytes=3.0)], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.ones((2, 2)))
    assert mend(problem, hs.Decision([0, 1], [0, 0])) is None
