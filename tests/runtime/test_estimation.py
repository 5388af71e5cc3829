"""Durations in two steps, with a profiler that computes times instead of measuring; without torch."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs import Measured
from hetsched.costs.protocol import devices_of
from hetsched.runtime import two_step
from hetsched.testing.profiles import examples


class Machine:
    """A profiler with linear times over the batch size; above `fits` inputs they are `slower` times as long."""

    devices = (hs.Device("x"), hs.Device("y"))

    def __init__(self, work, fits=8, slower=1.0):
        self.work, self.fits, self.slower = np.array(work, float), fits, slower
        names = [f"t{i}" for i in range(len(work))]
        self.graph = hs.TaskGraph(names, list(itertools.pairwise(names)), output_bytes=1e3)
        self.asked = []

    def measure(self, inputs, placement):
        self.asked.append((inputs, placement))
        rate = np.array([1.0 if device == "x" else 2.0 for device in devices_of(self, placement)])
        seconds = self.work * rate * (inputs + 1)
        return Measured(seconds * (self.slower if inputs > self.fits else 1.0), 100.0 * inputs + self.work)

    def transfer(self, size, source, target):
        return 1e-6 + size / 1e9


work = st.lists(st.integers(1, 100).map(lambda number: number / 100), min_size=1, max_size=6)


@given(work, st.floats(0.5, 2.0))
@examples(25)
def test_measurements_replace_their_estimates_and_nothing_else(amounts, slower):
    machine = Machine(amounts, slower=slower)
    result = two_step(machine, [1, 2, 4], 16, method="heft", time_limit=None)
    assert [inputs for inputs, _ in machine.asked] == [1, 1, 2, 2, 4, 4, 16, 16]
    expected = 17 * np.array(amounts)[:, None] * [1.0, 2.0]
    np.testing.assert_allclose(result.first.durations[:, :, 0], expected, rtol=1e-9)
    here = np.array([[result.placement[name] == device for device in "xy"] for name in machine.graph.names])
    np.testing.assert_allclose(result.second.durations[:, :, 0], np.where(here, slower, 1.0) * expected, rtol=1e-9)
    assert result.before.mean == pytest.approx(abs(1 - slower) / slower, abs=1e-9)
    assert result.after.mean == 0
    assert result.memory.mean == pytest.approx(0, abs=1e-9)
    assert result.second.batch_sizes.tolist() == [16]
    assert hs.verify(result.first, result.solution.schedule) == []


def test_links_are_measured_unless_a_cluster_is_given():
    machine = Machine([1.0, 2.0])
    links = two_step(machine, [1, 2], 4, method="heft").first.cluster
    assert (links.bandwidth[0, 1], links.latency[0, 1]) == (pytest.approx(1e9), pytest.approx(1e-6))
    own = hs.Cluster(machine.devices, bandwidth=7.0)
    result = two_step(machine, [1, 2], 4, cluster=own, method="heft", communication="channel")
    assert (result.first.cluster, result.second.communication) == (own, "channel")


def test_a_recording_works_without_the_machine(tmp_path):
    first = two_step(Machine([1.0, 2.0, 3.0], slower=1.5), [1, 2], 16, method="heft")
    first.profile.write(tmp_path / "measured.json")
    again = two_step(hs.read(tmp_path / "measured.json"), [1, 2], 16, method="heft")
    assert (again.first, again.second, again.placement) == (first.first, first.second, first.placement)
    assert (again.before, again.profile) == (first.before, first.profile)


def test_a_problem_without_a_schedule_is_refused():
    machine = Machine([1.0])
    machine.graph = hs.TaskGraph(["t0"], weight_bytes=10)
    small = hs.Cluster([hs.Device("x", memory_bytes=5), hs.Device("y", memory_bytes=5)], bandwidth=1.0)
    with pytest.raises(hs.HetschedError):
        two_step(machine, [1, 2], 4, cluster=small)


def test_what_tasks_take_while_they_run_counts_as_memory():
    """Four tasks of 64 bytes each, which are not in their graph, on devices of 100 bytes."""

    class Greedy(Machine):
        def __init__(self, devices):
            self.devices = tuple(hs.Device(f"d{k}", memory_bytes=100) for k in range(devices))
            super().__init__([1.0] * 4)
            self.graph = hs.TaskGraph([f"t{i}" for i in range(4)], output_bytes=1)

        def measure(self, inputs, placement):
            return super().measure(inputs, placement)._replace(memory_bytes=np.full(4, 4.0 * inputs))

    result = two_step(Greedy(4), [1, 2], 16, method="heft")
    assert sorted(result.placement.values()) == ["d0", "d1", "d2", "d3"]
    for problem in (result.first, result.second):
        assert (problem.graph.input_bytes + problem.graph.output_bytes).tolist() == [4.0] * 4
    assert (result.bytes_over, result.schedule) == (0.0, result.solution.schedule)
    with pytest.raises(hs.HetschedError, match="claims 64 bytes; left: 36"):
        two_step(Greedy(3), [1, 2], 16, method="heft", best_effort=False)
    over = two_step(Greedy(3), [1, 2], 16, method="heft")
    assert over.solution.schedule is None
    assert over.bytes_over == 28, "two tasks of 64 bytes on a device of 100"
    assert sorted(set(over.placement.values())) == ["d0", "d1", "d2"]
    assert np.isfinite(over.measured.seconds).all(), "it is run all the same, as in the paper"


def test_workspace_lowers_the_memory_of_devices_under_peak():
    """A task of 64 bytes, of which 16 are output, on a device of 100 bytes."""

    class Greedy(Machine):
        devices = (hs.Device("x", memory_bytes=100), hs.Device("y", memory_bytes=200))

        def measure(self, inputs, placement):
            return super().measure(inputs, placement)._replace(memory_bytes=np.full(1, 4.0 * inputs))

    machine = Greedy([1.0])
    machine.graph = hs.TaskGraph(["t0"], output_bytes=1)
    result = two_step(machine, [1, 2], 16, method="heft", memory="peak")
    for problem in (result.first, result.second):
        assert [device.memory_bytes for device in problem.cluster.devices] == [52, 152]
        assert problem.graph == machine.graph


@pytest.mark.slow
def test_it_imports_no_torch():
    code = "import sys, hetsched as hs; hs.runtime.two_step; assert 'torch' not in sys.modules; assert 'two_step' in dir(hs.runtime)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    with pytest.raises(AttributeError, match="no attribute 'three_step'"):
        hs.runtime.three_step  # noqa: B018
