"""Models in ONNX as task graphs: shapes, bytes, FLOPs, names, constants, control flow, and exported models beside their captures."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import hetsched as hs
from hetsched.frontends import onnx_graph, onnx_operators
from hetsched.frontends.onnx_values import Value, reshaped
from hetsched.testing.profiles import examples

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, outputs, weights=None, *, functions=(), infos=(), opset=20):
    """Return a model: inputs {name: shape or (type, shape)}, weights {name: shape or array}."""

    def info(name, kind):
        dtype, shape = kind if isinstance(kind, tuple) else (FLOAT, kind)
        return helper.make_tensor_value_info(name, dtype, shape)

    stored = []
    for name, value in (weights or {}).items():
        array = np.zeros(value, np.float32) if isinstance(value, list) else value
        stored.append(numpy_helper.from_array(array, name))
    graph = helper.make_graph(
        nodes, "net", [info(*row) for row in inputs.items()], [info(name, None) for name in outputs], stored, value_info=list(infos)
    )
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=domains, functions=list(functions))


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def column(graph, name):
    return dict(zip(graph.names, getattr(graph, name).tolist(), strict=True))


def block(batch="batch"):
    """Return a convolution with batch norm, a shortcut, and a classifier on the means."""
    nodes = [
        node("Conv", "x w", "c", name="/stem/conv/Conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c s s s s", "n", name="/stem/bn/BatchNormalization"),
        node("Relu", "n", "r", name="/stem/Relu"),
        node("Add", "r x", "a", name="/Add"),
        node("GlobalAveragePool", "a", "p", name="/pool/GlobalAveragePool"),
        node("Flatten", "p", "f", name="/Flatten"),
        node("Gemm", "f v b", "y", name="/fc/Gemm", transB=1),
    ]
    return model(nodes, {"x": [batch, 4, 6, 6]}, ["y"], {"w": [4, 4, 3, 3], "s": [4], "v": [10, 4], "b": [10]})


# ---------------------------------------------------------------------- properties


@examples(8)
@given(st.integers(2, 9))
def test_work_and_activations_grow_with_the_batch_and_weights_do_not(batch):
    one, several = (hs.frontends.onnx.read(block(), dims={"batch": n}) for n in (1, batch))
    assert several.names == one.names
    for what in ("flops", "edge_bytes", "output_bytes"):
        assert getattr(several, what).tolist() == (batch * getattr(one, what)).tolist()
    assert several.weight_bytes.tolist() == one.weight_bytes.tolist()


@st.composite
def views(draw):
    """Return an array of numpy that is a view, and a shape of as many numbers."""
    array = np.zeros(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    array = array[tuple(slice(draw(st.integers(0, length - 1)), None, draw(st.integers(1, 2))) for length in array.shape)]
    if draw(st.booleans()):
        array = np.broadcast_to(array, (draw(st.integers(1, 3)), *array.shape))
    lengths, left = [], array.size
    while left > 1 or draw(st.booleans()):
        lengths.append(draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0])))
        left //= lengths[-1]
    return array, tuple(draw(st.permutations(lengths)))


@pytest.mark.slow
@examples(30)
@given(views())
def test_a_reshape_is_a_view_exactly_where_it_is_one_for_numpy(case):
    array, lengths = case
    value = Value(FLOAT, array.shape, tuple(stride // array.itemsize for stride in array.strides), ())
    strides = reshaped(value, lengths)
    again = array.reshape(lengths)
    assert (strides is not None) == np.shares_memory(array, again)
    if strides is not None:
        expected = [stride // array.itemsize for stride in again.strides]
        assert all(a == b for a, b, length in zip(strides, expected, lengths, strict=True) if length > 1)


@examples(30)
@given(st.data())
def test_an_einsum_counts_as_torch_counts_it(data):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    sizes = dict(zip("abcd", data.draw(st.lists(st.integers(2, 5), min_size=4, max_size=4)), strict=True))
    terms = ["".join(data.draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))) for _ in range(2)]
    output = "".join(data.draw(st.lists(st.sampled_from(sorted(set("".join(terms)))), unique=True)))
    equation = f"{terms[0]},{terms[1]}->{output}"
    shapes = [tuple(sizes[label] for label in term) for term in terms]
    with FlopCounterMode(display=False) as counter:
        torch.einsum(equation, *(torch.empty(shape, device="meta") for shape in shapes))
    ours = onnx_operators.einsum(*shapes, equation=equation, out_shape=tuple(sizes[label] for label in output))
    assert ours == counter.get_total_flops()


# ---------------------------------------------------------------------- values


def test_a_block_of_a_network():
    graph = hs.frontends.onnx.read(block(), dims={"batch": 1})
    assert graph.names == ("x", "stem.conv/Conv", "stem/Relu", "/Add"[1:], "pool/GlobalAveragePool", "fc/Gemm")
    assert graph.op == ("input", "conv2d", "relu", "add", "adaptive_avg_pool2d", "linear")
    assert column(graph, "flops") == {**dict.fromkeys(graph.names, 0.0), "stem.conv/Conv": 2 * 4 * 36 * 36, "fc/Gemm": 2 * 4 * 10}
    assert column(graph, "weight_bytes") == {**dict.fromkeys(graph.names, 0.0), "stem.conv/Conv": 4 * (144 + 4), "fc/Gemm": 4 * 50}
    tensor = 4.0 * 4 * 36
    assert graph.output_bytes.tolist() == [tensor] * 4 + [16.0, 40.0]
    assert graph.shape[1] == hs.Shape(36.0, 4, 36.0, (3, 3), (1, 1), 1)
    assert graph.shape[5] == hs.Shape(1.0, 10, 4.0)


@pytest.mark.parametrize(
    ("name", "parameters", "products"),
    [("resnet50", 25_557_032 - 53_120 + 26_560, 4.09e9), ("vgg19", 143_667_240, 19.6e9), ("squeezenet", 1_235_496, 0.35e9)],
)
def test_networks_of_the_literature_that_come_with_onnx(name, parameters, products):
    """Of ResNet-50, the convolutions have a bias in place of the scales and shifts of batch norms."""
    graph = hs.frontends.onnx.read(Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx")
    assert graph.weight_bytes.sum() / 4 == parameters
    assert graph.flops.sum() / 2 == pytest.approx(products, rel=0.02)


def test_shapes_that_are_computed_from_shapes():
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Unsqueeze", "n zero", "u"),
        node("Concat", "u rest", "to", axis=0),
        node("Transpose", "x", "t", perm=[0, 2, 1]),
        node("Reshape", "x to", "r"),
        node("Reshape", "t to", "copied", name="copied"),
        node("MatMul", "r w", "y", name="product"),
        node("Add", "y copied", "z", name="sum"),
    ]
    weights = {"zero": np.array([0]), "rest": np.array([-1]), "w": [6, 6]}
    nodes[1] = node("Gather", "s first", "n")
    graph = hs.frontends.onnx.read(model(nodes, {"x": ["n", 2, 3]}, ["z"], weights | {"first": np.array(0)}), dims={"n": 5})
    assert graph.names == ("x", "copied", "product", "sum")
    assert graph.op == ("input", "clone", "linear", "add")
    assert column(graph, "weight_bytes") == {"x": 0.0, "copied": 0.0, "product": 144.0, "sum": 0.0}
    assert graph.flops[2] == 2 * 5 * 6 * 6


def test_slices_splits_and_expansions_are_views():
    nodes = [
        node("Split", "x", "a b", axis=1, num_outputs=2),
        node("Slice", "a start end axis", "c"),
        node("Expand", "c wide", "e"),
        node("Relu", "e", "y", name="first"),
        node("Relu", "b", "z", name="second"),
    ]
    weights = {"start": np.array([0]), "end": np.array([2]), "axis": np.array([0]), "wide": np.array([3, 2, 2])}
    graph = hs.frontends.onnx.read(model(nodes, {"x": [4, 4]}, ["y", "z"], weights))
    assert graph.edge_bytes.tolist() == [16.0, 32.0]
    assert graph.output_bytes.tolist() == [64.0, 48.0, 32.0]


def test_weights_that_are_quantised_have_the_bytes_that_are_stored():
    nodes = [
        node("DequantizeLinear", "w scale", "d", axis=1),
        node("MatMul", "x d", "m", name="whole"),
        node("DequantizeLinear", "w4 scale4", "d4", axis=0, block_size=2),
        node("MatMul", "m d4", "y", name="halves"),
    ]
    four = helper.make_tensor("w4", TensorProto.INT4, [8, 8], np.zeros(64, np.int8))
    made = model(nodes, {"x": [2, 8]}, ["y"], {"w": np.zeros((8, 8), np.int8), "scale": [8], "scale4": [4, 8]}, opset=21)
    made.graph.initializer.append(four)
    graph = hs.frontends.onnx.read(made)
    assert column(graph, "weight_bytes") == {"x": 0.0, "whole": 64.0 + 32.0, "halves": 32.0 + 128.0}
    assert graph.flops[1:].tolist() == [256.0, 256.0]
    qlinear = node("QLinearConv", "x s z w s z s z", "y", name="conv")
    weights = {"s": np.array(1.0, np.float32), "z": np.array(0, np.int8), "w": np.zeros((5, 3, 2, 2), np.int8)}
    graph = hs.frontends.onnx.read(model([qlinear], {"x": (TensorProto.INT8, [1, 3, 4, 4])}, ["y"], weights))
    assert (graph.op[1], graph.flops[1], graph.weight_bytes[1], graph.output_bytes[1]) == ("conv2d", 2 * 45 * 12, 60.0, 45.0)


def test_a_shared_weight_counts_in_each_task_and_external_data_is_not_read(tmp_path):
    made = model([node("MatMul", "x w", "a", name="a"), node("MatMul", "a w", "y", name="b")], {"x": [1, 64]}, ["y"], {"w": [64, 64]})
    onnx.save(made, tmp_path / "net.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    (tmp_path / "weights").unlink()
    graph = hs.frontends.onnx.read(tmp_path / "net.onnx")
    assert graph.weight_bytes.tolist() == [0.0, 64 * 64 * 4.0, 64 * 64 * 4.0]


def test_a_lookup_reads_only_the_rows_of_its_table():
    graph = hs.frontends.onnx.read(model([node("Gather", "w x", "y", name="table")], {"x": (INT, [2, 3])}, ["y"], {"w": [100, 8]}))
    assert graph.op == ("input", "embedding")
    assert (graph.weight_bytes[1], graph.bytes_accessed[1]) == (3200.0, 192.0 + 48.0 + 192.0)


def test_functions_and_branches_that_are_known_count_as_the_nodes_inside():
    inner = helper.make_function(
        "mine", "twice", ["a"], ["c"], [node("Relu", "a", "b"), node("Sigmoid", "b", "c")], [helper.make_opsetid("", 20)]
    )
    made = model([node("twice", "x", "y", domain="mine")], {"x": [3]}, ["y"], functions=[inner])
    assert hs.frontends.onnx.read(made).op == ("input", "relu", "sigmoid")
    branches = {
        name: helper.make_graph([node(op, "x", out)], name, [], [helper.make_tensor_value_info(out, FLOAT, None)])
        for name, op, out in (("then_branch", "Relu", "t"), ("else_branch", "Sigmoid", "e"))
    }
    made = model([node("If", "c", "y", **branches)], {"x": [3]}, ["y"], {"c": np.array(False)})
    assert hs.frontends.onnx.read(made).op == ("input", "sigmoid")
    made = model([node("If", "c", "y", name="early", **branches)], {"x": [3], "c": (TensorProto.BOOL, [])}, ["y"])
    assert [hs.frontends.onnx.read(made, values={"c": c}).op[1] for c in (True, np.array(False))] == ["relu", "sigmoid"]
    message = r"If 'early' has control flow of its own, whose condition depends on data; give the values that it .*, values=\{'c': \.\.\.\}"
    with pytest.raises(hs.UnsupportedFeature, match=message):
        hs.frontends.onnx.read(made)
    for values, message in (
        ({"q": 1}, "values has 'q', which is no input of the model; it has x, c"),
        ({"c": 1}, r"values\['c'\] is 1; it must be bool of shape \[\]"),
        ({"x": [1.0, 2.0]}, r"values\['x'\] is \[1\.0, 2\.0\]; it must be float32 of shape \[3\]"),
    ):
        with pytest.raises(hs.InvalidProblem, match=message):
            hs.frontends.onnx.read(made, values=values)


def cells(runs, reverse=False):
    """Return steps of a recurrent cell on the rows of x, whose states are the result: nodes, one after another."""
    nodes = []
    for i in range(runs):
        place = runs - 1 - i if reverse else i
        nodes += [
            node("Gather", f"x i{place}", f"row{i}"),
            node("MatMul", f"{f'h{i - 1}' if i else 'h'} w", f"m{i}"),
            node("Add", f"m{i} b", f"a{i}"),
            node("Add", f"a{i} row{i}", f"s{i}"),
            node("Tanh", f"s{i}", f"h{i}"),
        ]
    return [*nodes, node("Concat", " ".join(f"h{i}" for i in range(runs)), "y", axis=0)]


def body(inputs, outputs, first, last=()):
    """Return the graph of one step of a recurrent cell, which reads `row` and h."""
    nodes = [*first, node("MatMul", "h_in w", "m"), node("Add", "m b", "a"), node("Add", "a row", "s"), node("Tanh", "s", "h_out"), *last]
    kinds = {"i": (INT, []), "goes_on": (TensorProto.BOOL, []), "h_in": (FLOAT, [1, 4]), "row": (FLOAT, [4])}
    made = [helper.make_tensor_value_info(name, *kinds[name]) for name in inputs]
    return helper.make_graph(nodes, "body", made, [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs])


@examples(6)
@given(st.integers(1, 5), st.sampled_from(["count", "condition", "scan", "reversed scan"]))
def test_runs_of_a_loop_count_as_its_body_one_after_another(runs, kind):
    kinds = {"x": [runs, 4], "h": [1, 4]}
    weights = {"w": [4, 4], "b": [4], "n": np.array(runs), "last": np.array(runs - 1), "yes": np.array(True)}
    rows = {f"i{i}": np.array(i) for i in range(runs)}
    plain = hs.frontends.onnx.read(model(cells(runs, kind.startswith("reversed")), kinds, ["y"], weights | rows))
    gather = node("Gather", "x i", "row")
    if "scan" in kind:
        given = {"scan_input_directions": [1]} if kind != "scan" else {}
        inner = body(["h_in", "row"], ["h_out", "h_out"], [])
        loop = node("Scan", "h x", "last_h hs", body=inner, num_scan_inputs=1, **given)
    elif kind == "count":
        inner = body(["i", "goes_on", "h_in"], ["goes_on", "h_out", "h_out"], [gather])
        loop = node("Loop", "n yes h", "last_h hs", body=inner)
    else:
        inner = body(["i", "goes_on", "h_in"], ["more", "h_out", "h_out"], [gather], [node("Less", "i last", "more")])
        loop = helper.make_node("Loop", ["", "", "h"], ["last_h", "hs"], body=inner)
    graph = hs.frontends.onnx.read(model([loop, node("Relu", "hs", "y")], kinds, ["y"], weights))
    assert graph.op[:-1] == plain.op[:-1]
    for column_name in ("flops", "weight_bytes", "input_bytes", "output_bytes", "bytes_accessed", "edge_bytes"):
        assert getattr(graph, column_name).tolist() == getattr(plain, column_name).tolist()
    assert graph.edges.tolist() == plain.edges.tolist()


def test_loops_whose_runs_are_not_known_are_refused(monkeypatch):
    inner = body(["i", "goes_on", "h_in"], ["goes_on", "h_out"], [node("Gather", "x i", "row")])
    loop = node("Loop", "n goes_on h", "y", body=inner, name="steps")
    kinds = {"x": [9, 4], "h": [1, 4], "n": (INT, []), "goes_on": (TensorProto.BOOL, [])}
    made = model([loop], kinds, ["y"], {"w": [4, 4], "b": [4]})
    with pytest.raises(hs.UnsupportedFeature, match=r"Loop 'steps' .* whose number of runs depends on data; .*values=\{'n': \.\.\.\}"):
        hs.frontends.onnx.read(made, values={"goes_on": True})
    assert hs.frontends.onnx.read(made, values={"goes_on": True, "n": 2}).op.count("linear") == 2
    assert hs.frontends.onnx.read(made, values={"goes_on": False, "n": 2}).n_tasks == 1
    monkeypatch.setattr(onnx_graph, "MOST_RUNS", 3)
    assert hs.frontends.onnx.read(made, values={"goes_on": True, "n": 3}).op.count("linear") == 3
    with pytest.raises(hs.UnsupportedFeature, match="Loop 'steps' has more than 3 runs, each of which has tasks; export"):
        hs.frontends.onnx.read(made, values={"goes_on": True, "n": 10**9})


def test_recurrent_layers_and_attention():
    made = model([node("LSTM", "x w r", "y", hidden_size=4, name="lstm")], {"x": [5, 2, 3]}, ["y"], {"w": [1, 16, 3], "r": [1, 16, 4]})
    assert hs.frontends.onnx.read(made).flops[1] == 2 * 5 * 2 * 16 * 7
    kinds = {"q": [2, 4, 6, 8], "k": [2, 2, 10, 8], "v": [2, 2, 10, 16]}
    graph = hs.frontends.onnx.read(model([node("Attention", "q k v", "y", name="attention")], kinds, ["y"], opset=23))
    assert graph.op[3] == "scaled_dot_product_attention"
    assert graph.flops[3] == 2 * 2 * 4 * 6 * 10 * (8 + 16)


def test_operators_of_unknown_work_are_named_and_take_a_formula():
    made = model([node("Fancy", "x w", "y", domain="mine", name="f", power=3)], {"x": [2, 5]}, ["y"], {"w": [5]})
    with pytest.raises(hs.UnsupportedFeature, match=r"the shape of the tensor 'y' depends on data.*shapes=\{'y': \(\.\.\.\)\}"):
        hs.frontends.onnx.read(made)
    with pytest.warns(RuntimeWarning, match=r"the FLOPs of mine\.Fancy are unknown.*flop_formulas=\{'mine\.Fancy': \.\.\.\}"):
        graph = hs.frontends.onnx.read(made, shapes={"y": (2, 5)})
    assert math.isnan(graph.flops[1])
    assert graph.op[1] == "mine.Fancy"

    def formula(x, w, *, out_shape, power):
        return power * x[0] * w[0] * out_shape[1]

    assert hs.frontends.onnx.read(made, shapes={"y": (2, 5)}, flop_formulas={"mine.Fancy": formula}).flops[1] == 150
    for wrong, message in ((lambda *_, **__: -1, r"mine\.Fancy returns -1\.0; it must return a number"), (lambda: 1, "fails: TypeError")):
        with pytest.raises(hs.InvalidProblem, match=message):
            hs.frontends.onnx.read(made, shapes={"y": (2, 5)}, flop_formulas={"mine.Fancy": wrong})


def test_operators_of_onnx_runtime():
    made = model([node("FusedMatMul", "x w", "y", domain="com.microsoft", transA=1)], {"x": [3, 2]}, ["y"], {"w": [3, 7]})
    graph = hs.frontends.onnx.read(made, shapes={"y": [2, 7]})
    assert (graph.op[1], graph.flops[1]) == ("linear", 2 * 2 * 3 * 7)


def test_shapes_of_operators_of_onnx_runtime_are_those_of_onnx():
    uint8, runtime = TensorProto.UINT8, {"domain": "com.microsoft"}
    nodes = [
        node("FusedConv", "x w b", "c", activation="Relu", pads=[1, 1, 1, 1], **runtime),
        node("QuantizeLinear", "c s z", "q"),
        node("QLinearAdd", "q s z r s z s z", "a", **runtime),
        node("QLinearConcat", "s z a s z r s z", "j", axis=1, **runtime),
        node("QLinearGlobalAveragePool", "j s z s z", "p", channels_last=0, **runtime),
        node("DequantizeLinear", "p s z", "d", **runtime),
        node("Flatten", "d", "f"),
        node("FusedMatMul", "f m", "y", transB=1, **runtime),
        helper.make_node("SkipLayerNormalization", ["y", "y", "g"], ["n", "", "", "k"], **runtime),
        node("Add", "n k", "end"),
    ]
    weights = {"w": [8, 4, 3, 3], "b": [8], "m": [6, 16], "g": [6], "s": np.array(0.5, np.float32), "z": np.array(3, np.uint8)}
    graph = hs.frontends.onnx.read(model(nodes, {"x": [2, 4, 5, 5], "r": (uint8, [2, 8, 5, 5])}, ["end"], weights))
    pixels = 2 * 8 * 25
    assert dict(zip(graph.op, graph.output_bytes.tolist(), strict=True)) == {
        "input": pixels, "conv2d": 4 * pixels, "quantize_linear": pixels, "add": 2 * 6 * 4, "cat": 2 * pixels, "adaptive_avg_pool2d": 32,
        "dequantize_linear": 128, "linear": 48, "layer_norm": 96,
    }  # fmt: skip
    assert graph.flops.sum() == 2 * pixels * 4 * 9 + 2 * 2 * 16 * 6
    nodes[4] = node("QLinearGlobalAveragePool", "j s z s z", "p", channels_last=1, **runtime)
    with pytest.raises(hs.UnsupportedFeature, match=r"the shape of the tensor 'p' depends on data.*shapes=\{'p': "):
        hs.frontends.onnx.read(model(nodes, {"x": [2, 4, 5, 5], "r": (uint8, [2, 8, 5, 5])}, ["end"], weights))
    wrong = model([node("FusedMatMul", "x m", "y", name="p", **runtime)], {"x": [2, 5]}, ["y"], weights)
    with pytest.raises(hs.InvalidProblem, match="FusedMatMul 'p' does not fit its inputs: .*; check the model"):
        hs.frontends.onnx.read(wrong)


def test_other_models_of_machine_learning():
    ml = {"domain": "ai.onnx.ml"}
    nodes = [
        node("Scaler", "x", "s", offset=[0.0] * 4, scale=[1.0] * 4, **ml),
        node("LinearClassifier", "s", "label scores", coefficients=[0.5] * 12, intercepts=[0.0] * 3, classlabels_ints=[0, 1, 2], **ml),
        node("Normalizer", "scores", "p", norm="L1", **ml),
        node("ZipMap", "p", "y", classlabels_int64s=[0, 1, 2], **ml),
    ]
    made = model(nodes, {"x": [5, 4]}, ["label", "y"])
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    graph = hs.frontends.onnx.read(made)
    assert graph.flops.tolist() == [0, 0, 2 * 5 * 12, 0]
    assert graph.output_bytes.tolist() == [80, 80, 5 * (8 + 3 * 4), 60]


def test_names_are_those_of_modules():
    scoped = node("Relu", "b", "c")
    scoped.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'layers', 'layers.0', 'layers.0.act', 'relu']")
    nodes = [node("Relu", "x", "a", name="/layers/layers.1/act/Relu_2"), node("Relu", "a", "b"), scoped, node("Relu", "c", "y", name="/r")]
    graph = hs.frontends.onnx.read(model(nodes, {"x": [1]}, ["y"]))
    assert graph.names == ("x", "layers.1.act/Relu", "Relu", "layers.0.act/Relu", "r")


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"the input 'x' has dimensions without a length; give one for each: dims=\{'batch': 1\}"),
        ({"dims": {"batch": 0}}, r"dims\['batch'\] is 0"),
        ({"dims": {"batch": 1, "time": 2}}, "dims has 'time', which is no dimension of the model; it has batch"),
        ({"dims": {"batch": 1}, "shapes": {"q": (1,)}}, "shapes has 'q', which is no tensor of the model"),
        ({"shapes": {"x": (1, 5, 6, 6)}}, "Add '/Add' does not fit its inputs: .*Incompatible dimensions; check the model"),
    ],
)
def test_wrong_lengths_are_named(settings, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        hs.frontends.onnx.read(block(), **settings)


def test_what_cannot_be_read_says_why(tmp_path):
    (tmp_path / "x.onnx").write_bytes(b"no model")
    with pytest.raises(hs.InvalidProblem, match=r"x\.onnx is no model in ONNX"):
        hs.frontends.onnx.read(tmp_path / "x.onnx")
    with pytest.raises(hs.InvalidProblem, match=r"shape of the input 'x' is not known; give it: shapes=\{'x': \(1, \.\.\.\)\}"):
        hs.frontends.onnx.read(model([node("Relu", "x", "y")], {"x": None}, ["y"]))
    with pytest.raises(hs.InvalidProblem, match="Relu 'r' reads 'q', which nothing makes before it"):
        hs.frontends.onnx.read(model([node("Relu", "q", "y", name="r")], {"x": [1]}, ["y"]))
    with pytest.raises(hs.UnsupportedFeature, match=r"the length of a dimension of the tensor 'i' depends on data"):
        hs.frontends.onnx.read(model([node("NonZero", "x", "i"), node("Cast", "i", "y", to=FLOAT)], {"x": [4]}, ["y"]))
    graph = hs.frontends.onnx.read(
        model([node("NonZero", "x", "i"), node("Cast", "i", "y", to=FLOAT)], {"x": [4]}, ["y"]), shapes={"i": (1, 3)}
    )
    assert graph.output_bytes.tolist() == [16.0, 24.0, 12.0]
    with pytest.raises(hs.UnsupportedFeature, match="'s' is no tensor but a sequence_type"):
        hs.frontends.onnx.read(model([node("SequenceConstruct", "x", "s"), node("SequenceLength", "s", "y")], {"x": [4]}, ["y"]))
    with pytest.raises(hs.UnsupportedFeature, match="the tensor 'x' is of strings"):
        hs.frontends.onnx.read(model([node("Identity", "x", "y")], {"x": (TensorProto.STRING, [4])}, ["y"]))


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(hs.errors.MissingDependency, match=r"'onnx' is not installed; install it with: pip install 'hetsched\[onnx\]'"):
        hs.frontends.onnx.read("net.onnx")


def test_a_file_becomes_a_problem(tmp_path):
    onnx.save(block(), tmp_path / "net.onnx")
    cluster = hs.workloads.clusters.load("diviml")
    problem = hs.frontends.read(tmp_path / "net.onnx", cluster=cluster, dims={"batch": 1}).problem
    graph = hs.frontends.onnx.read(tmp_path / "net.onnx", dims={"batch": 1})
    assert problem == hs.Problem(graph, cluster, costs=hs.costs.Analytic())
    with pytest.raises(hs.InvalidArgument, match=r"format 'onnx' needs the option 'cluster'"):
        hs.frontends.read(tmp_path / "net.onnx")


# ---------------------------------------------------------------------- exported models


def exported(name):
    """Return a module, an example and what the exporter may divide: the factor of bytes."""
    import torch
    from torch import nn

    from hetsched.workloads import vision

    class Attention(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.parts = heads, nn.ModuleList(nn.Linear(width, width) for _ in range(4))

        def forward(self, x):
            b, n, d = x.shape
            q, k, v = (part(x).view(b, n, self.heads, -1).transpose(1, 2) for part in self.parts[:3])
            weights = torch.softmax(q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5, -1)
            return self.parts[3]((weights @ v).transpose(1, 2).reshape(b, n, d))

    class Layer(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.attention, self.norm, self.norm2 = Attention(width, heads), nn.LayerNorm(width), nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            x = x + self.attention(self.norm(x))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
            self.norm, self.up, self.out = nn.BatchNorm2d(8), nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 4, 1)

        def forward(self, x):
            inner = torch.relu(self.norm(self.inner(x)))
            return self.out(torch.cat([inner, self.up(torch.relu(self.down(inner)))], 1))

    def separable(inputs, outputs, stride):
        return nn.Sequential(
            nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    images, tokens = torch.zeros(1, 3, 32, 32), torch.zeros(1, 16, dtype=torch.long)
    made = {
        "perceptron": (nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)), torch.zeros(1, 32)),
        "separable": (nn.Sequential(nn.Conv2d(3, 16, 3, 2), separable(16, 32, 1), separable(32, 64, 2), *pooled, nn.Linear(64, 9)), images),
        "unet": (UNet(), images),
        "transformer": (nn.Sequential(nn.Embedding(100, 32), Layer(32, 4), Layer(32, 4), nn.Linear(32, 100)), tokens),
        "lstm": (nn.LSTM(64, 64, batch_first=True), torch.zeros(1, 5, 64)),
        "squeezenet": (vision.squeezenet(), torch.zeros(1, 3, 224, 224)),
    }
    module, example = made[name]
    return module.eval(), example


@pytest.mark.slow
@pytest.mark.parametrize("name", ["perceptron", "separable", "unet", "transformer", "lstm", "squeezenet"])
@pytest.mark.filterwarnings("ignore")
def test_an_exported_model_has_the_flops_and_bytes_of_its_capture(tmp_path, name):
    import torch

    module, example = exported(name)
    torch.onnx.export(module, (example,), str(tmp_path / "net.onnx"), dynamo=False, opset_version=20)
    graph, captured = hs.frontends.onnx.read(tmp_path / "net.onnx"), hs.frontends.torch.capture(module, example)
    assert captured.flops.sum() > 0
    for what in ("flops", "weight_bytes", "bytes_accessed", "input_bytes", "output_bytes"):
        assert getattr(graph, what).sum() == pytest.approx(getattr(captured, what).sum(), rel=0.01), what
    assert sorted(graph.op) == sorted(captured.op)
    assert [name.rpartition("/")[0] for name in graph.names[1:]] == [name.rpartition("/")[0] for name in captured.names[1:]]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_the_other_exporter_too(tmp_path):
    import torch

    module, example = exported("transformer")
    torch.onnx.export(module, (example,), str(tmp_path / "net.onnx"), dynamo=True, opset_version=20, verbose=False)
    graph, captured = hs.frontends.onnx.read(tmp_path / "net.onnx"), hs.frontends.torch.capture(module, example)
    for what in ("flops", "weight_bytes", "bytes_accessed", "input_bytes", "output_bytes"):
        assert getattr(graph, what).sum() == pytest.approx(getattr(captured, what).sum(), rel=0.01), what
