"""The strategies: every feature occurs, and every feature can be fixed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import find, given
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

import hetsched as hs
from hetsched.testing import clusters, decisions, numbers, problems, task_graphs
from hetsched.testing.profiles import searching

SEARCH = searching(3000)


FEATURES = [
    lambda p: p.communication == "delay",
    lambda p: p.communication == "per-input",
    lambda p: p.communication == "channel",
    lambda p: p.communication == "port",
    lambda p: p.communication == "node" and len({device.node for device in p.cluster.devices} - {""}) == 2,
    lambda p: p.memory == "peak",
    lambda p: p.batching == "free" and p.inputs > 1,
    lambda p: p.inputs > 1 and p.inputs not in p.batch_sizes,
    lambda p: np.isnan(p.durations).any(),
    lambda p: (p.durations == 0).any(),
    lambda p: (p.graph.edge_bytes == 0).any(),
    lambda p: any(p.graph.devices),
    lambda p: len(set(p.graph.colocation) - {None}) == 2,
    lambda p: p.transfers is not None and np.isnan(p.transfers).any(),
    lambda p: (p.cluster.bandwidth == 0).any(),
    lambda p: (p.cluster.route_bandwidth == 0).any() and p.graph.n_edges > 0,
    lambda p: np.isfinite(p.cluster.memory_bytes).any(),
    lambda p: (p.graph.edges[:, 0] > p.graph.edges[:, 1]).any(),
    lambda p: p.graph.n_edges == 0,
]


@pytest.mark.slow
def test_every_feature_turns_up():
    missing = dict(enumerate(FEATURES))

    def complete(problem):
        for x in [x for x, feature in missing.items() if feature(problem)]:
            del missing[x]
        return not missing

    find(problems(), complete, settings=SEARCH)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "feature"),
    [
        ({"absent": False}, lambda p: np.isnan(p.durations).any()),
        ({"pins": False}, lambda p: any(p.graph.devices)),
        ({"colocation": False}, lambda p: any(p.graph.colocation)),
        ({"tight": False}, lambda p: np.isfinite(p.cluster.memory_bytes).any()),
        ({"missing_links": False}, lambda p: (p.cluster.bandwidth == 0).any()),
        ({"nodes": False}, lambda p: any(device.node for device in p.cluster.devices)),
        ({"transfers": False}, lambda p: p.transfers is not None),
        (
            {"inputs": 1, "batching": "free", "communication": "port", "memory": "peak", "n_tasks": 3, "n_devices": 2},
            lambda p: (p.inputs, p.batching, p.communication, p.memory, p.n_tasks, p.n_devices) != (1, "free", "port", "peak", 3, 2),
        ),
        ({"durations": st.just(2.5), "absent": False}, lambda p: (p.durations != 2.5).any()),
    ],
)
def test_features_can_be_fixed(arguments, feature):
    with pytest.raises(NoSuchExample):
        find(problems(**arguments), lambda problem: bool(feature(problem)), settings=searching(25))


@given(st.data())
def test_graphs_and_clusters_may_be_given(data):
    graph = data.draw(task_graphs(n_tasks=3, edge_bytes=2.0, devices=["x"], colocation=False))
    assert (graph.edge_bytes == 2.0).all()
    assert set(graph.devices) <= {None, ("x",)}
    cluster = data.draw(clusters(n_devices=2, memory_bytes=numbers(largest=3), latency=0.25, missing_links=False))
    assert (cluster.memory_bytes <= 3).all()
    assert (cluster.latency[~np.eye(2, dtype=bool)] == 0.25).all()
    problem = data.draw(problems(graph=graph.replace(devices=None), cluster=cluster))
    assert problem.cluster is cluster
    assert problem.graph.names == graph.names


@given(problems())
def test_numbers_keep_arithmetic_exact(problem):
    for column in (problem.durations, problem.graph.edge_bytes, problem.graph.weight_bytes, problem.cluster.latency):
        eighths = column[np.isfinite(column)] * 8
        assert (eighths == np.round(eighths)).all()


@pytest.mark.slow
@given(st.data())
def test_decisions_are_simulated_and_verified(data):
    problem = data.draw(problems(inputs=st.integers(1, 5), n_tasks=st.integers(1, 6)))
    schedule = hs.simulate(problem, data.draw(decisions(problem)))
    assert {violation.rule for violation in hs.verify(problem, schedule)} <= {"memory"}


def test_decisions_take_many_inputs():
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 1.0)], colocation=["g", "g"])
    problem = hs.Problem(
        graph, hs.Cluster(["x", "y", "z"], bandwidth=1.0), durations=np.ones((2, 3, 4)), batch_sizes=[4, 8, 12, 16], inputs=16
    )
    spread = find(decisions(problem), lambda decision: len(np.unique(decision.device)) == 3, settings=searching(500))
    assert hs.verify(problem, hs.simulate(problem, spread)) == []


@pytest.mark.parametrize(
    "wanted",
    [
        lambda d: d.transfer_order is not None and len(d.transfer_order) > 1,
        lambda d: d.transfer_order is None,
        lambda d: d.n_batches == 6,
        lambda d: (np.diff(d.item_ptr) == 2).any(),
        lambda d: len(set(d.device.tolist())) == 1,
    ],
)
def test_decisions_range_widely(wanted):
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 1.0), ("b", "c", 1.0)])
    cluster = hs.Cluster(["x", "y"], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.ones((3, 2, 2)), batch_sizes=[1, 2], inputs=2, batching="free", communication="port")
    find(decisions(problem), wanted, settings=SEARCH)
