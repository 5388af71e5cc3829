"""Randomly wired networks: structure, determinism, messages."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.workloads.rwnn import _erdos_renyi, _is_connected, _watts_strogatz

KINDS = st.sampled_from(["er", "ws", "ba"])
DEPENDENCE = st.sampled_from(["sdep", "wdep"])


@st.composite
def arguments(draw):
    n = draw(st.integers(7, 24))
    return {
        "kind": draw(KINDS),
        "n": n,
        "modules": draw(st.integers(1, 4)),
        "channels": draw(st.integers(1, 3)),
        "dependence": draw(DEPENDENCE),
        "seed": draw(st.integers(0, 10**6)),
    }


def module_of(graph: hs.TaskGraph) -> np.ndarray:
    return np.array([int(name[1:].split(".")[0]) for name in graph.names])


@given(arguments())
def test_modules_are_connected_and_joined_by_the_channels_only(kwargs):
    graph = hs.workloads.rwnn(**kwargs)
    assert graph.n_tasks == kwargs["n"] * kwargs["modules"]
    assert (graph.source < graph.target).all()
    module = module_of(graph)
    ahead = module[graph.target] - module[graph.source]
    assert set(ahead.tolist()) <= {0, 1}
    crossing = graph.edges[ahead == 1]
    for m in range(kwargs["modules"] - 1):
        ends = crossing[module[crossing[:, 0]] == m]
        assert len(ends) == len(set(ends[:, 0].tolist())) == len(set(ends[:, 1].tolist())) == kwargs["channels"]
    inner = nx.Graph(graph.edges[ahead == 0].tolist())
    assert len(inner) == graph.n_tasks
    assert nx.number_connected_components(inner) == kwargs["modules"]


@given(arguments())
def test_the_same_seed_gives_the_same_graph_and_another_seed_another(kwargs):
    assert hs.workloads.rwnn(**kwargs) == hs.workloads.rwnn(**kwargs)
    others = [hs.workloads.rwnn(**{**kwargs, "seed": seed}) for seed in range(8)]
    assert any(other != others[0] for other in others)


@given(st.integers(5, 40), st.sampled_from([2, 4]), st.sampled_from([0.0, 0.3, 0.75, 1.0]), st.integers(0, 10**6))
def test_small_worlds_take_their_random_numbers_one_by_one(n, neighbours, rewiring, seed):
    """However many are drawn at once, graph and generator are those of single draws, also where tasks have all others as neighbours."""
    rng, single = np.random.default_rng(seed), np.random.default_rng(seed)
    linked = [{(i + d) % n for d in range(-(neighbours // 2), neighbours // 2 + 1) if d} for i in range(n)]
    for d in range(1, neighbours // 2 + 1):
        for i in np.flatnonzero(single.random(n) < rewiring).tolist():
            if len(linked[i]) == n - 1:
                continue
            while (new := int(single.integers(n))) == i or new in linked[i]:
                pass
            linked[i].remove((i + d) % n)
            linked[(i + d) % n].remove(i)
            linked[i].add(new)
            linked[new].add(i)
    edges = _watts_strogatz(n, neighbours, rewiring, rng)
    assert sorted(map(tuple, edges.tolist())) == sorted((i, j) for i, row in enumerate(linked) for j in row if i < j)
    assert rng.bit_generator.state == single.bit_generator.state


@given(arguments())
def test_every_path_of_a_strongly_dependent_module_runs_between_its_ends(kwargs):
    graph = hs.workloads.rwnn(**{**kwargs, "dependence": "sdep"})
    module, n, channels = module_of(graph), kwargs["n"], kwargs["channels"]
    inside = graph.edges[module[graph.source] == module[graph.target]] % n
    inner = graph.edges[module[graph.source] == module[graph.target]]
    for m in range(kwargs["modules"]):
        arcs = inside[module[inner[:, 0]] == m]
        assert set(range(n)) - set(arcs[:, 1].tolist()) <= set(range(channels))
        assert set(range(n)) - set(arcs[:, 0].tolist()) <= set(range(n - channels, n))
    crossing = graph.edges[module[graph.source] < module[graph.target]]
    assert set((crossing[:, 1] % n).tolist()) <= set(range(channels))


def test_weakly_dependent_ends_are_anywhere():
    graph = hs.workloads.rwnn("er", 10, modules=100, channels=2, dependence="wdep")
    crossing = graph.edges[graph.source // 10 < graph.target // 10]
    assert set((crossing[:, 0] % 10).tolist()) == set((crossing[:, 1] % 10).tolist()) == set(range(10))


@given(arguments())
def test_every_task_but_inputs_and_outputs_of_the_network_has_both(kwargs):
    graph = hs.workloads.rwnn(**kwargs)
    module = module_of(graph)
    assert set(module[np.bincount(graph.target, minlength=graph.n_tasks) == 0].tolist()) == {0}
    assert set(module[np.bincount(graph.source, minlength=graph.n_tasks) == 0].tolist()) == {kwargs["modules"] - 1}


@given(st.integers(2, 60), st.floats(0, 1), st.integers(0, 10**6))
def test_erdos_renyi_pairs_are_distinct_and_in_order(n, probability, seed):
    arcs = _erdos_renyi(n, probability, np.random.default_rng(seed))
    assert ((arcs[:, 0] >= 0) & (arcs[:, 0] < arcs[:, 1]) & (arcs[:, 1] < n)).all()
    assert len(np.unique(arcs, axis=0)) == len(arcs)
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(arcs.tolist())
    assert _is_connected(arcs, n) == nx.is_connected(graph)


def test_numbers_of_edges_are_those_of_the_random_graphs():
    def edges(kind):
        return sum(hs.workloads.rwnn(kind, 100, modules=1, dependence="wdep", seed=seed).n_edges for seed in range(20))

    er = edges("er")
    assert abs(er - 20 * 0.2 * 4950) < 5 * np.sqrt(20 * 4950 * 0.2 * 0.8)
    assert edges("ws") == 20 * 200
    assert edges("ba") == 20 * 5 * 95
    assert hs.workloads.rwnn("er", 9, modules=1, probability=1.0).n_edges == 36


def test_a_ring_without_rewiring_is_a_ring_and_old_nodes_attract_links():
    ring = hs.workloads.rwnn("ws", 12, modules=1, rewiring=0.0, dependence="wdep")
    degree = np.bincount(ring.edges.ravel())
    assert degree.tolist() == [4] * 12
    grown = hs.workloads.rwnn("ba", 200, modules=1, dependence="wdep")
    degree = np.bincount(grown.edges.ravel())
    assert degree[:20].mean() > 3 * degree[-100:].mean()


def test_the_numbers_of_a_unit():
    graph = hs.workloads.rwnn("er", 10, modules=2, width=8, resolution=4)
    tensor = 4 * 8 * 16
    assert set(graph.weight_bytes) == {4 * (64 + 72 + 8)}
    assert set(graph.flops) == {2 * 16 * (64 + 72)}
    assert set(graph.output_bytes) == set(graph.edge_bytes) == {tensor}
    received = np.maximum(np.bincount(graph.target, minlength=20), 1) * tensor
    assert np.array_equal(graph.input_bytes, received)
    assert np.array_equal(graph.bytes_accessed, graph.weight_bytes + received + tensor)
    assert set(graph.op) == {"relu_sepconv"}


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"kind": "xx"}, r"kind is 'xx'; choose one of 'er', 'ws', 'ba'"),
        ({"dependence": "x"}, r"dependence is 'x'; choose one of 'sdep', 'wdep'"),
        ({"n": 1}, r"n is 1; it must be a whole number, at least 2"),
        ({"modules": 0}, r"modules is 0; it must be a whole number, at least 1"),
        ({"seed": -1}, r"seed is -1; it must be a whole number, at least 0"),
        ({"n": 10, "channels": 6}, r"channels is 6; sdep modules of 10 tasks have at most 5"),
        ({"n": 10, "channels": 11, "dependence": "wdep"}, r"channels is 11; wdep modules of 10 tasks have at most 10"),
        ({"kind": "ws", "n": 4}, r"neighbours is 4 and n is 4; ws needs an even number of neighbours, less than n"),
        ({"kind": "ws", "neighbours": 3}, r"neighbours is 3 and n is 32; ws needs an even number"),
        ({"kind": "ws", "rewiring": 2}, r"rewiring is 2; it must be in \[0, 1\]"),
        ({"kind": "ba", "n": 5}, r"attachments is 5 and n is 5; ba needs n > attachments"),
        ({"probability": 0}, r"probability is 0; it must be in \(0, 1\]"),
        ({"n": 50, "probability": 0.001}, r"200 random graphs of 50 tasks with probability=0.001 were all disconnected; give a larger one"),
    ],
)
def test_messages(kwargs, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        hs.workloads.rwnn(**kwargs)
