"""Celeritas' orders and break points, against enumeration and the paper's definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import coarsening
from hetsched.arrays import row_starts
from hetsched.coarsening import kernels
from hetsched.coarsening.sequential import through_levels
from hetsched.testing import problems


def figure(edges, durations, **arguments):
    names = sorted({name for edge in edges for name in edge[:2]})
    graph = hs.TaskGraph(names, edges, **arguments)
    return hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=1.0), durations=np.tile(np.array(durations, float)[:, None], (1, 2)))


@given(problems(n_tasks=st.integers(0, 9)), st.sampled_from(["m-topo", "dfs-topo", "cpd-topo"]))
def test_orders_are_topological(problem, order):
    place = np.empty(problem.n_tasks, np.int64)
    place[coarsening.topological_order(problem, order)] = np.arange(problem.n_tasks)
    assert sorted(place.tolist()) == list(range(problem.n_tasks))
    assert (place[problem.graph.source] < place[problem.graph.target]).all()


def test_the_critical_path_comes_first_and_in_one_piece():
    # a -> {b, c, d} -> e; the path through c is the longest, followed by that through d
    problem = figure(
        [("a", "b", 1), ("a", "c", 1), ("a", "d", 1), ("b", "e", 1), ("c", "e", 1), ("c", "f", 9), ("d", "e", 5)], [1, 1, 8, 2, 1, 1]
    )
    assert through_levels(problem).tolist() == [20, 5, 20, 10, 12, 20]
    names = problem.graph.names
    assert "".join(names[i] for i in coarsening.topological_order(problem)) == "acfdbe"
    assert "".join(names[i] for i in coarsening.topological_order(problem, "dfs-topo")) == "adcfbe"
    assert "".join(names[i] for i in coarsening.topological_order(problem, "m-topo")) == "abcdfe"


@st.composite
def sequences(draw):
    n = draw(st.integers(1, 7))
    pairs = [pair for pair in itertools.combinations(range(n), 2) if draw(st.booleans())]
    cost = [float(draw(st.integers(0, 9))) for _ in pairs]
    claim = np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), float)
    able = np.array(draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)), np.int64)
    return n, pairs, cost, claim, able, draw(st.integers(1, n)), float(draw(st.integers(0, 12)))


@given(sequences())
def test_break_points_are_the_best_there_are(made):
    n, pairs, cost, claim, able, window, limit = made
    by_target = sorted(range(len(pairs)), key=lambda e: pairs[e][1])
    ptr = row_starts(np.bincount([pairs[e][1] for e in by_target], minlength=n))
    place = np.array([pairs[e][0] for e in by_target], np.int64)
    out = np.bincount([i for i, _ in pairs], cost, n) if pairs else np.zeros(n)
    clusters = kernels.break_points(place, ptr, np.array([cost[e] for e in by_target], float), out, claim, able, window, limit)

    def value(cluster):
        return sum(c for (i, j), c in zip(pairs, cost, strict=True) if cluster[i] != cluster[j])

    def allowed(cluster):
        for number in set(cluster):
            members = [i for i in range(n) if cluster[i] == number]
            if len(members) > window:
                return False
            if len(members) > 1 and (claim[members].sum() > limit or not np.bitwise_and.reduce(able[members])):
                return False
        return True

    best = min(
        value(cluster)
        for breaks in itertools.product([0, 1], repeat=n - 1)
        if allowed(cluster := np.concatenate([[0], np.cumsum(breaks)]).astype(int).tolist())
    )
    assert clusters.tolist() == sorted(clusters.tolist())
    assert clusters[0] == 0
    assert set(np.diff(clusters).tolist()) <= {0, 1}
    assert allowed(clusters.tolist())
    assert value(clusters.tolist()) == best


def test_a_large_graph_gets_small_and_its_ccr_falls():
    rng = np.random.default_rng(0)
    n = 3000
    target = np.arange(1, n)
    near = np.stack([np.maximum(0, target - rng.integers(1, 9, n - 1)), target], axis=1)
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], np.unique(near, axis=0), output_bytes=1e6, edge_bytes=np.full(n - 1, 1e6))
    problem = hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=1e9), durations=np.full((n, 2), 1e-5))
    fused = coarsening.operation_fusion(problem, window=100)
    assert coarsening.ccr(problem) == pytest.approx(100, rel=0.01)
    assert 30 <= fused.coarse.n_tasks <= 60
    assert np.bincount(fused.cluster).max() <= 100
    assert coarsening.ccr(fused.coarse) < 20
    assert fused.coarse.durations.sum() == pytest.approx(problem.durations.sum())
