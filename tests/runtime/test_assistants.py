"""Policies: their decisions keep every rule and gain time, and their migrations end."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.runtime import Assistants, Interference, Observation, Policy, Resolve, Run, Scenario, SlowDown, Static, Tag, iterate, tags
from hetsched.runtime.assistant_kernels import moved_makespans
from hetsched.runtime.iterations import devices_of
from hetsched.runtime.speeds import Speeds
from hetsched.testing.profiles import examples
from tests.golden import distant
from tests.runtime.test_iterations import FACTORS, placed, slowed

POLICIES = st.sampled_from(
    [
        lambda: Assistants(cooldown=2),
        lambda: Assistants(theta=0.8, gamma=0.8, gain=1e-6, cooldown=1, drift=0.0, window=1, outbox=1),
        lambda: Resolve("heft", evaluations=5, window=1),
    ]
)
STEADY = st.lists(st.sampled_from([1.0, 1.5, 2.0, 3.0]), min_size=3, max_size=3)


@pytest.mark.slow
@examples(40)
@given(placed(n_tasks=st.integers(2, 6)), POLICIES, st.lists(FACTORS, min_size=3, max_size=3), st.integers(0, 9))
def test_every_decision_keeps_every_rule(case: tuple[hs.Problem, hs.Decision], make: Any, factors: list[float], seed: int) -> None:
    problem, decision = case
    changes = [SlowDown(name, factor, 3) for name, factor in zip(problem.cluster.names, factors, strict=False)]
    run = iterate(problem, decision, 12, policy=make(), scenario=Scenario(changes, noise=0.3, interference=Interference(0.2), seed=seed))
    for changed in run.decisions.values():
        assert hs.verify(problem, hs.simulate(problem, changed)) == []
    where = [devices_of(changed) for changed in run.decisions.values()]
    moves = [np.count_nonzero(before != after) for before, after in itertools.pairwise(where)]
    assert [int(run.moved[t]) for t in list(run.decisions)[1:]] == moves
    assert run.migrations == sum(moves)


class Watched(Assistants):
    """Assistants that list the iterations before which a probe begins, and those before which one is withdrawn."""

    def begin(self, problem: hs.Problem, decision: hs.Decision) -> None:
        super().begin(problem, decision)
        self.begun, self.withdrawn = list[int](), list[int]()

    def observe(self, observation: Observation) -> hs.Decision | None:
        before = self._probe
        proposal = super().observe(observation)
        if proposal is not None and before is not None and proposal is before.before:
            self.withdrawn.append(observation.iteration + 1)
        elif proposal is not None and self._probe is not None:
            self.begun.append(observation.iteration + 1)
        return proposal

    def kept(self, run: Run) -> np.ndarray:
        """Return the tasks that moved before each iteration, but for probes."""
        moved = run.moved.copy()
        moved[[t for t in (*self.begun, *self.withdrawn) if t < len(moved)]] = 0
        return moved


@pytest.mark.slow
@examples(40)
@given(placed(n_tasks=st.integers(2, 7), n_devices=3), STEADY)
def test_with_steady_speeds_migrations_end(case: tuple[hs.Problem, hs.Decision], factors: list[float]) -> None:
    problem, decision = case
    policy = Watched(theta=0.9, gamma=0.9, cooldown=3)
    run = iterate(problem, decision, 120, policy=policy, scenario=slowed(problem, factors))
    assert policy.kept(run)[60:].sum() == 0


@pytest.mark.slow
@examples(40)
@given(placed(n_tasks=st.integers(2, 7), n_devices=3))
def test_where_speeds_are_as_expected_every_move_gains(case: tuple[hs.Problem, hs.Decision]) -> None:
    problem, decision = case
    gain = 0.01
    run = iterate(problem, decision, 60, policy=Assistants(theta=0.9, gamma=0.9, gain=gain, cooldown=3), scenario=Scenario())
    for t in list(run.decisions)[1:]:
        assert run.makespan[t] <= run.makespan[t - 1] * (1 - gain) * (1 + 1e-12)
        assert (run.makespan[t - 1] - run.makespan[t]) * 3 >= run.pause[t] * (1 - 1e-9)
    assert np.count_nonzero(np.diff(run.makespan)) == len(run.decisions) - 1


@pytest.mark.slow
@examples(40)
@given(placed(n_tasks=st.integers(2, 5), n_devices=st.integers(2, 3), colocation=False), st.integers(1, 3), st.integers(0, 99))
def test_whatever_happens_a_node_moves_seldom(case: tuple[hs.Problem, hs.Decision], cooldown: int, seed: int) -> None:
    problem, decision = case
    wild = Watched(theta=0.9, gamma=0.9, gain=1e-9, cooldown=cooldown, window=1, drift=0.0)
    scenario = Scenario(noise=2.0, interference=Interference(0.3, 0.9), seed=seed)
    run = iterate(problem, decision, 100, policy=wild, scenario=scenario)
    probes = {*wild.begun, *wild.withdrawn}
    pairs = itertools.pairwise(run.decisions.items())
    moves = [devices_of(before) != devices_of(after) for (_, before), (t, after) in pairs if t not in probes]
    assert np.sum(moves, axis=0, initial=0, dtype=int).max(initial=0) <= 2 * (math.log2(100 / cooldown + 1) + 1)


@pytest.mark.slow
@examples(40)
@given(placed(n_tasks=st.integers(2, 7), n_devices=3), STEADY, st.integers(1, 4), st.integers(1, 3))
def test_probes_take_a_small_part_of_the_time(
    case: tuple[hs.Problem, hs.Decision], factors: list[float], cooldown: int, window: int
) -> None:
    """Of a device that stays slow: less than 1 / cooldown by the estimate, which is exact here, and one iteration each."""
    problem, decision = case
    policy = Watched(cooldown=cooldown, window=window)
    run = iterate(problem, decision, 100, policy=policy, scenario=slowed(problem, factors))
    begun = [t for t in policy.begun if t < 100]
    assert policy.withdrawn[: len(begun)] == [t + 1 for t in begun]
    for before, after in itertools.pairwise(begun):
        assert after - before >= cooldown
    for t in begun:
        rest = run.makespan[t - 1]
        if t < 99:
            extra = run.makespan[t] - rest + run.pause[t] + run.pause[t + 1]
            idle = t - max((before for before in begun if before < t), default=0)
            assert extra * cooldown <= idle * rest * (1 + 1e-9)


@examples(30)
@given(placed(), st.integers(0, 5))
def test_a_policy_can_be_used_again(case: tuple[hs.Problem, hs.Decision], seed: int) -> None:
    problem, decision = case
    policy = Assistants(gamma=0.9, window=1)
    scenario = Scenario(noise=1.0, seed=seed)
    assert iterate(problem, decision, 8, policy=policy, scenario=scenario) == iterate(
        problem, decision, 8, policy=policy, scenario=scenario
    )


# ---------------------------------------------------------------------- behaviour of assistants


def two_alike(count: int = 8, **arguments: Any) -> tuple[hs.Problem, hs.Decision]:
    """Return tasks of 1 s without edges on two equal devices, half of them on each."""
    graph = hs.TaskGraph([f"t{i}" for i in range(count)], [], **arguments)
    problem = hs.Problem(graph, hs.Cluster(["a", "b"], bandwidth=1e9), durations=np.ones((count, 2)))
    return problem, hs.Decision.whole(problem, np.arange(count) % 2, np.arange(count))


def test_forty_equal_tasks_reach_the_optimum_when_a_device_becomes_slow() -> None:
    """With the paper's gamma they stay at 21 s: each of the others is used more than half of the slow one."""
    problem = hs.Problem(hs.TaskGraph([f"t{i}" for i in range(40)]), hs.Cluster(list("abcd"), bandwidth=1e9), durations=np.ones((40, 4)))
    decision = hs.Decision.whole(problem, np.arange(40) % 4, np.arange(40))
    slow = Scenario([SlowDown("d", 3.0)])
    assert iterate(problem, decision, 30, policy=Assistants(), scenario=slow).makespan[[0, -1]].tolist() == [30, 12]
    assert iterate(problem, decision, 30, policy=Assistants(gamma=0.5), scenario=slow).makespan[[0, -1]].tolist() == [30, 21]


def test_nothing_moves_where_no_single_move_shortens_the_iteration() -> None:
    """Of 40 equal tasks on four devices, three become slow alike: a move from one of them leaves the others as they are."""
    problem = hs.Problem(hs.TaskGraph([f"t{i}" for i in range(40)]), hs.Cluster(list("abcd"), bandwidth=1e9), durations=np.ones((40, 4)))
    decision = hs.Decision.whole(problem, np.arange(40) % 4, np.arange(40))
    slow = Scenario([SlowDown(name, 3.0) for name in "bcd"])
    for gamma in (0.5, 0.9):
        assert iterate(problem, decision, 30, policy=Assistants(gamma=gamma), scenario=slow).makespan[[0, -1]].tolist() == [30, 30]
    assert iterate(problem, decision, 30, policy=Resolve("heft"), scenario=slow).makespan[-1] == 21


def test_an_emptied_device_that_has_recovered_gets_work_again() -> None:
    problem, decision = two_alike(4)
    slow = Watched()
    run = iterate(problem, decision, 45, policy=slow, scenario=Scenario([SlowDown("a", 5.0)]))
    # Both tasks of a leave it, one at a time. A probe lasts 5 s there, and b has 3 s meanwhile.
    assert run.makespan.tolist() == [10] * 3 + [5] + 2 * ([4] * 10 + [5]) + [4] * 10 + [5] + [4] * 8
    assert (slow.begun, slow.withdrawn) == ([14, 25, 36], [15, 26, 37])
    recovered = Watched()
    run = iterate(problem, decision, 45, policy=recovered, scenario=Scenario([SlowDown("a", 5.0, 0, 20)]))
    # The second probe stays: the median of three iterations changes at the second one after the recovery.
    assert run.makespan.tolist() == [10] * 3 + [5] + [4] * 10 + [5] + [4] * 10 + [3, 3] + [2] * 18
    assert (recovered.begun, recovered.withdrawn) == ([14, 25], [15])
    assert devices_of(run.decisions[27]).tolist() == devices_of(decision).tolist()


def test_a_probe_is_the_node_that_lengthens_an_iteration_least() -> None:
    """One and two fit beside the 20 s of long on a device five times as slow; three does too, but its weights take 18 s."""
    seconds = np.array([20.0, 1, 2, 3, 8])
    graph = hs.TaskGraph(["long", "one", "two", "three", "eight"], weight_bytes=[0, 0, 0, 9e9, 0])
    problem = hs.Problem(graph, hs.Cluster(["c", "d", "e"], bandwidth=1e9), durations=np.tile(seconds[:, None], 3))
    first, emptied = (hs.Decision.whole(problem, [0, k, k, k, k], range(5)) for k in (1, 2))
    policy = Assistants(window=1, cooldown=3)
    policy.begin(problem, first)
    policy.observe(Observation(0, first, np.where(devices_of(first) == 1, 5.0, 1.0) * seconds, np.zeros(3), 70.0))
    proposals = [policy.observe(Observation(t, emptied, seconds, np.zeros(3), 20.0)) for t in range(1, 4)]
    assert proposals[:2] == [None, None]
    assert proposals[2] is not None
    assert devices_of(proposals[2]).tolist() == [0, 2, 1, 2, 2]


def test_one_fast_iteration_is_no_recovery() -> None:
    problem, decision = two_alike(4)
    policy = Watched()
    run = iterate(problem, decision, 18, policy=policy, scenario=Scenario([SlowDown("a", 5.0, 0, 14), SlowDown("a", 5.0, 15)]))
    assert run.makespan[14:].tolist() == [3, 5, 4, 4]
    assert (policy.begun, policy.withdrawn) == ([14], [16])


def test_a_slow_device_hands_over_until_the_other_is_used_enough() -> None:
    problem, decision = two_alike()
    scenario = Scenario([SlowDown("a", 3.0, 10)])
    run = iterate(problem, decision, 30, policy=Assistants(gamma=0.5), scenario=scenario)
    # The median of three iterations changes at the second slow one. 12 s against 4 s; at 9 against 5 b is used more than half.
    assert run.makespan.tolist() == [4] * 10 + [12, 12] + [9] * 18
    eager = iterate(problem, decision, 30, policy=Assistants(), scenario=scenario)
    assert eager.makespan.tolist() == [4] * 10 + [12, 12, 9, 6] + [6] * 16
    solved = iterate(problem, decision, 30, policy=Resolve("heft", evaluations=10), scenario=scenario)
    assert solved.makespan.tolist() == [4] * 10 + [12, 12] + [6] * 18
    assert iterate(problem, decision, 30, policy=Static(), scenario=scenario).makespan.tolist() == [4] * 10 + [12] * 20


def test_when_the_device_recovers_so_does_the_placement() -> None:
    problem, decision = two_alike()
    scenario = Scenario([SlowDown("a", 3.0, 10, 40)])
    run = iterate(problem, decision, 100, policy=Assistants(gamma=0.95, cooldown=5), scenario=scenario)
    assert run.makespan[10:50].tolist() == [12, 12, 9] + [6] * 27 + [6, 6] + [4] * 8
    assert (list(run.decisions), run.moved[42]) == ([0, 12, 13, 42], 2)
    assert run.decisions[42] == decision
    solved = iterate(problem, decision, 100, policy=Resolve("heft", evaluations=10), scenario=scenario)
    assert (solved.makespan[39], solved.makespan[-1], len(solved.decisions)) == (6, 4, 3)


def test_an_executor_drives_the_policy_as_the_simulation_does() -> None:
    problem, decision = two_alike()
    policy: Policy = Assistants(gamma=0.5)
    policy.begin(problem, decision)
    moves, current = [], decision
    for t in range(8):
        seconds = np.where(devices_of(current) == 0, 3.0, 1.0)
        wanted = policy.observe(Observation(t, current, seconds, np.zeros(2), 0.0))
        if wanted is not None:
            current = wanted
            moves.append((t, np.bincount(devices_of(current)).tolist()))
    assert moves == [(2, [3, 5])]


def test_a_short_disturbance_moves_nothing() -> None:
    problem, decision = two_alike()
    assert iterate(problem, decision, 20, policy=Assistants(), scenario=Scenario([SlowDown("a", 9.0, 10, 11)])).migrations == 0
    assert iterate(problem, decision, 200, policy=Assistants(), scenario=Scenario(noise=0.05)).migrations == 0


def test_moves_that_do_not_repay_their_migration_are_not_made() -> None:
    scenario = Scenario([SlowDown("a", 3.0)])
    heavy, decision = two_alike(weight_bytes=29e9)  # a move takes 29 s and gains 3 s per iteration
    assert iterate(heavy, decision, 12, policy=Assistants(cooldown=10), scenario=scenario).migrations == 2
    assert iterate(heavy, decision, 12, policy=Assistants(cooldown=9), scenario=scenario).migrations == 0
    assert iterate(heavy, decision, 12, policy=Resolve("heft", evaluations=5, repay=9), scenario=scenario).migrations == 0
    assert iterate(heavy, decision, 12, policy=Resolve("heft", evaluations=5, repay=10), scenario=scenario).migrations == 2


def test_pins_memory_and_labels_are_kept() -> None:
    scenario = Scenario([SlowDown("a", 3.0)])
    pinned, decision = two_alike(devices=[["a"]] * 6 + [None] * 2)
    pinned_decision = hs.Decision.whole(pinned, [0] * 7 + [1], range(8))
    run = iterate(pinned, pinned_decision, 20, policy=Assistants(), scenario=scenario)
    assert devices_of(run.decisions[max(run.decisions)]).tolist() == [0] * 6 + [1, 1]
    together, decision = two_alike(colocation=["x", None] * 4)
    assert iterate(together, decision, 20, policy=Assistants(), scenario=scenario).makespan.tolist() == [12] * 3 + [8, 7] + [6] * 15
    problem, decision = two_alike(weight_bytes=1.0)
    full = problem.replace(cluster=hs.Cluster(["a", hs.Device("b", memory_bytes=4)], bandwidth=1e9))
    assert iterate(full, decision, 20, policy=Assistants(), scenario=scenario).migrations == 0


def test_a_device_out_of_reach_takes_nothing() -> None:
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b"), ("b", "c")], output_bytes=1)
    cluster = hs.Cluster(["x", "y", "z"], bandwidth=[[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    problem = hs.Problem(graph, cluster, durations=np.ones((3, 3)))
    run = iterate(problem, hs.Decision.whole(problem, [0, 0, 0], range(3)), 20, policy=Assistants(), scenario=slowed(problem, [9.0]))
    assert set(devices_of(run.decisions[max(run.decisions)]).tolist()) == {1}  # 3 s and no transfer; z has no link


def test_solving_again_moves_no_weights_where_there_is_no_path() -> None:
    graph = hs.TaskGraph(["a", "b"], weight_bytes=1)
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=0), durations=np.ones((2, 2)))
    start, scenario = hs.Decision.whole(problem, [0, 0], [0, 1]), Scenario([SlowDown("x", 4.0)])
    for policy in (Resolve("heft", evaluations=5), Assistants()):
        assert iterate(problem, start, 9, policy=policy, scenario=scenario).migrations == 0
    linked = problem.replace(cluster=hs.Cluster(["x", "y"], bandwidth=1))
    assert iterate(linked, start, 9, policy=Resolve("heft", evaluations=5), scenario=scenario).migrations == 2


def test_each_resource_has_its_own_out_box() -> None:
    """Only nodes of the tag of a device's load over the threshold are offered."""
    problem, decision = two_alike()
    kinds = [Tag.COMPUTE, Tag.COMPUTE, Tag.MEMORY, Tag.COMPUTE, Tag.MEMORY, Tag.MEMORY, Tag.MEMORY, Tag.MEMORY]
    policy = Assistants(tags=kinds)  # a: 1 compute, 3 memory; b: 2 compute, 2 memory
    policy.begin(problem, decision)
    observation = Observation(0, decision, np.ones(8), np.array([1.0, 4.0]), 4.0)
    assert policy.utilisation(observation).tolist() == [[1 / 2, 1, 1 / 4], [1, 2 / 3, 1]]
    run = iterate(problem, decision, 30, policy=Assistants(gamma=0.5, tags=kinds), scenario=Scenario([SlowDown("a", 3.0)]))
    last = devices_of(run.decisions[max(run.decisions)])
    moved = np.flatnonzero(last != devices_of(decision))
    assert [kinds[i] for i in moved] == [Tag.MEMORY]  # 9 s on a, 2 s on b; compute is 3 s on a, 2 s on b


def test_a_small_outbox_offers_all_nodes_in_turn() -> None:
    problem = hs.Problem(hs.TaskGraph(["s", "m", "l"]), hs.Cluster(["a", "b"], bandwidth=1e9), durations=[[1, 1], [2, 2], [4, 9]])
    start = hs.Decision.whole(problem, [0, 0, 0], range(3))
    every = iterate(problem, start, 9, policy=Assistants())
    assert [devices_of(decision).tolist() for decision in every.decisions.values()] == [[0, 0, 0], [0, 1, 0], [1, 1, 0]]
    one = iterate(problem, start, 9, policy=Assistants(outbox=1))  # l is offered after s
    assert {t: devices_of(decision).tolist() for t, decision in one.decisions.items()} == {0: [0, 0, 0], 1: [1, 0, 0], 3: [1, 1, 0]}


# ---------------------------------------------------------------------- tags and speeds


def test_tags_name_the_slowest_resource() -> None:
    graph = hs.TaskGraph(
        ["flops", "bytes", "far", "unknown"],
        [("flops", "far", 30.0), ("flops", "bytes", 30.0)],
        flops=[40, 10, 10, np.nan],
        bytes_accessed=[3, 40, 3, 90],
    )
    device = {"peak_flops": {"float32": 10.0, "float16": 100.0}, "memory_bandwidth": 10.0}
    cluster = hs.Cluster([hs.Device("a", **device), hs.Device("b", **device)], bandwidth=10.0)
    problem = hs.Problem(graph, cluster, durations=np.full((4, 2), 2.0))
    decision = hs.Decision.whole(problem, [0, 0, 1, 0], range(4))
    assert tags(problem, decision).tolist() == [Tag.COMPUTE, Tag.MEMORY, Tag.NETWORK, Tag.COMPUTE]
    assert tags(problem, hs.Decision.whole(problem, [0, 0, 0, 0], range(4))).tolist() == [Tag.COMPUTE, Tag.MEMORY, Tag.COMPUTE, Tag.COMPUTE]
    assert tags(problem, decision, dtype="float16")[0] == Tag.COMPUTE  # 0.4 s of arithmetic, 0.3 s of bytes
    assert (tags(problem.replace(cluster=hs.Cluster(["a", "b"], bandwidth=10.0)), decision) == [0, 0, 2, 0]).all()
    labelled = problem.replace(graph=graph.replace(colocation=["x", "x", None, "x"]), durations=[[2, 2], [5, 2], [2, 2], [2, 2]])
    assert tags(labelled, decision).tolist() == [Tag.MEMORY, Tag.MEMORY, Tag.NETWORK, Tag.MEMORY]


def test_a_speed_is_the_median_and_stays_until_it_drifts() -> None:
    problem, decision = two_alike()
    speeds = Speeds(problem, window=3, drift=0.1)

    def observe(first: float, on: hs.Decision = decision) -> bool:
        return speeds.observe(Observation(0, on, np.where(devices_of(on) == 0, first, 1.0), np.zeros(2), 0.0))

    assert [observe(seconds) for seconds in (1.0, 2.0, 1.0, 2.0)] == [False, False, False, True]
    assert speeds.factor.tolist() == [2, 1]
    assert [observe(2.19), observe(2.19), observe(2.19), observe(2.21), observe(2.21)] == [False, False, False, False, True]
    assert speeds.factor.tolist() == [2.21, 1]
    elsewhere = hs.Decision.whole(problem, [1] * 8, range(8))
    assert [observe(9.0, elsewhere) for _ in range(4)] == [False] * 4  # without tasks there is no observation
    assert speeds.seconds[0].tolist() == [2.21, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Assistants(theta=0.5, gamma=0.9), "theta is 0.5 and gamma 0.9; they must be shares with 0 <= gamma <= theta <= 1"),
        (lambda: Assistants(gain=0.0), "gain is 0.0; it must be above 0"),
        (lambda: Assistants(cooldown=0), "cooldown is 0; it must be at least 1"),
        (lambda: Assistants(outbox=0), "outbox is 0; it must be at least 1"),
        (lambda: Assistants(window=0).begin(*two_alike()), "window is 0; it must be 1 iteration or more"),
        (lambda: Assistants(drift=-1).begin(*two_alike()), "drift is -1; it must be 0 or more"),
        (lambda: Assistants(tags=[0, 1]).begin(*two_alike()), r"tags of shape \(2,\) for 8 tasks; give each task one of 0, 1, 2 \(COMPUTE"),
        (lambda: Assistants(tags=[5] * 8).begin(*two_alike()), "give each task one of 0, 1, 2"),
        (lambda: Resolve("heft", repay=-1), "repay is -1; it must be at least 0"),
    ],
)
def test_numbers_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(hs.InvalidProblem, match=message):
        make()


@pytest.mark.parametrize("seed", range(5))
def test_a_move_is_estimated_at_what_the_simulator_makes_of_it(seed: int) -> None:
    problem = distant(seed, n=8)
    n, order = problem.n_tasks, problem.graph.topological_order
    device, targets = np.random.default_rng(seed).integers(0, 3, (2, n))
    units = np.arange(n)
    estimates = moved_makespans(problem.arrays, order, problem.whole_durations, device, np.arange(n + 1), units, units, targets)
    for i in range(n):
        moved = np.where(units == i, targets[i], device)
        assert estimates[i] == pytest.approx(hs.simulate(problem, hs.Decision.whole(problem, moved, order)).makespan)
