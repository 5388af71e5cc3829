"""Search by moves of clusters: a schedule computed from the first change on is that computed from the start, and every one is valid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

import hetsched as hs
from hetsched.documents import encode
from hetsched.heuristics.local_search import cluster_kernels as kernels
from hetsched.heuristics.local_search.clusters import ClusterSearch, alike
from hetsched.heuristics.placement.offers import main_devices
from hetsched.problem.links import MODELS
from hetsched.testing import strategies
from hetsched.testing.profiles import examples


def started(problem, device):
    search = ClusterSearch(problem)
    search.start(device)
    return search


def drawn(data):
    """Return a search of any problem of static memory whose tasks have batches of all inputs on the devices drawn."""
    features = {
        "communication": st.sampled_from(list(MODELS)),
        "inputs": st.integers(1, 2),
        "n_tasks": st.integers(1, 8),
        "n_devices": st.integers(2, 3),
    }
    problem = data.draw(strategies.problems(memory="static", **data.draw(st.fixed_dictionaries(features))))
    note(encode(problem).decode())
    search = started(problem, main_devices(problem, data.draw(strategies.decisions(problem))))
    assume(np.isfinite(search.least))
    return problem, search


@examples(150)
@given(data=st.data(), seed=st.integers(0, 1000), steps=st.integers(0, 100), heat=st.sampled_from([1e-9, 0.1, 10.0]))
def test_a_schedule_computed_from_a_change_on_is_the_one_computed_from_the_start(data, seed, steps, heat):
    problem, search = drawn(data)
    search.anneal(steps, heat * search.least, np.random.default_rng(seed))
    s = search.state
    assert kernels.decode(search.data, s, 0.0, np.inf) == search.makespan
    for computed, kept in zip(s.trial, s.times, strict=True):
        assert computed.tolist() == kept.tolist()
    assert kernels.decode(search.data, s, 0.0, search.makespan * (1 - 1e-6)) == np.inf or search.makespan == 0.0
    assert s.used == pytest.approx(np.bincount(s.device, search.data.need, problem.n_devices))


@examples(50)
@given(data=st.data())
def test_ranks_are_the_longest_ways_to_the_end(data):
    problem, search = drawn(data)
    graph, device = problem.graph, search.state.device[problem.unit]
    rank = np.zeros(graph.n_tasks)
    for i in reversed(graph.topological_order.tolist()):
        ways = [0.0]
        for e in np.flatnonzero(graph.source == i).tolist():
            j = int(graph.target[e])
            ways.append(rank[j] + problem.transfer_times(e, device[i], device[j], problem.inputs))
        rank[i] = problem.whole_durations[i, device[i]] + max(ways)
    assert search.state.rank == pytest.approx(rank)


@examples(150)
@given(data=st.data(), seed=st.integers(0, 1000), steps=st.integers(0, 100), heat=st.sampled_from([0.1, 100.0]))
def test_the_schedule_of_a_placement_is_valid_and_no_longer_than_the_search_says(data, seed, steps, heat):
    problem, search = drawn(data)
    search.anneal(steps, heat * search.least, np.random.default_rng(seed))
    _agrees(problem, search)
    search.return_to_best()
    assert search.makespan == search.least
    _agrees(problem, search)


def _agrees(problem, search):
    schedule = hs.simulate(problem, search.decision())
    assert schedule.makespan <= search.makespan * (1 + 1e-12)
    assert hs.verify(problem, schedule) == []


def test_layers_alike_have_units_alike():
    layers, width = 12, 3
    n = layers * width
    edges = [(f"t{i}", f"t{j}", 1.0) for i in range(n) for j in range(n) if j // width == i // width + 1 and (i + j) % width != 0]
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges, weight_bytes=np.tile([1.0, 2.0, 3.0], layers))
    problem = hs.Problem(graph, hs.Cluster(["a", "b"], bandwidth=1.0), durations=np.ones((n, 2)))
    kind = alike(problem).reshape(layers, width)
    assert (kind[2:-2] == kind[2]).all()
    assert len(set(kind[2].tolist())) == width


def test_a_placement_that_exceeds_the_memory_is_no_start():
    graph = hs.TaskGraph(["a", "b"], [], weight_bytes=1.0)
    cluster = hs.Cluster([hs.Device("p", memory_bytes=1.0), hs.Device("q", memory_bytes=1.0)], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.ones((2, 2)))
    search = started(problem, np.array([0, 0]))
    assert search.least == np.inf
    search.start(np.array([0, 1]))
    assert search.least == 1.0


def test_moves_balance_the_load_within_the_memory():
    n = 200
    rng = np.random.default_rng(0)
    edges = [(f"t{i}", f"t{j}", 0.01) for i in range(n) for j in range(i + 1, min(n, i + 30)) if rng.random() < 0.05]
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges, weight_bytes=1.0)
    cluster = hs.Cluster([hs.Device(f"d{k}", memory_bytes=n / 4 + 2) for k in range(4)], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.ones((n, 4)), communication="port")
    device = np.minimum(np.arange(n) // (n // 4), 3)
    search = started(problem, device)
    before = search.least
    search.anneal(3000, 0.0004 * before, rng)
    search.return_to_best()
    schedule = hs.simulate(problem, search.decision())
    assert schedule.makespan < 0.8 * before
    assert hs.verify(problem, schedule) == []
