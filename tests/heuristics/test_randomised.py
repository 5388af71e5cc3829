"""Randomised HEFT: at least as good as HEFT, anytime, deterministic under an evaluation limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import hetsched as hs
from hetsched.documents import encode
from hetsched.heuristics.randomised_kernels import by_start
from hetsched.problem.links import CONTENDED
from hetsched.testing import conformance, strategies
from hetsched.testing.clocks import watched
from tests.golden import topcuoglu

NAME = "random-heft"


class TestRandomHeft(conformance.MethodSuite):
    method = NAME


def layered(n: int = 100, communication: str = "delay") -> hs.Problem:
    rng = np.random.default_rng(3)
    edges = np.column_stack([np.maximum(np.arange(n).repeat(3) - rng.integers(1, 12, 3 * n), 0), np.arange(n).repeat(3)])
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges[edges[:, 0] < edges[:, 1]], edge_bytes=1.0)
    return hs.Problem(graph, hs.Cluster(["x", "y", "z"], bandwidth=2.0), durations=rng.random((n, 3)), communication=communication)


@pytest.mark.slow
@given(problem=strategies.problems(), seed=st.integers(0, 9))
def test_it_is_never_worse_than_heft_and_keeps_to_its_limit(problem, seed):
    note(encode(problem).decode())
    try:
        reference = hs.solve(problem, "heft")
    except hs.UnsupportedFeature:
        return
    solution = hs.solve(problem, NAME, evaluations=20, seed=seed)
    assert not [message for message in solution.messages if "failed:" in message]
    assert solution.makespan <= reference.makespan
    assert solution.methods.evaluations.sum() <= 20


def test_without_noise_every_run_is_heft():
    solution = hs.solve(topcuoglu(), NAME, evaluations=50, options={"rank_noise": 0, "finish_noise": 0})
    assert solution.makespan == 80
    assert len(np.unique(solution.history.incumbent[np.isfinite(solution.history.incumbent)])) == 1


@pytest.mark.parametrize("communication", ["delay", "channel", "port", "per-input"])
def test_restarts_pay(communication):
    problem = layered(communication=communication)
    solution = hs.solve(problem, NAME, evaluations=500)
    assert solution.methods.evaluations.tolist() == [500]
    assert solution.makespan < 0.99 * hs.solve(problem, "heft").makespan
    assert hs.solve(problem, NAME, evaluations=50).makespan >= solution.makespan, "the first runs are the same"


def test_either_noise_alone_finds_something():
    problem = layered()
    reference = hs.solve(problem, "heft").makespan
    for options in ({"rank_noise": 0.0}, {"finish_noise": 0.0}):
        assert hs.solve(problem, NAME, evaluations=300, options=options).makespan < reference


@pytest.mark.parametrize("communication", CONTENDED)
def test_expensive_transfers_are_avoided_where_they_contend(communication):
    """HEFT without planned transfers fills the channels; overestimated transfers keep tasks together, planned ones do so better."""
    problem = layered(communication=communication)
    unplanned = [{"transfer_noise": noise, "contention": False} for noise in (0, 15)]
    blind, aware, planned = (hs.solve(problem, NAME, evaluations=300, options=options).makespan for options in (*unplanned, {}))
    assert aware < 0.98 * blind
    assert planned < 0.98 * aware


def test_the_clock_is_looked_at_in_time():
    problem = layered(2000)
    run = watched(problem, NAME, looks=12)
    assert run.monitor.best is not None
    assert run.late <= 10
    assert max(run.after, run.between) * (problem.n_tasks + problem.graph.n_edges) <= 2e6, "milliseconds"


@pytest.mark.parametrize("option", ["rank_noise", "finish_noise", "transfer_noise"])
def test_negative_noise_is_refused(option):
    with pytest.raises(hs.UnsupportedFeature, match=f"{option} is -0.1; it must be 0 or more"):
        hs.solve(topcuoglu(), NAME, evaluations=1, options={option: -0.1})


@pytest.mark.slow
@given(data=st.data())
def test_tasks_by_start_are_topological_and_keep_the_order_of_devices(data):
    problem = data.draw(strategies.problems(inputs=1, communication="delay"))
    decision = data.draw(strategies.decisions(problem))
    device = np.empty(problem.n_tasks, np.int64)
    device[decision.task] = decision.device
    order = by_start(problem.arrays, problem.whole_durations, problem.device_class, device, decision.task)
    start = np.empty(problem.n_tasks)
    schedule = hs.simulate(problem, decision)
    start[schedule.batches.task] = schedule.batches.start
    assert (np.diff(start[order]) >= -1e-9 * schedule.makespan).all()
    place = np.argsort(order)
    assert (place[problem.graph.source] < place[problem.graph.target]).all()
    again = hs.Decision.whole(problem, device, order)
    assert hs.simulate(problem, again).makespan == pytest.approx(schedule.makespan)


def test_the_start_after_a_latency_is_the_later_one():
    """a, b and d run on x, 1 s each; c on y waits for a, and 3 s more."""
    cluster = hs.Cluster(["x", "y"], bandwidth=1.0, latency=3.0)
    problem = hs.Problem(hs.TaskGraph("abcd", [("a", "c", 0.0)]), cluster, durations=np.ones((4, 2)))
    order = by_start(problem.arrays, problem.whole_durations, problem.device_class, np.array([0, 0, 1, 0]), np.array([0, 2, 1, 3]))
    assert order.tolist() == [0, 1, 3, 2]
