"""Lookahead HEFT against the literature, a plain implementation, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import hetsched as hs
from hetsched.documents import encode
from hetsched.heuristics.list_scheduling.static import ranks
from hetsched.search import Monitor
from hetsched.solving import methods
from hetsched.testing import strategies
from tests.golden import arabnejad, topcuoglu


def run(problem: hs.Problem, name: str = "lookahead", **options: object) -> Monitor:
    methods()
    monitor = Monitor(problem)
    monitor.run(name, options)
    return monitor


@pytest.mark.parametrize(("instance", "makespan"), [(arabnejad, 127), (topcuoglu, 76)])
def test_makespans_on_published_graphs(instance, makespan):
    """The makespans of HEFT are 133 and 80."""
    assert run(instance()).incumbent == makespan == by_the_book(instance())


def test_a_slower_device_wins_if_the_children_are_there():
    """b runs on y only; HEFT places a on x, whose transfer to y takes 9 s."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 9.0)], devices=[None, ["y"]])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[1, 2], [1, 1]])
    assert run(problem, "heft").incumbent == 11
    assert run(problem).incumbent == 3


def test_children_compete_for_devices():
    """Each child alone starts at once on x after a; the two together do not, and transfers to y are slow."""
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 5.0), ("a", "c", 5.0)])
    cluster = hs.Cluster(["x", "y", "z"], bandwidth=[[0, 1, 1], [1, 0, 5], [1, 5, 0]])
    problem = hs.Problem(graph, cluster, durations=[[1, 2, 9], [4, 4, 4], [4, 4, 4]])
    assert run(problem, "heft").incumbent == 9
    assert run(problem).incumbent == 2 + 1 + 4


def by_the_book(problem: hs.Problem) -> float:
    """Return the makespan of lookahead in plain Python for one input and delays; ties go to the earlier own finish, then lower devices."""
    upward, _ = ranks(problem)
    graph, duration = problem.graph, problem.whole_durations
    busy: list[list[tuple[float, float]]] = [[] for _ in range(problem.n_devices)]
    device: dict[int, int] = {}
    finish: dict[int, float] = {}

    def first(i: int, k: int) -> float:
        """Return the earliest start of task i on device k, inf if it cannot run there."""
        start = 0.0 if np.isfinite(duration[i, k]) else np.inf
        for x in range(graph.pred_ptr[i], graph.pred_ptr[i + 1]):
            p = int(graph.pred[x])
            if p in finish:
                start = max(start, finish[p] + float(problem.transfer_times(graph.pred_edge[x], device[p], k)))
        for begin, end in sorted(busy[k]):
            if duration[i, k] and start + duration[i, k] > begin and end > start:
                start = max(start, end)
        return start

    def put(i: int, k: int) -> None:
        device[i], finish[i] = k, first(i, k) + duration[i, k]
        if duration[i, k]:
            busy[k].append((finish[i] - duration[i, k], finish[i]))

    def take_back(i: int) -> None:
        if duration[i, device[i]]:
            busy[device[i]].pop()
        del device[i], finish[i]

    def best(i: int) -> int:
        return min(range(problem.n_devices), key=lambda k: (first(i, k) + duration[i, k], k))

    waiting = set(range(problem.n_tasks))
    while waiting:
        free = [i for i in waiting if all(int(p) in finish for p in graph.pred[graph.pred_ptr[i] : graph.pred_ptr[i + 1]])]
        i = min(free, key=lambda i: (-upward[i], i))
        waiting.remove(i)
        scores = []
        for k in range(problem.n_devices):
            if np.isinf(first(i, k)):
                continue
            put(i, k)
            own, tried = finish[i], []
            for j in sorted(graph.succ[graph.succ_ptr[i] : graph.succ_ptr[i + 1]].tolist(), key=lambda j: (-upward[j], j)):
                put(j, best(j))
                tried.append(j)
            scores.append((max([own, *(finish[j] for j in tried)]), own, k))
            for j in reversed(tried):
                take_back(j)
            take_back(i)
        put(i, min(scores)[2])
    return max(finish.values())


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_algorithm_of_the_book(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 25))
    edges = np.sort(rng.integers(0, n, (3 * n, 2)), axis=1)
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges[edges[:, 0] < edges[:, 1]], edge_bytes=1.0 + seed % 5)
    durations = rng.integers(0, 9, (n, 3)).astype(float)
    durations[rng.random((n, 3)) < 0.2] = np.nan
    durations[np.isnan(durations).all(axis=1), 0] = 1.0
    cluster = hs.Cluster(["x", "y", "z"], bandwidth=rng.choice([1, 2, 4], (3, 3)), latency=rng.integers(0, 3, (3, 3)))
    problem = hs.Problem(graph, cluster, durations=durations)
    assert run(problem).incumbent == pytest.approx(by_the_book(problem), rel=1e-12)


@given(problem=strategies.problems(inputs=st.sampled_from([1, 1, 2])))
def test_without_children_tried_it_is_heft(problem):
    note(encode(problem).decode())
    try:
        expected = run(problem, "heft").incumbent
    except hs.UnsupportedFeature:
        return
    assert run(problem, most_children=0).incumbent == expected


def test_a_parent_of_very_many_children_is_placed():
    n = 3000
    graph = hs.TaskGraph(["a", *(f"t{i}" for i in range(n)), "z"], [(f"t{i}", "z") for i in range(n)] + [("a", f"t{i}") for i in range(n)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y", "z"], bandwidth=1.0), durations=np.ones((n + 2, 3)))
    assert run(problem).incumbent == n / 3 + 2


def test_a_negative_number_of_children_is_refused():
    with pytest.raises(hs.UnsupportedFeature, match="most_children is -1"):
        run(topcuoglu(), most_children=-1)
