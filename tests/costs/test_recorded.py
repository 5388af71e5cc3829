"""Measurements kept in a file, and returned again."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs import Links, Measured, Profiler, Recorded, Regression, Samples


class Noisy:
    """A profiler of three tasks on two devices with different results in each call."""

    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 4e6)])
    devices = (hs.Device("x", memory_bytes=1e9), hs.Device("y"))

    def __init__(self):
        self.rng, self.calls = np.random.default_rng(0), 0

    def measure(self, inputs, placement):
        self.calls += 1
        seconds = inputs * (1 + 0.1 * self.rng.random(3))
        return Measured(np.where([False, False, placement == "y"], np.nan, seconds), np.full(3, 8.0 * inputs))

    def transfer(self, size, source, target):
        self.calls += 1
        return 1e-5 + size / 1e9 * (1 + 0.1 * self.rng.random())


placements = st.one_of(st.sampled_from(["x", "y"]), st.fixed_dictionaries(dict.fromkeys("abc", st.sampled_from(["x", "y"]))))
questions = st.lists(
    st.one_of(st.tuples(st.integers(1, 3), placements), st.tuples(st.integers(1, 3), st.just("x"), st.just("y"))), max_size=8
)


def ask(profiler: Profiler, request):
    return profiler.measure(*request) if len(request) == 2 else profiler.transfer(*request)


@given(questions)
def test_recorded_measurements_are_returned_to_the_bit(tmp_path_factory, requests):
    path = tmp_path_factory.mktemp("recorded") / "measured.json"
    first = Recorded(Noisy())
    results = [ask(first, request) for request in requests]
    first.write(path)
    again = Recorded.read(path)
    for request, result in zip(requests, results, strict=True):
        np.testing.assert_array_equal(ask(again, request), result)
    again.write(path)
    assert repr(Recorded.read(path)) == repr(first)
    assert (again.graph, again.devices) == (first.graph, first.devices)


def test_all_spellings_of_all_on_one_device_are_the_same():
    kept = Recorded(Noisy())
    wanted = kept.measure(2, "x")
    kept._asked.clear()
    np.testing.assert_array_equal(kept.measure(2, dict.fromkeys("abc", "x")), wanted)


def test_what_is_lacking_is_measured_and_kept(tmp_path):
    path, noisy = tmp_path / "measured.json", Noisy()
    kept = Recorded(noisy)
    kept.measure(1, "x")
    kept.write(path)
    again = Recorded.read(path, noisy)
    again.measure(1, "x")
    assert noisy.calls == 1
    again.measure(1, "x")
    again.measure(2, {"a": "x", "b": "y", "c": "x"})
    assert noisy.calls == 3
    assert repr(again) == "<Recorded: 3 runs of 3 tasks and 0 copies on x, y>"


def test_samples_and_links_from_a_recording(tmp_path):
    kept = Recorded(Noisy())
    seen = []
    samples = Samples.measured(kept, [1, 2, 4], on_progress=lambda device, size: seen.append((device, size)))
    links = Links.measured(kept, [10**4, 10**6])
    kept.write(tmp_path / "measured.json")
    again = Recorded.read(tmp_path / "measured.json")
    assert Samples.measured(again, [1, 2, 4]) == samples
    assert Links.measured(again, [10**4, 10**6]) == links
    assert seen == [(device, size) for size in (1, 2, 4) for device in "xy"]
    assert np.isnan(samples.seconds[2, 1]).all()
    assert Regression(samples).memory_slope.tolist() == [[pytest.approx(8.0)] * 2] * 3
    assert Samples.measured(Recorded(Noisy()), [1], devices=["y"]).devices == ("y",)


def test_numpy_sizes_can_be_written_and_measurements_are_read_only(tmp_path):
    kept = Recorded(Noisy())
    samples = Samples.measured(kept, np.array([1, 2]))
    Links.measured(kept, np.array([10**4, 10**6]))
    kept.write(tmp_path / "measured.json")
    again = Recorded.read(tmp_path / "measured.json")
    for measurement in (kept.measure(3, "x"), again.measure(1, "x")):
        with pytest.raises(ValueError, match="read-only"):
            measurement.seconds[0] = 0
    assert Samples.measured(Recorded.read(tmp_path / "measured.json"), [1, 2]) == samples


# ---------------------------------------------------------------------- errors


def test_a_measurement_that_is_missing_is_named(tmp_path):
    kept = Recorded(Noisy())
    kept.measure(2, "x")
    kept.write(tmp_path / "measured.json")
    again = Recorded.read(tmp_path / "measured.json")
    again.measure(2, "x")
    with pytest.raises(hs.InvalidProblem, match="a run of 2 inputs on x was recorded 1 times, but is requested once more; give a profiler"):
        again.measure(2, "x")
    with pytest.raises(hs.InvalidProblem, match="a run of 2 inputs on the devices of that placement was recorded 0 times"):
        again.measure(2, {"a": "x", "b": "y", "c": "x"})
    with pytest.raises(hs.InvalidProblem, match="a copy of 5 bytes from 'x' to 'y' was recorded 0 times"):
        again.transfer(5, "x", "y")


def test_placements_that_do_not_fit_are_refused():
    kept = Recorded(Noisy())
    with pytest.raises(hs.InvalidProblem, match="the placement has no device for task 'b'; name one for each task, or one device for all"):
        kept.measure(1, {"a": "x"})
    with pytest.raises(hs.InvalidProblem, match=r"device 'z' is not one of the profiler's \(x, y\); choose one of these"):
        kept.measure(1, "z")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2 of hetsched-measurements is not version 1"),
        ({"more": 1}, "unknown field `more`"),
        (
            {"runs": [{"inputs": 1, "devices": "x", "seconds": [1], "memory_bytes": [1, 1, 1]}]},
            "seconds of a run has 1 entries but there are 3 tasks; give one each",
        ),
        ({"runs": [{"inputs": 1, "devices": ["x"], "seconds": [1] * 3, "memory_bytes": [1] * 3}]}, "devices of a run has 1 entries"),
        ({"runs": [{"inputs": 1, "devices": "z", "seconds": [1] * 3, "memory_bytes": [1] * 3}]}, "device 'z' is not one of the profiler's"),
        (
            {"runs": [{"inputs": 1, "devices": "x", "seconds": [-1, 1, 1], "memory_bytes": [1] * 3}]},
            r"Expected `float` >= 0.0 - at `\$.runs\[0\].seconds\[0\]`",
        ),
        ({"copies": [{"size": -1, "source": "x", "target": "y", "seconds": 1}]}, r"Expected `int` >= 0 - at `\$.copies"),
    ],
)
def test_files_that_are_no_measurements_are_refused(tmp_path, change, message):
    path = tmp_path / "measured.json"
    Recorded(Noisy()).write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(hs.InvalidProblem, match=message):
        Recorded.read(path)


def test_a_file_of_something_else_is_refused(tmp_path):
    path, noisy = tmp_path / "measured.json", Noisy()
    Recorded(noisy).write(path)
    noisy.devices = (hs.Device("x"), hs.Device("z"))
    with pytest.raises(hs.InvalidProblem, match="measured.json has other devices than the profiler; record to another file"):
        Recorded.read(path, noisy)
    noisy.graph = hs.TaskGraph(["a"])
    with pytest.raises(hs.InvalidProblem, match="measured.json has another graph than the profiler"):
        Recorded.read(path, noisy)
    hs.documents.write(hs.TaskGraph(["a"]), path)
    with pytest.raises(hs.InvalidProblem, match="format 'hetsched-graph' is not one of 'hetsched-measurements'"):
        Recorded.read(path)
