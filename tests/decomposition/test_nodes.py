"""Modules in series on the nodes of a cluster: how they are divided, and the schedule of the parts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.decomposition.nodes import SolvedApart, parts_of_nodes
from hetsched.decomposition.series import cut
from hetsched.papers.diviml import decoder
from hetsched.search import Budget, Monitor
from hetsched.stopping import NEVER
from hetsched.testing import profiles

OPTIONS = {"solver": "annealing", "improve": False}


def chain(durations: np.ndarray, nodes: list[str], inputs: int = 2, memory: float = math.inf, weights: object = 0.0) -> hs.Problem:
    """Return a chain of tasks on devices of some nodes."""
    n, devices = durations.shape
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], np.array([(i, i + 1) for i in range(n - 1)]), edge_bytes=1.0, weight_bytes=weights)
    cluster = hs.Cluster([hs.Device(f"d{k}", node=nodes[k], memory_bytes=memory) for k in range(devices)], bandwidth=1e9)
    sizes = list(range(1, inputs + 1))
    return hs.Problem(graph, cluster, durations=durations[:, :, None] * sizes, inputs=inputs, batch_sizes=sizes)


def shared(durations: np.ndarray, devices: list[int]) -> np.ndarray:
    """Return the seconds of each task if the devices share it, inf where none of them runs it."""
    rate = np.nansum(1 / durations[:, devices], axis=1)
    return np.where(rate > 0, 1 / np.where(rate > 0, rate, 1.0), math.inf)


@profiles.examples(60)
@given(st.data())
def test_the_busiest_node_has_the_least_work(data: st.DataObject):
    n, count = data.draw(st.integers(2, 7)), data.draw(st.integers(2, 3))
    seed = data.draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    nodes = [f"n{g}" for g in range(count) for _ in range(2 if g == 0 else int(rng.integers(1, 3)))]
    durations = rng.uniform(1, 5, (n, len(nodes)))
    durations[:, 1:][rng.random((n, len(nodes) - 1)) < 0.3] = np.nan
    weights, memory = rng.uniform(0, 1, n), float(rng.choice([0.8, 2.0, math.inf]))
    problem = chain(durations, nodes, memory=memory, weights=weights)
    groups = [[k for k, node in enumerate(nodes) if node == f"n{g}"] for g in range(count)]
    spent = [shared(durations, group) for group in groups]
    best = math.inf
    for ends in itertools.combinations_with_replacement(range(n + 1), count - 1):
        rows = list(itertools.pairwise([0, *ends, n]))
        if all(weights[a:b].sum() <= memory * len(group) for (a, b), group in zip(rows, groups, strict=True)):
            best = min(best, max(own[a:b].sum() for own, (a, b) in zip(spent, rows, strict=True)))
    parts = parts_of_nodes(problem, cut(problem))
    if not parts:
        one = [g for g in range(count) if weights.sum() <= memory * len(groups[g]) and math.isfinite(spent[g].sum())]
        assert math.isinf(best) or min((spent[g].sum() for g in one), default=math.inf) <= best * (1 + 1e-9), "one node has all"
        return
    assert sorted(np.concatenate([part.tasks for part in parts])) == list(range(n))
    assert all((np.diff(part.tasks) == 1).all() for part in parts), "successive tasks"
    assert [int(part.tasks[0]) for part in parts] == sorted(int(part.tasks[0]) for part in parts)
    of_part = [groups.index(part.devices.tolist()) for part in parts]
    assert of_part == sorted(set(of_part)), "successive nodes"
    if math.isfinite(best):
        assert max(spent[g][part.tasks].sum() for g, part in zip(of_part, parts, strict=True)) == pytest.approx(best)


def blocks(layers: int, nodes: int) -> hs.Problem:
    """Return blocks of a transformer with so much work that a batch takes longer than a message."""
    return decoder.problem_of("6.7B", layers, nodes, 8)


@pytest.mark.parametrize(("layers", "nodes", "each"), [(6, 3, [2, 2, 2]), (4, 3, [2, 2]), (5, 2, [3, 2])])
def test_a_block_that_is_repeated_is_not_divided(layers: int, nodes: int, each: list[int]):
    problem = blocks(layers, nodes)
    parts = parts_of_nodes(problem, cut(problem))
    names = np.array([name.partition(".")[0] for name in problem.graph.names])
    held = [sorted({*names[part.tasks]} - {"x"}) for part in parts]
    assert [len(names) for names in held] == each
    assert len(set(itertools.chain(*held))) == layers


def test_equal_parts_have_one_schedule_on_their_nodes():
    problem = blocks(6, 3)
    monitor = Monitor(problem, Budget(None, 3000), seed=0)
    parts = parts_of_nodes(problem, cut(problem))
    schedule = SolvedApart(problem, parts).solve(monitor, NEVER, 1000, "split", OPTIONS)
    assert schedule is not None
    assert hs.verify(problem, schedule) == []
    assert 500 < monitor.evaluations < 1200, "two parts are solved, with half of a thousand each: the first one has the input too"
    batches = schedule.batches
    held = [sorted(zip(batches.task - part.tasks[0], batches.device - part.devices[0], strict=True)) for part in parts]
    inside = [[row for row in rows if 0 <= row[0] < len(part.tasks)] for rows, part in zip(held, parts, strict=True)]
    assert inside[1] == inside[2]
    assert schedule.makespan < 0.9 * hs.solve(problem, "heft").makespan


def test_other_parts_on_other_nodes_have_schedules_of_their_own():
    rng = np.random.default_rng(3)
    durations = rng.uniform(1, 5, (8, 4))
    problem = chain(durations, ["a", "a", "b", "b"], inputs=4)
    parts = parts_of_nodes(problem, cut(problem))
    monitor = Monitor(problem, Budget(None, 2000), seed=0)
    schedule = SolvedApart(problem, parts).solve(monitor, NEVER, 500, "split", OPTIONS)
    assert schedule is not None
    assert hs.verify(problem, schedule) == []
    on = {int(i): int(k) // 2 for i, k in zip(schedule.batches.task, schedule.batches.device, strict=True)}
    assert on == {int(i): p for p, part in enumerate(parts) for i in part.tasks}


def test_without_nodes_of_several_devices_or_with_labels_across_them_there_are_no_parts():
    durations = np.ones((6, 4))
    for nodes in (["", "", "", ""], ["a", "a", "a", "a"], ["a", "b", "c", "d"], ["a", "a", "b", ""]):
        problem = chain(durations, nodes)
        assert parts_of_nodes(problem, cut(problem)) == []
    labelled = hs.TaskGraph(
        list("abcdef"), np.array([(i, i + 1) for i in range(5)]), edge_bytes=1.0, colocation=["x", None, None, None, None, "x"]
    )
    problem = hs.Problem(labelled, chain(durations, ["a", "a", "b", "b"]).cluster, durations=durations)
    assert parts_of_nodes(problem, cut(problem)) == []


def test_weights_that_exceed_all_nodes_have_no_parts():
    problem = chain(np.ones((6, 4)), ["a", "a", "b", "b"], memory=1.0, weights=[0.7] * 6)
    assert parts_of_nodes(problem, cut(problem)) == []
