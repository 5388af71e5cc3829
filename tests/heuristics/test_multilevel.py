"""Multilevel search: never worse than its start, at any size, with every restriction."""

from __future__ import annotations

import numpy as np
import pytest

import hetsched as hs
from hetsched.search import Role, select
from hetsched.testing import conformance


def baselines() -> list[str]:
    return [method.name for method in select(role=Role.BASELINE)]


@pytest.mark.slow
class TestMultilevel(conformance.MethodSuite):
    method = "multilevel"
    options = {"tasks": 4}
    scales = False  # members of auto depend on the clock


def layered(n, *, ccr, memory=np.inf, seed=0, **arguments):
    rng = np.random.default_rng(seed)
    target = np.arange(1, n)
    sources = np.maximum(0, target - rng.integers(1, 30, (3, n - 1)))
    edges = np.unique(np.stack([sources.ravel(), np.tile(target, 3)], axis=1), axis=0)
    cluster = hs.Cluster([hs.Device(f"d{k}", memory_bytes=memory) for k in range(4)], bandwidth=1.0)
    work = rng.uniform(0.5, 1.5, n)
    graph = hs.TaskGraph(
        [f"t{i}" for i in range(n)], edges, edge_bytes=rng.uniform(0, 2 * ccr * n / len(edges), len(edges)), weight_bytes=1.0, **arguments
    )
    return hs.Problem(graph, cluster, durations=np.tile(work[:, None], (1, 4)))


@pytest.mark.slow
@pytest.mark.parametrize(("ccr", "memory"), [(0.5, np.inf), (20.0, 130.0)])
def test_is_no_worse_than_any_quick_method(ccr, memory):
    problem = layered(400, ccr=ccr, memory=memory)
    solution = hs.solve(problem, "multilevel", evaluations=20_000, options={"tasks": 100})
    for name in baselines():
        if name != "m-sct":
            assert solution.makespan <= hs.solve(problem, name).makespan * (1 + 1e-9), name
    assert solution.schedule is not None


@pytest.mark.slow
def test_gains_on_every_quick_placement_of_a_large_graph():
    problem = layered(3000, ccr=20.0, memory=900.0)
    solution = hs.solve(problem, "multilevel", time_limit=20)
    others = [hs.solve(problem, name).makespan for name in baselines() if name not in ("m-sct", "heft", "best-device")]
    assert solution.makespan < 0.95 * min(others)


@pytest.mark.slow
def test_labels_and_pins_are_kept():
    problem = layered(
        300,
        ccr=5.0,
        memory=150.0,
        colocation=[f"l{i % 40}" if i % 3 == 0 else None for i in range(300)],
        devices=[["d1", "d2"] if i % 50 == 1 else None for i in range(300)],
    )
    solution = hs.solve(problem, "multilevel", evaluations=300, options={"tasks": 50})
    assert solution.schedule is not None
    assert hs.verify(problem, solution.schedule) == []


def test_a_graph_whose_clusters_no_path_joins_is_searched_as_it_is():
    """Half of the tasks are pinned to devices that are connected only through a third one: many clusters fit no device."""
    n = 60
    cluster = hs.Cluster(["left", "middle", "right"], bandwidth=[[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    edges = [(f"t{i}", f"t{i + 1}", 1.0) for i in range(n - 1) if i % 20 != 19]  # three chains
    transfers = np.full((len(edges), 3, 3), np.nan)
    for h, k in ((0, 0), (1, 1), (2, 2), (0, 1), (1, 0), (1, 2), (2, 1)):
        transfers[:, h, k] = 0.0 if h == k else 1.0
    devices = [["left"] if i % 6 == 0 else ["right"] if i % 6 == 3 else None for i in range(n)]
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges, devices=devices)
    problem = hs.Problem(graph, cluster, durations=np.ones((n, 3)), transfers=transfers)
    solution = hs.solve(problem, "multilevel", evaluations=500, options={"tasks": 5})
    assert solution.schedule is not None
    assert any("is taken as it is" in message or "is searched as it is" in message for message in solution.messages)
