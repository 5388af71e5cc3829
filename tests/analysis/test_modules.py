"""Modules of a graph: an ordered partition with narrow boundaries, which recovers the modules of a stack."""

from __future__ import annotations

import itertools
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis.channel_cut_kernels import CHANNEL, EDGE, UNKNOWN, narrowest, neighbours
from hetsched.analysis.cuts import clean_cuts
from hetsched.analysis.modules import LARGEST, MOST_CHANNELS, Modules, modules
from hetsched.arrays import IntArray
from hetsched.testing import task_graphs
from hetsched.testing.profiles import examples
from tests.analysis.test_cuts import GRAPHS, graphs_in_series


def relabelled(graph: hs.TaskGraph, seed: int) -> tuple[hs.TaskGraph, IntArray]:
    """Return the graph with its tasks and edges in another order, and the original number of each task, [n]."""
    rng = np.random.default_rng(seed)
    old = rng.permutation(graph.n_tasks)
    edges = np.argsort(old)[graph.edges]
    return hs.TaskGraph([graph.names[i] for i in old], edges[rng.permutation(len(edges))]), old


def check(graph: hs.TaskGraph, partition: Modules) -> None:
    """Assert the properties of every partition into modules."""
    assert set(partition.of_task.tolist()) == set(range(partition.number))
    assert (partition.of_task[graph.source] <= partition.of_task[graph.target]).all()
    place = np.empty(graph.n_tasks, np.int64)
    place[graph.topological_order] = np.arange(graph.n_tasks)
    parts = partition.tasks()
    assert partition.sizes.tolist() == [len(part) for part in parts]
    for number, part in enumerate(parts):
        assert (partition.of_task[part] == number).all()
        assert (np.diff(place[part]) > 0).all()
    boundaries = partition.boundaries()
    assert len(boundaries) == len(partition.cuts) == max(0, partition.number - 1)
    cuts = set(clean_cuts(graph).tolist())
    for t, edges in enumerate(boundaries):
        crossing = (partition.of_task[graph.source] <= t) & (partition.of_task[graph.target] > t)
        assert edges.tolist() == np.flatnonzero(crossing).tolist()
        assert len(set(graph.source[edges].tolist())) <= partition.channels
        last = int(parts[t][-1])
        own = last in cuts and set(graph.source[edges].tolist()) <= {last}
        assert partition.cuts[t] == (last if own else -1)


@given(GRAPHS, st.none() | st.integers(1, 5), st.integers(1, 6), st.data())
def test_every_edge_goes_forward_and_few_tasks_are_read_across(graph: hs.TaskGraph, channels: int | None, largest: int, data: Any) -> None:
    partition = modules(graph, channels=channels, largest=largest, smallest=data.draw(st.integers(1, largest)))
    check(graph, partition)
    assert partition.channels == channels or (channels is None and 1 <= partition.channels <= MOST_CHANNELS)


@given(GRAPHS)
def test_one_channel_cuts_at_every_clean_cut(graph: hs.TaskGraph) -> None:
    partition = modules(graph, channels=1, largest=1)
    cuts = clean_cuts(graph).tolist()
    ends = [int(part[-1]) for part in partition.tasks()]
    assert partition.cuts.tolist() == ends[:-1]
    assert set(cuts) <= set(ends)


@st.composite
def bridged(draw: st.DrawFn) -> hs.TaskGraph:
    """Draw random graphs in series, each joined to the next by one edge between any two tasks, numbered at random."""
    edges: list[tuple[int, int]] = []
    n = 0
    for _ in range(draw(st.integers(2, 4))):
        part = draw(task_graphs(n_tasks=st.integers(1, 5), colocation=False))
        edges += (part.edges + n).tolist()
        if n:
            edges.append((draw(st.integers(0, n - 1)), n + draw(st.integers(0, part.n_tasks - 1))))
        n += part.n_tasks
    place = np.array(draw(st.permutations(range(n))))
    return hs.TaskGraph(map(str, range(n)), place[np.array(edges).reshape(-1, 2)])


@given(bridged())
def test_the_bridges_of_the_paper_are_cut(graph: hs.TaskGraph) -> None:
    """Bridges on every path from a source to a sink: both of their ends are boundaries."""
    partition = modules(graph, channels=1)
    directed = networkx.DiGraph(graph.edges.tolist())
    directed.add_nodes_from(range(graph.n_tasks))
    sources = [i for i in directed if not directed.in_degree(i)]
    sinks = {i for i in directed if not directed.out_degree(i)}
    for u, v in map(sorted, networkx.bridges(networkx.Graph(directed))):
        a, b = (u, v) if directed.has_edge(u, v) else (v, u)
        rest = directed.copy()
        rest.remove_edge(a, b)
        if all(not sinks & ({i} | networkx.descendants(rest, i)) for i in sources):
            assert partition.of_task[a] + 1 == partition.of_task[b]
            assert partition.cuts[partition.of_task[a]] == a
            assert partition.cuts.tolist()[partition.of_task[b] : partition.of_task[b] + 1] in ([b], [])


@examples(30)
@given(st.integers(2, 4), st.integers(0, 4), st.integers(2, 6), st.integers(0, 2**16))
def test_dense_modules_joined_by_few_edges_are_the_components_of_the_paper(channels: int, more: int, count: int, seed: int) -> None:
    """Complete modules of n tasks are (n - 1)-edge-connected, so they are the (c + 1)-edge-connected components."""
    n = channels + 2 + more
    edges = [(m * n + i, m * n + j) for m in range(count) for i, j in itertools.combinations(range(n), 2)]
    edges += [(m * n - 1 - c, m * n + c) for m in range(1, count) for c in range(channels)]
    graph, _ = relabelled(hs.TaskGraph(map(str, range(n * count)), np.array(edges)), seed)
    partition = modules(graph, channels=channels, largest=n, smallest=2)  # the very first task is a clean cut
    components = networkx.k_edge_components(networkx.Graph(graph.edges.tolist()), channels + 1)
    assert {frozenset(part.tolist()) for part in partition.tasks()} == set(map(frozenset, components))


def recovered(graph: hs.TaskGraph, partition: Modules) -> int:
    """Return the number of modules of the stack that are modules of the partition."""
    labels = [name.split(".", 1)[0] for name in graph.names]
    own = {frozenset(np.flatnonzero([name == label for name in labels]).tolist()) for label in set(labels)}
    return len(own & {frozenset(part.tolist()) for part in partition.tasks()})


@pytest.mark.parametrize("dependence", ["sdep", "wdep"])
@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("shuffled", [False, True])
def test_stacks_fall_into_the_modules_they_were_made_of(dependence: Any, channels: int, shuffled: bool) -> None:
    for seed in range(3):
        graph = hs.workloads.rwnn("er", 32, modules=10, channels=channels, dependence=dependence, seed=seed)
        if shuffled:
            graph, _ = relabelled(graph, seed)
        partition = modules(graph, channels=channels)
        check(graph, partition)
        assert recovered(graph, partition) >= (10 if dependence == "wdep" else 7)
        assert partition.sizes.max() <= 34
        assert modules(graph).channels <= channels


@pytest.mark.parametrize("dependence", ["sdep", "wdep"])
@pytest.mark.parametrize("channels", [2, 3, 4])
def test_small_modules_that_hang_together_loosely_are_cut_into_balanced_parts(dependence: Any, channels: int) -> None:
    """Modules of ten tasks of degree two have narrower boundaries inside than between them, so other modules are as good."""
    for seed in range(3):
        graph = hs.workloads.rwnn("er", 10, modules=10, channels=channels, dependence=dependence, seed=seed)
        partition = modules(graph, channels=channels, largest=16, smallest=4)
        check(graph, partition)
        assert partition.sizes.max() <= 16
        assert 7 <= partition.number <= 12


def test_the_fewest_channels_that_do_are_taken() -> None:
    for channels in (1, 2, 3):
        graph = hs.workloads.rwnn("er", 32, modules=4, channels=channels, dependence="sdep", seed=1)
        partition = modules(graph)
        assert partition.channels == channels
        assert partition.sizes.max() <= LARGEST
    layers = np.array([(8 * t + i, 8 * t + 8 + j) for t in range(9) for i in range(8) for j in range(8)])
    wide = hs.TaskGraph(map(str, range(80)), layers)
    assert modules(wide, channels=7).sizes.max() > 70
    assert modules(wide, channels=8).sizes.max() <= LARGEST
    assert (modules(wide).channels, modules(wide).number) == (1, 1)  # four channels are hardly better


def test_blocks_of_a_network_are_modules() -> None:
    graph = hs.workloads.networks.load("googlenet")
    partition = modules(graph, smallest=4)
    assert partition.channels == 1
    for block in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        assert len({int(m) for m, name in zip(partition.of_task, graph.names, strict=True) if name.startswith(f"inception{block}")}) == 1
    assert partition.sizes.min() >= 4
    finer = modules(graph, largest=10)
    assert (finer.channels, finer.sizes.max()) == (2, 10)


def test_branches_side_by_side_are_cut_across_and_not_one_after_the_other() -> None:
    """Two chains of 30 tasks between the same two tasks: each module contains a part of both."""
    chains = [["s", *(f"{c}{i}" for i in range(30)), "t"] for c in "ab"]
    graph = hs.TaskGraph(["s", *chains[0][1:-1], *chains[1][1:-1], "t"], [edge for chain in chains for edge in itertools.pairwise(chain)])
    partition = modules(graph, largest=24)
    check(graph, partition)
    assert partition.channels == 2
    inner = [part for part in partition.tasks() if len(part) > 1]
    assert len(inner) > 2
    for part in inner:
        letters = [graph.names[i][0] for i in part.tolist() if graph.names[i] not in "st"]
        assert letters.count("a") == letters.count("b")


@given(st.integers(0, 60), st.integers(1, 3), st.integers(1, 10))
def test_pieces_that_nothing_joins_make_modules_too(n: int, chains: int, largest: int) -> None:
    edges = np.array([(i, i + chains) for i in range(n - chains)], np.int64).reshape(-1, 2)
    graph = hs.TaskGraph(map(str, range(n)), edges)
    partition = modules(graph, channels=chains, largest=largest)
    check(graph, partition)
    assert n == 0 or chains == 1 or partition.sizes.max() <= max(largest, chains)


@given(graphs_in_series(), st.integers(1, 6), st.integers(6, 9))
def test_tiny_modules_are_left_only_where_they_fit_nowhere(graph: hs.TaskGraph, smallest: int, largest: int) -> None:
    sizes = [0, *modules(graph, channels=1, smallest=smallest, largest=largest).sizes.tolist(), 0]
    for before, size, after in zip(sizes, sizes[1:], sizes[2:], strict=False):
        if size < smallest:
            assert all(not other or size + other > largest for other in (before, after))


def test_a_tiny_module_is_merged_over_the_boundary_of_more_edges() -> None:
    """In the modules of the stack, the first task of a module has many readers, the last task of the one before has one."""
    graph = hs.workloads.rwnn("er", 12, modules=5, channels=1, seed=0)
    assert recovered(graph, modules(graph, smallest=2)) == 5


@examples(60)
@given(task_graphs(n_tasks=st.integers(1, 8), colocation=False), st.data())
def test_the_narrowest_boundary_is_a_minimum_cut(graph: hs.TaskGraph, data: Any) -> None:
    """No closed set of tasks between two positions has a narrower boundary."""
    order = graph.topological_order.copy()
    n = graph.n_tasks
    low = data.draw(st.integers(0, n))
    high = data.draw(st.integers(low, n))
    place = np.argsort(order)
    scratch = np.full(n, UNKNOWN)
    chosen = narrowest(neighbours(graph), order, place, low, high, data.draw(st.integers(0, n)), scratch)
    assert (scratch == UNKNOWN).all()

    def cost(up_to: set[int]) -> int | None:
        if any(j in up_to and i not in up_to for i, j in graph.edges.tolist()):
            return None
        crossing = [(i, j) for i, j in graph.edges.tolist() if i in up_to and j not in up_to]
        return CHANNEL * len({i for i, _ in crossing}) + EDGE * len(crossing)

    before, window = set(order[:low].tolist()), order[low:high].tolist()
    every = [before | {i for i, kept in zip(window, keep, strict=True) if kept} for keep in itertools.product((0, 1), repeat=len(window))]
    narrowest_cost = cost(before | set(order[low:high][chosen].tolist()))
    assert narrowest_cost == min(value for value in map(cost, every) if value is not None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"channels": 0}, "channels is 0; it must be a whole number, at least 1"),
        ({"largest": 2.5}, "largest is 2.5"),
        ({"smallest": True}, "smallest is True"),
        ({"smallest": 50}, "smallest is 50 but largest is 40; smallest must not exceed largest"),
    ],
)
def test_bad_numbers_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(hs.UnsupportedFeature, match=message):
        modules(hs.TaskGraph("ab"), **arguments)
