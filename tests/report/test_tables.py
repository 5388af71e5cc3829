"""Schedules and solutions as tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import hetsched as hs
from hetsched.analysis.critical_chain import critical_chain
from hetsched.arrays import Columns
from hetsched.schedule import memory
from hetsched.schedule.schedule import spans
from tests.report.cases import diamond, schedules, stack


@given(schedules())
def test_the_device_table_adds_up(case: tuple[hs.Problem, hs.Schedule]) -> None:
    problem, schedule = case
    table = hs.report.device_table(problem, schedule)
    assert table.batches.sum() == len(schedule.batches)
    assert table.busy.sum() == pytest.approx((schedule.batches.finish - schedule.batches.start).sum())
    assert table.sent.sum() == pytest.approx(table.received.sum())
    device = [schedule.batches.device[schedule.batch_of[end]] for end in (problem.graph.source, problem.graph.target)]
    moved = (device[0] != device[1]).sum(axis=1) @ problem.graph.edge_bytes  # each input along each edge
    assert table.sent.sum() == pytest.approx(moved)
    assert (table.utilisation <= 1 + 1e-9).all()


@pytest.mark.slow
@given(schedules())
def test_the_data_frame_has_a_row_a_batch_by_start(case: tuple[hs.Problem, hs.Schedule]) -> None:
    problem, schedule = case
    frame = hs.report.to_dataframe(problem, schedule)
    assert list(frame.columns) == ["task", "op", "module", "device", "start", "finish", "duration", "size", "inputs"]
    assert len(frame) == len(schedule.batches)
    assert frame.start.is_monotonic_increasing
    for row in frame.itertuples():
        first = int(row.inputs.split(",")[0].split("-")[0])
        assert schedule.device_of(row.task, first) == row.device
        assert schedule.start(row.task, first) == row.start


def test_a_solution_is_as_good_as_its_schedule(tmp_path: Path) -> None:
    problem, solution = diamond()
    assert solution.schedule is not None
    for draw in (hs.report.to_dataframe, hs.report.chrome_trace):
        assert str(draw(problem, solution)) == str(draw(problem, solution.schedule))
    hs.report.write_gantt(problem, solution, tmp_path / "a.png")
    hs.report.write_trace(problem, solution, tmp_path / "a.json")


DRAWING = (hs.report.gantt, hs.report.html, hs.report.chrome_trace, hs.report.to_dataframe, hs.report.device_table)


@pytest.mark.parametrize("draw", DRAWING)
def test_the_schedule_of_another_problem_is_refused(draw: Callable[..., object]) -> None:
    problem, _ = diamond()
    with pytest.raises(hs.InvalidSchedule, match="the 10 tasks, 3 devices and 1 inputs of the schedule are not those of this problem"):
        draw(problem, stack(1, 10)[1])


@pytest.mark.parametrize("draw", DRAWING)
@pytest.mark.parametrize("edge", [-1, 99, 2**62])
def test_transfers_along_edges_that_are_none_are_refused(draw: Callable[..., object], edge: int) -> None:
    problem, solution = diamond()
    schedule = solution.schedule
    assert schedule is not None
    moved = schedule.transfers.replace(edge=np.full(len(schedule.transfers), edge))
    strange = hs.Schedule.from_columns(schedule.tasks, schedule.devices, 1, schedule.batches, schedule.item_ptr, schedule.items, moved)
    with pytest.raises(hs.InvalidSchedule, match=f"run from {edge} to {edge}, but the problem has 4 edges"):
        draw(problem, strange)


@pytest.mark.parametrize("time", [np.nan, np.inf, -1e12])
def test_a_trace_of_times_that_are_none_is_refused(time: float) -> None:
    problem, solution = diamond()
    schedule = solution.schedule
    assert schedule is not None
    late = schedule.batches.replace(start=np.full(len(schedule.batches), time))
    strange = hs.Schedule.from_columns(
        schedule.tasks, schedule.devices, 1, late, schedule.item_ptr, schedule.items, schedule.transfers, makespan=1.0
    )
    with pytest.raises(hs.UnsupportedFeature, match="a trace holds at most"):
        hs.report.chrome_trace(problem, strange)


@pytest.mark.parametrize("draw", [draw for draw in DRAWING if draw is not hs.report.html])
def test_a_solution_without_a_schedule_is_refused(draw: Callable[..., object]) -> None:
    graph = hs.TaskGraph(["a"], [], weight_bytes=9.0)
    problem = hs.Problem(graph, hs.Cluster([hs.Device("x", memory_bytes=8.0)], bandwidth=1.0), durations=[[1.0]])
    with pytest.raises(hs.InvalidSchedule, match="holds no schedule to draw"):
        draw(problem, hs.solve(problem, "heft"))


def test_inputs_are_listed_in_spans() -> None:
    assert spans(np.array([7, 0, 1, 2])) == "0-2, 7"
    assert spans(np.array([4])) == "4"
    assert spans([5, 3, 3, 4]) == "3, 3-5", "an invalid batch lists an input twice"
    assert spans([]) == ""


def test_the_method_table_ranks_what_ran() -> None:
    problem, _ = stack(2, 10)
    solution = hs.solve(problem, ["heft", "peft"])
    table = hs.report.method_table(solution)
    assert set(table.method.tolist()) == {"heft", "peft"}
    assert (np.diff(table.makespan) >= 0).all()
    assert table.makespan[0] == solution.makespan
    assert table.gap[0] == solution.gap
    assert (table.evaluations == 1).all()


def test_a_method_that_found_nothing_is_listed_without_a_makespan() -> None:
    graph = hs.TaskGraph(["a", "b"], [("a", "b")], weight_bytes=[6, 6])
    cluster = hs.Cluster([hs.Device("x", memory_bytes=8), hs.Device("y", memory_bytes=8)], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=[[1.0, 2.0], [1.0, 2.0]])
    table = hs.solve(problem, ["best-device", "heft"]).methods
    makespans = dict(zip(table.method.tolist(), table.makespan.tolist(), strict=True))
    assert np.isinf(makespans["best-device"])
    assert np.isfinite(makespans["heft"])


@pytest.mark.parametrize("rows", [[], [0, 1, 2], [0, 1, 2, 2], [0, 1, 2, 3, 3]])
def test_schedules_that_do_not_run_each_input_once_have_no_profile(rows: list[int]) -> None:
    problem, solution = diamond()
    schedule = solution.schedule
    assert schedule is not None
    batches = Columns(**{name: schedule.batches[name][rows] for name in schedule.batches.names})
    none = Columns(**{name: column[:0] for name, column in schedule.transfers.to_dict().items()})
    partial = hs.Schedule.from_columns(schedule.tasks, schedule.devices, 1, batches, range(len(rows) + 1), [0] * len(rows), none)
    for function in (memory.profile, critical_chain, hs.report.chrome_trace):
        with pytest.raises(hs.InvalidSchedule, match="in no batch, or in two"):
            function(problem, partial)
