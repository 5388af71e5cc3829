"""Comparisons of runs with their forecasts: a case by hand, and runs that are as forecast."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs import Machine, Overhead, RunTimes, Timeline
from hetsched.runtime import Plan, compare, forecast, verify_run
from hetsched.runtime.plan import Value
from hetsched.testing.profiles import examples
from tests.runtime.test_plan import planned

NAN = math.nan


def fork(**arguments):
    """Return a -> b and a -> c with a, c on x and b on y, one second apart: forecast 5.5 s."""
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 8.0), ("a", "c", 8.0)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=8.0), durations=[[2, 2], [2.5, 2.5], [3.5, 3.5]], **arguments)
    return problem, hs.Decision.from_assignment(problem, {"a": "x", "b": "y", "c": "x"}, ["a", "b", "c"])


def run_of(b, c, arrival, seen, makespan):
    """Return a run in which a takes 2 s, b and c as given; batches are a, c, b."""
    begin = 2 + arrival
    start, finish = np.array([0, 2, begin]), np.array([2, 2 + c, begin + b])
    return RunTimes(
        start, finish, np.array([1.0, c, b]), np.array([0, 0, begin]), np.array([2.0]), np.array([begin if seen else NAN]), makespan
    )


@pytest.fixture
def case():
    problem, decision = fork()
    runs = [run_of(3, 4, 1.5, True, 6.75), run_of(5, 4, 2, True, 9.25), run_of(3, 6, 4, True, 9.5)]
    return problem, decision, Timeline.of_runs(problem, decision, runs, carried=Plan(problem, decision).carried)


def test_the_error_is_split_into_durations_chance_transfers_and_engine(case):
    problem, decision, measured = case
    comparison = compare(problem, decision, measured)
    # Medians: b 3, c 4. With the forecast second for the transfer the runs take 6, 8, 8 s; with their own 6.5, 9, 9 s.
    assert comparison.replays.name.tolist() == ["R0", "R1", "R2", "R3", "run"]
    assert comparison.replays.makespan.tolist() == [5.5, 6, 8, 9, 9.25]
    np.testing.assert_array_equal(comparison.replays.difference, [NAN, 0.5, 2, 1, 0.25])
    assert (comparison.forecast, comparison.run, comparison.runs) == (5.5, 9.25, 3)
    assert (comparison.q25, comparison.q75) == (8.0, 9.375)
    assert comparison.error == (5.5 - 9.25) / 9.25
    assert comparison.engine == 0.25 / 9.25
    assert comparison.stolen == pytest.approx(1 / 11)
    assert not comparison.disturbed


def test_tables_name_what_costs_most(case):
    problem, decision, measured = case
    comparison = compare(problem, decision, measured)
    assert comparison.tasks.task.tolist() == ["b", "c", "a"]  # b is on the critical chain, c deviates as much beside it
    assert comparison.tasks.critical.tolist() == [True, False, True]
    assert comparison.tasks.cost.tolist() == [0.5, 0, 0]
    assert list(comparison.transfers) == [
        {
            "source": "a",
            "target": "b",
            "sender": "x",
            "receiver": "y",
            "forecast": 1.0,
            "measured": 2.0,
            "seen": 3,
            "deviation": 1.0,
            "critical": True,
            "cost": 1.0,
        }
    ]
    x, y = comparison.devices
    idle = {"gathering": 0, "dispatch": 0}
    assert x == {"device": "x", "batches": 2, "forecast": 5.5, "busy": 6, "slower": 6 / 5.5, "waiting": 0, **idle, "end": 3}
    assert y == {"device": "y", "batches": 1, "forecast": 2.5, "busy": 5, "slower": 2, "waiting": 4, **idle, "end": 0}


def test_a_schedule_or_solution_stands_for_its_decision(case):
    problem, decision, measured = case
    schedule = hs.simulate(problem, decision)
    assert compare(problem, schedule, measured) == compare(problem, decision, measured)
    solution = hs.solve(problem, "heft")
    own = forecast(problem, solution.schedule)
    assert compare(problem, solution, own).error == 0
    empty = hs.Solution(None, solution.proof, method="m", seed=0, history=solution.history, methods=solution.methods)
    with pytest.raises(hs.InvalidSchedule, match="no schedule to compare with"):
        compare(problem, empty, own)


def test_text_and_plain_data_have_all_of_it(case):
    problem, decision, measured = case
    comparison = compare(problem, decision, measured)
    text = str(comparison)
    assert text.splitlines()[0] == "forecast 5.500 s, run 9.250 s (median of 3; quartiles 8.000 and 9.375), error -40.5 %"
    assert "engine, +2.7 % of the run" in text
    assert "edges saved" not in text
    assert text.count("yes") == 3
    plain = comparison.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["violations"] == []
    assert plain["replays"][0]["difference"] is None
    assert plain["tasks"][0]["task"] == "b"
    assert comparison.to_dataframe("replays").makespan.tolist() == comparison.replays.makespan.tolist()
    assert comparison.to_dataframe().task.tolist() == ["b", "c", "a"]
    with pytest.raises(hs.InvalidArgument, match="choose one of 'replays'"):
        comparison.to_dataframe("poems")


def test_stolen_time_is_said_to_support_no_claim(case):
    problem, decision, _ = case
    runs = [run_of(3, 4, 1.5, True, 6.75)._replace(cpu=np.array([1.0, 3.0, 3.0]))]
    disturbed = compare(problem, decision, Timeline.of_runs(problem, decision, runs, carried=[(0,)]))
    assert disturbed.disturbed
    assert "disturbed: these runs support no claim" in str(disturbed)
    unknown = compare(problem, decision, forecast(problem, decision))
    assert not unknown.disturbed
    assert "stolen unknown" in str(unknown)


def test_transfers_of_one_message_are_counted_as_saved():
    problem, _ = fork()
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "y", "c": "y"}, ["a", "b", "c"])
    machine = Machine({"y": Overhead(receive=(1.0, 0.0))}, once=True)
    measured = forecast(problem, decision, machine, values=[Value(0, "t", 8.0, (1, 2))])
    comparison = compare(problem, decision, measured)
    assert (comparison.together, comparison.saved) == (1, 1.0)
    assert "edges saved: 1 of 2 transfers went with another one; the problem has 1.000 s for them" in str(comparison)
    assert comparison.forecast == measured.makespan  # the value is received once: 2 + 1 + 1 + 2.5 + 3.5 s
    assert measured.makespan == 10


@pytest.mark.slow
@given(planned(communication=st.sampled_from(["delay", "per-input"])))
@examples(150)
def test_a_run_as_forecast_has_no_error(case):
    problem, decision = case
    comparison = compare(problem, decision, forecast(problem, decision))
    np.testing.assert_allclose(comparison.replays.difference[1:], 0, atol=1e-9)
    assert comparison.error == 0
    assert not comparison.tasks.deviation.any()
    str(comparison)


@pytest.mark.slow
@given(planned(), st.sampled_from([0.5, 2.0]))
@examples(100)
def test_durations_alone_are_the_error_where_all_tasks_take_a_multiple(case, factor):
    problem, decision = case
    problem = problem.replace(communication="delay")
    slower = problem.replace(durations=problem.durations * factor, batch_sizes=problem.batch_sizes)
    measured = forecast(slower, decision)
    replays = compare(problem, decision, measured).replays
    np.testing.assert_allclose(replays.makespan[0], hs.simulate(problem, decision).makespan)
    np.testing.assert_allclose(replays.makespan[1:], measured.makespan)


def test_a_run_that_broke_a_rule_is_said_to_have_no_critical_chain():
    problem, decision = fork()
    runs = [run_of(3, 4, 0.5, False, 6.75)._replace(start=np.array([0.0, 1.0, 2.5]))]
    comparison = compare(problem, decision, Timeline.of_runs(problem, decision, runs, carried=[(0,)]))
    assert {violation.rule for violation in comparison.violations} == {"device-overlap", "precedence"}
    assert not comparison.tasks.critical.any()
    assert "the run broke 2 rules:\ndevice-overlap: " in str(comparison)
    plain = comparison.to_dict()["violations"]
    assert json.loads(json.dumps(plain)) == plain
    assert [row["rule"] for row in plain] == [violation.rule for violation in comparison.violations]


def test_batches_of_zero_length_may_be_in_another_order():
    problem, _ = fork()
    instant = problem.replace(
        graph=hs.TaskGraph([*"abcz"], [("a", "b", 8.0), ("a", "c", 8.0)]), durations=[*problem.durations[:, :, 0], [0, 0]]
    )
    places = {"a": "x", "b": "y", "c": "x", "z": "x"}
    first, last = (hs.Decision.from_assignment(instant, places, order) for order in (["z", "a", "b", "c"], ["a", "b", "c", "z"]))
    slower = instant.replace(durations=instant.durations * [[[2]], [[3]], [[4]], [[1]]])
    measured = forecast(slower, first)
    assert compare(instant, first, measured) == compare(instant, last, measured)
    assert compare(instant, last, measured).replays.makespan.tolist() == [5.5, 18, 18, 18, 18]
    other = hs.Decision.from_assignment(instant, places | {"b": "x"}, ["z", "a", "b", "c"])
    turned = hs.Decision.from_assignment(instant, places | {"b": "x"}, ["z", "a", "c", "b"])
    with pytest.raises(hs.InvalidSchedule, match="another decision: tasks of a device are in another order"):
        compare(instant, turned, forecast(instant, other))


def test_a_timeline_of_another_decision_is_refused(case):
    problem, _, measured = case
    other = hs.Decision.from_assignment(problem, {"a": "x", "b": "x", "c": "x"})
    with pytest.raises(hs.InvalidSchedule, match="another decision"):
        compare(problem, other, measured)
    with pytest.raises(TypeError, match=r"made by hetsched.runtime.compare"):
        hs.runtime.Comparison()


def test_a_run_in_another_order_is_found(case):
    graph = hs.TaskGraph(["a", "b"])
    problem = hs.Problem(graph, hs.Cluster(["x"]), durations=[[1.0], [1.0]])
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "x"}, ["a", "b"])
    swapped = RunTimes(np.array([1.0, 0.0]), np.array([2.0, 1.0]), *(np.zeros(2),) * 2, np.zeros(0), np.zeros(0), 2.0)
    measured = Timeline.of_runs(problem, decision, [swapped], carried=[])
    assert hs.verify(measured.problem(problem), measured.schedule) == []
    (broken,) = verify_run(problem, measured)
    assert (broken.rule, broken.amount, broken.tasks, broken.devices, broken.times) == ("order", 1.0, ("a", "b"), ("x",), (1.0, 0.0))
    assert broken.message == "on 'x' 'b' started 1 s before 'a', which comes first in the decision"
    assert compare(problem, decision, measured).violations == (broken,)
    assert "the run broke 1 rule" in str(compare(problem, decision, measured))
    problem, decision, timeline = case
    assert verify_run(problem, timeline) == []


@pytest.mark.parametrize(("clock_error", "rules"), [(0.125, []), (0.0625, ["precedence"])])
def test_a_start_that_is_early_by_no_more_than_the_clocks_differ_breaks_no_rule(clock_error, rules):
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 1.0)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=np.ones((2, 2)))
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "y"})
    early = RunTimes(np.array([0.0, 0.9]), np.array([1.0, 1.9]), *(np.zeros(2),) * 2, np.array([1.0]), np.array([0.95]), 1.9)
    measured = Timeline.of_runs(problem, decision, [early], carried=[(0,)], clock_error=clock_error)
    assert [broken.rule for broken in verify_run(problem, measured)] == rules
    comparison = compare(problem, decision, measured)
    assert [broken.rule for broken in comparison.violations] == rules
    assert not comparison.tasks.critical.any(), "the chain is unknown where a batch begins before its data by these clocks"


def test_the_forecast_of_a_run_has_its_machine_and_its_messages():
    problem, decision = fork()
    values = [Value(0, "a", 8.0, (1, 2))]
    machine = Machine({"x": Overhead(send=(0.25, 0.0))}, once=True)
    measured = Timeline.of_runs(
        problem, decision, [run_of(3, 4, 1.5, True, 6.75)], carried=Plan(problem, decision).carried, machine=machine
    )
    comparison = compare(problem, decision, measured)
    own = forecast(problem, decision, measured)
    assert own.schedule == forecast(problem, decision, machine, values=values).schedule
    assert own.makespan == comparison.forecast == 5.75
    with pytest.raises(hs.InvalidSchedule, match="the timeline is of another problem"):
        forecast(fork(inputs=2, batch_sizes=[2])[0], decision, measured)
