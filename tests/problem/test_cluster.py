"""Devices, channels and routes."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs


def best_route(bandwidth: np.ndarray, latency: np.ndarray, h: int, k: int) -> tuple[float, float, int] | None:
    """Return (bottleneck, total latency, hops) of the best simple path, by enumeration."""
    if bandwidth[h, k] > 0:
        return bandwidth[h, k], latency[h, k], 1
    others = [i for i in range(len(bandwidth)) if i not in (h, k)]
    paths = []
    for length in range(len(others) + 1):
        for middle in itertools.permutations(others, length):
            hops = list(itertools.pairwise([h, *middle, k]))
            if all(bandwidth[a, b] > 0 for a, b in hops):
                paths.append((-min(bandwidth[a, b] for a, b in hops), sum(latency[a, b] for a, b in hops), len(hops)))
    if not paths:
        return None
    width, total, hops = min(paths)
    return -width, total, hops


@given(st.integers(2, 5), st.data())
def test_routes_are_the_widest_then_quickest_then_shortest_paths(size, data):
    matrix = st.lists(st.lists(st.integers(0, 3), min_size=size, max_size=size), min_size=size, max_size=size)
    bandwidth, latency = np.array(data.draw(matrix), float), np.array(data.draw(matrix), float)
    cluster = hs.Cluster([f"d{k}" for k in range(size)], bandwidth=bandwidth, latency=latency)
    for h, k in itertools.permutations(range(size), 2):
        expected = best_route(bandwidth, latency, h, k)
        route = cluster.route(f"d{h}", f"d{k}")
        if expected is None:
            assert cluster.route_bandwidth[h, k] == 0
            assert math.isinf(cluster.route_latency[h, k])
            assert route == ()
        else:
            assert (cluster.route_bandwidth[h, k], cluster.route_latency[h, k], len(route) - 1) == expected
            hops = [(cluster.index[a], cluster.index[b]) for a, b in itertools.pairwise(route)]
            assert min(bandwidth[a, b] for a, b in hops) == expected[0]
            assert sum(latency[a, b] for a, b in hops) == expected[1]


def test_transfer_time_is_the_line_alpha_plus_bytes_over_beta():
    cluster = hs.Cluster(["a", "b", "c"], bandwidth=[[0, 4, 0], [2, 0, 8], [0, 0, 0]], latency=[[0, 1, 9], [2, 0, 3], [9, 9, 0]])
    problem = hs.Problem(hs.TaskGraph(["t"]), cluster, durations=[[1, 1, 1]])
    assert problem.transfer_time(8, "a", "b") == 1 + 8 / 4
    assert problem.transfer_time(8, "b", "a") == 2 + 8 / 2
    assert problem.transfer_time(8, "a", "c") == (1 + 3) + 8 / 4, "over b: latencies add up, the narrower link counts"
    assert problem.transfer_time(0, "a", "b") == 1, "zero bytes across devices cost the latency"
    assert problem.transfer_time(8, "a", "a") == 0
    assert math.isinf(problem.transfer_time(8, "c", "a"))
    with pytest.raises(hs.InvalidProblem, match="'z' is not in the cluster"):
        problem.transfer_time(8, "a", "z")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"devices": []}, "at least one device"),
        ({"devices": ["a", "a"], "bandwidth": 1}, "duplicate device names: 'a'"),
        ({"devices": ["a", "b"]}, "bandwidth is missing"),
        ({"devices": ["a", "b"], "bandwidth": -1}, "bandwidth from 'a' to 'b' is -1.0"),
        ({"devices": ["a", "b"], "bandwidth": float("nan")}, "bandwidth from 'a' to 'b' is nan"),
        ({"devices": ["a", "b"], "bandwidth": 1e-300}, "is 1e-300; it must be 0 or a number from 1e-100 to 1e+100 (0 for no link"),
        ({"devices": ["a", "b"], "bandwidth": 1e101}, "it must be 0 or a number from 1e-100 to 1e+100 (0 for no link, inf if bytes cost"),
        ({"devices": ["a", "b"], "bandwidth": 1, "latency": 1e-310}, "latency from 'a' to 'b' is 1e-310; it must be 0 or a number from"),
        ({"devices": ["a", "b"], "bandwidth": [[1, 2]]}, "bandwidth has shape (1, 2)"),
        ({"devices": ["a", "b"], "bandwidth": 1, "latency": float("inf")}, "latency from 'a' to 'b' is inf"),
        ({"devices": ["a", "b"], "bandwidth": "wide"}, "bandwidth is 'wide'; it must be a number or a 2 x 2 matrix"),
        ({"devices": [3]}, "3 is not a Device"),
    ],
)
def test_messages_name_the_offender(arguments, message):
    with pytest.raises(hs.InvalidProblem) as caught:
        hs.Cluster(**arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"memory_bytes": -1}, "memory_bytes of device 'd' is -1"),
        ({"memory_bytes": float("nan")}, "memory_bytes of device 'd' is nan"),
        ({"memory_bytes": 1e-101}, "is 1e-101; it must be 0 or a number from 1e-100 to 1e+100 (inf for unlimited)"),
        ({"memory_bytes": None}, "memory_bytes of device 'd' is None"),
        ({"memory_bandwidth": 0}, "memory_bandwidth of device 'd' is 0"),
        ({"launch_overhead": float("inf")}, "launch_overhead of device 'd' is inf"),
        ({"peak_flops": {"float16": 0}}, "peak_flops['float16'] of device 'd' is 0"),
    ],
)
def test_device_messages(arguments, message):
    with pytest.raises(hs.InvalidProblem) as caught:
        hs.Device("d", **arguments)
    assert message in str(caught.value)


def test_clusters_pickle_and_compare():
    cluster = hs.Cluster([hs.Device("a", kind="gpu", peak_flops={"float16": 1e12}), hs.Device("b")], bandwidth=[[0, 1], [0, 0]])
    assert pickle.loads(pickle.dumps(cluster)) == cluster
    assert cluster.replace(latency=1.0) != cluster


def test_a_link_of_minus_zero_is_no_link():
    cluster = hs.Cluster(["x", "y"], bandwidth=[[0, -0.0], [1, 0]])
    problem = hs.Problem(hs.TaskGraph(["a"]), cluster, durations=[[1, 1]])
    assert problem.transfer_time(1.0, "x", "y") == math.inf
    assert not np.signbit(cluster.bandwidth).any()
