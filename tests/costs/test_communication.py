"""Bandwidth and latency from the times of transfers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs import Links

bytes_ = st.lists(st.integers(0, 2**26), min_size=2, max_size=8).filter(lambda sizes: max(sizes) > 2 * min(sizes))


@given(
    st.lists(st.floats(1e8, 1e12), min_size=2, max_size=2), st.lists(st.floats(1e-6, 1e-3), min_size=2, max_size=2), bytes_, st.booleans()
)
def test_exact_lines_are_recovered(bandwidth, latency, sizes, relative):
    seconds = np.full((2, 2, len(sizes)), np.nan)
    seconds[0, 1], seconds[1, 0] = (alpha + np.array(sizes) / beta for alpha, beta in zip(latency, bandwidth, strict=True))
    links = Links(["a", "b"], sizes, seconds, relative=relative)
    cluster = links.cluster()
    for size in sizes:
        for pair, (h, k) in enumerate((("a", "b"), ("b", "a"))):
            problem = hs.Problem(hs.TaskGraph(["t"]), cluster, durations=[[1.0, 1.0]])
            assert problem.transfer_time(size, h, k) == pytest.approx(latency[pair] + size / bandwidth[pair], rel=1e-6)
    assert np.nanmax(np.abs(links.residuals)) <= 1e-6 * np.nanmax(seconds)


@given(bytes_, st.lists(st.floats(1e-6, 1.0), min_size=8, max_size=8), st.booleans())
def test_fitted_links_make_a_cluster_or_are_refused(sizes, times, relative):
    seconds = np.full((2, 2, len(sizes)), np.nan)
    seconds[0, 1] = times[: len(sizes)]
    try:
        links = Links(["a", "b"], sizes, seconds, relative=relative)
    except hs.InvalidProblem as error:
        assert "take no longer if larger" in str(error)  # noqa: PT017
        return
    assert links.latency[0, 1] >= 0
    assert links.bandwidth[0, 1] > 0
    assert links.bandwidth[1, 0] == links.latency[1, 0] == 0
    assert not links.refitted[0, 1] or links.latency[0, 1] == 0
    weight = np.array(times[: len(sizes)]) ** -2.0 if relative else np.ones(len(sizes))

    def squares(slope, intercept):
        return float((weight * (seconds[0, 1] - slope * np.array(sizes) - intercept) ** 2).sum())

    own, alpha = 1 / links.bandwidth[0, 1], links.latency[0, 1]
    best = squares(own, alpha)
    for slope, intercept in ((own * 1.01, alpha), (own * 0.99, alpha), (own, alpha * 1.01), (own, alpha * 0.99 + 1e-9)):
        assert best <= squares(slope, intercept) * (1 + 1e-9) + 1e-15


def test_golden_numbers():
    """The line through (1e6, 1 ms), (2e6, 4 ms) has b = -2 ms, so k is 9/5 ns per byte through the origin."""
    seconds = np.full((3, 3, 2), np.nan)
    seconds[0, 1], seconds[1, 0] = (1e-3, 4e-3), (2e-3, 3e-3)
    links = Links([hs.Device("gpu", memory_bytes=1e9), "cpu", "far"], [1e6, 2e6], seconds)
    assert links.bandwidth[0].tolist() == [0.0, pytest.approx(5 / 9 * 1e9), 0.0]
    assert links.latency[0].tolist() == [0.0, 0.0, 0.0]
    assert links.residuals[0, 1] == pytest.approx([-0.8e-3, 0.4e-3])
    assert (links.bandwidth[1, 0], links.latency[1, 0]) == (pytest.approx(1e9), pytest.approx(1e-3))
    assert links.refitted.sum() == 1
    assert repr(links) == "<Links of 2 ordered pairs of gpu, cpu, far; 1 of them through the origin>"
    assert links.cluster().devices[0].memory_bytes == 1e9


def test_relative_errors_let_small_transfers_count():
    sizes, seconds = [1e3, 1e4, 1e7, 1e8], np.full((2, 2, 4), np.nan)
    seconds[0, 1] = 1e-5 + np.array(sizes) / 1e9 * [1, 1, 1, 1.2]
    assert Links(["a", "b"], sizes, seconds).latency[0, 1] == 0
    assert Links(["a", "b"], sizes, seconds, relative=True).latency[0, 1] == pytest.approx(1e-5, rel=0.2)


class Wires:
    """A profiler of transfers only, slower from 0 to 1 than from 1 to 0."""

    graph = hs.TaskGraph(["t"])
    devices = (hs.Device("a"), hs.Device("b"))

    def measure(self, inputs, placement):
        raise AssertionError("not asked for")

    def transfer(self, size, source, target):
        return 1e-5 + size / (1e9 if source == "a" else 2e9)


def test_all_pairs_of_a_profiler_are_measured():
    links = Links.measured(Wires())
    assert links.bandwidth[[0, 1], [1, 0]] == pytest.approx([1e9, 2e9])
    assert links.latency[[0, 1], [1, 0]] == pytest.approx([1e-5, 1e-5])


@pytest.mark.parametrize(
    ("sizes", "times", "message"),
    [
        ([1e3, 1e6], [2e-3, 1e-3], "transfers from 'a' to 'b' take no longer if larger; measure larger ones too"),
        ([1e3, 1e6], [1e-3, np.nan], r"transfers from 'a' to 'b' were measured at one size only \(1000 bytes\); measure larger"),
        ([1e3, 1e3], [1e-3, 2e-3], "were measured at one size only"),
        ([1e3, 1e6], [0.0, 1e-3], "1000 bytes from 'a' to 'b' took 0.0 s; it must be a number > 0"),
        ([-1.0, 1e6], [1e-3, 2e-3], "sizes are .*; they must be bytes >= 0"),
        ([1e6], [1e-3, 2e-3], r"seconds has shape \[2, 2, 2\] but \[device, device, size\] = \[2, 2, 1\] is needed"),
    ],
)
def test_transfers_that_make_no_line_are_refused(sizes, times, message):
    seconds = np.full((2, 2, 2), np.nan)
    seconds[0, 1] = times
    with pytest.raises(hs.InvalidProblem, match=message):
        Links(["a", "b"], sizes, seconds)
