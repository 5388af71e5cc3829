"""Bounds of a problem with one device for each class of equal devices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

import hetsched as hs
from hetsched.analysis import merging
from hetsched.analysis.levels import Levels
from hetsched.bounds.combinatorial import critical_path, head_tail_load, load, memory, quick_head_tail_load
from hetsched.testing import brute_force
from hetsched.testing.profiles import examples
from tests.problem.test_kinds import pairs


@pytest.mark.slow
@examples(80)
@given(pairs())
def test_bounds_of_the_merged_problem_are_those_of_the_problem(pair: tuple[hs.Problem, hs.Problem]) -> None:
    problem = pair[0]
    before = [bound(problem, levels=Levels(problem)).value for bound in (memory, critical_path, load, head_tail_load)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "MOST_DISTINCT", 0)
        after = [bound(problem, levels=Levels(problem)).value for bound in (memory, critical_path, load, head_tail_load)]
        assert sum(Levels(problem).merged.members) == problem.n_devices
    assert after[:2] == before[:2]  # to the bit
    assert after[2:] == pytest.approx(before[2:], rel=1e-5)


@examples(40)
@given(pairs())
def test_no_bound_of_the_merged_problem_is_above_the_optimum(pair: tuple[hs.Problem, hs.Problem]) -> None:
    problem = pair[0]
    if problem.n_devices**problem.n_tasks > 3_000:
        return
    best = brute_force(problem)
    optimum = math.inf if best is None else best.makespan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "MOST_DISTINCT", 0)
        for bound in (memory, critical_path, load, head_tail_load, quick_head_tail_load):
            assert bound(problem).value <= optimum * (1 + 1e-9)


def cluster(node: list[int], kind: list[str]) -> hs.Cluster:
    devices = [hs.Device(f"d{k}", kind=name) for k, name in enumerate(kind)]
    bandwidth = np.where(np.array(node)[:, None] == node, 10.0, 1.0)
    return hs.Cluster(devices, bandwidth)


@pytest.mark.parametrize(
    ("node", "kind", "members"),
    [
        ([0, 0, 1, 1], ["a", "b", "a", "b"], [2, 2]),
        ([0, 0, 1, 1], ["a", "a", "a", "a"], [4]),
        ([0, 0, 1, 1], ["a", "b", "a", "a"], [1, 1, 2]),
        ([0, 1, 2, 3], ["a", "b", "a", "a"], [3, 1]),
        ([0, 0, 1, 2], ["a", "b", "a", "a"], [1, 1, 2]),
    ],
)
def test_devices_are_equal_if_their_links_to_other_classes_are(
    monkeypatch: pytest.MonkeyPatch, node: list[int], kind: list[str], members: list[int]
) -> None:
    monkeypatch.setattr(merging, "MOST_DISTINCT", 0)
    rack, seconds = cluster(node, kind), {"a": 1.0, "b": 2.0}
    problem = hs.Problem(hs.TaskGraph(["t"]), rack, durations=[[seconds[kind] for kind in rack.kinds]], kinds=rack.kinds)
    assert Levels(problem).merged.members.tolist() == members


def test_classes_without_one_shortest_transfer_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MOST_DISTINCT", 0)
    rack = hs.Cluster(
        [hs.Device("x", kind="a"), hs.Device("y", kind="b"), hs.Device("z", kind="b")],
        bandwidth=[[0, 1, 5], [1, 0, 1], [5, 1, 0]],
        latency=[[0, 1, 5], [1, 0, 1], [5, 1, 0]],  # the slow link is the quick one for few bytes
    )
    problem = hs.Problem(hs.TaskGraph(["t"]), rack, durations=[[1.0, 2.0]], kinds=rack.kinds)
    assert Levels(problem).merged.members.tolist() == [1, 1, 1]


def test_a_cluster_of_many_equal_devices_has_bounds_at_once() -> None:
    rack = hs.Cluster([hs.Device(f"d{k}", kind=f"kind{k % 3}", node=f"n{k // 8}") for k in range(1_000)], bandwidth=1e9, latency=1e-6)
    n = 3_000
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], np.stack([np.arange(n - 1), np.arange(1, n)], axis=1), output_bytes=1e6)
    problem = hs.Problem(graph, rack, durations=np.random.default_rng(0).uniform(1, 2, (n, 3)), kinds=rack.kinds)
    assert len(Levels(problem).merged.members) == 3
    assert critical_path(problem).value == pytest.approx(problem.table.min(axis=1).sum(), rel=0.05)
    assert math.isfinite(load(problem).value)
