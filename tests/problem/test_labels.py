"""Values with labels: mappings, series and data frames are matched by name, in any order."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.testing import problems


def shuffled(draw, values):
    return draw(st.permutations(list(values)))


def nested(draw, array, *axes):
    """Return an array as mappings of mappings, the names of each axis in any order."""
    if not axes:
        return float(array)
    return {name: nested(draw, array[axes[0].index(name)], *axes[1:]) for name in shuffled(draw, axes[0])}


@given(st.data())
def test_a_permuted_data_frame_gives_the_same_problem(data):
    problem = data.draw(problems(inputs=1))
    tasks, devices = problem.graph.names, problem.cluster.names
    frame = pandas.DataFrame(problem.durations[:, :, 0], index=list(tasks), columns=list(devices))
    frame = frame.loc[shuffled(data.draw, tasks), shuffled(data.draw, devices)]
    links = pandas.DataFrame(problem.cluster.bandwidth, index=list(devices), columns=list(devices))
    cluster = problem.cluster.replace(bandwidth=links.loc[shuffled(data.draw, devices), shuffled(data.draw, devices)])
    rows = [frame.loc[name] for name in tasks]
    assert cluster == problem.cluster
    for given_so in (frame, frame.T, frame.to_dict(), {name: frame.loc[name] for name in frame.index}, rows):
        assert problem.replace(cluster=cluster, durations=given_so) == problem


@pytest.mark.slow
@given(st.data())
def test_mappings_go_by_name_whatever_their_order(data):
    problem = data.draw(problems())
    graph, cluster = problem.graph, problem.cluster
    tasks, devices, sizes = list(graph.names), list(cluster.names), problem.batch_sizes.tolist()
    per_task = {
        name: pandas.Series(column, index=tasks)[shuffled(data.draw, tasks)]
        if data.draw(st.booleans())
        else nested(data.draw, column, tasks)
        for name in ("weight_bytes", "input_bytes", "output_bytes", "flops", "bytes_accessed")
        for column in [getattr(graph, name)]
    }
    named = {
        what: {name: values[tasks.index(name)] for name in shuffled(data.draw, tasks)}
        for what, values in (("op", graph.op), ("colocation", graph.colocation), ("devices", graph.devices))
    }
    pairs = [(tasks[i], tasks[j]) for i, j in graph.edges.tolist()]
    edge_bytes = nested(data.draw, graph.edge_bytes, pairs) if pairs else 0.0
    assert hs.TaskGraph(tasks, graph.edges, edge_bytes=edge_bytes, **per_task, **named) == graph
    links = {name: nested(data.draw, getattr(cluster, name), devices, devices) for name in ("bandwidth", "latency")}
    assert hs.Cluster(cluster.devices, **links) == cluster
    transfers = (
        problem.transfers if problem.transfers is None or not pairs else nested(data.draw, problem.transfers, pairs, devices, devices)
    )
    durations = nested(data.draw, problem.durations, tasks, devices, sizes)
    assert problem.replace(durations=durations, batch_sizes=sizes, transfers=transfers) == problem


FRAME = pandas.DataFrame([[1.0, 2.0], [3.0, 4.0]], index=["b", "a"], columns=["y", "x"])


@pytest.mark.parametrize(
    ("durations", "message"),
    [
        (FRAME.rename(index={"a": "z"}), "durations has a label 'z', which is no task"),
        (FRAME.rename(columns={"y": "z"}), "durations has a label 'z', which is no device"),
        (FRAME.reset_index(drop=True), "durations has a label 0, which is no task; name 'a', 'b', or give an array in index order"),
        (FRAME.iloc[:1], "durations has nothing for task 'a'"),
        (pandas.concat([FRAME, FRAME]), "durations has the label 'b' twice"),
        ({"a": [1, 2]}, "durations has nothing for task 'b'"),
        ({"a": {"x": 1}, "b": {"x": 1, "y": 2}}, r"durations\['a'\] has nothing for device 'y'"),
        ({"a": [1], "b": [1, 2]}, "durations has different numbers of values for different tasks"),
        ([["1", "2"], ["3", "4"]], "durations is .*; it must be an array of 2 tasks x 2 devices of seconds"),
        ([[1j, 2], [3, 4]], "durations is .*; it must be an array"),
    ],
)
def test_labels_that_do_not_fit_are_refused_by_name(durations, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        hs.Problem(hs.TaskGraph(["a", "b"]), hs.Cluster(["x", "y"], bandwidth=1.0), durations=durations)


def test_numbers_of_every_kind_are_numbers():
    cluster = hs.Cluster(["x", "y"], bandwidth=Fraction(1, 2), latency=Decimal("0.25"))
    assert (cluster.bandwidth[0, 1], cluster.latency[0, 1]) == (0.5, 0.25)
    graph = hs.TaskGraph(["a", "b"], weight_bytes=[Fraction(1, 4), np.float32(2)], flops=[None, 10**20], output_bytes=np.int8(3))
    assert graph.weight_bytes.tolist() == [0.25, 2.0]
    assert graph.flops[1] == 1e20
    problem = hs.Problem(graph, cluster, durations=[[Decimal(1), None], [Fraction(1, 3), np.float32(0.5)]], inputs=np.int64(1))
    assert problem.durations[1, 0, 0] == 1 / 3
    solution = hs.solve(problem, "heft", time_limit=Fraction(9, 2), seed=np.uint8(3), evaluations=np.int32(5))
    assert (solution.seed, type(solution.seed)) == (3, int)


@pytest.mark.parametrize("many", [True, False])
def test_labels_of_pins_and_co_location_need_not_name_every_task(many):
    given_so = {"b": ["x"]} if many else pandas.Series([["x"]], index=["b"])
    graph = hs.TaskGraph(["a", "b"], devices=given_so, colocation=pandas.Series(["red"], index=["b"]))
    assert (graph.devices, graph.colocation) == ((None, ("x",)), (None, "red"))
    with pytest.raises(hs.InvalidProblem, match="devices has a label 'c', which is no task"):
        hs.TaskGraph(["a", "b"], devices={"c": ["x"]})
    with pytest.raises(hs.InvalidProblem, match="op has nothing for task 'a'"):
        hs.TaskGraph(["a", "b"], op={"b": "relu"})
