"""`compare` on documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import hetsched as hs
from hetsched.arrays import Columns
from hetsched.costs import Machine, Overhead, Timeline
from hetsched.problem.units import seconds
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


@pytest.mark.slow
def test_a_timeline_is_shown_with_its_own_times(run: Any, problem: hs.Problem, timeline: Timeline) -> None:
    done = run("show", "problem.json", "run.json", "--report", "run.html", "--gantt", "run.svg", "--trace", "trace.json")
    assert done.exit_code == 0, done.stderr
    assert re.search(rf"makespan +{re.escape(seconds(timeline.makespan))}, forecast\n", done.stdout)
    assert "every rule kept, by the independent check" in done.stdout
    assert f"the run in run.json, {seconds(timeline.schedule.makespan)} long" in done.stdout
    assert f"makespan {seconds(timeline.schedule.makespan)}" in Path("run.html").read_text()
    assert Path("run.svg").stat().st_size > 0
    assert Path("trace.json").stat().st_size > 0
    plain = json.loads(run("show", "problem.json", "run.json", "--json").stdout)
    assert plain == {
        "measured": False,
        "runs": 1,
        "makespan": timeline.makespan,
        "q25": timeline.makespan,
        "q75": timeline.makespan,
        "stolen": None,
        "disturbed": False,
        "valid": True,
        "written": [],
    }


def test_the_spread_of_runs_is_shown(run: Any, problem: hs.Problem, timeline: Timeline) -> None:
    columns = {name: getattr(timeline, name) for name in ("waited", "seen", "shipment", "lengths")}
    batches = timeline.schedule.batches
    spans = [timeline.makespan * part for part in (0.9, 1.0, 1.2)]
    runs = {name: np.repeat(columns.pop(name), 3, axis=0) for name in ("lengths",)}
    durations = np.repeat((batches.finish - batches.start)[None], 3, axis=0)
    measured = Timeline(
        timeline.schedule, cpu=(batches.finish - batches.start) / 2, makespans=spans, durations=durations, **columns, **runs
    )
    measured.write("run.json")
    done = run("show", "problem.json", "run.json")
    low, high = (seconds(timeline.makespan * part) for part in (0.95, 1.1))
    assert f"{seconds(timeline.makespan)}, median of 3 runs; quartiles {low} and {high}" in done.stdout
    assert "50.00 %; disturbed: these runs support no claim" in done.stdout


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
