"""Bytes held over time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import hetsched as hs
from hetsched.schedule import memory
from tests.report.cases import schedules


@given(schedules())
def test_its_largest_value_is_the_peak_memory(case: tuple[hs.Problem, hs.Schedule]) -> None:
    problem, schedule = case
    profile = memory.profile(problem, schedule)
    assert schedule.peak_memory is not None
    for k in range(problem.n_devices):
        own = profile.device == k
        assert profile.time[own][0] == 0
        assert (np.diff(profile.time[own]) > 0).all()
        assert profile.bytes[own].max() == pytest.approx(schedule.peak_memory[k])
        assert profile.time[own][-1] <= schedule.makespan


def test_a_chain_holds_what_it_needs() -> None:
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 3.0)], weight_bytes=[10.0, 20.0], input_bytes=[1.0, 0.0], output_bytes=[4.0, 5.0])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=3.0), durations=[[1.0, 1.0], [1.0, 1.0]])
    schedule = hs.simulate(problem, hs.Decision.from_assignment(problem, {"a": "x", "b": "y"}))
    profile = memory.profile(problem, schedule)
    steps = {k: [(t, v) for d, t, v in zip(profile.device, profile.time, profile.bytes, strict=True) if d == k] for k in (0, 1)}
    assert steps[0] == [(0.0, 15.0), (1.0, 14.0), (2.0, 10.0)]  # weights, input and output; no input; sent
    assert steps[1] == [(0.0, 20.0), (1.0, 23.0), (2.0, 28.0), (3.0, 20.0)]  # weights; arriving; output too; done
