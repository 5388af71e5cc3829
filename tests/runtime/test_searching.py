"""Assistants that search: near the optimum ten iterations after each change, and still as long as nothing changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.runtime import (
    Assistants,
    Interference,
    LessMemory,
    Observation,
    Resolve,
    Run,
    Scenario,
    SearchingAssistants,
    SlowDown,
    SlowLink,
    iterate,
)
from hetsched.runtime.iterations import devices_of
from hetsched.runtime.speeds import FORGET, LinkSpeeds
from hetsched.testing import brute_force
from hetsched.testing.profiles import examples
from tests.runtime.test_iterations import FACTORS, placed

CHANGE = 3
"""The iteration of a change in these tests."""
POLICIES = st.sampled_from(
    [
        lambda: SearchingAssistants(evaluations=20, rounds=3),
        lambda: SearchingAssistants(evaluations=1, rounds=1, window=1, drift=0.0, probe=1, repay=1),
        lambda: Assistants(cooldown=2, window=1),
        lambda: Resolve("heft", evaluations=5, window=1),
    ]
)


def equal(**arguments: Any) -> tuple[hs.Problem, hs.Decision]:
    """Return 40 tasks of a second for four equal devices, ten for each."""
    graph = hs.TaskGraph([f"task{i}" for i in range(40)], weight_bytes=arguments.pop("weight_bytes", 0.0))
    problem = hs.Problem(graph, hs.Cluster(arguments.pop("devices", list("abcd")), bandwidth=1e9), durations=np.ones((40, 4)))
    return problem, hs.Decision.whole(problem, np.arange(40) % 4, range(40))


def soon(run: Run, start: int = CHANGE) -> float:
    """Return the seconds of the tenth iteration after a change."""
    return float(run.makespan[start + 10])


def in_force(run: Run, iteration: int) -> hs.Decision:
    """Return the decision of an iteration."""
    return run.decisions[max(first for first in run.decisions if first <= iteration)]


@pytest.mark.slow
@examples(40)
@given(placed(n_tasks=st.integers(2, 6), n_devices=3), POLICIES, st.lists(FACTORS, min_size=3, max_size=3), st.data())
def test_every_decision_keeps_every_rule_of_the_time_at_which_it_is_made(
    case: tuple[hs.Problem, hs.Decision], make: Any, factors: list[float], data: st.DataObject
) -> None:
    problem, decision = case
    names, capacity = problem.cluster.names, problem.cluster.memory_bytes.tolist()
    slow = [SlowDown(name, factor, CHANGE, 12) for name, factor in zip(names, factors, strict=True)]
    links = [SlowLink(names[h], names[k], data.draw(FACTORS), CHANGE, 12) for h, k in ((0, 1), (1, 2), (2, 0))]
    taken = [
        LessMemory(name, data.draw(st.sampled_from([0.0, 0.5, 1.0])) * size, 5, 12)
        for name, size in zip(names, capacity, strict=True)
        if np.isfinite(size)
    ]
    scenario = Scenario(slow, noise=0.3, interference=Interference(0.1), slow_links=links, less_memory=taken)
    run = iterate(problem, decision, 16, policy=make(), scenario=scenario)
    for t, made in run.decisions.items():
        present = scenario.problem(problem, t - 1) if t else problem
        assert hs.verify(present, hs.simulate(present, made)) == []


@pytest.mark.slow
@examples(40)
@given(
    placed(n_tasks=st.integers(2, 5), n_devices=st.integers(2, 3), communication="delay"),
    st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=3, max_size=3),
)
def test_small_problems_are_near_the_optimum_ten_iterations_later(case: tuple[hs.Problem, hs.Decision], factors: list[float]) -> None:
    """Where weights take no time, and devices that become slow have tasks; a probe takes one iteration of two."""
    problem, decision = case
    problem = problem.replace(graph=problem.graph.replace(weight_bytes=0.0))
    first = hs.simulate(problem, decision)
    pairs = zip(problem.cluster.names, factors, first.busy_time, strict=False)
    scenario = Scenario([SlowDown(name, factor, CHANGE) for name, factor, busy in pairs if busy > 0])
    run = iterate(problem, decision, CHANGE + 12, policy=SearchingAssistants(), scenario=scenario)
    optimum = brute_force(scenario.problem(problem, CHANGE))
    assert optimum is not None
    assert run.makespan[-2:].min() <= max(1.1 * optimum.makespan, first.makespan) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("factors", "optimum"),
    [((1, 1, 1, 3), 12.0), ((1, 1, 3, 1), 12.0), ((2, 1, 1, 1), 12.0), ((1, 3, 3, 3), 21.0), ((2, 1, 2, 2), 16.0), ((4, 3, 2, 1), 20.0)],
)
def test_equal_tasks_are_divided_by_the_speeds_of_the_devices(factors: tuple[float, ...], optimum: float) -> None:
    problem, decision = equal()
    scenario = Scenario([SlowDown(name, factor, CHANGE) for name, factor in zip("abcd", factors, strict=True)])
    assert soon(iterate(problem, decision, 14, policy=SearchingAssistants(), scenario=scenario)) == optimum


@pytest.mark.parametrize("stop", range(20, 26))
def test_a_device_that_was_emptied_is_used_again_within_ten_iterations(stop: int) -> None:
    problem, decision = equal()
    scenario = Scenario([SlowDown("b", 20.0, CHANGE, stop)])
    run = iterate(problem, decision, stop + 11, policy=SearchingAssistants(), scenario=scenario)
    seldom = run.busy[CHANGE + 3 : stop, 1] > 0
    assert 0 < seldom.sum() <= len(seldom) / 5  # probes
    assert np.median(run.makespan[CHANGE + 3 : stop]) == 14
    assert soon(run, stop) == 10


def fork(link: float = 1.0) -> tuple[hs.Problem, hs.Decision]:
    """Return a task on a that feeds three on b; a transfer takes a second, times `link`."""
    graph = hs.TaskGraph(["root", "p", "q", "r"], [("root", name, 1.0) for name in "pqr"])
    cluster = hs.Cluster(["a", "b"], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=[[1, 9], [4, 2], [4, 2], [4, 2]])
    return problem, hs.Decision.whole(problem, [0, 1, 1, 1], range(4))


def test_tasks_leave_a_slow_link_and_return() -> None:
    problem, decision = fork()
    scenario = Scenario(slow_links=[SlowLink("a", "b", 10.0, CHANGE, 30)])
    run = iterate(problem, decision, 90, policy=SearchingAssistants(), scenario=scenario)
    best = brute_force(scenario.problem(problem, CHANGE))
    assert best is not None
    assert best.makespan == 13  # all on a
    assert run.makespan[: CHANGE + 2].tolist() == [8, 8, 8, 17, 17]  # 1, a transfer of 1 or 10, 3 times 2
    assert soon(run) == 13
    # The link is tried again FORGET iterations after its last transfer; here it has recovered meanwhile.
    assert run.makespan[-1] <= 8
    still = Scenario(slow_links=[SlowLink("a", "b", 10.0, CHANGE)])
    run = iterate(problem, decision, 90, policy=SearchingAssistants(), scenario=still)
    assert np.count_nonzero(run.makespan[CHANGE + 5 :] > 13) <= 6
    assert run.makespan[-1] == 13


def test_tasks_leave_a_device_that_loses_memory() -> None:
    problem, decision = equal(weight_bytes=1.0, devices=[hs.Device(name, memory_bytes=20) for name in "abcd"])
    scenario = Scenario(less_memory=[LessMemory("c", 16.0, CHANGE, 20)])
    run = iterate(problem, decision, 40, policy=SearchingAssistants(), scenario=scenario)
    assert np.flatnonzero(run.excess.sum(axis=1)).tolist() == [CHANGE]
    assert run.excess[CHANGE].tolist() == [0, 0, 6, 0]
    assert soon(run) == 12
    assert np.bincount(devices_of(in_force(run, 15)), minlength=4)[2] == 4
    assert soon(run, 20) == 10


def test_where_nothing_fits_nothing_moves() -> None:
    problem, decision = equal(weight_bytes=1.0, devices=[hs.Device(name, memory_bytes=10) for name in "abcd"])
    scenario = Scenario(less_memory=[LessMemory("c", 4.0, CHANGE, 20)])
    for policy in (SearchingAssistants(evaluations=20), Assistants(), Resolve("heft", evaluations=5)):
        run = iterate(problem, decision, 30, policy=policy, scenario=scenario)
        assert run.migrations == 0
        assert np.flatnonzero(run.excess[:, 2]).tolist() == list(range(CHANGE, 20))


@pytest.mark.parametrize(
    "scenario", [Scenario(noise=0.05), Scenario([SlowDown("a", 9.0, 10, 11)]), Scenario(slow_links=[SlowLink("a", "b", 9.0, 10, 11)])]
)
def test_noise_and_a_short_disturbance_move_nothing(scenario: Scenario) -> None:
    for problem, decision in (equal(), fork()):
        assert iterate(problem, decision, 100, policy=SearchingAssistants(), scenario=scenario).migrations == 0


def test_moves_repay_their_migration() -> None:
    problem, decision = equal(weight_bytes=31e9)  # 31 s a move
    scenario = Scenario([SlowDown("d", 3.0)])
    for repay, moved in ((1, False), (10, True)):
        run = iterate(problem, decision, 30, policy=SearchingAssistants(repay=repay), scenario=scenario)
        assert (run.migrations > 0) == moved
        before, after = run.makespan[0], run.makespan[-1]
        assert run.pause.sum() <= repay * (before - after)


def test_a_policy_can_be_used_again() -> None:
    problem, decision = fork()
    policy, scenario = SearchingAssistants(), Scenario([SlowDown("b", 4.0)], noise=0.2)
    runs = [iterate(problem, decision, 12, policy=policy, scenario=scenario) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0].migrations > 0


@pytest.mark.parametrize("communication", ["channel", "port"])
def test_contended_transfers_are_searched_too(communication: Any) -> None:
    problem, decision = fork()
    problem = problem.replace(communication=communication)
    scenario = Scenario([SlowDown("b", 6.0, CHANGE)])
    run = iterate(problem, decision, 14, policy=SearchingAssistants(), scenario=scenario)
    best = brute_force(scenario.problem(problem, CHANGE))
    assert best is not None
    assert soon(run) == pytest.approx(best.makespan)


# ---------------------------------------------------------------------- links


def observed(iteration: int, decision: hs.Decision, seconds: list[float], total: float = 10.0) -> Observation:
    """Return an observation of the transfers of the first edges."""
    transfers = hs.arrays.Columns(edge=np.arange(len(seconds)), seconds=np.array(seconds, float))
    return Observation(iteration, decision, np.ones(4), np.zeros(2), total, transfers)


def test_a_link_is_slow_if_its_transfers_are_and_if_that_matters() -> None:
    problem, decision = fork()
    links = LinkSpeeds(problem, window=3, drift=0.1)
    assert [links.observe(observed(t, decision, [4, 4, 4])) for t in range(3)] == [False, False, True]
    assert links.factor.tolist() == [[1, 4], [1, 1]]
    assert not any(links.observe(observed(t, decision, [4.3, 4.3, 4.3])) for t in range(3, 9))  # within drift
    assert [links.observe(observed(t, decision, [1, 1, 1], 1e6)) for t in range(9, 12)] == [False, True, False]  # faster: always
    short = LinkSpeeds(problem, window=3, drift=0.1)
    assert not any(short.observe(observed(t, decision, [4, 4, 4], 9 / 0.05 + 1)) for t in range(9))
    assert not any(short.observe(observed(t, decision, [])._replace(transfers=None)) for t in range(9))


def test_a_slow_link_is_forgotten_twice_as_late_each_time() -> None:
    problem, decision = fork()
    links, t, waits = LinkSpeeds(problem, window=1, drift=0.1), 0, []
    for _ in range(3):
        assert links.observe(observed(t, decision, [4, 4, 4]))
        last = t
        while links.factor[0, 1] > 1:
            t += 1
            links.observe(observed(t, decision, []))
        waits.append(t - last)
    assert waits == [FORGET, 2 * FORGET, 4 * FORGET]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SearchingAssistants(evaluations=0), "evaluations is 0"),
        (lambda: SearchingAssistants(rounds=0), "rounds is 0"),
        (lambda: SearchingAssistants(repay=0), "repay is 0"),
        (lambda: SearchingAssistants(probe=0), "probe is 0"),
        (lambda: SearchingAssistants(gain=0.0), "gain is 0.0; it must be above 0"),
    ],
)
def test_numbers_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(hs.InvalidProblem, match=message):
        make()
