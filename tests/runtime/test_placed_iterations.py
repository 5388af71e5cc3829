"""Iterations by a runner: the same loop as of the simulation, on a clock of the test."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.runtime import Assistants, Observation, Resolve, Scenario, SlowDown, Static, iterate
from hetsched.runtime import iterations as loop
from hetsched.runtime.iterations import migration
from hetsched.testing.profiles import examples
from tests.runtime.test_iterations import FACTORS, Once, chain, placed

POLICIES = st.sampled_from(
    [
        Static,
        lambda: Assistants(cooldown=2),
        lambda: Assistants(theta=0.8, gamma=0.8, cooldown=1, window=1),
        lambda: Resolve("heft", evaluations=5, window=1),
    ]
)


class Clock:
    """A clock that only a runner advances."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Simulated:
    """A runner whose times are forecasts of the durations of a scenario, on a clock."""

    def __init__(self, problem: hs.Problem, scenario: Scenario, clock: Clock | None = None) -> None:
        self.problem, self.scenario, self.clock = problem, scenario, clock or Clock()
        self.factors = scenario.factors(problem.cluster, 100)
        self.decision: hs.Decision | None = None
        self.taken: list[tuple[object, ...]] = []

    def replace(self, decision: hs.Decision) -> None:
        if self.decision is not None:
            self.clock.now += migration(self.problem, self.decision, decision)[0]
        self.decision = decision

    def timed(self, *args: object) -> tuple[object, hs.costs.Timeline]:
        factors = self.factors[len(self.taken)]
        self.taken.append(args)
        slowed = self.problem.replace(durations=self.problem.durations * factors[:, None])
        assert self.decision is not None
        return None, hs.runtime.forecast(slowed, self.decision)


@pytest.mark.slow
@examples(60)
@given(placed(n_tasks=st.integers(2, 6)), POLICIES, st.lists(FACTORS, min_size=3, max_size=3), st.integers(1, 8), st.integers(1, 20))
def test_an_executor_whose_times_are_forecasts_is_the_simulation(
    case: tuple[hs.Problem, hs.Decision], make: Any, factors: list[float], stop: int, iterations: int
) -> None:
    problem, decision = case
    changes = [SlowDown(name, factor, 3, 3 + stop) for name, factor in zip(problem.cluster.names, factors, strict=False)]
    scenario, clock = Scenario(changes), Clock()
    runner = Simulated(problem, scenario, clock)
    with mock.patch.object(loop, "time", clock):
        ran = iterate(runner, decision, iterations, policy=make(), items=itertools.count())
    simulated = iterate(problem, decision, iterations, policy=make(), scenario=scenario)
    assert runner.taken == [(t,) for t in range(iterations)]
    assert ran.decisions == simulated.decisions
    assert ran.moved.tolist() == simulated.moved.tolist()
    for name in ("makespan", "pause", "busy", "traffic"):
        np.testing.assert_allclose(getattr(ran, name), getattr(simulated, name), rtol=1e-9, atol=1e-9)
    assert ran.thinking.tolist() == [0.0] * iterations
    assert ran.moved_bytes.tolist() == [0.0] * iterations


def test_iterations_end_with_the_items_and_take_no_more_than_they_run() -> None:
    problem, decision = chain()
    other = hs.Decision.whole(problem, [0, 0], [0, 1])
    runner = Simulated(problem, Scenario())
    run = iterate(runner, decision, 9, policy=Once(other), items=[(1, 2), 3])
    assert runner.taken == [(1, 2), (3,)]
    assert (run.makespan.tolist(), list(run.decisions), run.migrations) == ([7, 7], [0, 1], 1)
    items = iter(range(9))
    assert len(iterate(Simulated(problem, Scenario()), decision, 3, items=items).seconds) == 3
    assert next(items) == 3
    nothing = iterate(Simulated(problem, Scenario()), decision, 3, policy=Once(other), items=[])
    assert (nothing.seconds.tolist(), nothing.busy.shape, list(nothing.decisions)) == ([], (0, 2), [0])


def test_a_decision_after_the_last_iteration_is_not_used() -> None:
    problem, decision = chain()
    runner = Simulated(problem, Scenario())
    run = iterate(runner, decision, 1, policy=Once(hs.Decision.whole(problem, [0, 0], [0, 1])), items=itertools.repeat(()))
    assert runner.decision is decision
    assert list(run.decisions) == [0]


def test_an_observation_of_a_run_counts_a_message_once() -> None:
    """A value that two tasks of another device read travels in one message."""
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 4.0), ("a", "c", 4.0)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=2.0), durations=[[3, 3], [1, 1], [2, 2]])
    decision = hs.Decision.whole(problem, [0, 1, 1], [0, 1, 2])
    plan = hs.runtime.Plan(problem, decision, [hs.runtime.plan.Value(0, "v", 4.0, (1, 2))])
    assert plan.carried == ((0, 1),)
    times = hs.costs.RunTimes(
        start=np.array([0.0, 6.0, 7.0]),
        finish=np.array([3.0, 7.0, 9.0]),
        cpu=np.full(3, np.nan),
        waited=np.zeros(3),
        posted=np.array([3.0]),
        seen=np.array([5.5]),
        makespan=9.5,
    )
    timeline = hs.costs.Timeline.of_runs(problem, decision, [times], carried=plan.carried)
    observation = Observation.of_timeline(4, decision, timeline)
    assert (observation.iteration, observation.decision, observation.seconds) == (4, decision, 9.5)
    assert observation.task_seconds.tolist() == [3, 1, 2]
    assert observation.transfer_seconds.tolist() == [2.5, 2.5]
    for other in (hs.Decision.whole(problem, [0, 1, 0], [0, 1, 2]), hs.Decision([0, 0, 1], [0, 1, 1])):
        with pytest.raises(hs.InvalidSchedule, match="the timeline is of another placement, or a task has several batches"):
            Observation.of_timeline(0, other, timeline)


def test_what_does_not_fit_together_is_refused() -> None:
    problem, decision = chain()
    runner = Simulated(problem, Scenario())
    for wrong in ({}, {"items": [1], "scenario": Scenario()}):
        with pytest.raises(hs.InvalidArgument, match="an executor needs items, its arguments in each iteration, and its speeds have no"):
            iterate(runner, decision, **wrong)
    with pytest.raises(hs.InvalidArgument, match="items are arguments for an executor, and a problem is simulated; leave them out"):
        iterate(problem, decision, items=[1])
    with pytest.raises(hs.InvalidArgument, match="problem is <object .* or a Runner, which has problem and replace and timed"):
        iterate(object(), decision, items=[1])
    with pytest.raises(hs.InvalidProblem, match="iterations is 0; it must be 1 or more"):
        iterate(runner, decision, 0, items=[1])
    with pytest.raises(hs.UnsupportedFeature, match="memory='peak'"):
        iterate(Simulated(problem.replace(memory="peak"), Scenario()), decision, items=[1])
    small = problem.replace(cluster=hs.Cluster([hs.Device("d0", memory_bytes=20), hs.Device("d1", memory_bytes=9)], bandwidth=2))
    full = hs.Decision.whole(small, [1, 1], [0, 1])
    with pytest.raises(hs.InvalidSchedule, match="the decision needs 16 bytes on 'd1', which has 9"):
        iterate(Simulated(small, Scenario()), decision, policy=Once(full), items=[1, 2])
