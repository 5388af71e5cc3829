"""Loads in the steady state, by hand."""

from __future__ import annotations

import numpy as np
import pytest

import hetsched as hs
from hetsched.schedule import objectives


def fork(**arguments: object) -> hs.Problem:
    """Return a task with two readers."""
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 4.0), ("a", "c", 2.0)])
    devices = [hs.Device("acc0"), hs.Device("acc1"), hs.Device("host", kind="cpu")]
    cluster = hs.Cluster(devices, bandwidth=2.0, latency=1.0)
    return hs.Problem(graph, cluster, durations=[[3, 3, 9], [2, 2, 8], [1, 1, 7]], **arguments)


def schedule(problem: hs.Problem, *devices: str) -> hs.Schedule:
    return hs.simulate(problem, hs.Decision.from_assignment(problem, dict(zip("abc", devices, strict=True))))


def test_devices_and_channels_are_busy_side_by_side() -> None:
    problem = fork()
    given = schedule(problem, "acc0", "acc1", "acc1")
    assert objectives.period(problem, given) == 5  # acc0 -> acc1: (1 + 4/2) + (1 + 2/2)
    table = objectives.loads(problem, given)
    assert dict(zip(table.resource.tolist(), table.seconds.tolist(), strict=True)) == {
        "acc0 -> acc1": 5.0,
        "acc0": 3.0,
        "acc1": 3.0,
        "host": 0.0,
    }
    apart = schedule(problem, "acc0", "acc1", "host")
    assert objectives.period(problem, apart) == 7  # the host


def test_ports_add_up_what_channels_do_not() -> None:
    channels, ports = fork(communication="channel"), fork(communication="port")
    where = ("acc0", "acc1", "host")
    assert objectives.loads(channels, schedule(channels, *where)).seconds.tolist() == [7, 3, 3, 2, 2]
    table = objectives.loads(ports, schedule(ports, *where))
    assert dict(zip(table.resource.tolist(), table.seconds.tolist(), strict=True))["acc0 sends"] == 5


def test_max_load_pays_a_tensor_once_in_and_once_out_and_nothing_at_the_host() -> None:
    problem = fork()
    assert objectives.max_load(problem, schedule(problem, "acc0", "acc1", "acc1")) == 3 + 3  # both pay the longest edge, 1 + 4/2, once
    assert objectives.max_load(problem, schedule(problem, "acc0", "acc0", "acc1")) == 5 + 3  # out of acc0
    assert objectives.max_load(problem, schedule(problem, "host", "acc0", "acc0")) == 9  # transfers at the host are free
    assert objectives.max_load(problem, schedule(problem, "acc0", "acc0", "acc0")) == 6


def test_several_inputs_share_what_a_batch_takes() -> None:
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 4.0)])
    problem = hs.Problem(
        graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[[3, 4], [9, 9]], [[9, 9], [5, 6]]], batch_sizes=[1, 2], inputs=2
    )
    given = hs.simulate(problem, hs.Decision.whole(problem, [0, 1], [0, 1]))
    assert objectives.period(problem, given) == 8 / 2  # two tensors of 4 bytes, for two inputs
    assert objectives.loads(problem, given).seconds.tolist() == [4, 3, 2]
    with pytest.raises(hs.UnsupportedFeature, match="one input, not 2"):
        objectives.max_load(problem, given)


def test_the_order_of_batches_does_not_matter_to_the_period() -> None:
    rng = np.random.default_rng(1)
    graph = hs.TaskGraph([f"t{i}" for i in range(6)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=rng.integers(1, 9, (6, 2)))
    where = rng.integers(0, 2, 6)
    values = {objectives.period(problem, hs.simulate(problem, hs.Decision.whole(problem, where, rng.permutation(6)))) for _ in range(5)}
    assert len(values) == 1


def test_an_unknown_objective_is_refused_with_those_there_are() -> None:
    with pytest.raises(hs.UnsupportedFeature, match="unknown objective 'speed'; choose from makespan, period, max-load"):
        hs.solve(fork(), objective="speed")
