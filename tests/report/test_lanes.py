"""Stages as schedules on lanes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.models import ios
from hetsched.testing import problems


@given(problems(), st.integers(0, 1000), st.integers(1, 4), st.integers(1, 3))
def test_lanes_are_the_stages(problem, seed, groups, group_size):
    graph, rng = problem.graph, np.random.default_rng(seed)
    costs = {}

    def cost(tasks, strategy):
        return costs.setdefault((tasks, strategy), float(rng.random()) if strategy == "concurrent" else np.inf)

    stages = hs.stages(graph, cost, groups=groups, group_size=group_size)
    drawn, schedule = hs.report.lanes(graph, stages)
    assert hs.verify(drawn, schedule) == []
    assert schedule.makespan == pytest.approx(stages.latency)
    assert drawn.n_devices <= groups
    for s, begin in enumerate(stages.start.tolist()):
        for k, group in enumerate(stages.groups(s)):
            assert {schedule.device_of(name) for name in group} == {f"lane {k + 1}"}
            assert schedule.start(group[0]) == pytest.approx(begin, abs=1e-9)
            assert schedule.finish(group[-1]) == pytest.approx(begin + stages.stages.latency[s], abs=1e-9)


def test_a_merged_stage_is_on_one_lane():
    graph = hs.TaskGraph(["in", "a", "b"], [("in", "a"), ("in", "b")])
    stages = hs.StageSchedule.from_groups(graph.names, [[["in"]], [["a"], ["b"]]], ["concurrent", "merge"], [1.0, 3.0])
    drawn, schedule = hs.report.lanes(graph, stages)
    assert (drawn.n_devices, schedule.start("b"), schedule.makespan) == (1, 2.5, 4.0)


def test_no_tasks_have_a_picture_too():
    graph = hs.TaskGraph([])
    _, schedule = hs.report.lanes(graph, ios.sequential(graph, lambda tasks, strategy: 1.0))
    assert schedule.makespan == 0


def test_broken_stages_are_not_drawn():
    graph = hs.TaskGraph(["a", "b"], [("a", "b")])
    stages = hs.StageSchedule.from_groups(graph.names, [[["b"]], [["a"]]], ["concurrent"] * 2, [1.0, 1.0])
    with pytest.raises(hs.InvalidSchedule, match="the stages cannot be drawn: 'b' in stage 0 reads 'a'"):
        hs.report.lanes(graph, stages)
