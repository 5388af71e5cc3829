"""The bound of a path within memory: never above the optimum, and exact where a path or a fold of it is all there is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import hetsched as hs
from hetsched.bounds.combinatorial import critical_path
from hetsched.bounds.memory_path import path_within_memory, scarce
from hetsched.testing import brute_force
from hetsched.testing.profiles import examples


@st.composite
def training_steps(draw: DrawFn) -> hs.Problem:
    """A path forward and back, some tasks of which are co-located with those of the way back, and little memory."""
    forward, back = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    size = forward + back
    labels: list[str | None] = [None] * size
    for i in range(min(forward, back)):
        if draw(st.booleans()):
            labels[i] = labels[size - 1 - i] = f"unit {i}"
    order = [(i, i + 1) for i in range(size - 1)] + draw(st.lists(st.sampled_from([(0, size - 1), (0, size // 2)]), max_size=1))
    edges = [(f"t{i}", f"t{j}", float(draw(st.integers(0, 4)))) for i, j in order if i < j]
    whole = st.integers(0, 3).map(float)
    graph = hs.TaskGraph(
        [f"t{i}" for i in range(size)],
        edges,
        weight_bytes=draw(st.lists(whole, min_size=size, max_size=size)),
        output_bytes=draw(st.lists(whole, min_size=size, max_size=size)),
        colocation=labels,
    )
    devices = draw(st.integers(2, 3 if size < 6 else 2))
    durations = np.array(draw(st.lists(st.integers(1, 5), min_size=size * devices, max_size=size * devices)), float).reshape(size, devices)
    memory = [float(draw(st.integers(4, 12)))] * devices
    cluster = hs.Cluster(
        [hs.Device(f"d{k}", memory_bytes=memory[k]) for k in range(devices)], bandwidth=draw(st.sampled_from([1.0, 2.0])), latency=0.5
    )
    return hs.Problem(
        graph,
        cluster,
        durations=np.repeat(durations[:, :1], devices, axis=1) if draw(st.booleans()) else durations,
        memory=draw(st.sampled_from(["static", "peak"])),
        communication=draw(st.sampled_from(["delay", "channel", "port"])),
    )


@examples(25, HealthCheck.filter_too_much)
@given(problem=training_steps())
def test_it_is_at_most_the_optimum_of_training_steps(problem: hs.Problem):
    assume(scarce(problem))
    found = brute_force(problem)
    assume(found is not None)
    assert path_within_memory(problem).value <= found.makespan * (1 + 1e-9)


def line(labels: list[str | None], capacity: float, *, seconds: list[list[float]] | None = None) -> hs.Problem:
    """Return tasks one after another, each with a byte of weights; a transfer takes 0.5 s, and one from `c` 0.25 s."""
    names = list("abcdefgh"[: len(labels)])
    edges = [(i, j, 0.25 if i == "c" else 0.5) for i, j in pairwise(names)]
    graph = hs.TaskGraph(names, edges, weight_bytes=1.0, output_bytes=0.0, colocation=labels)
    cluster = hs.Cluster([hs.Device(f"d{k}", memory_bytes=capacity) for k in range(3)], bandwidth=1.0)
    return hs.Problem(graph, cluster, durations=seconds or [[1.0] * 3] * len(labels))


@pytest.mark.parametrize(("capacity", "transfers"), [(6.0, 0.0), (5.0, 0.25), (3.0, 0.25), (2.0, 1.0), (1.0, np.inf)])
def test_a_path_is_cut_where_transfers_are_short(capacity, transfers):
    """With room for three tasks on a device the cut after the third is enough; with room for two it takes two cuts of half a second."""
    problem = line([None] * 6, capacity)
    found = brute_force(problem, limit=2_000_000)
    assert (np.inf if found is None else found.makespan) == 6 + transfers
    assert path_within_memory(problem).value == min(6 + transfers, 8.25)  # five cuts; that three devices are too few is not its matter


def test_a_cut_of_a_fold_is_a_transfer_there_and_one_back():
    """Without the labels the path is cut once: three tasks fit each device, but the pairs are together."""
    assert path_within_memory(line([None] * 6, 3.0)).value == 6.25
    problem = line(["x", "y", "z", "z", "y", "x"], 4.0)
    found = brute_force(problem, limit=2_000_000)
    assert found is not None
    assert path_within_memory(problem).value == found.makespan == 7.0


def test_a_device_that_holds_little_may_still_be_the_fast_one():
    """Two tasks on the fast device, and a transfer, or all four on slow ones."""
    problem = line([None] * 4, 2.0, seconds=[[1.0, 3.0, 3.0]] * 4)
    found = brute_force(problem)
    assert found is not None
    assert critical_path(problem).value == 4.0
    assert 4.0 < path_within_memory(problem).value <= found.makespan


def test_only_problems_with_too_little_memory_have_it():
    assert scarce(line([None] * 4, 3.0))
    assert not scarce(line([None] * 4, 4.0))
    names = [bound.name for bound in hs.bounds.best.quick(line([None] * 4, 3.0))]
    assert "path within memory" in names
    assert "path within memory" not in [bound.name for bound in hs.bounds.best.quick(line([None] * 4, 4.0))]
