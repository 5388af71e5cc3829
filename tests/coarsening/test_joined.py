"""Clusters for co-location: within their limits, and never part of a unit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis.levels import unit_sums
from hetsched.coarsening.coarse import colocated, mean_durations
from hetsched.coarsening.matching import joined
from hetsched.testing import strategies
from hetsched.testing.profiles import examples


@examples(50)
@given(problem=strategies.problems(), largest=st.sampled_from([0.2, 0.5, 1.0]), seed=st.none() | st.integers(0, 9))
def test_clusters_hold_whole_units_and_only_single_units_exceed_the_limit(problem: hs.Problem, largest: float, seed: int | None):
    rng = None if seed is None else np.random.default_rng(seed)
    within = problem.unit % 2
    cluster = joined(problem, largest=largest, within=within, rng=rng)
    work = unit_sums(problem, mean_durations(problem))
    for number in np.unique(cluster):
        units = np.unique(problem.unit[cluster == number])
        assert len(np.unique(within[cluster == number])) == 1
        assert len(units) == 1 or work[units].sum() <= largest * work.sum() * (1 + 1e-9)
    assert all(len(np.unique(cluster[problem.unit == unit])) == 1 for unit in range(problem.n_units))


def test_a_layer_unrolled_in_time_is_one_cluster_though_paths_leave_it_and_return():
    steps = range(4)
    names = [f"{layer}{t}" for t in steps for layer in "ab"]
    edges = [(f"{layer}{t}", f"{layer}{t + 1}", 9.0) for t in steps[:-1] for layer in "ab"]
    edges += [(f"a{t}", f"b{t}", 1.0) for t in steps] + [(f"b{t}", f"a{t + 1}", 1.0) for t in steps[:-1]]
    problem = hs.Problem(hs.TaskGraph(names, edges), hs.Cluster(["d0", "d1"], bandwidth=1.0), durations=np.ones((8, 2)))
    cluster = joined(problem, largest=0.5)
    assert len(set(cluster[::2])) == len(set(cluster[1::2])) == 1
    assert cluster[0] != cluster[1]
    assert colocated(problem, cluster).n_units == 2


@examples(50)
@given(problem=strategies.problems(), seed=st.integers(0, 9))
def test_units_are_joined_along_chosen_edges_only(problem: hs.Problem, seed: int):
    along = np.random.default_rng(seed).integers(0, 2, problem.n_tasks)
    cluster = joined(problem, largest=1.0, memory=np.inf, along=along)
    ends = problem.graph.edges[along[problem.graph.source] == along[problem.graph.target]]
    linked = np.unique(np.concatenate([problem.unit[ends].ravel(), [-1]]))
    for number in np.unique(cluster):
        units = np.unique(problem.unit[cluster == number])
        assert len(units) == 1 or np.isin(units, linked).all()


@examples(50)
@given(problem=strategies.problems())
def test_co_located_clusters_are_labels_as_given_to_a_graph(problem: hs.Problem):
    cluster = joined(problem, largest=0.5)
    try:
        given = problem.replace(graph=problem.graph.replace(colocation=[str(number) for number in cluster.tolist()]))
    except hs.InvalidProblem:  # no path between two clusters
        return
    made = colocated(problem, cluster)
    assert made == given
    assert made.graph == given.graph
    assert (made.unit == given.unit).all()
    assert (made.graph.topological_order == given.graph.topological_order).all()
