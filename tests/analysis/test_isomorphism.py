"""Identical parts: every mapping returned is valid, and every copy is found."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis.isomorphism import identical_parts
from hetsched.analysis.modules import modules
from hetsched.arrays import IntArray
from hetsched.testing import numbers, problems
from hetsched.testing.profiles import examples


def correspond(problem: hs.Problem, a: list[int], b: list[int], bare: list[bool]) -> bool:
    """Return whether the mapping of task ``a[x]`` of one part to ``b[x]`` of another satisfies the definition."""
    graph, usable = problem.graph, problem.arrays.durations
    memory = bool(np.isfinite(problem.cluster.memory_bytes).any())
    edges = {pair: e for e, pair in enumerate(map(tuple, graph.edges.tolist()))}
    members = [set(np.flatnonzero(problem.unit == u).tolist()) for u in range(problem.n_units)]
    for x, (i, j) in enumerate(zip(a, b, strict=True)):
        same = np.isfinite if bare[x] else np.asarray
        if not np.array_equal(same(usable[i]), same(usable[j])):
            return False
        if memory and not bare[x] and any(column[i] != column[j] for column in (graph.weight_bytes, graph.input_bytes, graph.output_bytes)):
            return False
        if (members[problem.unit[i]] <= set(a)) != (members[problem.unit[j]] <= set(b)):
            return False
        if not members[problem.unit[i]] <= set(a) and problem.unit[i] != problem.unit[j]:
            return False
        for i2, j2 in zip(a, b, strict=True):
            if (problem.unit[i] == problem.unit[i2]) != (problem.unit[j] == problem.unit[j2]):
                return False
            one, two = edges.get((i, i2)), edges.get((j, j2))
            if (one is None) != (two is None):
                return False
            if one is not None and two is not None:
                data = graph.edge_bytes if problem.transfers is None else np.nan_to_num(problem.transfers, nan=np.inf)
                if not np.array_equal(data[one], data[two]):
                    return False
    return True


def copies_of(problem: hs.Problem, count: int, order: IntArray, edge_order: IntArray) -> tuple[hs.Problem, list[IntArray]]:
    """Return `count` copies of a problem side by side, all tasks and edges in another order, and the tasks of each copy."""
    graph, n = problem.graph, problem.n_tasks
    place = np.argsort(order)
    edges = np.concatenate([graph.edges + c * n for c in range(count)])

    def every(column: Any) -> Any:
        return np.concatenate([column] * count)[order]

    labels = [None if label is None else f"{label}{c}" for c in range(count) for label in graph.colocation]
    graph_of_copies = hs.TaskGraph(
        [f"{i // n}.{graph.names[i % n]}" for i in order],
        place[edges[edge_order]],
        edge_bytes=np.concatenate([graph.edge_bytes] * count)[edge_order],
        weight_bytes=every(graph.weight_bytes),
        input_bytes=every(graph.input_bytes),
        output_bytes=every(graph.output_bytes),
        colocation=[labels[i] for i in order],
        devices=[graph.devices[i % n] for i in order],
    )
    transfers = None if problem.transfers is None else np.concatenate([problem.transfers] * count)[edge_order]
    arguments = {name: getattr(problem, name) for name in ("batch_sizes", "inputs", "batching", "communication", "memory")}
    copies = hs.Problem(graph_of_copies, problem.cluster, durations=every(problem.durations), transfers=transfers, **arguments)
    return copies, [place[c * n : (c + 1) * n] for c in range(count)]


@given(problems(n_tasks=st.integers(1, 6)), st.integers(2, 3), st.data())
def test_relabelled_copies_are_found_and_the_mapping_is_exact(problem: hs.Problem, count: int, data: Any) -> None:
    order = np.array(data.draw(st.permutations(range(count * problem.n_tasks))))
    edge_order = np.array(data.draw(st.permutations(range(count * problem.graph.n_edges))), np.int64)
    relabelled, parts = copies_of(problem, count, order, edge_order)
    parts = [np.array(data.draw(st.permutations(part.tolist()))) for part in parts]
    copies = identical_parts(relabelled, parts)
    assert [copy.of for copy in copies] == [0] * count
    for copy, part in zip(copies, parts, strict=True):
        assert sorted(copy.tasks.tolist()) == sorted(part.tolist())
        assert correspond(relabelled, parts[0].tolist(), copy.tasks.tolist(), [False] * len(part))
    assert copies[0].tasks.tolist() == parts[0].tolist()


SMALL = problems(n_tasks=st.integers(2, 8), n_devices=st.integers(1, 2), inputs=1, durations=numbers(largest=1), tight=False)


@pytest.mark.slow
@examples(150)
@given(SMALL, st.data())
def test_two_parts_are_identical_if_and_only_if_some_mapping_makes_them_so(problem: hs.Problem, data: Any) -> None:
    """Parts may share tasks; every mapping is tried."""
    size = data.draw(st.integers(1, min(4, problem.n_tasks)))
    tasks = st.permutations(range(problem.n_tasks)).map(lambda order: order[:size])
    parts = [data.draw(tasks), data.draw(tasks)]
    marks = [data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)) for _ in parts]
    bare = [data.draw(st.lists(st.booleans(), min_size=size, max_size=size)) for _ in parts]
    copies = identical_parts(problem, list(map(np.array, parts)), marks=list(map(np.array, marks)), bare=list(map(np.array, bare)))
    data_of = [list(zip(*columns, strict=True)) for columns in zip(marks, bare, strict=True)]

    def maps(places: tuple[int, ...]) -> bool:
        if [data_of[1][y] for y in places] != data_of[0]:
            return False
        return correspond(problem, parts[0], [parts[1][y] for y in places], bare[0])

    assert (copies[1].of == 0) == any(map(maps, itertools.permutations(range(size))))
    if copies[1].of == 0:
        assert maps(tuple(parts[1].index(i) for i in copies[1].tasks.tolist()))


@examples(40)
@given(st.integers(0, 2**16), st.sampled_from(["duration", "bytes", "weight", "label", "edge", "pin"]))
def test_one_number_changed_and_it_is_no_copy(seed: int, change: str) -> None:
    rng = np.random.default_rng(seed)
    base = hs.workloads.rwnn("er", 8, modules=1, probability=0.5, seed=seed)
    n = base.n_tasks
    cluster = hs.Cluster([hs.Device("x", memory_bytes=1e12), hs.Device("y")], bandwidth=1e9)
    durations = np.concatenate([rng.integers(1, 3, (n, 2)).astype(float)] * 2)
    edges = np.concatenate([base.edges, base.edges + n])
    columns: dict[str, Any] = {"weight_bytes": np.ones(2 * n), "colocation": [None] * (2 * n), "devices": [None] * (2 * n)}
    edge_bytes = np.ones(len(edges))
    e, i = int(rng.integers(base.n_edges)), int(rng.integers(n))
    if change == "duration":
        durations[i, 0] += 0.5
    elif change == "bytes":
        edge_bytes[e] = 2.0
    elif change == "weight":
        columns["weight_bytes"][i] = 2.0
    elif change == "label":
        columns["colocation"][:2] = ["l", "l"]
    elif change == "pin":
        columns["devices"][i] = ["x"]
    else:
        edges = np.delete(edges, e, axis=0)
        edge_bytes = edge_bytes[1:]
    graph = hs.TaskGraph(map(str, range(2 * n)), edges, edge_bytes=edge_bytes, **columns)
    problem = hs.Problem(graph, cluster, durations=durations)
    parts = [np.arange(n), rng.permutation(np.arange(n, 2 * n))]
    assert [copy.of for copy in identical_parts(problem, parts)] == [0, 1]
    unlimited = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1e9), durations=durations)
    assert (identical_parts(unlimited, parts)[1].of == 0) == (change == "weight")  # memory counts only where it may run out


def plain(edges: list[tuple[int, int]], n: int) -> hs.Problem:
    return hs.Problem(hs.TaskGraph(map(str, range(n)), np.array(edges)), hs.Cluster(["x"]), durations=np.ones((n, 1)))


def rings(sizes: list[int], first: int) -> list[tuple[int, int]]:
    """Return rings of tasks, each second one the source of two edges."""
    edges = []
    for size in sizes:
        for i in range(0, size, 2):
            edges += [(first + i, first + i + 1), (first + i, first + (i - 1) % size)]
        first += size
    return edges


def test_parts_with_equal_colours_are_distinguished() -> None:
    """All tasks of rings have equal colours, whatever the lengths of the rings; the search has to backtrack."""
    same = plain(rings([4, 8], 0) + rings([8, 4], 12), 24)
    parts = [np.arange(12), np.arange(12, 24)]
    copies = identical_parts(same, parts)
    assert copies[1].of == 0
    assert correspond(same, parts[0].tolist(), copies[1].tasks.tolist(), [False] * 12)
    other = plain(rings([4, 8], 0) + rings([6, 6], 12), 24)
    assert identical_parts(other, parts)[1].of == 1


def test_equal_tasks_side_by_side_are_no_trouble() -> None:
    durations = np.concatenate([np.arange(200) % 2, np.arange(200) // 100])[:, None]
    problem = hs.Problem(hs.TaskGraph(map(str, range(400))), hs.Cluster(["x"]), durations=durations)
    assert identical_parts(problem, [np.arange(200), np.arange(200, 400)])[1].of == 0


def blocks(copies: int, heads: int, length: int, seed: int) -> tuple[hs.Problem, list[IntArray]]:
    """Return equal blocks in series, each with equal parallel heads and an edge around them, in random order."""
    rng = np.random.default_rng(seed)
    n = 3 + heads * length
    inside = [(0, 1), (0, n - 1)]
    for first in range(2, n - 1, length):
        inside += [(1, first), *itertools.pairwise(range(first, first + length)), (first + length - 1, n - 1)]
    edges = [(c * n + i, c * n + j) for c in range(copies) for i, j in inside]
    edges += [(c * n - 1, c * n) for c in range(1, copies)]
    place = rng.permutation(copies * n)
    durations = np.empty((copies * n, 2))
    durations[place] = np.tile(rng.random((length, 2))[np.arange(n) % length], (copies, 1))
    graph = hs.TaskGraph(map(str, range(copies * n)), place[np.array(edges)], output_bytes=8.0)
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=durations)
    return problem, [rng.permutation(place[c * n : (c + 1) * n]) for c in range(copies)]


def test_blocks_of_a_transformer_are_all_the_first() -> None:
    problem, parts = blocks(20, 12, 5, seed=0)
    copies = identical_parts(problem, parts)
    assert {copy.of for copy in copies} == {0}
    for copy in copies[1:3]:
        assert correspond(problem, parts[0].tolist(), copy.tasks.tolist(), [False] * len(parts[0]))


def test_modules_with_the_cuts_before_them_are_copies_though_the_first_follows_something_else() -> None:
    """The cut before a module is bare: its duration belongs to the module before."""
    problem, _ = blocks(4, 3, 2, seed=1)
    parts = modules(problem.graph, channels=1, smallest=9).tasks()
    cuts = [int(part[-1]) for part in parts]
    assert [len(part) for part in parts] == [9] * 4
    durations = problem.durations[:, :, 0].copy()
    durations[cuts[0]] *= 2
    problem = problem.replace(durations=durations)
    extended = [np.concatenate([[cut], part]) for cut, part in zip(cuts, parts[1:], strict=False)]
    marks = [np.array([1, *[0] * 8, 2])] * 3
    assert [copy.of for copy in identical_parts(problem, extended, marks=marks)] == [0, 1, 1]
    copies = identical_parts(problem, extended, marks=marks, bare=[np.arange(10) == 0] * 3)
    assert [copy.of for copy in copies] == [0, 0, 0]
    assert all((copy.tasks[0], copy.tasks[-1]) == (part[0], part[-1]) for copy, part in zip(copies, extended, strict=True))


def test_a_bare_task_still_has_to_run_in_the_same_places() -> None:
    graph = hs.TaskGraph("abcd", [("a", "b"), ("c", "d")])
    cluster = hs.Cluster(["x", "y"], bandwidth=1.0)
    parts, bare = [np.array([0, 1]), np.array([2, 3])], [np.array([True, False])] * 2
    for first, expected in (([3.0, 4.0], 0), ([3.0, np.nan], 1)):
        problem = hs.Problem(graph, cluster, durations=[[1, 2], [1, 1], first, [1, 1]])
        assert identical_parts(problem, parts, bare=bare)[1].of == expected


def test_no_parts_and_empty_parts() -> None:
    problem = plain([(0, 1)], 2)
    assert identical_parts(problem, []) == []
    copies = identical_parts(problem, [np.array([0]), np.array([], np.int64), np.array([], np.int64), np.array([1])])
    assert [copy.of for copy in copies] == [0, 1, 1, 0]


def test_bad_parts_are_refused() -> None:
    problem = plain([(0, 1)], 2)
    with pytest.raises(hs.UnsupportedFeature, match="part 1 names a task twice; its tasks must be distinct"):
        identical_parts(problem, [np.array([0]), np.array([1, 1])])
    for name, one in (("marks", np.array([1])), ("bare", np.array([True]))):
        with pytest.raises(hs.UnsupportedFeature, match=f"{name} must have one entry for each task of each of the 1 parts"):
            identical_parts(problem, [np.array([0, 1])], **{name: [one]})
