"""The devices of tasks by name, and the batches as a table."""

from __future__ import annotations

import pytest
from hypothesis import given

import hetsched as hs
from hetsched.testing import problems
from hetsched.testing.profiles import examples


@examples(8)
@given(problem=problems(inputs=1))
def test_a_placement_has_the_device_of_each_task_and_makes_the_same_assignment(problem):
    schedule = hs.solve(problem, "heft").schedule
    if schedule is None:
        return
    placement = schedule.placement
    assert placement == {task: schedule.device_of(task) for task in problem.graph}
    again = hs.Decision.from_assignment(problem, placement)
    assert hs.simulate(problem, again).placement == placement
    table = schedule.to_dataframe()
    assert dict(zip(table.task, table.device, strict=True)) == placement
    assert table.start.is_monotonic_increasing


def test_a_task_on_several_devices_has_no_placement():
    problem = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["x", "y"], 1.0), durations=[[1.0, 1.0]], inputs=2, batch_sizes=[1])
    schedule = hs.simulate(problem, hs.Decision.from_batches(problem, [("a", "x", [0]), ("a", "y", [1])]))
    with pytest.raises(hs.InvalidSchedule, match=r"task 'a' runs on 'x' and on 'y', .*: schedule.device_of\('a', item\)"):
        _ = schedule.placement
    assert schedule.to_dataframe().inputs.tolist() == ["0", "1"]
