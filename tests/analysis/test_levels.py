"""Heads, tails, windows, critical path and cuts against their definitions."""

from __future__ import annotations

import itertools
import math

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis import levels
from hetsched.analysis.closure import ancestors
from hetsched.analysis.cuts import series_cuts
from hetsched.errors import UnsupportedFeature
from hetsched.testing import brute_force, decisions, problems, task_graphs
from hetsched.testing.profiles import examples


def earliest_finish(problem: hs.Problem, i: int, k: int, memo: dict[tuple[int, int], float]) -> float:
    """Compute the recursion of the docstring of `levels`."""
    if (i, k) not in memo:
        graph = problem.graph
        start = 0.0
        for e in np.flatnonzero(graph.target == i):
            p = int(graph.source[e])
            devices = [k] if problem.unit[p] == problem.unit[i] else range(problem.n_devices)
            start = max(start, min(earliest_finish(problem, p, h, memo) + float(problem.transfer_times(e, h, k)) for h in devices))
        memo[i, k] = start + float(levels.least_durations(problem)[i, k])
    return memo[i, k]


@given(problems(n_tasks=st.integers(1, 6)))
def test_heads_follow_the_recursion(problem: hs.Problem) -> None:
    """Earliest starts plus durations are the earliest finishes of the definition."""
    memo: dict[tuple[int, int], float] = {}
    expected = [[earliest_finish(problem, i, k, memo) for k in range(problem.n_devices)] for i in range(problem.n_tasks)]
    assert levels.earliest_starts(problem) + levels.least_durations(problem) == pytest.approx(np.array(expected))


@given(problems(n_tasks=st.integers(1, 6), transfers=False))
def test_tails_are_the_heads_of_the_mirrored_problem(problem: hs.Problem) -> None:
    """The reversal of all edges and channels exchanges heads and tails."""
    shortest = levels.least_durations(problem)
    graph, cluster = problem.graph, problem.cluster
    latency = np.where(cluster.route_bandwidth > 0, cluster.route_latency, 0)
    mirrored = problem.replace(
        graph=graph.replace(edges=graph.edges[:, ::-1].copy(), edge_bytes=graph.edge_bytes),
        cluster=cluster.replace(bandwidth=cluster.route_bandwidth.T, latency=latency.T),
    )
    assert levels.tails(problem, shortest) == pytest.approx(levels.earliest_starts(mirrored, shortest))


@given(problems(n_tasks=st.integers(1, 6), tight=False))
def test_the_critical_path_is_a_path_and_bounds_every_level(problem: hs.Problem) -> None:
    """Its tasks are joined by edges from a source to a sink; no task has a larger top plus bottom level."""
    length, tasks = levels.critical_path(problem)
    graph = problem.graph
    edges = set(map(tuple, graph.edges.tolist()))
    assert all(pair in edges for pair in zip(tasks.tolist(), tasks[1:].tolist(), strict=False))
    assert graph.pred_ptr[tasks[0]] == graph.pred_ptr[tasks[0] + 1]
    assert graph.succ_ptr[tasks[-1]] == graph.succ_ptr[tasks[-1] + 1]
    assert length >= (levels.top_levels(problem) + levels.bottom_levels(problem)).max() - 1e-9
    assert length >= levels.least_durations(problem).min(axis=1)[tasks].sum() - 1e-9


@given(problems(n_tasks=st.integers(1, 8)))
def test_the_critical_path_goes_through_the_neighbours_that_determine_its_levels(problem: hs.Problem) -> None:
    """From the task in the middle each next task is the one whose finish, or tail, arrives last from its best device."""
    bounds = levels.Levels(problem)
    graph, least, start, tail = problem.graph, bounds.least, bounds.starts, bounds.tails

    def walk(i: int, k: int, level: np.ndarray, near: np.ndarray, own: np.ndarray, forward: bool) -> list[int]:
        edges = sorted(np.flatnonzero(own == i).tolist())
        if not edges:
            return []
        reach = np.full((len(edges), problem.n_devices), np.inf)
        for x, e in enumerate(edges):
            for h in range(problem.n_devices):
                if h == k or problem.unit[near[e]] != problem.unit[i]:
                    reach[x, h] = level[near[e], h] + problem.transfer_times(e, *((k, h) if forward else (h, k)))
        chosen = int(reach.min(axis=1).argmax())
        j = int(near[edges[chosen]])
        return [j, *walk(j, int(reach[chosen].argmin()), level, near, own, forward)]

    middle = int((start + least + tail).min(axis=1).argmax())
    k = int((start + least + tail)[middle].argmin())
    before = walk(middle, k, start + least, graph.source, graph.target, False)
    after = walk(middle, k, least + tail, graph.target, graph.source, True)
    assert bounds.critical_path.tasks.tolist() == [*before[::-1], middle, *after]


@pytest.mark.slow
@given(st.data(), problems(n_tasks=st.integers(1, 8), tight=False))
def test_every_schedule_is_within_its_windows(data: st.DataObject, problem: hs.Problem) -> None:
    """A schedule of makespan C starts and finishes within the windows of horizon C."""
    schedule = hs.simulate(problem, data.draw(decisions(problem)))
    batches = schedule.batches
    windows = levels.windows(problem, schedule.makespan)
    tolerance = 1e-9 * max(1.0, schedule.makespan)
    assert windows.possible[batches.task, batches.device].all()
    assert (batches.start >= windows.start[batches.task, batches.device] - tolerance).all()
    assert (batches.finish <= windows.finish[batches.task, batches.device] + tolerance).all()


@examples(60)
@given(problems(n_devices=st.integers(1, 2)))
def test_windows_leave_no_device_only_below_the_optimum(problem: hs.Problem) -> None:
    """A horizon of the optimum always leaves every task a device."""
    try:
        best = brute_force(problem, limit=20_000)
    except UnsupportedFeature:
        return
    if best is not None:
        assert levels.windows(problem, best.makespan).possible.any(axis=1).all()


@given(task_graphs(n_tasks=st.integers(1, 9), colocation=False))
def test_series_cuts_and_closure_agree_with_networkx(graph: hs.TaskGraph) -> None:
    """A series cut is comparable with every other task."""
    closure = networkx.transitive_closure(networkx.DiGraph(graph.edges.tolist()))
    closure.add_nodes_from(range(graph.n_tasks))
    before = networkx.to_numpy_array(closure, nodelist=range(graph.n_tasks), weight=None).T > 0
    assert (ancestors(graph) == before).all()
    comparable = before | before.T | np.eye(graph.n_tasks, dtype=bool)
    cuts = series_cuts(graph)
    assert sorted(cuts.tolist()) == np.flatnonzero(comparable.all(axis=1)).tolist()
    assert all(before[b, a] for a, b in itertools.pairwise(cuts))


def chain(bandwidth: float = 1.0, **options: object) -> hs.Problem:
    """Return a -> b where a runs on x only and b is quicker on y."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 4)], **options)  # type: ignore[arg-type]
    return hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=bandwidth), durations=[[1, np.nan], [5, 2]])


def test_a_transfer_counts_where_every_choice_pays_it() -> None:
    """b on x costs 5, on y 4 + 2: the critical path is 1 + 5; over a faster link 1 + 1 + 2."""
    assert levels.critical_path(chain()).length == 6
    assert levels.critical_path(chain(bandwidth=4)).length == 4
    assert levels.earliest_starts(chain()).tolist() == [[0, math.inf], [1, 5]]


def test_colocation_binds_parent_and_child_to_one_device() -> None:
    """With one label, b has to run on x with a."""
    assert levels.critical_path(chain(bandwidth=4, colocation=["l", "l"])).length == 6


def test_more_inputs_count_one_in_levels_and_all_in_work() -> None:
    """Levels take the shortest batch, work the best time per input."""
    graph = hs.TaskGraph(["a"])
    problem = hs.Problem(graph, hs.Cluster(["x"]), durations=[[[3, 4]]], batch_sizes=[1, 2], inputs=6, batching="free")
    assert levels.least_durations(problem).tolist() == [[3]]
    assert levels.least_work(problem).tolist() == [[12]]


def test_a_batch_that_overflows_its_device_is_left_out() -> None:
    """Two inputs of 3 bytes and 2 bytes of weights fit 7 bytes one at a time only."""
    graph = hs.TaskGraph(["a"], weight_bytes=2, output_bytes=3)
    cluster = hs.Cluster([hs.Device("x", memory_bytes=7), hs.Device("y")], bandwidth=1)
    problem = hs.Problem(graph, cluster, durations=[[[3, 4], [3, 4]]], batch_sizes=[1, 2], inputs=2)
    for memory in ("static", "peak"):
        assert levels.batch_durations(problem.replace(memory=memory)).tolist() == [[[3, math.inf], [3, 4]]]
