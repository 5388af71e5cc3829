"""Amounts as text with a unit, wherever a problem takes numbers, and warnings of numbers that seem to be of another unit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.arguments.amounts import EXAMPLES, parse
from hetsched.problem.interconnects import Interconnect
from hetsched.testing.profiles import examples

FACTORS = {
    "B": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
    "B/s": {"B/s": 1, "MB/s": 1e6, "GiB/s": 2**30, "Gbit/s": 1e9 / 8},
    "FLOP/s": {"FLOP/s": 1, "TFLOP/s": 1e12, "TFLOPS": 1e12, "TF": 1e12},
    "FLOP": {"GFLOP": 1e9, "GFLOPs": 1e9},
    "s": {"s": 1, "ms": 1e-3, "us": 1e-6, "\N{MICRO SIGN}s": 1e-6, "ns": 1e-9, "min": 60, "h": 3600},
}


@examples(40)
@given(
    st.sampled_from([(unit, suffix) for unit, suffixes in FACTORS.items() for suffix in suffixes]),
    st.floats(0, 1e9),
    st.sampled_from(["", " ", "  "]),
)
def test_text_with_a_unit_is_the_number_times_its_factor(pair, value, space):
    unit, suffix = pair
    assert parse(f"{value!r}{space}{suffix}", unit) == pytest.approx(value * FACTORS[unit][suffix], rel=1e-15, abs=1e-300)


def test_text_is_rounded_once_and_examples_are_right():
    assert [parse(text, "s") for text in ("5 us", "0.1 ms", "1.5 h")] == [5e-6, 1e-4, 5400.0]
    assert {unit: parse(text, unit) for unit, text in EXAMPLES.items()} == {
        "B": 24 * 2**30, "B/s": 16e9, "FLOP": 2e9, "FLOP/s": 312e12, "s": 2e-3,
    }  # fmt: skip
    assert (parse("24", "B", bare=True), parse("24G", "B", bare=True)) == (24.0, 24e9)


@pytest.mark.parametrize("text", ["24", "24 Gb", "24 gb", "24 GB/s", "-1 GB", "GB", "1.2.3 GB", "1e400 GB", "1e999999999 GB", "inf GB", ""])
def test_other_text_is_refused(text):
    with pytest.raises(hs.InvalidProblem, match=r"memory_bytes of device 'x' is .*\(inf for unlimited\), or text such as '24 GiB'"):
        hs.Device("x", memory_bytes=text)


def test_a_problem_of_text_equals_the_one_of_numbers():
    device = hs.Device("x", "", "", "24 GiB", {"float16": "312 TFLOP/s"}, "900 GB/s", "5 us", cache_bytes="6 MiB")
    assert device == hs.Device("x", "", "", 24 * 2.0**30, {"float16": 312e12}, 900e9, 5e-6, cache_bytes=6 * 2.0**20)
    cluster = hs.Cluster([device, "y"], {"x": {"y": "16 GB/s"}, "y": {"x": 8e9}}, "2 us")
    assert cluster == hs.Cluster([device, "y"], [[0, 16e9], [8e9, 0]], 2e-6)
    graph = hs.TaskGraph(["a", "b"], [("a", "b", "4 MB")], weight_bytes={"a": "1 GB", "b": 2.0}, flops=["3 GFLOP", None])
    assert graph == hs.TaskGraph(["a", "b"], [("a", "b", 4e6)], weight_bytes=[1e9, 2.0], flops=[3e9, None])
    made = hs.Problem(graph, cluster, durations=[["2 ms", 0.5], ["1 min", None]])
    assert made == hs.Problem(graph, cluster, durations=[[2e-3, 0.5], [60.0, np.nan]])
    assert hs.solve(made, "heft", time_limit="2 min").schedule is not None
    for wrong, message in (
        (lambda: hs.Cluster(["x", "y"], "16"), "bandwidth is '16'; it must be a number or .*, or text such as '16 GB/s'"),
        (lambda: hs.Problem(graph, cluster, durations=[["2", 1], [1, 1]]), "durations is .* of seconds, or text such as '2 ms'"),
        (lambda: hs.TaskGraph(["a", "b"], [("a", "b", "4")]), "edge .*: bytes must be a number, or text such as '24 GiB'"),
        (lambda: hs.solve(made, time_limit="soon"), "time_limit is 'soon'; it must be a number of seconds, at least 0, or text such as"),
    ):
        with pytest.raises(hs.HetschedError, match=message):
            wrong()


def test_chains_machines_and_links_of_text_equal_those_of_numbers():
    def chain(time, size):
        times = {"hops": [[0, time], [0.5, 0]], "stage_seconds": [time, 1]}
        sizes = {"weight_bytes": [size, size], "cache_bytes": [size, 1], "memory_bytes": [size, np.inf], "shared_bytes": size}
        return hs.ChainProblem("ab", "xy", [[time, 1], [2, time]], **times, **sizes)

    assert chain("2 ms", "1.5 GB") == chain(2e-3, 1.5e9)
    cluster = hs.Cluster(["x", "y"], 1e9)
    machine = hs.Machine(cluster, reserved_bytes={"x": "2 GiB"})
    assert machine == hs.Machine(cluster, reserved_bytes={"x": 2.0**31})
    assert machine.reserving({"y": "1 MB"}) == hs.Machine(cluster, reserved_bytes={"x": 2.0**31, "y": 1e6})
    assert Interconnect("16 GB/s", "5 us", "mine") == Interconnect(16e9, 5e-6, "mine")
    for wrong, message in (
        (lambda: chain("2 GB", "1.5 GB"), "seconds is .* or text such as '2 ms'"),
        (lambda: chain(1, 1).replace(cache_bytes=["2", 1]), "cache_bytes is .* or text such as '24 GiB'"),
        (lambda: chain(1, 1).replace(shared_bytes="2"), "shared_bytes is '2'; it must be a number, or text such as '24 GiB'"),
        (lambda: hs.Machine(cluster, reserved_bytes={"x": "2"}), "reserved_bytes of 'x' is '2'; .* from 0, or text such as '24 GiB'"),
        (lambda: Interconnect("16", 0, ""), "bandwidth of a link is '16'; .*, or inf if bytes cost nothing, or text such as '16 GB/s'"),
        (lambda: Interconnect(np.inf, np.inf, ""), "latency of a link is inf; it must be 0 or a number .*, or text such as '2 ms'"),
    ):
        with pytest.raises(hs.HetschedError, match=message):
            wrong()


def test_amounts_that_seem_to_be_of_another_unit_are_told_beside_real_tensors():
    graph = hs.TaskGraph(["a"], shape=[hs.Shape(1, 2, 3)])
    cluster = hs.Cluster([hs.Device("x", memory_bytes=24), "y"], 16)
    with pytest.warns(UserWarning, match="real tensors") as told:
        problem = hs.Problem(graph, cluster, durations=[[2.0, 5000.0]])
    why = "though tasks have the sizes of real tensors; give it with its unit, as in"
    assert [str(warning.message) for warning in told] == [
        f"bandwidth from 'x' to 'y' is 16 bytes per second, below 1 MB/s, {why} '16 GB/s'",
        f"memory_bytes of device 'x' is 24, below 1 MB, {why} '24 GB'",
        f"the duration of task 'a' on 'y' is 5000 s, above an hour, {why} '5000 us'",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem.replace(graph=graph.replace(shape=None))
        problem.replace(cluster=hs.Cluster([hs.Device("x", memory_bytes=1e6), "y"], 1e6), durations=[[2.0, 3600.0]])
