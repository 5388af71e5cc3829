"""Searches under ``peak`` memory: training steps whose activations are held until the backward pass reads them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.heuristics.local_search import edit_kernels, excess_kernels, tabu_kernels
from hetsched.heuristics.local_search.states import States
from hetsched.problem.links import MODELS
from hetsched.schedule import memory
from hetsched.testing import brute_force, problems
from hetsched.testing.profiles import examples
from hetsched.testing.strategies import decisions


def training(layers, memory, *, devices=2):
    """Return forward and backward tasks of a chain of layers, of 1 s and 2 s; an activation of one byte is held for each backward task."""
    forward, backward = [f"f{i}" for i in range(layers)], [f"b{i}" for i in range(layers)]
    names = [*forward, *backward[::-1]]
    edges = [*itertools.pairwise(names), *zip(forward[:-1], backward[1:], strict=True)]
    graph = hs.TaskGraph(
        names, [(*edge, 1.0) for edge in edges], output_bytes=1.0, weight_bytes=0.1, colocation=[f"layer {name[1:]}" for name in names]
    )
    cluster = hs.Cluster([hs.Device(f"d{k}", memory_bytes=memory) for k in range(devices)], bandwidth=10.0)
    durations = np.tile([[1.0 if name[0] == "f" else 2.0] for name in names], (1, devices))
    return hs.Problem(graph, cluster, durations=durations, memory="peak")


def test_a_device_holds_an_activation_for_each_layer_and_one_gradient_more():
    problem = training(10, np.inf, devices=1)
    schedule = hs.simulate(problem, hs.Decision.whole(problem, np.zeros(20, int), problem.graph.topological_order))
    assert schedule.peak_memory[0] == pytest.approx(20 * 0.1 + 10 + 1)
    assert schedule.static_memory[0] == pytest.approx(20 * 0.1 + 20)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["annealing", "tabu"])
@pytest.mark.parametrize("capacity", [9.0, 8.1])
def test_searches_cut_a_step_in_two_where_one_device_is_too_small(method, capacity):
    problem = training(10, capacity)
    assert hs.solve(problem, "best-device").schedule is None
    solution = hs.solve(problem, method, evaluations=200_000)
    assert solution.schedule is not None
    assert (solution.schedule.peak_memory <= capacity).all()
    assert solution.makespan == pytest.approx(30.2)  # one transfer to the other device, one back


@examples(30)
@given(data=st.data(), seed=st.integers(0, 1000), changes=st.integers(0, 30))
def test_the_excess_of_a_state_is_that_of_its_schedule(data, seed, changes):
    communication = data.draw(st.sampled_from(list(MODELS)))
    problem = data.draw(problems(memory="peak", tight=True, communication=communication, inputs=st.integers(1, 3)))
    states = States(problem)
    state, t = states.empty(), states.tables
    assume(np.isfinite(states.load(state, hs.simulate(problem, data.draw(decisions(problem))))) and problem.n_tasks)
    tabu_kernels.shake(t, state, edit_kernels.new_log(t), np.random.default_rng(seed), changes, 0.0)
    schedule = hs.simulate(problem, states.decision(state))
    over = memory.over_capacity(problem, schedule.peak_memory).sum()
    assert excess_kernels.excess(t, state) == pytest.approx(over, rel=1e-6, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tabu", "evolution"])
@given(problem=problems(memory="peak", tight=True, missing_links=False, n_tasks=st.integers(3, 6), n_devices=2))
@examples(30)
def test_what_is_found_is_near_the_optimum(method, problem):
    try:
        optimum = brute_force(problem, limit=20_000)
    except hs.UnsupportedFeature:
        return
    if optimum is not None:
        assert hs.solve(problem, method, evaluations=20_000).makespan <= 1.05 * optimum.makespan


@pytest.mark.slow
@given(st.integers(2, 6), st.floats(0.45, 1.0), st.integers(0, 3))
@examples(15)
def test_what_is_found_fits(layers, share, seed):
    problem = training(layers, share * (1.2 * layers + 1))
    solution = hs.solve(problem, ["annealing", "tabu"], evaluations=2000, seed=seed)
    if solution.schedule is not None:
        assert (solution.schedule.peak_memory <= problem.cluster.memory_bytes * (1 + 1e-9)).all()
        assert hs.verify(problem, solution.schedule) == []
    elif solution.best_effort is not None:
        assert solution.best_effort.bytes_over > 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["annealing", "tabu", "evolution"])
@given(problem=problems(memory="peak", tight=True, missing_links=False, transfers=False, n_tasks=st.integers(1, 4)))
@examples(15)
def test_a_schedule_is_found_wherever_one_fits(method, problem):
    """Also from starts over the memory: the excess is reduced to zero."""
    try:
        optimum = brute_force(problem, limit=20_000)
    except hs.UnsupportedFeature:
        return
    solution = hs.solve(problem, method, evaluations=2000)
    assert (solution.schedule is None) == (optimum is None)


def test_unloading_continues_until_the_budget_ends():
    """Five tasks of three bytes each, all held until the end, but two devices of eight bytes hold four."""
    cluster = hs.Cluster([hs.Device(f"d{k}", memory_bytes=8) for k in range(2)], bandwidth=1.0)
    problem = hs.Problem(hs.TaskGraph(list("abcde"), output_bytes=3), cluster, durations=np.ones((5, 2)), memory="peak")
    solution = hs.solve(problem, "annealing", evaluations=500)
    assert solution.schedule is None
    assert solution.stopped == "evaluations"
    assert solution.best_effort.bytes_over > 0
