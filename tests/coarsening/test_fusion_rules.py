"""Moirai's fusion rules: the example of its Figure 7, connections, release, new costs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hetsched as hs
from hetsched import coarsening


def made(ops, edges, **arguments):
    graph = hs.TaskGraph(list(ops), edges, op=list(ops.values()), **arguments)
    return hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=1.0), durations=np.ones((len(ops), 2)))


def parts(problem, *arguments):
    fused = coarsening.fuse(problem, *arguments)
    rows = [[problem.graph.names[i] for i in problem.graph.topological_order if fused.cluster[i] == c] for c in range(fused.coarse.n_tasks)]
    return {" ".join(row) for row in rows}, fused


def test_figure_7():
    """An add with two branches (add, relu, add, relu above; conv, bn, conv, bn below) that end in an add, relu."""
    ops = {
        "add0": "add",
        "relu0": "relu",
        "add1": "add",
        "relu1": "relu",
        "conv1": "conv",
        "bn1": "bn",
        "conv2": "conv",
        "bn2": "bn",
        "add2": "add",
        "relu2": "relu",
    }
    edges = [
        ("add0", "relu0"),
        ("relu0", "add1"),
        ("add1", "relu1"),
        ("relu1", "add2"),
        ("add2", "relu2"),
        ("add0", "conv1"),
        ("conv1", "bn1"),
        ("bn1", "conv2"),
        ("conv2", "bn2"),
        ("bn2", "add2"),
    ]
    names, coarse = parts(made(ops, edges), "moirai")
    # The first pair has a multi-output connection; the second is bound, completes no rule, and is released.
    assert names == {"add0", "relu0", "add1", "relu1", "conv1 bn1", "conv2 bn2 add2 relu2"}
    assert "conv bn add relu" in coarse.coarse.graph.op


@pytest.mark.filterwarnings("ignore:no sequence of operators matches")
def test_connections():
    direct = made({"c": "conv", "b": "bn", "r": "relu"}, [("c", "b"), ("b", "r")])
    assert parts(direct, "moirai")[0] == {"c b r"}
    several_outputs = made({"c": "conv", "b": "bn", "r": "relu"}, [("c", "b"), ("c", "r")])
    assert parts(several_outputs, "moirai")[0] == {"c", "b", "r"}
    several_inputs = made({"x": "conv", "y": "conv", "b": "bn"}, [("x", "b"), ("y", "b")])
    assert parts(several_inputs, "moirai")[0] in ({"x b", "y"}, {"y b", "x"})  # either of the two


def test_a_part_that_is_no_rule_falls_into_the_rules_it_holds():
    problem = made({"c": "conv", "b": "bn", "a": "add"}, [("c", "b"), ("b", "a")])
    assert parts(problem, "moirai")[0] == {"c b", "a"}
    assert parts(problem, [("bn", "add"), ("conv", "bn", "add", "relu")])[0] == {"c", "b a"}


def test_what_is_fused_reads_and_writes_less_and_is_costed_anew():
    problem = made(
        {"c": "conv2d", "r": "relu"},
        [("c", "r", 4.0)],
        output_bytes=4.0,
        input_bytes=[3.0, 4.0],
        flops=[10.0, 0.0],
        bytes_accessed=[9.0, 8.0],
        weight_bytes=[2.0, 0.0],
    )

    class Bytes:
        def durations(self, graph, cluster, batch_sizes):
            return np.tile(graph.bytes_accessed[:, None, None], (1, len(cluster.devices), len(batch_sizes)))

    fused = coarsening.fuse(problem, costs=Bytes()).coarse
    assert fused.graph.bytes_accessed.tolist() == [9.0]
    assert fused.graph.flops.tolist() == [10.0]
    assert (fused.graph.input_bytes.tolist(), fused.graph.output_bytes.tolist()) == ([3.0], [4.0])
    assert fused.durations.tolist() == [[[9.0], [9.0]]]
    assert coarsening.fuse(problem).coarse.durations.tolist() == [[[2.0], [2.0]]]


def test_pins_and_what_comes_from_outside_stay():
    problem = made(
        {"conv": "conv2d", "relu": "relu", "x": "x"},
        [("conv", "relu", 40.0), ("relu", "x", 5.0)],
        input_bytes=[10.0, 0.0, 0.0],
        output_bytes=40.0,
        devices=[["u"], None, ["u"]],
    )

    class Ones:
        def durations(self, graph, cluster, batch_sizes):
            return np.ones((graph.n_tasks, len(cluster.devices), len(batch_sizes)))

    fused = coarsening.fuse(problem, costs=Ones()).coarse
    assert fused.graph.input_bytes.tolist() == [10.0, 0.0]
    assert fused.eligible.tolist() == [[True, False], [True, False]]


@pytest.mark.parametrize(("depth", "expected"), [(1, {"a b", "c d", "e"}), (2, {"a", "b", "c d", "e"})])
def test_modules(depth, expected):
    names = {"a": "stem.conv/conv2d", "b": "stem.act/relu", "c": "layers.0.mlp/linear", "d": "layers.0.mlp/gelu", "e": "add"}
    graph = hs.TaskGraph(list(names.values()), [(names[x], names[y]) for x, y in ("ab", "bc", "cd", "de")])
    problem = hs.Problem(graph, hs.Cluster(["u"], bandwidth=1.0), durations=np.ones((5, 1)))
    by_module = coarsening.by_module(problem, depth)
    short = list(names)
    rows = {" ".join(short[i] for i in range(5) if by_module.cluster[i] == c) for c in range(by_module.coarse.n_tasks)}
    assert rows == expected
    assert set(by_module.coarse.graph.names) == (
        {"stem", "layers.0", "add"} if depth == 1 else {"stem.conv", "stem.act", "layers.0.mlp", "add"}
    )


def test_a_module_that_is_entered_again_becomes_two():
    graph = hs.TaskGraph(["m/a", "n/b", "m/c"], [("m/a", "n/b"), ("n/b", "m/c")])
    problem = hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=1.0), durations=np.ones((3, 2)))
    assert coarsening.by_module(problem).coarse.graph.names == ("m/1", "n", "m/2")
    whole = coarsening.by_module(problem, whole=["m"])
    assert whole.coarse.graph.colocation == ("module m", None, "module m")
    assert whole.problem is problem
    with pytest.raises(hs.UnsupportedFeature, match="whole has 'q', which is no module of the graph; take the part"):
        coarsening.by_module(problem, whole=["q"])
    labelled = problem.replace(graph=graph.replace(colocation=["l", None, None]))
    with pytest.raises(hs.UnsupportedFeature, match="task 'm/a' has the co-location label 'l', but its module 'm', which is on a cycle"):
        coarsening.by_module(labelled, whole=["m"])


def test_modules_that_stay_whole_among_the_innermost():
    names = ["a.0.x/f", "a.0.y/g", "a.1.x/f", "a.1.y/g", "b.c/h", "b/h"]
    graph = hs.TaskGraph(names, list(itertools.pairwise(names)))
    problem = hs.Problem(graph, hs.Cluster(["u"], bandwidth=1.0), durations=np.ones((6, 1)))
    coarse = coarsening.by_module(problem, None, whole=["a.0", "b"]).coarse
    assert coarse.graph.names == ("a.0", "a.1.x", "a.1.y", "b")


def test_only_edges_merge():
    graph = hs.TaskGraph("abcdef", [("a", "b"), ("b", "c"), ("a", "d"), ("c", "e"), ("d", "e"), ("e", "f")], weight_bytes=1.0)
    problem = hs.Problem(graph, hs.Cluster(["u"], bandwidth=1.0), durations=np.ones((6, 1)))
    merged = coarsening.degree_one(problem)
    assert merged.coarse.n_tasks == 1  # each edge is the only one at one of its ends; merging all makes no cycle
    diamond = problem.replace(graph=hs.TaskGraph("abcdef", [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "e"), ("d", "f")]))
    assert coarsening.degree_one(diamond).cluster.tolist() == [0, 1, 2, 3, 2, 3]


@pytest.mark.parametrize("rules", coarsening.RULES)
def test_rules_match_captured_operators_and_those_of_onnx(rules):
    """In captures batch norms are part of convolutions."""
    googlenet = hs.workloads.networks.load("googlenet")
    assert set(googlenet.op) >= {"conv2d", "relu"}
    fused = coarsening.fuse(hs.Problem(googlenet, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline()), rules)
    convolutions = googlenet.op.count("conv2d")
    assert fused.coarse.graph.op.count("conv2d relu") == convolutions
    assert fused.coarse.n_tasks == googlenet.n_tasks - convolutions
    exported = made({"c": "Conv", "b": "BatchNormalization", "r": "Relu"}, [("c", "b"), ("b", "r")])
    assert parts(exported, rules)[0] == {"c b r"}


@pytest.mark.parametrize(("rules", "name"), [("cudnn", "'cudnn'"), ([("softmax", "relu")], "given")])
def test_rules_that_match_nothing_say_so(rules, name):
    problem = made({"s": "softmax", "m": "matmul"}, [("s", "m")])
    with pytest.warns(
        UserWarning, match=rf"no sequence of operators matches the {name} rules, .* the graph has the types \['matmul', 'softmax'\]"
    ):
        assert coarsening.fuse(problem, rules).coarse.n_tasks == 2
