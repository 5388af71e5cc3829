"""Many iterations of a placed graph: every iteration is a simulated schedule, and each change affects nothing else."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.problem.links import UNCONTENDED
from hetsched.runtime import Interference, LessMemory, Observation, Scenario, SlowDown, SlowLink, Static, iterate
from hetsched.runtime.iterations import devices_of
from hetsched.schedule import memory
from hetsched.testing import decisions, problems

FACTORS = st.sampled_from([0.5, 1.0, 2.0, 4.0])


@st.composite
def placed(draw: st.DrawFn, **arguments: Any) -> tuple[hs.Problem, hs.Decision]:
    """Draw a problem of one input and a decision that keeps all its rules."""
    problem = draw(problems(inputs=1, memory="static", **arguments))
    decision = draw(decisions(problem))
    assume(not memory.over_capacity(problem, memory.static(problem, decision)).any())
    return problem, decision


def slowed(problem: hs.Problem, factors: list[float], start: int = 0) -> Scenario:
    return Scenario([SlowDown(name, factor, start) for name, factor in zip(problem.cluster.names, factors, strict=False)])


@pytest.mark.slow
@given(placed())
def test_without_a_scenario_every_iteration_is_the_schedule(case: tuple[hs.Problem, hs.Decision]) -> None:
    problem, decision = case
    schedule = hs.simulate(problem, decision)
    run = iterate(problem, decision, 3)
    assert run.seconds.tolist() == [schedule.makespan] * 3
    np.testing.assert_array_equal(run.busy, [schedule.busy_time] * 3)
    assert (run.migrations, run.pause.sum(), list(run.decisions)) == (0, 0, [0])


@pytest.mark.slow
@given(placed(), st.lists(FACTORS, min_size=3, max_size=3), st.integers(0, 3))
def test_a_slow_down_is_a_problem_with_longer_durations(case: tuple[hs.Problem, hs.Decision], factors: list[float], start: int) -> None:
    problem, decision = case
    run = iterate(problem, decision, 3, scenario=slowed(problem, factors, start))
    longer = problem.replace(durations=problem.durations * np.array(factors)[: problem.n_devices, None])
    makespans = [hs.simulate(problem, decision).makespan, hs.simulate(longer, decision).makespan]
    assert run.seconds.tolist() == [makespans[t >= start] for t in range(3)]


@pytest.mark.slow
@given(placed(n_devices=3), st.lists(FACTORS, min_size=3, max_size=3), st.lists(FACTORS, min_size=3, max_size=3))
def test_an_iteration_is_the_schedule_of_the_scenario_s_problem(
    case: tuple[hs.Problem, hs.Decision], factors: list[float], links: list[float]
) -> None:
    problem, decision = case
    names = problem.cluster.names
    slow = [SlowDown(name, factor, 1) for name, factor in zip(names, factors, strict=True)]
    pairs = [SlowLink(names[h], names[k], factor, 2, 3) for (h, k), factor in zip(((0, 1), (1, 0), (2, 1)), links, strict=True)]
    scenario = Scenario(slow, slow_links=pairs)
    run = iterate(problem, decision, 4, scenario=scenario)
    for t in range(4):
        present = scenario.problem(problem, t)
        schedule = hs.simulate(present, decision)
        assert run.makespan[t] == pytest.approx(schedule.makespan)
        assert run.busy[t] == pytest.approx(schedule.busy_time)
        assert hs.verify(present, schedule) == []
    assert Scenario(noise=0.1, interference=Interference(rate=1)).problem(problem, 0) is scenario.problem(problem, 0) is problem


@pytest.mark.slow
@given(placed(communication=st.sampled_from(UNCONTENDED)), st.lists(FACTORS, min_size=3, max_size=3), st.integers(0, 2))
def test_a_slower_device_never_shortens_an_iteration(case: tuple[hs.Problem, hs.Decision], factors: list[float], slow: int) -> None:
    """This holds for fixed orders without contention."""
    problem, decision = case
    before = iterate(problem, decision, 1, scenario=slowed(problem, factors))
    factors[slow] *= 2
    assert iterate(problem, decision, 1, scenario=slowed(problem, factors)).seconds[0] >= before.seconds[0]


@given(placed())
def test_devices_twice_as_slow_without_transfers_take_twice_as_long(case: tuple[hs.Problem, hs.Decision]) -> None:
    problem, decision = case
    size = problem.n_devices
    free = problem.replace(transfers=np.zeros((problem.graph.n_edges, size, size)))
    slow = iterate(free, decision, 2, scenario=slowed(free, [2.0] * size, 1))
    assert slow.seconds[1] == 2 * slow.seconds[0]


@given(placed(), st.integers(0, 5))
def test_the_same_seed_gives_the_same_run(case: tuple[hs.Problem, hs.Decision], seed: int) -> None:
    problem, decision = case
    scenario = Scenario(noise=0.3, interference=Interference(rate=0.5), seed=seed)
    assert iterate(problem, decision, 6, scenario=scenario) == iterate(problem, decision, 6, scenario=scenario)


def chain() -> tuple[hs.Problem, hs.Decision]:
    graph = hs.TaskGraph(["a", "b"], [("a", "b")], weight_bytes=[8, 4], output_bytes=2)
    cluster = hs.Cluster(["d0", "d1"], bandwidth=2, latency=1)
    problem = hs.Problem(graph, cluster, durations=[[3.0, 6.0], [4.0, 2.0]])
    return problem, hs.Decision.from_assignment(problem, {"a": "d0", "b": "d1"})


class Once:
    """A policy that returns one decision after the first iteration, and keeps the observations."""

    def __init__(self, wanted: hs.Decision) -> None:
        self.wanted, self.observations = wanted, list[Observation]()

    def begin(self, problem: hs.Problem, decision: hs.Decision) -> None:
        self.observations = []

    def observe(self, observation: Observation) -> hs.Decision | None:
        self.observations.append(observation)
        return self.wanted if observation.iteration == 0 else None


def test_a_migration_takes_the_time_its_weights_travel() -> None:
    problem, decision = chain()
    policy = Once(hs.Decision.from_assignment(problem, {"a": "d1", "b": "d0"}))
    run = iterate(problem, decision, 3, policy=policy)
    assert run.makespan.tolist() == [3 + 2 + 2, 6 + 2 + 4, 6 + 2 + 4]
    assert run.pause.tolist() == [0, 1 + 8 / 2, 0]  # the other pair's 1 + 4 / 2 is concurrent
    assert run.seconds.tolist() == [7, 17, 12]
    assert (run.moved.tolist(), run.moved_bytes.tolist(), run.migrations) == ([0, 2, 0], [0, 12, 0], 2)
    assert run.busy.tolist() == [[3, 2], [4, 6], [4, 6]]
    assert run.traffic.tolist() == [[2, 2]] * 3
    np.testing.assert_allclose(run.utilisation, [[3 / 7, 2 / 7], [4 / 17, 6 / 17], [4 / 12, 6 / 12]])
    assert list(run.decisions) == [0, 1]
    assert repr(run) == "<Run of 3 iterations in 36 s, 2 migrations>"


def test_a_slow_link_delays_its_tensors_and_weights_only() -> None:
    problem, decision = chain()
    policy = Once(hs.Decision.from_assignment(problem, {"a": "d1", "b": "d0"}))
    slow = Scenario(slow_links=[SlowLink("d0", "d1", 3.0, 1), SlowLink("d0", "d1", 2.0, 2)])
    run = iterate(problem, decision, 3, policy=policy, scenario=slow)
    assert run.pause.tolist() == [0, 3 * (1 + 8 / 2), 0]
    assert run.makespan.tolist() == [3 + 2 + 2, 6 + 2 + 4, 6 + 2 + 4]
    still = iterate(problem, decision, 3, scenario=slow)
    assert still.makespan.tolist() == [3 + 2 + 2, 3 + 6 + 2, 3 + 12 + 2]
    assert still.traffic.tolist() == [[2, 2], [6, 6], [12, 12]]


def test_a_decision_that_no_longer_fits_runs_on_and_its_excess_is_recorded() -> None:
    problem, decision = chain()
    problem = problem.replace(cluster=hs.Cluster([hs.Device("d0", memory_bytes=20), "d1"], bandwidth=2, latency=1))
    less = Scenario(less_memory=[LessMemory("d0", 8.0, 1), LessMemory("d0", 6.0, 2, 3), LessMemory("d0", 20.0, 3)])
    run = iterate(problem, decision, 4, scenario=less)
    assert run.excess.tolist() == [[0, 0], [0, 0], [4, 0], [10, 0]]  # 8 bytes of weights and 2 of output
    assert run.makespan.tolist() == [7] * 4
    assert less.problem(problem, 2).cluster.memory_bytes.tolist() == [6, np.inf]
    both = hs.Decision.whole(problem, [0, 0], [0, 1])  # needs 16
    assert iterate(problem, decision, 3, policy=Once(both), scenario=less).excess[:, 0].tolist() == [0, 4, 10]
    with pytest.raises(hs.InvalidSchedule, match="the decision needs 16 bytes on 'd0', which has 12; place fewer tasks there"):
        iterate(problem, decision, 3, policy=Once(both), scenario=Scenario(less_memory=[LessMemory("d0", 8.0)]))


def test_a_policy_observes_transfers_and_memory() -> None:
    problem, decision = chain()
    problem = problem.replace(cluster=hs.Cluster([hs.Device("d0", memory_bytes=20), "d1"], bandwidth=2, latency=1))
    policy = Once(decision)
    scenario = Scenario(slow_links=[SlowLink("d0", "d1", 3.0, 1)], less_memory=[LessMemory("d0", 8.0, 1)])
    iterate(problem, decision, 2, policy=policy, scenario=scenario)
    for observation, seconds, room in zip(policy.observations, (2, 6), (20, 12), strict=True):
        assert observation.transfers is not None
        assert (observation.transfers.edge.tolist(), observation.transfers.seconds.tolist()) == ([0], [seconds])
        assert observation.memory_bytes is not None
        assert observation.memory_bytes.tolist() == [room, np.inf]


def test_weights_between_one_pair_of_devices_follow_one_another() -> None:
    problem, decision = chain()
    both = iterate(problem, hs.Decision.whole(problem, [0, 0], [0, 1]), 2, policy=Once(hs.Decision.whole(problem, [1, 1], [0, 1])))
    assert both.pause.tolist() == [0, (1 + 8 / 2) + (1 + 4 / 2)]
    same = iterate(problem, decision, 2, policy=Once(decision))
    assert same.migrations == 0


def test_a_policy_receives_the_measurements() -> None:
    problem, decision = chain()
    policy = Once(decision)
    iterate(problem, decision, 2, policy=policy, scenario=Scenario([SlowDown("d0", 2.0, 1)]))
    first, second = policy.observations
    assert (first.iteration, first.decision, first.seconds, second.seconds) == (0, decision, 7, 10)
    assert [observation.task_seconds.tolist() for observation in policy.observations] == [[3, 2], [6, 2]]
    assert first.device.tolist() == devices_of(decision).tolist() == [0, 1]
    assert first.transfer_seconds.tolist() == [2, 2]


def test_noise_has_mean_one_and_its_sigma_and_depends_on_the_seed() -> None:
    noise = np.concatenate([Scenario(noise=0.2).noise_of(t, 1000) for t in range(20)])
    assert noise.mean() == pytest.approx(1, abs=0.01)
    assert np.log(noise).std() == pytest.approx(0.2, abs=0.01)
    assert (Scenario(noise=0.2, seed=1).noise_of(0, 5) != noise[:5]).all()
    problem, decision = chain()
    assert len(set(iterate(problem, decision, 9, scenario=Scenario(noise=0.2)).seconds.tolist())) == 9


def test_jobs_come_and_go() -> None:
    cluster = hs.Cluster(["a", "b"], bandwidth=1)
    factors = Scenario(interference=Interference(rate=0.1, share=0.5, length=5), seed=3).factors(cluster, 4000)
    assert set(factors.ravel().tolist()) == {1.0, 2.0}
    # Without a job for 1 / rate - 1 iterations on average, with one for `length`.
    assert (factors == 2).mean() == pytest.approx(5 / (5 + 9), abs=0.03)
    assert (factors[:, 0] != factors[:, 1]).any()
    always = Scenario([SlowDown("b", 3.0, 1)], interference=Interference(rate=1, share=0.5, length=1)).factors(cluster, 3)
    assert always.tolist() == [[2, 2], [2, 6], [2, 6]]


@pytest.mark.slow
def test_what_needs_no_torch_runs_without() -> None:
    code = """
import sys
sys.modules["torch"] = None
import hetsched as hs
problem = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["cpu"]), durations=[[1.0]])
print(hs.runtime.iterate(problem, hs.Decision.whole(problem, [0], [0]), 2, policy=hs.runtime.Assistants()).seconds)
try:
    hs.runtime.Program
except hs.MissingDependency as error:
    print(error)
print("Program" in dir(hs.runtime), hasattr(hs.runtime, "frobnicate"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[1. 1.]", "'torch' is not installed; install it with: pip install 'hetsched[torch]'", "True False"]


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SlowDown("gpu", 0.0), "the slow-down of 'gpu' has factor 0.0; it must be finite and above 0"),
        (lambda: SlowDown("gpu", 2.0, 9, 3), "the slow-down of 'gpu' lasts from iteration 9 to 3; it must begin at 0 or later"),
        (lambda: SlowDown("gpu", 2.0, -1), "lasts from iteration -1 to None"),
        (lambda: SlowLink("a", "b", 0.0), "the slow link from 'a' to 'b' has factor 0.0; it must be finite and above 0"),
        (lambda: SlowLink("a", "b", 2.0, 9, 3), "the slow link from 'a' to 'b' lasts from iteration 9 to 3; it must begin at 0 or later"),
        (lambda: SlowLink("a", "a", 2.0), "the slow link from 'a' to 'a' is within one device, where nothing is transferred; name two"),
        (lambda: LessMemory("a", -1.0), "taken_bytes of 'a' is -1.0; it must be finite and at least 0"),
        (lambda: LessMemory("a", 1.0, 9, 3), "the loss of memory of 'a' lasts from iteration 9 to 3; it must begin at 0 or later"),
        (lambda: iterate(*chain(), scenario=Scenario(slow_links=[SlowLink("d0", "x", 2.0)])), "a slow link names 'x', which is not a"),
        (lambda: iterate(*chain(), scenario=Scenario(less_memory=[LessMemory("x", 2.0)])), "a loss of memory names 'x', which is not a"),
        (
            lambda: iterate(*chain(), scenario=Scenario(less_memory=[LessMemory("d0", 2.0)])),
            "2 bytes are taken from 'd0', which has inf; take at most its capacity, which must be limited",
        ),
        (lambda: Interference(rate=2.0), r"rate of the interference is 2.0; it must be a probability in \[0, 1\]"),
        (lambda: Interference(share=1.0), r"share of the interference is 1.0; it must be a share of the device in \[0, 1\)"),
        (lambda: Interference(length=0.5), "length of the interference is 0.5; it must be a finite number of iterations of at least 1"),
        (lambda: Scenario(noise=-1), "noise is -1; it must be the sigma of a lognormal, 0 or more"),
        (lambda: iterate(*chain(), 0), "iterations is 0; it must be 1 or more"),
        (
            lambda: iterate(*chain(), scenario=Scenario([SlowDown("gpu", 2.0)])),
            r"names 'gpu', which is not a device of the cluster \(d0, d1\)",
        ),
    ],
)
def test_numbers_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(hs.InvalidProblem, match=message):
        make()


def test_what_is_not_simulated_is_refused() -> None:
    problem, decision = chain()
    with pytest.raises(hs.UnsupportedFeature, match="memory='peak', which depends on the times of each iteration; use problem.replace"):
        iterate(problem.replace(memory="peak"), decision)
    several = hs.Problem(problem.graph, problem.cluster, durations=np.ones((2, 2, 1)), batch_sizes=[2], inputs=2)
    with pytest.raises(hs.UnsupportedFeature, match="the problem has 2 inputs; iterations are of one"):
        iterate(several, hs.Decision.whole(several, [0, 0], [0, 1]))


def test_decisions_that_break_a_rule_are_refused() -> None:
    problem, decision = chain()
    small = problem.replace(
        cluster=hs.Cluster([hs.Device("d0", memory_bytes=20), hs.Device("d1", memory_bytes=9)], bandwidth=[[0, 2], [0, 0]])
    )
    with pytest.raises(hs.InvalidSchedule, match="the decision needs 16 bytes on 'd1', which has 9; place fewer tasks there"):
        iterate(small, hs.Decision.whole(small, [1, 1], [0, 1]))
    onto_d0 = hs.Decision.whole(small, [0, 0], [0, 1])
    with pytest.raises(
        hs.InvalidSchedule, match="task 'b' cannot move from 'd1' to 'd0': there is no path for its weights; link the devices"
    ):
        iterate(small, decision, 2, policy=Once(onto_d0))
    assert iterate(small, decision, 1, policy=Once(onto_d0)).migrations == 0  # no iteration follows
    with pytest.raises(hs.InvalidSchedule, match="no batch"):
        iterate(problem, hs.Decision([0], [0]), policy=Static())
