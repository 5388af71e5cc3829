"""Durations of graphs of which some operators were measured."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs import CostModel, Network, Operator, Profile, Profiled, ProfiledDevice, Roofline, TaskTime

DEVICE = hs.Device("x", peak_flops={"float32": 1e9}, memory_bandwidth=1e9)
GRAPH = hs.TaskGraph(["a", "b", "c", "d"], op=["conv2d", "conv2d", "relu", "conv2d"], flops=[1e9, 2e9, 1e9, 4e9])
CLUSTER = hs.Cluster([DEVICE])


def profile(*times):
    """Return a profile with an operator for each digest, a convolution of 1 GFLOP."""
    operators = [Operator(digest, "conv2d", "", 1e9, 0.0) for digest in sorted({digest for digest, _, _ in times})]
    rows = [TaskTime(digest, "x", batch, median=seconds) for digest, batch, seconds in times]
    return Profile([ProfiledDevice(DEVICE)], operators, rows)


def test_measurements_come_first_then_lines_then_the_ratio_of_the_class():
    known = profile(("A", 1, 3.0), ("B", 1, 1.0), ("B", 2, 1.5))
    model: CostModel = Profiled(known, Roofline(efficiency=1.0), network=Network(GRAPH, ("A", "B", "C", "D")))
    assert model.sources(GRAPH, CLUSTER, [1]).ravel().tolist() == ["measured", "measured", "model", "class"]
    assert model.sources(GRAPH, CLUSTER, [1, 4]).ravel().tolist() == ["class", "line", "model", "class"]
    found = model.durations(GRAPH, CLUSTER, [1, 4])[:, 0]
    ratio = np.median([3.0, 1.0, 1.5 / 2])
    np.testing.assert_allclose(found, [[3, 4 * ratio], [1, 2.5], [1, 4], [4 * ratio, 16 * ratio]])


def test_a_graph_without_digests_and_a_device_that_was_not_measured_are_the_models():
    known, plain = profile(("A", 1, 3.0)), Roofline(efficiency=1.0)
    other = hs.Cluster([hs.Device("y", peak_flops={"float32": 1e9}, memory_bandwidth=1e9)])
    model = Profiled(known, plain)
    np.testing.assert_array_equal(model.durations(GRAPH, other, [1, 2]), plain.durations(GRAPH, other, [1, 2]))
    assert set(model.sources(GRAPH, other, [1]).ravel()) == {"model"}
    assert model.sources(GRAPH, CLUSTER, [1]).ravel().tolist() == ["class", "class", "model", "class"]


@given(st.lists(st.tuples(st.sampled_from("ABCD"), st.sampled_from([1, 2, 4]), st.floats(0.01, 10)), min_size=1, max_size=8))
def test_it_agrees_with_the_profile_wherever_that_knows(times):
    times = list({(digest, batch): (digest, batch, seconds) for digest, batch, seconds in times}.values())
    digests = sorted({digest for digest, _, _ in times})
    known = profile(*times)
    graph = hs.TaskGraph(digests, op="conv2d", flops=1e9)
    own = known.merge(Profile([ProfiledDevice(DEVICE)], known.operators, networks=[Network(graph, tuple(digests))]))
    expected = own.durations(graph, CLUSTER, [1, 2, 8])
    found = Profiled(own, Roofline(efficiency=1.0)).durations(graph, CLUSTER, [1, 2, 8])
    np.testing.assert_array_equal(found[np.isfinite(expected)], expected[np.isfinite(expected)])
    assert np.isfinite(found).all()


@pytest.mark.filterwarnings("ignore:3 tasks without a shape")
def test_its_errors_are_those_of_the_model():
    with pytest.raises(hs.InvalidProblem, match="device 'z' is of family ''"):
        Profiled(profile(("A", 1, 3.0))).durations(GRAPH, hs.Cluster(["z"]), [1])
