"""Windows of a schedule, against the schedule and all other schedules of their batches."""

from __future__ import annotations

import itertools
import math

import instances
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis.task_subsets import RefutationBudget
from hetsched.decomposition import sweeps as sweeps_module
from hetsched.decomposition import windows as windows_module
from hetsched.decomposition.sweeps import Sweeps
from hetsched.decomposition.windows import Batches
from hetsched.search import Budget, Monitor
from hetsched.stopping import NEVER, Deadline
from hetsched.testing import brute_force, problems
from hetsched.testing.clocks import SteppingClock
from hetsched.testing.profiles import examples

LONGER = 1 + 1e-6


@st.composite
def windows(draw, **settings):
    """Draw a problem, the batches of a schedule of it, some of its tasks and other batches of one of these."""
    problem = draw(problems(n_tasks=st.integers(2, 6), **settings))
    name = draw(st.sampled_from(["heft", "best-device", "olb"] if problem.inputs == 1 else ["bheft", "bmet"]))
    schedule = hs.solve(problem, name).schedule
    assume(schedule is not None)
    tasks = np.array(draw(st.lists(st.integers(0, problem.n_tasks - 1), min_size=1, max_size=4, unique=True)))
    divisions = {}
    chosen = int(tasks[0])
    if problem.inputs > 1 and problem.graph.colocation[chosen] is None and draw(st.booleans()):
        first = draw(st.integers(1, problem.inputs))
        batch = np.repeat([0, 1], [first, problem.inputs - first])
        division = batch == np.arange(batch[-1] + 1)[:, None]
        sizes = division.sum(axis=1)
        if np.isin(sizes, problem.batch_sizes).all():
            least = problem.usable_durations[chosen][:, np.searchsorted(problem.batch_sizes, sizes)]
            divisions = {chosen: division} if np.isfinite(least).any(axis=0).all() else {}
    return problem, Batches(problem, schedule), tasks, divisions


def others(problem, decision, tasks):
    """Return tasks, devices and inputs of the batches of all other tasks, in their order on each device."""
    order = np.lexsort((np.arange(decision.n_batches), decision.device))
    rows = [
        (int(decision.task[b]), int(decision.device[b]), decision.items[decision.item_ptr[b] : decision.item_ptr[b + 1]].tolist())
        for b in order
    ]
    return [row for row in rows if row[0] not in tasks]


def simulated(problem, decision):
    """Return the schedule of a decision, or None if its batches wait for one another."""
    try:
        return hs.simulate(problem, decision)
    except hs.errors.InvalidSchedule as error:
        if "deadlocks" not in str(error):
            raise
    return None


@examples(30, HealthCheck.filter_too_much)
@given(windows())
def test_a_window_contains_its_schedule_and_keeps_all_other_decisions(made):
    problem, batches, tasks, divisions = made
    schedule, part = batches.schedule, batches.window(tasks, divisions)
    tight = problem.memory == "static" and np.isfinite(problem.cluster.memory_bytes).any()
    found = part.window.shorter(schedule.makespan * LONGER, RefutationBudget(nodes=20_000))
    if found is None:
        assert divisions or problem.links.contended or tight
        return
    decision = part.joined(*found)
    if problem.inputs > 1 and problem.batching == "once":  # batches of one task that move to one device become one
        if decision is not None and (joined := simulated(problem, decision)) is not None:
            assert [row for row in hs.verify(problem, joined) if "memory" not in row.rule] == []
        return
    joined = hs.simulate(problem, decision)
    if (schedule.batches.finish > schedule.batches.start).all():
        assert others(problem, decision, tasks) == others(problem, schedule.decision, tasks)
    assert [row for row in hs.verify(problem, joined) if "memory" not in row.rule] == []
    if not problem.links.contended:
        assert joined.makespan <= schedule.makespan * LONGER


@examples(40, HealthCheck.filter_too_much)
@given(windows())
def test_limits_are_those_of_the_transfers(made):
    """Of each pair of batches of two tasks joined by an edge with a common input, one in the window, one before it, in it or after it."""
    problem, batches, tasks, divisions = made
    part = batches.window(tasks, divisions)
    window, devices = part.window, np.arange(problem.n_devices)
    arcs = []
    release, delivery = np.zeros((2, len(part.task), len(devices)))
    takes = batches.finish > batches.start
    for rows, limit, times in ((part.before, release, batches.finish), (part.after, delivery, batches.tail)):
        for b in rows[takes[rows]]:
            limit[:, batches.device[b]] = np.maximum(limit[:, batches.device[b]], times[b])
    for e, (p, q) in enumerate(problem.graph.edges.tolist()):
        for y in np.flatnonzero(part.task == q):
            for b in part.before[batches.task[part.before] == p]:
                if common := int((batches.inputs[b] & part.inputs[y]).sum()):
                    lag = problem.transfer_times(e, batches.device[b], devices, common)
                    release[y] = np.maximum(release[y], batches.finish[b] + lag)
            arcs += [
                (int(y), int(x), problem.transfer_times(e, devices[:, None], devices, common).tolist())
                for x in np.flatnonzero(part.task == p)
                if (common := int((part.inputs[x] & part.inputs[y]).sum()))
            ]
        for x in np.flatnonzero(part.task == p):
            for b in part.after[batches.task[part.after] == q]:
                if common := int((part.inputs[x] & batches.inputs[b]).sum()):
                    lag = problem.transfer_times(e, devices, batches.device[b], common)
                    delivery[x] = np.maximum(delivery[x], batches.tail[b] + lag)
    np.testing.assert_array_equal(window.release, release)
    np.testing.assert_array_equal(window.delivery, delivery)
    given = zip(window.target.tolist(), window.source.tolist(), window.lag.tolist(), strict=True)
    assert (np.diff(window.target) >= 0).all()
    assert sorted(given) == sorted(arcs)
    fixed = part.kept[~np.isin(batches.task[part.kept], tasks) & takes[part.kept]]
    orders = [tuple(part.place[np.searchsorted(part.kept, fixed[batches.device[fixed] == k])].tolist()) for k in devices]
    assert sorted(map(tuple, window.order.tolist())) == sorted(pair for row in orders for pair in itertools.pairwise(row))


@examples(15, HealthCheck.filter_too_much)
@given(windows(inputs=1, communication="delay", memory="static", batching="once"))
def test_the_window_of_all_tasks_is_the_problem(made):
    problem, batches, _, _ = made
    everything = batches.window(np.arange(problem.n_tasks))
    budget = RefutationBudget(nodes=20_000)
    found = everything.window.shorter(batches.schedule.makespan * LONGER, budget)
    assume(not budget.open and found is not None)
    assert hs.simulate(problem, everything.joined(*found)).makespan == pytest.approx(brute_force(problem).makespan, rel=1e-5)


def test_windows_of_very_many_batches_are_passed_over(monkeypatch):
    """With 20,000 tasks some had thousands, and took seconds beyond the time limit."""
    problem = instances.module("er", 32, 0)
    schedule = hs.solve(problem, "olb").schedule
    batches = Batches(problem, schedule)
    assert batches.window(np.arange(problem.n_tasks)) is not None
    monkeypatch.setattr(windows_module, "MOST_AT_ONCE", problem.n_tasks - 1)
    assert batches.window(np.arange(problem.n_tasks)) is None
    assert batches.window(np.array([0])) is not None
    monkeypatch.setattr(windows_module, "MOST_AT_ONCE", 0)
    monitor = Monitor(problem, Budget(evaluations=1000))
    sweeps = Sweeps(problem, monitor, schedule, None, 1, monitor.deadline)
    sweeps.run()
    assert (sweeps.makespan, monitor.evaluations) == (schedule.makespan, 0)


def test_the_temperature_falls_with_time_and_evaluations_and_is_none_without_other_batches_or_limits():
    clock = SteppingClock(step=0)
    for inputs in (1, 4):
        problem = instances.short(4, 2, inputs=inputs)
        schedule = hs.solve(problem, "heft").schedule
        monitor = Monitor(problem, Budget(100.0), clock=clock)

        def sweeps(deadline, evaluations=None, problem=problem, schedule=schedule, monitor=monitor):
            return Sweeps(problem, monitor, schedule, None, 1, deadline, evaluations)

        assert sweeps(NEVER)._temperature == 0.0
        timed, counted = sweeps(Deadline.after(10.0, clock)), sweeps(NEVER, 20)
        if inputs == 1:
            assert timed._temperature == counted._temperature == 0.0
            continue
        assert timed._temperature == counted._temperature == pytest.approx(sweeps_module.HOT)
        clock.now += 5.0
        monitor.evaluated(10)
        middle = math.sqrt(sweeps_module.HOT * sweeps_module.COLD)
        assert timed._temperature == pytest.approx(middle)
        assert counted._temperature == pytest.approx(middle)
        clock.now += 10.0
        assert timed._temperature == pytest.approx(sweeps_module.COLD)


def test_batches_of_a_task_on_one_device_become_one():
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 1.0)])
    times = np.array([[[1.0, 1.5], [9.0, 9.5]], [[1.0, 1.5], [2.0, 3.0]]])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=times, inputs=2, batch_sizes=[1, 2])
    batches = Batches(problem, hs.simulate(problem, hs.Decision([0, 1], [0, 0], [0, 2, 4], [0, 1, 0, 1])))
    divided = batches.window(np.array([0, 1]), {0: np.eye(2, dtype=bool)})
    assert divided.task.tolist() == [0, 0, 1]
    decision = divided.joined(np.array([0, 0, 0]), np.array([0.0, 1.0, 2.0]))
    assert decision.task.tolist() == [0, 1]
    assert hs.simulate(problem, decision).makespan == 3.0
    free = Batches(problem.replace(batching="free"), batches.schedule).window(np.array([0, 1]), {0: np.eye(2, dtype=bool)})
    assert free.joined(np.array([0, 0, 0]), np.array([0.0, 1.0, 2.0])).task.tolist() == [0, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [1, 16])
def test_sweeps_heed_limits_and_never_take_a_longer_schedule(inputs):
    problem = instances.short(6, 3, channels=2, inputs=inputs)
    schedule = hs.solve(problem, "heft").schedule
    for seconds, evaluations in ((0.0, None), (4000.0, None), (math.inf, 25)):
        clock = SteppingClock(step=1.0)
        monitor = Monitor(problem, Budget(seconds), clock=clock)
        sweeps = Sweeps(problem, monitor, schedule, None, 1, monitor.deadline, evaluations)
        sweeps.run()
        assert sweeps.makespan <= schedule.makespan
        assert (sweeps.makespan < schedule.makespan) == (seconds > 0)
        assert monitor.best is None or hs.verify(problem, monitor.best) == []
        assert monitor.evaluations <= (27 if evaluations else 4000)
        if math.isfinite(seconds):
            assert clock.late(monitor.deadline) <= 12, "some looks of the loops around the last window"
