"""GPT-3's decoder: its numbers, that a new capture gives the same, and identical parts of it and of its cluster."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

import hetsched as hs
from hetsched.analysis.cuts import clean_cuts
from hetsched.analysis.symmetry import exchanges
from hetsched.cli.commands.generate import gpt3 as command
from hetsched.decomposition.series import Series, cut
from hetsched.workloads import clusters, transformers

BILLIONS = {"125M": 0.125, "6.7B": 6.7, "175B": 175.0}
WORDS, POSITIONS = 50257, 2048  # of the embeddings, which are not in the stack


@pytest.mark.parametrize("model", transformers.names())
def test_the_stack_has_the_published_size(model):
    _, layers, width = transformers.MODELS[model]
    graph = hs.workloads.gpt3(model)
    parameters = graph.weight_bytes.sum() / 2
    assert parameters == layers * (12 * width**2 + 13 * width)
    embeddings = (WORDS + POSITIONS) * width
    assert (parameters + embeddings) / 1e9 == pytest.approx(BILLIONS[model], rel=0.01)
    linear, attention = 2 * 12 * width**2 * 20, 4 * 20**2 * width
    assert graph.flops.sum() == layers * (linear + attention)
    assert Counter(graph.op) == {"input": 1} | {
        op: layers * count
        for op, count in {"linear": 6, "layer_norm": 2, "add": 2, "gelu": 1, "scaled_dot_product_attention": 1, "clone": 1}.items()
    }


@pytest.mark.parametrize("model", transformers.names())
def test_the_bytes_of_a_block(model):
    block, width = transformers.block(model), transformers.MODELS[model].width
    tokens = 2 * 20 * width
    outputs = {name: size / tokens for name, size in zip(block.names, block.output_bytes, strict=True)}
    assert {name for name, share in outputs.items() if share != 1} == {"wide/linear", "gelu"}
    assert outputs["wide/linear"] == outputs["gelu"] == 4
    assert np.array_equal(block.edge_bytes, block.output_bytes[block.source]), "what is made is read whole"
    assert np.array_equal(block.input_bytes, np.bincount(block.target, block.edge_bytes, block.n_tasks))
    assert np.array_equal(block.bytes_accessed, block.weight_bytes + block.input_bytes + block.output_bytes)


def test_a_stack_has_the_shapes_of_its_blocks():
    block = transformers.block("125M")
    rest = [shape for shape, op in zip(block.shape, block.op, strict=True) if op != "input"]
    assert sum(shape is not None for shape in rest) == 7
    assert hs.workloads.gpt3("125M", layers=3).shape == (None, *rest * 3)


@pytest.mark.slow
@pytest.mark.parametrize("model", transformers.names())
def test_a_fresh_capture_is_the_shipped_block(model):
    pytest.importorskip("torch")
    from hetsched.workloads import language

    example = language.tokens(transformers.MODELS[model].width)
    assert hs.frontends.torch.capture(lambda: transformers.module(model), example) == transformers.block(model)


def test_the_module_attends_to_what_came_before_only():
    torch = pytest.importorskip("torch")
    from hetsched.workloads import language

    torch.manual_seed(0)
    module, x = language.Block(24, 3).eval(), torch.randn(2, 5, 24)
    changed = x.clone()
    changed[:, 3, 0] += 1
    with torch.no_grad():
        made, other = module(x), module(changed)
    assert made.shape == x.shape
    assert torch.equal(made[:, :3], other[:, :3])
    assert not torch.allclose(made[:, 4], other[:, 4])


@pytest.mark.slow
def test_an_input_of_more_tokens_is_captured_and_stacked():
    pytest.importorskip("torch")
    from hetsched.workloads import language

    block = hs.frontends.torch.capture(lambda: transformers.module("125M"), language.tokens(768, 64))
    graph = transformers.stack(block, 3)
    assert graph.flops.sum() == 3 * (24 * 768**2 * 64 + 4 * 64**2 * 768)
    assert graph.weight_bytes.sum() == hs.workloads.gpt3("125M", layers=3).weight_bytes.sum()


def test_blocks_follow_one_another():
    graph, block = hs.workloads.gpt3("125M", layers=4), transformers.block("125M")
    own = block.n_tasks - 1
    assert (graph.n_tasks, graph.n_edges) == (1 + 4 * own, 4 * block.n_edges)
    assert graph.names[:2] == ("x", "h0.norm1/layer_norm")
    assert graph.names[-1] == "h3.add_1"
    made = nx.DiGraph([(graph.names[i], graph.names[j]) for i, j in graph.edges])
    returned = "x"
    for k in range(4):
        assert set(made.successors(returned)) - {f"h{k - 1}.add_1"} == {f"h{k}.norm1/layer_norm", f"h{k}.add"}
        returned = f"h{k}.add_1"
        inside = made.subgraph(name for name in made if name.startswith(f"h{k}."))
        bare = nx.relabel_nodes(inside, lambda name: name.partition(".")[2])
        wanted = {(block.names[i], block.names[j]) for i, j in block.edges if i}
        assert set(bare.edges) == wanted
    assert hs.workloads.gpt3("125M", layers=1).edges.tolist() == block.edges.tolist()


def test_the_halves_of_blocks_are_modules_and_most_of_them_copies():
    graph = hs.workloads.gpt3("125M", layers=5)
    cuts = [graph.names[i] for i in clean_cuts(graph)]
    assert [name for name in cuts if "add" in name] == [f"h{k}.{end}" for k in range(5) for end in ("add", "add_1")]
    problem = hs.Problem(graph, clusters.diviml_nodes(nodes=2), costs=hs.costs.Roofline(dtype="float16"))
    series = Series(problem, cut(problem))
    assert series.exact
    # The attention half, the one after the input, whose bytes differ, and the linear half: from and to one of ten
    # different pairs of devices. The last half may end on any device: it begins on one of two kinds.
    assert series.n_open == 3 * 10 + 2
    assert series.program.n_transitions == 8 + 9 * 8**2 + 8


def test_what_is_alike_on_the_cluster_is_found():
    cluster = clusters.diviml_nodes()
    problem = hs.Problem(hs.workloads.gpt3("125M", layers=1), cluster, costs=hs.costs.Roofline(dtype="float16"))
    pairs = [([cluster.names[i] for i in one], [cluster.names[i] for i in other]) for one, other in exchanges(problem)]
    twins = [([f"n{n}.{kind}.0"], [f"n{n}.{kind}.1"]) for n in range(6) for kind in ("a100", "t4")]
    nodes = [[f"n{n}.{kind}.{i}" for kind in ("a100", "t4") for i in range(2)] for n in range(6)]
    assert pairs[:12] == twins
    assert [(set(one), set(other)) for one, other in pairs[12:]] == [(set(one), set(other)) for one, other in pairwise(nodes)]
    assert all([name[2:] for name in one] == [name[2:] for name in other] for one, other in pairs[12:]), "each with its like"


def test_the_cluster_holds_the_model_as_no_device_or_node_can():
    cluster = clusters.diviml_nodes()
    capacity = np.array([device.memory_bytes for device in cluster.devices])
    weights = hs.workloads.gpt3("175B").weight_bytes.sum()
    assert capacity.sum() > weights > capacity[:4].sum()
    near = np.array([device.node for device in cluster.devices])
    off = ~np.eye(24, dtype=bool)
    inside = (near[:, None] == near) & off
    assert set(cluster.bandwidth[inside]) == {clusters.PCIE4_X16}
    assert set(cluster.bandwidth[off & ~inside]) == {clusters.NETWORK}


def test_the_terminal_offers_the_models_there_are():
    import inspect
    from typing import get_args, get_type_hints

    assert inspect.signature(command).parameters["model"].default == inspect.signature(hs.workloads.gpt3).parameters["model"].default
    assert set(get_args(get_type_hints(command)["model"])) == set(transformers.names())


@pytest.mark.slow
def test_loading_needs_no_torch():
    code = "import sys, hetsched as hs; hs.workloads.gpt3('125M'); print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def _graph(ops: list[str], edges: list[tuple[int, int]], **columns: object) -> hs.TaskGraph:
    return hs.TaskGraph([f"t{i}" for i in range(len(ops))], np.array(edges).reshape(-1, 2), op=ops, **columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hs.workloads.gpt3("3B"), r"no block of GPT-3 '3B' is shipped; choose one of 125M, 6.7B, 175B"),
        (lambda: hs.workloads.gpt3("125M", layers=0), r"layers is 0; it must be a whole number, at least 1"),
        (lambda: hs.workloads.gpt3("125M", layers=True), r"layers is True; it must be a whole number, or None"),
        (lambda: transformers.stack(_graph(["relu", "relu"], [(0, 1)]), 2), r"this one has 0 and 1"),
        (lambda: transformers.stack(_graph(["input", "relu", "relu"], [(0, 1), (0, 2)]), 2), r"this one has 1 and 2"),
        (lambda: transformers.stack(_graph(["input"], []), 2), r"one other task without children"),
        (
            lambda: transformers.stack(_graph(["input", "relu"], [(0, 1)], output_bytes=[4.0, 8.0]), 2),
            r"the block reads 4 bytes and returns 8; blocks can be stacked only if these are equal",
        ),
    ],
)
def test_messages(call, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        call()
