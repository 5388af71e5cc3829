"""Series cuts and clean cuts against their definitions."""

from __future__ import annotations

import itertools

import networkx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis.cuts import clean_cuts, series_cuts
from hetsched.testing import task_graphs


@st.composite
def graphs_in_series(draw: st.DrawFn) -> hs.TaskGraph:
    """Draw small graphs in series, joined by random edges from any graph to any later one, with tasks numbered at random."""
    edges: list[tuple[int, int]] = []
    n = 0
    for size in draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)):
        edges += [(n + i, n + j) for i, j in itertools.combinations(range(size), 2) if draw(st.booleans())]
        if n:
            pairs = st.tuples(st.integers(0, n - 1), st.integers(n, n + size - 1))
            edges += draw(st.lists(pairs, min_size=0, max_size=3))
        n += size
    place = np.array(draw(st.permutations(range(n))))
    return hs.TaskGraph([f"t{i}" for i in range(n)], place[np.array(sorted(set(edges)), np.int64).reshape(-1, 2)])


GRAPHS = st.one_of(task_graphs(n_tasks=st.integers(1, 9), colocation=False), graphs_in_series())


def reachability(graph: hs.TaskGraph) -> list[set[int]]:
    """Return the descendants of each task."""
    directed = networkx.DiGraph(graph.edges.tolist())
    directed.add_nodes_from(range(graph.n_tasks))
    return [networkx.descendants(directed, i) for i in range(graph.n_tasks)]


@given(GRAPHS)
def test_clean_cuts_are_the_series_cuts_that_no_edge_passes(graph: hs.TaskGraph) -> None:
    after = reachability(graph)
    series = [v for v in range(graph.n_tasks) if all(i == v or i in after[v] or v in after[i] for i in range(graph.n_tasks))]
    assert sorted(series_cuts(graph).tolist()) == series
    passed = {v for v in series for i, j in graph.edges.tolist() if v in after[i] and j in after[v]}
    assert set(clean_cuts(graph).tolist()) == set(series) - passed
    for cuts in (series_cuts(graph), clean_cuts(graph)):
        assert all(b in after[a] for a, b in itertools.pairwise(cuts.tolist()))


@given(GRAPHS)
def test_at_a_clean_cut_two_parts_meet_in_one_task(graph: hs.TaskGraph) -> None:
    """Without this task, no edge joins the tasks before it to the tasks after it."""
    after = reachability(graph)
    for v in clean_cuts(graph).tolist():
        rest = networkx.Graph([edge for edge in graph.edges.tolist() if v not in edge])
        rest.add_nodes_from(set(range(graph.n_tasks)) - {v})
        for piece in networkx.connected_components(rest):
            assert piece <= after[v] or not piece & after[v]


def test_an_edge_beside_a_cut_unmakes_it() -> None:
    joined = [("a", "b"), ("b", "c"), ("c", "d")]
    assert clean_cuts(hs.TaskGraph("abcd", joined)).tolist() == [0, 1, 2, 3]
    graph = hs.TaskGraph("abcd", [*joined, ("b", "d")])
    assert (series_cuts(graph).tolist(), clean_cuts(graph).tolist()) == ([0, 1, 2, 3], [0, 1, 3])


def test_graphs_with_nothing_to_cut() -> None:
    assert clean_cuts(hs.TaskGraph([])).tolist() == []
    assert clean_cuts(hs.TaskGraph("a")).tolist() == [0]
    assert clean_cuts(hs.TaskGraph("ab")).tolist() == []
