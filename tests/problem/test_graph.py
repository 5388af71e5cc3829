"""Task graphs: their columns and their errors."""

from __future__ import annotations

import pickle

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs


@st.composite
def arcs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, float]]]:
    n = draw(st.integers(1, 8))
    permutation = draw(st.permutations(range(n)))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(0, 9)), max_size=20))
    return n, [(permutation[min(a, b)], permutation[max(a, b)], float(c)) for a, b, c in pairs if a != b]


@given(arcs())
def test_compressed_rows_hold_every_edge_once_with_parallel_ones_summed(drawn):
    n, edges = drawn
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], [(f"t{i}", f"t{j}", size) for i, j, size in edges])
    expected: dict[tuple[int, int], float] = {}
    for i, j, size in edges:
        expected[i, j] = expected.get((i, j), 0.0) + size
    sizes = {tuple(edge): size for edge, size in zip(graph.edges.tolist(), graph.edge_bytes.tolist(), strict=True)}
    assert sizes == expected
    assert list(sizes) == list(expected), "edges keep the order of first appearance"
    forward = [(i, int(graph.succ[x]), int(graph.succ_edge[x])) for i in range(n) for x in range(graph.succ_ptr[i], graph.succ_ptr[i + 1])]
    backward = [(int(graph.pred[x]), j, int(graph.pred_edge[x])) for j in range(n) for x in range(graph.pred_ptr[j], graph.pred_ptr[j + 1])]
    listed = [(i, j, e) for e, (i, j) in enumerate(graph.edges.tolist())]
    assert sorted(forward) == sorted(listed) == sorted(backward)


@given(arcs())
def test_topological_order_is_the_breadth_first_one(drawn):
    n, edges = drawn
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], [(f"t{i}", f"t{j}", size) for i, j, size in edges])
    position = {int(i): p for p, i in enumerate(graph.topological_order)}
    assert sorted(position) == list(range(n))
    assert all(position[i] < position[j] for i, j in graph.edges.tolist())
    assert graph.rank.tolist() == [position[i] for i in range(n)]
    sources = [i for i in range(n) if graph.pred_ptr[i] == graph.pred_ptr[i + 1]]
    assert graph.topological_order[: len(sources)].tolist() == sources


@given(arcs())
def test_an_integer_array_of_edges_means_the_same(drawn):
    n, edges = drawn
    names = [f"t{i}" for i in range(n)]
    named = hs.TaskGraph(names, [(names[i], names[j], size) for i, j, size in edges])
    array = np.array([edge[:2] for edge in edges], dtype=np.int64).reshape(-1, 2)
    assert hs.TaskGraph(names, array, edge_bytes=[edge[2] for edge in edges]) == named
    assert named.replace() == named
    assert pickle.loads(pickle.dumps(named)) == named


def test_any_class_of_strings_is_a_name_and_becomes_str():
    class Name(str):
        __hash__ = None  # type: ignore[assignment]

    graph = hs.TaskGraph([np.str_("a"), Name("b"), "\N{GREEK SMALL LETTER ALPHA}"], op=[Name("x"), np.str_("y"), "z"])
    assert {type(text) for text in (*graph.names, *graph.op)} == {str}
    assert graph.names == ("a", "b", "\N{GREEK SMALL LETTER ALPHA}")
    assert graph.op == ("x", "y", "z")


def test_bytes_default_to_the_sources_output_and_zero_stays_zero():
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b"), ("a", "c", 0.0), ("b", "c", None)], output_bytes=[3, 5, 7])
    assert graph.edge_bytes.tolist() == [3.0, 0.0, 5.0]


@pytest.mark.parametrize(
    ("tasks", "arguments", "message"),
    [
        (["a", "b", "c"], {"edges": [("a", "b"), ("b", "c"), ("c", "b")]}, "cycle: b -> c -> b"),
        (["a"], {"edges": [("a", "a")]}, "cycle: a -> a"),
        (["a", "b", "a"], {}, "duplicate task names: 'a'"),
        (["a", ""], {}, "name '' is not a non-empty string"),
        (["a", 3], {}, "name 3 is not a non-empty string"),
        (["a", ["b"]], {}, r"name ['b'] is not a non-empty string"),
        (["a", "\ud800", "\udfff"], {}, r"name '\ud800' is not a non-empty string"),
        (["a", "b"], {"op": ["x", ["y"]]}, "op of task 'b' is ['y']"),
        (["a", "b"], {"op": ["x", None]}, "op of task 'b' is None"),
        (["a", "b"], {"colocation": [None, "\ud800"]}, r"colocation of task 'b' is '\ud800'"),
        (["a", "b"], {"colocation": [3, None]}, "colocation of task 'a' is 3"),
        (["a"], {"edges": [("a", "z")]}, "'a' -> 'z' names 'z', which is no task"),
        (["a"], {"edges": ["ab"]}, "'ab' is not (source, target)"),
        (["a", "b"], {"edges": [("a", "b", -1.0)]}, "'a' -> 'b' carries -1.0 bytes"),
        (["a", "b"], {"edges": [("a", "b", float("nan"))]}, "'a' -> 'b' carries nan bytes"),
        (["a", "b"], {"edges": [("a", "b", "many")]}, "bytes must be a number"),
        (["a", "b"], {"edges": np.array([[0, 2]])}, "task indices run from 0 to 1"),
        (["a", "b"], {"edges": np.array([[0, 1]]), "edge_bytes": [1.0, 2.0]}, "edge_bytes has shape (2,)"),
        (["a", "b"], {"edges": [("a", "b")], "edge_bytes": [1.0]}, "edge_bytes needs an integer array"),
        (["a", "b"], {"weight_bytes": [1.0, -2.0]}, "weight_bytes of task 'b' is -2.0"),
        (["a", "b"], {"output_bytes": [np.inf, 0]}, "output_bytes of task 'a' is inf"),
        (["a", "b"], {"input_bytes": [1.0]}, "input_bytes has shape (1,) but the graph has 2 tasks"),
        (["a", "b"], {"flops": "fast"}, "flops is 'fast'; it must be a number or 2 numbers"),
        (["a", "b"], {"op": ["conv"]}, "op has length 1"),
        (["a"], {"colocation": [7]}, "colocation of task 'a' is 7"),
        (["a"], {"devices": [[]]}, "'a' is pinned to []"),
    ],
)
def test_messages_name_the_offender(tasks, arguments, message):
    with pytest.raises(hs.InvalidProblem) as caught:
        hs.TaskGraph(tasks, **arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_long_cycle_is_printed_in_order():
    names = [f"t{i}" for i in range(6)]
    edges = [(names[i], names[i + 1]) for i in range(5)] + [("t4", "t2")]
    with pytest.raises(hs.InvalidProblem, match="t2 -> t3 -> t4 -> t2|t3 -> t4 -> t2 -> t3|t4 -> t2 -> t3 -> t4"):
        hs.TaskGraph(names, edges)


def test_graphs_are_immutable():
    graph = hs.TaskGraph(["a"], weight_bytes=1.0)
    with pytest.raises(ValueError, match="read-only"):
        graph.weight_bytes[0] = 2.0
    with pytest.raises(AttributeError, match="immutable"):
        graph.names = ("b",)
    copy = pickle.loads(pickle.dumps(graph))
    with pytest.raises(ValueError, match="read-only"):
        copy.weight_bytes[0] = 2.0


def test_the_callers_arrays_stay_the_callers():
    mine = np.array([1.0, 2.0])
    hs.TaskGraph(["a", "b"], weight_bytes=mine)
    mine[0] = 5.0


@given(arcs())
def test_networkx_round_trip(drawn):
    n, edges = drawn
    graph = hs.TaskGraph(
        [f"t{i}" for i in range(n)],
        [(f"t{i}", f"t{j}", size) for i, j, size in edges],
        op="conv",
        weight_bytes=3.0,
        flops=[None if i else 2.0 for i in range(n)],
        colocation=["g" if i % 2 else None for i in range(n)],
        devices=[["x", "y"] if i == 0 else None for i in range(n)],
    )
    back = hs.TaskGraph.from_networkx(graph.to_networkx())
    # networkx lists edges by source, so only the order of edges may differ
    assert back.names == graph.names
    order = np.lexsort((graph.target, graph.source))
    assert np.array_equal(back.edges[np.lexsort((back.target, back.source))], graph.edges[order])
    assert np.array_equal(back.edge_bytes[np.lexsort((back.target, back.source))], graph.edge_bytes[order])
    assert np.array_equal(back.flops, graph.flops, equal_nan=True)
    assert (back.colocation, back.devices, back.op) == (graph.colocation, graph.devices, graph.op)


def test_networkx_multigraph_edges_are_summed_and_undirected_graphs_refused():
    multi = networkx.MultiDiGraph()
    multi.add_edge("a", "b", bytes=2.0)
    multi.add_edge("a", "b", bytes=3.0)
    assert hs.TaskGraph.from_networkx(multi).edge_bytes.tolist() == [5.0]
    with pytest.raises(hs.InvalidProblem, match="DiGraph"):
        hs.TaskGraph.from_networkx(networkx.Graph())


def test_shapes_are_kept_and_checked():
    shape = hs.Shape(49, 64, 147, (7, 7), (2, 2))
    graph = hs.TaskGraph(["a", "b"], [("a", "b")], shape=[None, shape])
    assert hs.TaskGraph.from_networkx(graph.to_networkx()) == graph
    assert graph.replace(op="conv2d").shape == (None, shape)
    assert hs.TaskGraph(["a", "b"], shape={"b": shape}).shape == (None, shape)
    assert graph != graph.replace(shape=None)
    for wrong, message in (
        ([None], "shape has length 1 but the graph has 2 tasks"),
        ([None, (49, 64, 147)], "shape of task 'b' is .*; give a hetsched.Shape, or None if it is unknown"),
        ([hs.Shape(-1, 1, 1), None], "shape of task 'a' is .*; sizes must be numbers >= 0, kernel, stride and groups whole numbers >= 1"),
        ([hs.Shape(1, 1, 1, (0,)), None], "kernel, stride and groups whole numbers >= 1"),
        ([hs.Shape(1, 1, np.inf), None], "sizes must be numbers >= 0"),
    ):
        with pytest.raises(hs.InvalidProblem, match=message):
            hs.TaskGraph(["a", "b"], shape=wrong)
