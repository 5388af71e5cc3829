"""Task graphs as graphs of networkx and tables of pandas, and the questions that a graph answers by name."""

from __future__ import annotations

import networkx
import pytest
from hypothesis import given

import hetsched as hs
from hetsched.testing import task_graphs
from hetsched.testing.profiles import examples


@examples(8)
@given(graph=task_graphs(devices=("x", "y")))
def test_tables_and_graphs_of_networkx_are_read_back_and_answer_alike(graph):
    assert hs.TaskGraph.from_dataframe(graph.to_dataframe(), graph.to_dataframe("edges")) == graph
    other = graph.to_networkx()
    again = hs.TaskGraph.from_networkx(other)
    assert again.to_dataframe().equals(graph.to_dataframe())
    assert (len(graph), list(graph), graph.n_edges) == (len(other), list(other), other.number_of_edges())
    for task in graph:
        assert task in graph
        assert sorted(graph.successors(task)) == sorted(other.successors(task))
        assert sorted(graph.predecessors(task)) == sorted(other.predecessors(task))
    assert "no such task" not in graph
    assert graph, "a graph is true, also without tasks"


def test_values_that_are_no_numbers_survive_a_table():
    shape = hs.Shape(49, 64, 147, (7, 7), (2, 2))
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 3.0)], shape=[shape, shape], devices=[["x", "y"], None], colocation=[None, "g"])
    tasks = graph.to_dataframe()
    assert hs.TaskGraph.from_dataframe(tasks, graph.to_dataframe("edges")) == graph
    assert hs.TaskGraph.from_dataframe(tasks.reset_index()).names == ("a", "b")
    for table, message in (
        (tasks.rename(columns={"op": "ops"}), "tasks has a column 'ops'; choose from task, op, weight_bytes"),
        (tasks.reset_index(drop=True), "task name 0 is not a non-empty string"),
        (3, "tasks is 3; it must be a pandas.DataFrame"),
    ):
        with pytest.raises(hs.InvalidProblem, match=message):
            hs.TaskGraph.from_dataframe(table)
    with pytest.raises(hs.InvalidProblem, match="edges has no column 'target'; give source and target"):
        hs.TaskGraph.from_dataframe(tasks, graph.to_dataframe("edges")[["source"]])
    with pytest.raises(hs.InvalidProblem, match="'c' is no task of the graph; graph.names has all 2"):
        graph.successors("c")


def test_no_attribute_of_networkx_is_dropped_silently():
    graph = networkx.DiGraph()
    graph.add_node("a", label="first", work=8.0)
    graph.add_edge("a", "b", weight=3.0)
    with pytest.raises(hs.InvalidProblem, match="nodes of the graph have an attribute 'label', which is none of op, .*with None"):
        hs.TaskGraph.from_networkx(graph)
    nodes = {"label": None, "work": "flops"}
    with pytest.raises(hs.InvalidProblem, match="edges of the graph have an attribute 'weight'.* for instance edges={'weight': 'bytes'}"):
        hs.TaskGraph.from_networkx(graph, nodes=nodes)
    with pytest.raises(hs.InvalidProblem, match=r"edges\['weight'\] is 'size'; choose from bytes, or None"):
        hs.TaskGraph.from_networkx(graph, nodes=nodes, edges={"weight": "size"})
    made = hs.TaskGraph.from_networkx(graph, nodes=nodes, edges={"weight": "bytes"})
    assert (made.edge_bytes.tolist(), made.flops[0]) == ([3.0], 8.0)
    assert hs.TaskGraph.from_networkx(graph, nodes=nodes, edges={"weight": None}).edge_bytes.tolist() == [0.0]
    graph.edges["a", "b"]["bytes"] = 4.0
    with pytest.raises(hs.InvalidProblem, match="bytes of edges is given by 'bytes' and 'weight'; leave one of them out with None"):
        hs.TaskGraph.from_networkx(graph, nodes=nodes, edges={"weight": "bytes"})


def test_graphs_and_clusters_are_written_and_read(tmp_path):
    for value in (hs.TaskGraph(["a"]), hs.Cluster(["x", "y"], 1.0)):
        value.write(tmp_path / "value.json")
        assert hs.read(tmp_path / "value.json") == value
    assert (list(hs.Cluster(["x", "y"], 1.0)), len(value), "y" in value, "z" in value) == (["x", "y"], 2, True, False)
