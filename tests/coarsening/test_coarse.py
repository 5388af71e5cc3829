"""Clusters as tasks: no cycle, nothing lost, and valid lifted decisions."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import coarsening
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.testing import decisions, problems
from hetsched.testing.profiles import examples

COARSENINGS = {
    "celeritas": lambda problem: coarsening.operation_fusion(problem),
    "breadth": lambda problem: coarsening.operation_fusion(problem, order="m-topo", window=3),
    "depth": lambda problem: coarsening.operation_fusion(problem, order="dfs-topo", memory=1.0),
    "heavy": lambda problem: coarsening.heavy_edges(problem, largest=1.0, memory=1.0),
    "random": lambda problem: coarsening.heavy_edges(problem, largest=1.0, memory=1.0, rng=np.random.default_rng(0)),
    "rules": lambda problem: coarsening.fuse(problem.replace(graph=problem.graph.replace(op="x")), [("x", "x"), ("x", "x", "x")]),
    "chains": lambda problem: coarsening.degree_one(problem, memory=1.0),
    "modules": lambda problem: coarsening.by_module(problem),
}
features = {"missing_links": False, "transfers": st.booleans()}


def without_gaps(problem):
    """Return whether every pair of devices has a path; otherwise a cluster may fit no device."""
    return problem.transfers is None or bool(np.isfinite(problem.transfers).all())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no sequence of operators matches")
@pytest.mark.parametrize("name", COARSENINGS)
@examples(40)
@given(problem=problems(n_tasks=st.integers(0, 9), **features).filter(without_gaps), data=st.data())
def test_no_cycle_nothing_lost_and_valid_on_the_way_back(name, problem, data):
    contraction = COARSENINGS[name](problem)
    coarse, cluster = contraction.coarse, contraction.cluster
    assert sorted(set(cluster.tolist())) == list(range(coarse.n_tasks))
    assert nx.is_directed_acyclic_graph(coarse.graph.to_networkx())
    assert coarse.graph.weight_bytes.sum() == pytest.approx(problem.graph.weight_bytes.sum())
    inner = cluster[problem.graph.source] == cluster[problem.graph.target]
    assert coarse.graph.edge_bytes.sum() == pytest.approx(problem.graph.edge_bytes[~inner].sum())
    for k in range(problem.n_devices):
        for b in range(problem.n_sizes):
            able = np.isfinite(problem.durations[:, k, b]) & problem.pinned[:, k]
            members = [able[cluster == c] for c in range(coarse.n_tasks)]
            assert np.isfinite(coarse.durations[:, k, b]).tolist() == [bool(columns.all()) for columns in members]
    if np.isfinite(problem.durations).all() and problem.pinned.all():
        assert coarse.durations.sum() == pytest.approx(problem.durations.sum())
    if name != "rules":
        assert coarse.static_bytes.sum() == pytest.approx(problem.static_bytes.sum())
    small = data.draw(decisions(coarse, transfer_order=False))
    lifted = hs.simulate(problem, contraction.lift(small))
    assert {violation.rule for violation in hs.verify(problem, lifted)} <= {"memory"}
    if name != "rules" and problem.memory == "static":
        assert lifted.static_memory.tolist() == pytest.approx(hs.simulate(coarse, small).static_memory.tolist())


@given(problems(n_tasks=st.integers(0, 9)), st.data())
def test_any_clusters_are_made_acyclic_and_contracted(problem, data):
    given_clusters = np.array(data.draw(st.lists(st.integers(0, 3), min_size=problem.n_tasks, max_size=problem.n_tasks)), np.int64)
    clusters = coarsening.acyclic(problem, given_clusters)
    for number in set(clusters.tolist()):
        assert len(set(given_clusters[clusters == number].tolist())) == 1  # clusters are cut and not joined
    assert nx.is_directed_acyclic_graph(quotient(problem.graph, clusters))
    if nx.is_directed_acyclic_graph(quotient(problem.graph, given_clusters)):
        assert len(set(clusters.tolist())) == len(set(given_clusters.tolist()))  # acyclic clusters do not change


def quotient(graph, cluster):
    made = nx.DiGraph()
    made.add_nodes_from(cluster.tolist())
    ends = cluster[graph.edges].reshape(-1, 2)
    made.add_edges_from((a, b) for a, b in ends.tolist() if a != b)
    return made


@given(problems(n_tasks=st.integers(1, 8), inputs=1, missing_links=False, transfers=False))
def test_merging_an_edge_is_safe_if_and_only_if_no_other_path_joins_its_ends(problem):
    """Theorem 1 of Celeritas, on `contract`."""
    graph, paths = problem.graph, problem.graph.to_networkx()
    for i, j in graph.edges.tolist():
        cluster = np.arange(problem.n_tasks)
        cluster[j] = i
        paths.remove_edge(graph.names[i], graph.names[j])
        safe = not nx.has_path(paths, graph.names[i], graph.names[j])
        paths.add_edge(graph.names[i], graph.names[j])
        assert safe == nx.is_directed_acyclic_graph(quotient(graph, cluster))
        if not safe:
            with pytest.raises(InvalidProblem, match="cycle"):
                coarsening.contract(problem, cluster)


def test_numbers_of_a_small_example():
    graph = hs.TaskGraph(
        "abcd",
        [("a", "b", 8.0), ("a", "c", 2.0), ("b", "d", 4.0), ("c", "d", 1.0)],
        op=["x", "x", "x", "y"],
        weight_bytes=[1, 2, 3, 4],
        input_bytes=1,
        output_bytes=[5, 6, 7, 8],
        flops=[1, 2, 3, np.nan],
        bytes_accessed=10,
    )
    problem = hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=2.0, latency=0.5), durations=[[1, 2], [2, 3], [3, 4], [4, np.nan]])
    assert coarsening.ccr(problem) == pytest.approx((4.5 + 1.5 + 2.5 + 1.0) / (1.5 + 2.5 + 3.5 + 4))
    contraction = coarsening.contract(problem, [0, 0, 1, 2])
    coarse = contraction.coarse
    assert coarse.graph.names == ("a (+1)", "c", "d")
    assert coarse.graph.op == ("x", "x", "y")
    assert coarse.graph.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert coarse.graph.edge_bytes.tolist() == [2, 4, 1]
    assert coarse.graph.weight_bytes.tolist() == [3, 3, 4]
    assert coarse.graph.output_bytes.tolist() == [11, 7, 8]
    assert np.array_equal(coarse.durations[:, :, 0], [[3, 5], [3, 4], [4, np.nan]], equal_nan=True)
    lifted = hs.simulate(problem, contraction.lift(hs.Decision.whole(coarse, [0, 1, 0], [0, 1, 2])))
    assert [lifted.device_of(name) for name in "abcd"] == ["u", "u", "v", "u"]
    assert lifted.makespan == 1 + 1.5 + 4 + 1.0 + 4  # c has to wait for a only, not for the cluster
    further = coarsening.contract(coarse, [0, 0, 1])
    assert contraction.then(further).cluster.tolist() == [0, 0, 0, 1]
    assert repr(contraction) == "<Coarsening of 4 tasks (CCR 0.826) to 3 (CCR 0.435)>"


def test_clusters_share_labels_and_are_divided_where_no_device_is_left():
    graph = hs.TaskGraph(
        "abcd", [("a", "b"), ("b", "c"), ("c", "d")], weight_bytes=4.0, colocation=["x", None, "x", "y"], devices=[None, ["u"], None, ["v"]]
    )
    problem = hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=1.0), durations=np.ones((4, 2)))
    together = coarsening.contract(problem, [0, 0, 1, 2])
    assert together.coarse.graph.colocation == ("x", "x", None)
    assert together.coarse.eligible.tolist() == [[True, False], [True, False], [False, True]]
    with pytest.raises(InvalidProblem, match="co-location label 'x' leaves no device"):
        coarsening.contract(problem, [0, 0, 1, 1])
    assert len(set(coarsening.settled(problem, [0, 0, 1, 1]).tolist())) == 4
    assert len(set(coarsening.settled(problem, [0, 0, 1, 2]).tolist())) == 3
    assert len(set(coarsening.settled(problem, [0, 0, 1, 2], most_claim=11.0).tolist())) == 4


@pytest.mark.slow
@given(problems(n_tasks=st.integers(0, 9), colocation=True, missing_links=False, transfers=False), st.sampled_from([0.0, 2.0, 5.0]))
def test_what_is_bound_together_claims_no_more_than_it_may(problem, most):
    pieces = coarsening.settled(problem, np.zeros(problem.n_tasks, np.int64), most)
    joined = nx.Graph()
    joined.add_nodes_from(range(problem.n_units))
    for c in set(pieces.tolist()):
        nx.add_path(joined, sorted(set(problem.unit[pieces == c].tolist())))
    claim = np.bincount(problem.unit, problem.static_bytes @ [1.0, problem.inputs], problem.n_units)
    for units in nx.connected_components(joined):
        assert len(units) == 1 or claim[list(units)].sum() <= most


@examples(20)
@given(problem=problems(n_tasks=st.integers(1, 9), **features).filter(without_gaps), data=st.data())
def test_a_decision_with_colocated_clusters_is_one_on_the_fine_problem(problem, data):
    contraction = COARSENINGS["heavy"](problem)
    together = contraction.colocated
    schedule = hs.simulate(problem, data.draw(decisions(together)))
    assert {violation.rule for violation in hs.verify(problem, schedule)} <= {"memory"}
    for i, j in np.argwhere(contraction.cluster[:, None] == contraction.cluster).tolist():
        assert together.unit[i] == together.unit[j]
    assert (problem.unit[:, None] != problem.unit)[together.unit[:, None] != together.unit].all()


def chain(n, durations, **arguments):
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], [(f"t{i}", f"t{i + 1}", 1.0) for i in range(n - 1)], **arguments.pop("columns", {}))
    devices = [hs.Device(f"d{k}", memory_bytes=size) for k, size in enumerate(arguments.pop("memory", [np.inf] * durations.shape[1]))]
    return hs.Problem(graph, hs.Cluster(devices, bandwidth=1.0), durations=durations, **arguments)


def test_one_task_that_is_different_cuts_a_cluster_and_does_not_shatter_it():
    durations = np.ones((100, 2, 2))
    durations[50, 1, 0] = np.nan
    odd = chain(100, durations, batch_sizes=[1, 2], inputs=2)
    assert np.bincount(coarsening.operation_fusion(odd).cluster).tolist() == [50, 1, 49]


def test_pins_to_many_devices_cut_clusters():
    pins = [["d0"] if i < 50 else ["d69"] for i in range(100)]
    problem = chain(100, np.ones((100, 70)), columns={"devices": pins})
    fused = coarsening.operation_fusion(problem)
    assert np.bincount(fused.cluster).tolist() == [50, 50]
    assert fused.coarse.graph.devices == (("d0",), ("d69",))


def test_a_device_that_runs_nothing_sets_no_limit():
    durations = np.ones((6, 2))
    durations[:, 1] = np.nan
    problem = chain(6, durations, columns={"weight_bytes": 1.0}, memory=[100.0, 0.0])
    assert coarsening.operation_fusion(problem).coarse.n_tasks == 1


def test_clusters_bound_together_can_run_as_one_batch_of_all_inputs():
    graph = hs.TaskGraph(["a1", "b1", "a2", "b2"], [("a1", "b1", 100.0)], colocation=["A", "B", "A", "B"])
    durations = np.ones((4, 2, 2))
    durations[2, 1, 1] = durations[3, 0, 1] = np.nan  # of all inputs, A runs only on the first device and B only on the second
    cluster = hs.Cluster(["d0", "d1"], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=durations, batch_sizes=[1, 2], inputs=2, batching="free")
    assert hs.solve(problem, "celeritas").schedule is not None
    assert hs.solve(problem, "dsc").schedule is not None
    assert hs.solve(problem, "order-place", options={"window": 2}).schedule is not None


def test_messages():
    problem = hs.Problem(hs.TaskGraph("abc", [("a", "b"), ("b", "c")]), hs.Cluster(["u"], bandwidth=1.0), durations=np.ones((3, 1)))
    with pytest.raises(InvalidProblem, match=r"cluster has shape \(2,\) but the graph has 3 tasks; give one number per task"):
        coarsening.contract(problem, [0, 1])
    with pytest.raises(InvalidProblem, match="names has 1 names but the graph has 3 tasks; give one for each task"):
        coarsening.contract(problem, [0, 0, 1], ["m"])
    with pytest.raises(InvalidProblem, match="has a cycle"):
        coarsening.contract(problem, [0, 1, 0])
    for wrong, message in (
        ({"order": "bfs"}, "order is 'bfs'; choose one of 'm-topo', 'dfs-topo', 'cpd-topo'"),
        ({"window": 0}, "window is 0; it must be a whole number, at least 1"),
        ({"memory": 0.0}, "memory is 0.0; it must be a share of a device's memory, above 0"),
    ):
        with pytest.raises(UnsupportedFeature, match=message):
            coarsening.operation_fusion(problem, **wrong)
    with pytest.raises(UnsupportedFeature, match="largest is -1; it must be a share, above 0"):
        coarsening.heavy_edges(problem, largest=-1)
    with pytest.raises(UnsupportedFeature, match="depth is 0; it must be a whole number, at least 1"):
        coarsening.by_module(problem, 0)
    with pytest.raises(UnsupportedFeature, match="rules is 'tensorrt'; choose one of moirai, cudnn, onnxruntime"):
        coarsening.fuse(problem, "tensorrt")
    with pytest.raises(UnsupportedFeature, match="each rule is two operator types or more"):
        coarsening.fuse(problem, ["conv", "relu"])
