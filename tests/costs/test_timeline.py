"""Timelines of runs: their schedules verify against problems with their times, and documents restore them to the bit."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import documents
from hetsched.costs import Machine, Overhead, RunTimes, Timeline
from hetsched.runtime.plan import Gather, Plan, Run, Send, Value, Wait
from hetsched.testing import decisions, problems
from hetsched.testing.profiles import examples

LENGTHS = st.integers(0, 3 * 10**9).map(lambda nanoseconds: nanoseconds / 1e9)
NAN = float("nan")


def ran(plan, data):
    """Take the steps of a plan with random lengths of batches and messages, as an engine does, and return the times."""
    m, place = len(plan.task), {send: x for x, send in enumerate(plan.sends)}
    start, finish, waited, gathered = np.zeros(m), np.zeros(m), np.zeros(m), np.zeros(m)
    posted, seen = np.zeros(len(place)), np.full(len(place), NAN)
    arrival = {}
    clock, at, idle = [0.0] * len(plan.devices), [0] * len(plan.devices), [0.0] * len(plan.devices)
    moved = True
    while moved:
        moved = False
        for k, steps in enumerate(plan.steps):
            while at[k] < len(steps):
                step = steps[at[k]]
                if isinstance(step, Run):
                    start[step.batch], waited[step.batch], idle[k] = clock[k], idle[k], 0.0
                    clock[k] = finish[step.batch] = clock[k] + data.draw(LENGTHS)
                elif isinstance(step, Send):
                    posted[place[step]] = clock[k]
                    arrival[step] = clock[k] + data.draw(LENGTHS)
                elif isinstance(step, Wait):
                    send = Send(step.value, step.batch, k)
                    if send not in arrival:
                        break
                    late = arrival[send] - clock[k]
                    if late > 0:
                        seen[place[send]] = clock[k] = arrival[send]
                        idle[k] += late
                elif isinstance(step, Gather):
                    spent = data.draw(LENGTHS)
                    clock[k] += spent
                    gathered[step.batch] += spent
                at[k], moved = at[k] + 1, True
    return RunTimes(start, finish, np.full(m, NAN), waited, posted, seen, max(clock), gathered)


@st.composite
def measured(draw):
    """Draw a problem, a decision of it and a timeline of runs."""
    problem = draw(
        problems(
            n_tasks=st.integers(1, 6),
            n_devices=st.integers(1, 3),
            inputs=st.sampled_from([1, 1, 2, 3]),
            batching="once",
            memory="static",
            tight=False,
        )
    )
    decision = draw(decisions(problem))
    values = None
    if draw(st.booleans()):
        children = [tuple(problem.graph.edges[problem.graph.edges[:, 0] == i, 1].tolist()) for i in range(problem.n_tasks)]
        values = [Value(i, f"v{i}", 1.0, tuple(sorted(readers))) for i, readers in enumerate(children)]
    plan = Plan(problem, decision, values)
    data = draw(st.data())
    runs = [ran(plan, data) for _ in range(draw(st.integers(1, 3)))]
    machine = draw(st.sampled_from([None, Machine({"d0": Overhead(1e-6, "main", 5e-6, (1e-5, 1e-9), (0.0, 2e-9), 1.5)}, once=True)]))
    software = draw(st.dictionaries(st.sampled_from(["torch", "hetsched"]), st.sampled_from(["1", "2.13"])))
    made = Timeline.of_runs(problem, decision, runs, carried=plan.carried, machine=machine, plan_digest=plan.digest, software=software)
    return problem, decision, plan, runs, made


@pytest.mark.slow
@given(measured())
@examples(200)
def test_a_run_verifies_against_the_problem_with_its_times(case):
    problem, decision, _, runs, timeline = case
    assert hs.verify(timeline.problem(problem), timeline.schedule) == []
    shown = int(np.abs(timeline.makespans - np.median(timeline.makespans)).argmin())
    batches, run = timeline.schedule.batches, runs[shown]
    lasts = problem.durations[decision.task, decision.device, np.searchsorted(problem.batch_sizes, decision.sizes)] > 0
    assert (batches.finish == run.finish).all()
    assert (batches.start == np.where(lasts, run.start, run.finish)).all()
    np.testing.assert_array_equal(timeline.durations[shown], batches.finish - batches.start)
    assert timeline.makespan == np.median([run.makespan for run in runs])


@pytest.mark.slow
@given(measured())
@examples(200)
def test_transfers_of_one_message_share_its_times(case):
    _, _, plan, runs, timeline = case
    shown = int(np.abs(timeline.makespans - np.median(timeline.makespans)).argmin())
    moves, run = timeline.schedule.transfers, runs[shown]
    for place, rows in enumerate(map(list, plan.carried)):
        assert (timeline.shipment[rows] == place).all()
        assert (moves.start[rows] == run.posted[place]).all()
        assert (timeline.seen[rows] == ~np.isnan(run.seen[place])).all()
        if len(rows) and timeline.seen[rows[0]]:
            assert (moves.finish[rows] == run.seen[place]).all()
            assert (timeline.lengths[shown, rows] == run.seen[place] - run.posted[place]).all()
        else:
            assert np.isnan(timeline.lengths[shown, rows]).all()
    assert len(set(timeline.shipment.tolist())) == len(plan.sends)


@pytest.mark.slow
@given(measured())
@examples(100)
def test_a_timeline_comes_back_to_the_bit(case):
    timeline = case[-1]
    data = documents.encode(timeline)
    back = documents.decode(data)
    assert back == timeline
    assert documents.encode(back) == data
    jsonschema.validate(json.loads(data), documents.schema("timeline"))


def two_tasks(**arguments):
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 8.0), ("a", "c", 8.0)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=8.0), durations=[[2, 2], [3, 3], [0, 0]], **arguments)
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "y", "c": "y"}, ["a", "b", "c"])
    return problem, decision, Plan(problem, decision, [Value(0, "t", 8.0, (1, 2))])


def run_of(start, finish, posted, seen, makespan):
    return RunTimes(*(np.array(column, float) for column in (start, finish, [2.0, 2.5, NAN], [0.0, 0.5, 0.0], posted, seen)), makespan)


def test_the_run_nearest_the_median_is_shown_and_all_runs_are_kept():
    problem, decision, plan = two_tasks()
    assert plan.carried == ((0, 1),)
    # Batches: a on x; b, c on y. c has no length in the problem, and 0.25 s in the run.
    slow = run_of([0, 4, 8], [3, 8, 8.5], [3], [4], 9.0)
    usual = run_of([0, 3, 6], [2, 6, 6.25], [2], [2.5], 6.5)
    early = run_of([0, 2.5, 5], [2, 5, 5.25], [2], [NAN], 6.0)
    timeline = Timeline.of_runs(problem, decision, [slow, usual, early], carried=plan.carried)
    assert timeline.makespans.tolist() == [9.0, 6.5, 6.0]
    assert timeline.makespan == 6.5
    assert timeline.schedule.makespan == 6.25
    assert timeline.schedule.batches.start.tolist() == [0, 3, 6.25]
    assert timeline.durations.tolist() == [[3, 4, 0], [2, 3, 0], [2, 2.5, 0]]
    np.testing.assert_array_equal(timeline.lengths, [[1, 1], [0.5, 0.5], [NAN, NAN]])
    assert timeline.quartiles.median.tolist() == [2, 3, 0]
    assert timeline.stolen == pytest.approx(0.5 / 5.0)
    alone = Timeline.of_runs(problem, decision, [early], carried=plan.carried)
    # Not seen: the link's second, but c and b begin before it would be over.
    assert alone.schedule.transfers.finish.tolist() == [2.5, 3.0]
    assert alone.seen.tolist() == [False, False]
    assert hs.verify(alone.problem(problem), alone.schedule) == []


def test_a_run_that_breaks_precedence_is_found_by_verify():
    problem, decision, plan = two_tasks()
    hasty = run_of([0, 1, 4], [2, 4, 4.0], [2], [NAN], 4.0)
    timeline = Timeline.of_runs(problem, decision, [hasty], carried=plan.carried)
    assert {violation.rule for violation in hs.verify(timeline.problem(problem), timeline.schedule)} == {"precedence"}


def test_a_batch_that_starts_before_its_value_was_seen_is_found_by_verify():
    problem, decision, plan = two_tasks()
    early = run_of([0, 2.5, 6], [2, 6, 6], [2.1], [3], 6.0)
    timeline = Timeline.of_runs(problem, decision, [early], carried=plan.carried)
    assert {"precedence"} <= {violation.rule for violation in hs.verify(timeline.problem(problem), timeline.schedule)}


def test_clocks_that_differ_do_not_make_a_transfer_shorter_than_nothing():
    problem, decision, plan = two_tasks()
    run = run_of([0, 3, 6], [2, 6, 6], [2.1], [2.0], 6.0)  # seen by the clock of a GPU, posted by that of the host
    timeline = Timeline.of_runs(problem, decision, [run], carried=plan.carried, clock_error=0.125)
    assert timeline.lengths.tolist() == [[0, 0]]
    assert timeline.schedule.transfers.finish.tolist() == [2.1, 2.1]
    with pytest.raises(hs.InvalidSchedule, match=r"lengths has -0\.1"):
        Timeline.of_runs(problem, decision, [run], carried=plan.carried, clock_error=0.0625)


def test_an_edge_of_two_messages_lasts_from_the_first_to_the_last():
    problem, decision, _ = two_tasks()
    plan = Plan(problem, decision, [Value(0, "s", 4.0, (1, 2)), Value(0, "t", 4.0, (1,))])
    assert plan.carried == ((0, 1), (0,))
    runs = [run_of([0, 4, 7], [2, 7, 7], [2, 2.5], [3.5, 3], 7.0), run_of([0, 4, 7], [2, 7, 7], [2, 2.5], [3, NAN], 7.5)]
    timeline = Timeline.of_runs(problem, decision, runs, carried=plan.carried)
    np.testing.assert_array_equal(timeline.lengths, [[1.5, 1.5], [NAN, 1.0]])
    assert timeline.schedule.transfers.start.tolist() == [2, 2]
    assert timeline.schedule.transfers.finish.tolist() == [3.5, 3.5]


def test_what_did_not_run_keeps_its_times():
    problem, decision, plan = two_tasks(communication="port")
    timeline = Timeline.of_runs(problem, decision, [run_of([0, 3, 6], [2.5, 7, 7], [2.5], [3], 7.0)], carried=plan.carried)
    replaced = timeline.problem(problem)
    assert replaced.communication == "delay"
    assert replaced.durations[:, :, 0].tolist() == [[2.5, 2], [3, 4], [0, 0]]
    assert replaced.transfers.tolist() == [[[0, 0.5], [1, 0]], [[0, 0.5], [1, 0]]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cpu": [1.0]}, "cpu"),
        ({"makespans": []}, "at least one run"),
        ({"durations": [[1.0, 1.0, 1.0]] * 2}, "durations"),
        ({"seen": [True]}, "seen"),
        ({"waited": [NAN, 0.0, 0.0]}, "waited has nan; it must be finite seconds, at least 0"),
        ({"lengths": [[-1.0, NAN]]}, "lengths has -1.0; it must be finite seconds, at least 0, or NaN if unknown"),
        ({"plan_digest": "\ud800"}, "not Unicode text"),
        ({"software": {"torch": "\ud800"}}, "not Unicode text"),
        ({"clock_error": NAN}, "clock_error is nan"),
    ],
)
def test_columns_that_do_not_fit_are_refused(change, message):
    problem, decision, plan = two_tasks()
    timeline = Timeline.of_runs(problem, decision, [run_of([0, 3, 6], [2, 6, 6], [2], [3], 6.0)], carried=plan.carried)
    columns = {name: getattr(timeline, name) for name in ("cpu", "waited", "seen", "shipment", "durations", "lengths", "makespans")}
    with pytest.raises(hs.InvalidSchedule, match=message):
        Timeline(timeline.schedule, **{**columns, **change})


def test_a_timeline_of_another_problem_or_without_runs_is_refused():
    problem, decision, plan = two_tasks()
    timeline = Timeline.of_runs(problem, decision, [run_of([0, 3, 6], [2, 6, 6], [2], [3], 6.0)], carried=plan.carried)
    other = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[1, 1]])
    with pytest.raises(hs.InvalidSchedule, match="another problem"):
        timeline.problem(other)
    with pytest.raises(hs.InvalidSchedule, match="no runs"):
        Timeline.of_runs(problem, decision, [], carried=plan.carried)
    with pytest.raises(hs.InvalidSchedule, match="no send carries transfer 1"):
        Timeline.of_runs(problem, decision, [run_of([0, 3, 6], [2, 6, 6], [2], [3], 6.0)], carried=[(0,)])
