"""`compare` on documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import hetsched as hs
from hetsched.arrays import Columns
from hetsched.costs import Machine, Overhead, Timeline
from hetsched.runtime import compare, forecast


@pytest.fixture
def timeline(problem: hs.Problem) -> Timeline:
    """Return the times on a machine with overheads, beside those of schedule.json, written as run.json."""
    solution = hs.solve(problem, "heft")
    assert solution.schedule is not None
    solution.schedule.write("schedule.json")
    made = forecast(problem, solution.schedule, Machine({"cpu": Overhead(dispatch=1e-4)}))
    made.write("run.json")
    return made


def test_a_comparison_is_that_of_the_library(run: Any, problem: hs.Problem, timeline: Timeline) -> None:
    done = run("compare", "problem.json", "schedule.json", "run.json", "--gantt", "run.png")
    assert done.exit_code == 0
    expected = compare(problem, hs.read("schedule.json"), timeline)
    assert done.stdout.startswith(str(expected))
    assert done.stdout.endswith("valid: the run kept every rule\nwrote run.png\n")
    with Image.open("run.png") as picture:
        assert picture.height > 200
    plain = json.loads(run("compare", "problem.json", "schedule.json", "run.json", "--json").stdout)
    assert plain == {**expected.to_dict(), "written": []}


def test_a_timeline_is_verified_with_its_own_times(run: Any, problem: hs.Problem, timeline: Timeline) -> None:
    late = forecast(problem.replace(durations=problem.durations * 2), hs.read("schedule.json"))
    late.write("late.json")
    late.schedule.write("schedule.json")
    assert run("verify", "problem.json", "schedule.json").exit_code == 1
    done = run("verify", "problem.json", "late.json")
    assert done.exit_code == 0
    assert done.stdout.startswith("valid: 5 batches")


def test_a_run_that_broke_a_rule_ends_with_code_1(run: Any, timeline: Timeline) -> None:
    schedule = timeline.schedule
    early = schedule.batches.replace(start=schedule.batches.start - schedule.batches.start.max(), finish=schedule.batches.finish)
    broken = hs.Schedule.from_columns(
        schedule.tasks, schedule.devices, 1, Columns(**early.to_dict()), schedule.item_ptr, schedule.items, schedule.transfers
    )
    columns = {name: getattr(timeline, name) for name in ("cpu", "waited", "seen", "shipment", "durations", "lengths", "makespans")}
    Timeline(broken, **columns).write("run.json")
    done = run("compare", "problem.json", "schedule.json", "run.json")
    assert done.exit_code == 1
    assert "device-overlap: " in done.stdout
    assert "valid: " not in done.stdout


def test_documents_of_another_kind_or_of_another_problem_are_refused(run: Any, timeline: Timeline, folder: Path) -> None:
    done = run("compare", "problem.json", "schedule.json", "schedule.json")
    assert done.exit_code == 2
    assert "schedule.json holds a schedule, but a timeline is needed here" in done.stderr
    hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["cpu"]), durations=[[1.0]]).write("other.json")
    done = run("compare", "other.json", "schedule.json", "run.json")
    assert done.exit_code == 2
    assert "the timeline is of another problem" in done.stderr
    done = run("compare", "problem.json", "schedule.json", "run.json", "--gantt", "run.json")
    assert done.exit_code == 2
    assert hs.read("run.json") == timeline
