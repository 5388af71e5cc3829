"""The roofline: durations of batches, and the figures required of a device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs import CostModel, Roofline, device

amount = st.integers(0, 10**12)


def machine(**overrides: object) -> hs.Cluster:
    return hs.Cluster([hs.Device("d", peak_flops={"float32": 1e12}, memory_bandwidth=1e11, launch_overhead=1e-6, **overrides)])


@given(
    flops=st.one_of(st.just(float("nan")), amount),
    weight=amount,
    read=amount,
    written=amount,
    accessed=st.one_of(st.just(float("nan")), amount),
    efficiency=st.floats(0.01, 1),
    batch=st.integers(1, 512),
)
def test_a_batch_takes_the_longer_of_arithmetic_and_traffic(flops, weight, read, written, accessed, efficiency, batch):
    graph = hs.TaskGraph(
        ["a"], op="conv", weight_bytes=weight, input_bytes=read, output_bytes=written, flops=flops, bytes_accessed=accessed
    )
    total = weight + read + written if np.isnan(accessed) else accessed
    traffic = weight + batch * (total - weight) if total >= weight else batch * total
    work = 0 if np.isnan(flops) else flops
    expected = 1e-6 + max(batch * work / (efficiency * 1e12), traffic / 1e11)
    assert Roofline(efficiency=efficiency).durations(graph, machine(), [batch])[0, 0, 0] == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.tuples(amount, amount, amount, amount), min_size=1, max_size=6))
def test_larger_batches_take_longer_but_no_longer_than_apart(rows):
    flops, weight, read, written = map(list, zip(*rows, strict=True))
    graph = hs.TaskGraph([f"t{i}" for i in range(len(rows))], weight_bytes=weight, input_bytes=read, output_bytes=written, flops=flops)
    one, two, three = np.moveaxis(Roofline().durations(graph, machine(), [1, 2, 3]), 2, 0)
    assert (one <= two).all()
    assert (two <= three).all()
    assert (three <= (one + two) * (1 + 1e-12)).all()


def test_inputs_and_views_are_free_and_the_set_can_be_changed():
    graph = hs.TaskGraph(["x", "v", "y"], op=["input", "view", "relu"], output_bytes=1e9, flops=1e9)
    assert Roofline().durations(graph, machine(), [1])[:, 0, 0].tolist() == [0, 0, pytest.approx(1e-6 + 1e-2)]
    assert (Roofline(free_ops=iter(["relu"])).durations(graph, machine(), [1])[:, 0, 0] > 0).tolist() == [True, True, False]


def test_the_dtype_chooses_the_peak_and_the_shape_is_task_device_size():
    graph = hs.TaskGraph(["a", "b"], flops=[1e15, 2e15])
    cluster = hs.Cluster([device("t4"), device("a100")], bandwidth=1e9)
    seconds = Roofline(dtype="float16", efficiency=1.0).durations(graph, cluster, [1, 4])
    assert seconds.shape == (2, 2, 2)
    assert seconds[1, 1, 1] == pytest.approx(4 * 2e15 / 312e12, rel=1e-4)
    assert seconds[0, 0, 0] == pytest.approx(1e15 / 65e12, rel=1e-4)


def test_a_problem_is_built_from_it():
    model: CostModel = Roofline()
    graph = hs.TaskGraph(["a", "b"], [("a", "b")], output_bytes=1e6, flops=1e9, op="conv")
    problem = hs.Problem(graph, hs.Cluster([device("t4"), device("a100")], bandwidth=1e9), costs=model, inputs=8)
    assert problem.batch_sizes.tolist() == [2, 4, 6, 8]
    assert np.array_equal(problem.durations, model.durations(graph, problem.cluster, [2, 4, 6, 8]))


def test_messages():
    graph = hs.TaskGraph(["a"], flops=1.0)
    with pytest.raises(hs.InvalidProblem, match=r"efficiency is 0; it must be a share of the peak in \(0, 1\]"):
        Roofline(efficiency=0)
    with pytest.raises(hs.InvalidProblem, match=r"device 'd' has no peak_flops for 'float16' \(it has float32\); choose another dtype"):
        Roofline(dtype="float16").durations(graph, machine(), [1])
    with pytest.raises(hs.InvalidProblem, match=r"device 'bare' has no peak_flops for 'float32' \(it has none\)"):
        Roofline().durations(graph, hs.Cluster(["bare"]), [1])
    with pytest.raises(hs.InvalidProblem, match=r"memory_bandwidth of device 'p' is None, but the roofline needs bytes per second"):
        Roofline().durations(graph, hs.Cluster([hs.Device("p", peak_flops={"float32": 1e9})]), [1])
