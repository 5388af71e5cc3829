"""The learned placement: its evaluations, its network, what it learns, and what it leaves as it was."""

from __future__ import annotations

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import hetsched as hs
from hetsched.documents import encode
from hetsched.heuristics.placement import policy_kernels
from hetsched.heuristics.placement.policy_gradient import LOADING, _Training, policy_gradient
from hetsched.heuristics.placement.policy_groups import Groups, grouped
from hetsched.problem.links import MODELS
from hetsched.search import Budget, Monitor
from hetsched.testing import brute_force, conformance, strategies
from hetsched.testing.clocks import SteppingClock
from hetsched.testing.profiles import examples

torch = pytest.importorskip("torch")
from hetsched.heuristics.placement.policy_network import PolicyNetwork  # noqa: E402  # needs torch


class TestPolicyGradient(conformance.MethodSuite):
    method = "policy-gradient"


def network(name="googlenet", communication="port"):
    graph = hs.workloads.networks.load(name)
    return hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline(), communication=communication)


def layered(n=60, devices=3, **arguments):
    """Return a problem of random layers."""
    rng = np.random.default_rng(5)
    edges = np.array([(rng.integers(max(0, j - 8), j), j) for j in range(1, n) for _ in range(2)])
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], np.unique(edges, axis=0), **{"output_bytes": 1.0, **arguments.pop("graph", {})})
    cluster = arguments.pop("cluster", hs.Cluster([f"d{k}" for k in range(devices)], bandwidth=1.0))
    return hs.Problem(graph, cluster, durations=rng.uniform(0.5, 2.0, (n, devices)), **arguments)


# ---------------------------------------------------------------------- samples


@examples(100)
@given(data=st.data())
def test_a_sample_is_worth_what_its_decision_is(data):
    features = {"communication": data.draw(st.sampled_from(list(MODELS))), "memory": "static", "inputs": data.draw(st.integers(1, 3))}
    problem = data.draw(strategies.problems(**features, missing_links=data.draw(st.booleans())))
    note(encode(problem).decode())
    if hs.search.Supports(inputs="whole").refusal(problem) or problem.n_tasks == 0:
        return
    training = _Training(problem, Monitor(problem), groups=256, samples=8)
    allowed = training.groups.allowed
    assert training._draw(allowed / allowed.sum(axis=1, keepdims=True)) == 8
    for device, makespan, violation in zip(*training.batch, strict=True):
        assert allowed[np.arange(len(device)), device].all()
        of_task = device[training.groups.of_unit][problem.unit]
        graph = problem.graph
        lost = np.isinf(problem.transfer_times(np.arange(graph.n_edges), of_task[graph.source], of_task[graph.target], problem.inputs))
        assert (makespan == np.inf) == lost.any()
        needed = np.bincount(of_task, problem.static_bytes @ [1.0, problem.inputs], problem.n_devices)
        over = np.maximum(needed - problem.cluster.memory_bytes * (1 + 1e-9), 0.0).sum()
        assert violation == pytest.approx(over / max(needed.sum(), 1e-300) + lost.mean() if len(lost) else over / max(needed.sum(), 1e-300))
        if not lost.any():
            schedule = hs.simulate(problem, training._decision(device))
            assert schedule.makespan == pytest.approx(makespan, rel=1e-12)
            assert (np.bincount(schedule.batches.task, minlength=problem.n_tasks) == 1).all()


def test_devices_are_drawn_in_proportion_to_their_weights():
    reach = np.array([[0.0, 0.25, 1.0], [3.0, 3.0, 3.0], [0.5, 0.5, 1.0]])
    samples = policy_kernels.new_samples(20_000, 3)
    policy_kernels.draw(reach, np.random.default_rng(0), samples)
    share = np.stack([np.bincount(column, minlength=3) / 20_000 for column in samples.device.T])
    assert share == pytest.approx(np.array([[0, 0.25, 0.75], [1, 0, 0], [0.5, 0, 0.5]]), abs=0.02)
    assert (share[[0, 1, 1, 2], [0, 1, 2, 1]] == 0).all()


def test_groups_join_what_is_co_located_and_allow_what_all_of_it_can_run_on():
    labels = ["a" if i % 20 == 0 else None for i in range(60)]
    pins = [["d1", "d2"] if i == 20 else None for i in range(60)]
    problem = layered(graph={"colocation": labels, "devices": pins})
    for count in (8, 256):
        groups = grouped(problem, Monitor(problem), count)
        assert len(groups.of_unit) == problem.n_units
        joined = groups.of_unit[problem.unit[20]]
        assert groups.allowed[joined].tolist() == [False, True, True]
        assert np.isfinite(groups.features).all()
        assert (groups.source != groups.target).all()
        assert len(groups.allowed) == (problem.n_units if count == 256 else groups.of_unit.max() + 1)
    assert len(grouped(problem, Monitor(problem), 8).allowed) < problem.n_units / 2


# ---------------------------------------------------------------------- the network


def pair_of_groups():
    """Return three groups, the first two of which look alike."""
    allowed = np.array([[True, True], [True, True], [True, False]])
    return Groups(np.arange(3), allowed, np.ones((3, 2)), np.array([0, 1]), np.array([2, 2]))


def test_a_new_policy_is_uniform_over_the_devices_allowed():
    policy = PolicyNetwork(pair_of_groups(), 8, 0.01, np.random.default_rng(0))
    assert policy.probabilities() == pytest.approx(np.array([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]]))


def test_groups_that_look_alike_can_learn_different_devices():
    policy = PolicyNetwork(pair_of_groups(), 8, 0.01, np.random.default_rng(0))
    for _ in range(200):
        policy.ascend(np.array([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]]), 0.0)
    assert policy.probabilities() == pytest.approx(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), abs=0.02)


@pytest.mark.slow
def test_the_bonus_of_entropy_keeps_a_policy_from_settling():
    learned = []
    for bonus in (0.0, 10.0):
        policy = PolicyNetwork(pair_of_groups(), 8, 0.01, np.random.default_rng(0))
        for _ in range(200):
            policy.ascend(np.array([[1.0, -1.0], [0.0, 0.0], [0.0, 0.0]]), bonus)
        learned.append(policy.probabilities()[0, 0])
    assert learned[0] > 0.95
    assert 0.5 < learned[1] < 0.7


def test_the_first_step_follows_the_gradient_by_finite_differences():
    policy, gain, bonus = PolicyNetwork(pair_of_groups(), 4, 1e-3, np.random.default_rng(1)), np.array([[2.0, -1], [0.5, 0], [0, 0]]), 0.3
    for _ in range(5):  # away from the uniform policy, where most derivatives are 0
        policy.ascend(gain, bonus)
    policy.moments, policy.steps = [torch.zeros_like(moment) for moment in policy.moments], 0
    before = policy.weights.detach().clone()

    def value(weights):
        with torch.no_grad():
            policy.weights.copy_(weights)
            logs = policy._forward()
        return float((torch.tensor(gain) * logs).sum() - bonus * (logs.exp() * logs).sum())

    slopes = np.array([(value(before + 1e-6 * unit) - value(before - 1e-6 * unit)) / 2e-6 for unit in torch.eye(len(before)).double()])
    value(before)
    policy.logs = policy._forward()
    policy.ascend(gain, bonus)
    steep = np.abs(slopes) > 1e-4  # Adam's first step is the rate in the direction of the sign
    assert steep.sum() > 20
    assert (policy.weights.detach() - before).numpy()[steep] == pytest.approx(1e-3 * np.sign(slopes[steep]), rel=1e-3)


# ---------------------------------------------------------------------- what is learned


@pytest.mark.slow
@pytest.mark.parametrize("communication", ["delay", "port"])
def test_it_learns(communication):
    problem, samples = network(communication=communication), 64
    first = hs.solve(problem, "policy-gradient", evaluations=samples)
    training = _Training(problem, Monitor(problem), groups=256, samples=1000)
    training._draw(np.full((training.groups.allowed.shape), 1 / 3))
    learned = hs.solve(problem, "policy-gradient", evaluations=20_000)
    assert learned.makespan < first.makespan < training.batch.makespan.mean()
    assert learned.makespan < hs.solve(problem, "best-device").makespan < training.batch.makespan.min()


def test_it_finds_the_optimum_of_small_problems():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        graph = hs.TaskGraph([*"abcde"], [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("a", "e")], output_bytes=1.0)
        problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=2.0), durations=rng.uniform(1, 3, (5, 2)))
        assert hs.solve(problem, "policy-gradient", evaluations=3000).makespan == pytest.approx(brute_force(problem).makespan)


def test_a_policy_whose_samples_are_alike_is_replaced(monkeypatch):
    made, make = [], PolicyNetwork.__init__
    monkeypatch.setattr(PolicyNetwork, "__init__", lambda self, *args: made.append(self) or make(self, *args))
    problem = layered(8, 2)
    monitor = Monitor(problem, Budget(evaluations=20_000))
    policy_gradient(problem, monitor, learning_rate=0.05, entropy=0.0)
    assert len(made) > 2
    assert monitor.evaluations >= 20_000


@pytest.mark.slow
@pytest.mark.parametrize(("memory", "capacity"), [("static", 21.0), ("peak", 26.0)])
def test_where_random_placements_exceed_the_memory_the_answer_does_not(memory, capacity):
    cluster = hs.Cluster([hs.Device(f"d{k}", memory_bytes=capacity) for k in range(3)], bandwidth=1.0)
    problem = layered(graph={"weight_bytes": 1.0, "output_bytes": 0.0 if memory == "static" else 0.1}, cluster=cluster, memory=memory)
    training = _Training(problem, Monitor(problem), groups=256, samples=200)
    training._draw(np.full(training.groups.allowed.shape, 1 / 3))
    fits = [not hs.verify(problem, hs.simulate(problem, training._decision(device))) for device in training.batch.device]
    assert 0.0 < np.mean(fits) < 0.9
    solution = hs.solve(problem, "policy-gradient", evaluations=10_000)
    assert solution.schedule is not None
    assert hs.verify(problem, solution.schedule) == []
    assert solution.makespan < training.batch.makespan[fits].min()


def test_where_no_placement_drawn_fits_the_memory_it_is_repaired():
    cluster = hs.Cluster([hs.Device(f"d{k}", memory_bytes=20.0) for k in range(3)], bandwidth=1.0)
    problem = layered(graph={"weight_bytes": 1.0, "output_bytes": 0.0}, cluster=cluster)
    solution = hs.solve(problem, "policy-gradient", evaluations=64)
    assert hs.verify(problem, solution.schedule) == []
    assert np.bincount(solution.schedule.batches.device).tolist() == [20, 20, 20]
    assert any("more than there are" in message for message in solution.messages)


def test_where_nothing_fits_it_says_so():
    cluster = hs.Cluster([hs.Device(f"d{k}", memory_bytes=19.0) for k in range(3)], bandwidth=1.0)
    problem = layered(graph={"weight_bytes": 1.0, "output_bytes": 0.0}, cluster=cluster)
    monitor = Monitor(problem, Budget(evaluations=300))
    policy_gradient(problem, monitor)
    assert monitor.best is None
    assert any("no placement was drawn that fits the memory" in message for message in monitor.solution("policy-gradient").messages)


def test_large_graphs_are_coarsened():
    problem = layered(400)
    solution = hs.solve(problem, "policy-gradient", evaluations=5000, options={"groups": 30})
    assert solution.makespan < hs.solve(problem, "random-partition").makespan


def test_a_limit_that_ends_before_the_first_placement_is_said():
    monitor = Monitor(layered(12, 2), Budget(time_limit=1.0), clock=SteppingClock(0.6))
    monitor.run("policy-gradient")
    assert monitor.evaluations == 0
    (message,) = monitor.solution("policy-gradient").messages
    assert "the first placement" in message


# ---------------------------------------------------------------------- torch


def test_torch_is_left_as_it_was_and_its_modes_change_nothing():
    problem = layered(12, 2)

    def answer():
        return hs.solve(problem, "policy-gradient", evaluations=1000, seed=3).schedule

    threads, state, expected = torch.get_num_threads(), torch.get_rng_state(), answer()
    modes = (torch.no_grad, torch.inference_mode, torch.enable_grad, lambda: torch.device("meta"), lambda: torch.autocast("cpu"))
    try:
        torch.set_num_threads(3)
        torch.set_default_dtype(torch.float16)
        for mode in modes:
            with mode():
                grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
                assert answer() == expected
                assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == (grad, inference)
        assert torch.get_num_threads() == 3
        assert torch.get_default_dtype() == torch.float16
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), state)


def test_two_solves_in_two_threads_leave_the_number_of_threads_as_it_was():
    problem, threads = layered(12, 2), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(lambda _: hs.solve(problem, "policy-gradient", evaluations=3000).schedule, range(2))
            after = pool.submit(torch.get_num_threads).result()
        assert one == other
        assert torch.get_num_threads() == after == 2
    finally:
        torch.set_num_threads(threads)


def test_a_limit_too_short_to_load_torch_leaves_what_was_drawn_and_says_so(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    problem = layered(12, 2)
    monitor = Monitor(problem, Budget(time_limit=LOADING / 2), clock=SteppingClock())
    policy_gradient(problem, monitor, samples=16)
    assert "torch" not in sys.modules
    assert monitor.best is not None
    (message,) = monitor.solution("policy-gradient").messages
    assert "nothing was learned" in message


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else find(name, *rest))
    with pytest.raises(hs.MissingDependency, match=r"pip install 'hetsched\[torch\]'"):
        hs.solve(layered(4, 2), "policy-gradient", evaluations=10)
    assert "policy-gradient" not in [method.name for method in hs.search.select()]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("groups", 0),
        ("samples", 0),
        ("samples", 1.5),
        ("hidden", 0),
        ("learning_rate", 0),
        ("learning_rate", float("inf")),
        ("entropy", -1),
    ],
)
def test_wrong_options_are_refused(option, value):
    with pytest.raises(hs.UnsupportedFeature, match=option):
        hs.solve(layered(4, 2), "policy-gradient", options={option: value})
