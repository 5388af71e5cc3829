"""Durations by kind of device: the same problem as with durations by device, in less memory."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import documents
from hetsched.problem.problem import Problem
from hetsched.search import Kind, select
from hetsched.testing import problems
from hetsched.testing.profiles import examples


@st.composite
def pairs(draw: st.DrawFn, *, largest: int = 1) -> tuple[hs.Problem, hs.Problem]:
    """Draw a problem with durations by kind, and the same with durations by device; no explicit transfers."""
    few = draw(problems(inputs=st.integers(1, largest), n_tasks=st.integers(0, 7), transfers=False))
    copies = draw(st.lists(st.integers(0, few.n_devices - 1), max_size=4))
    kind = np.array(draw(st.permutations([*range(few.n_devices), *copies])))
    devices = [replace(few.cluster.devices[c], name=f"d{k}", kind=f"kind{c}") for k, c in enumerate(kind.tolist())]
    within = draw(st.sampled_from([1.0, 4.0, np.inf]))
    bandwidth = np.where(kind[:, None] == kind, within, few.cluster.bandwidth[np.ix_(kind, kind)])
    cluster = hs.Cluster(devices, bandwidth, few.cluster.latency[np.ix_(kind, kind)])
    names = np.array(cluster.names, dtype=object)
    if draw(st.booleans()):  # some copies of a device alone
        last = [str(names[np.flatnonzero(kind == c)[-1]]) for c in range(few.n_devices)]
        pins = [None if pin is None else [last[few.cluster.index[name]] for name in pin] for pin in few.graph.devices]
    else:
        pins = [
            None if pin is None else [str(name) for d in pin for name in names[kind == few.cluster.index[d]]] for pin in few.graph.devices
        ]
    arguments = {name: getattr(few, name) for name in ("batch_sizes", "inputs", "batching", "communication", "memory")}
    graph, kinds = few.graph.replace(devices=pins), draw(st.permutations(range(few.n_devices)))
    by_kind = hs.Problem(graph, cluster, durations=few.durations[:, kinds], kinds=[f"kind{c}" for c in kinds], **arguments)
    return by_kind, hs.Problem(graph, cluster, durations=few.durations[:, kind], **arguments)


def same(a: object, b: object) -> bool:
    return np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f")


@examples(60)
@given(pairs(largest=3))
def test_both_forms_have_the_same_durations_and_the_same_possible_devices(pair: tuple[hs.Problem, hs.Problem]) -> None:
    by_kind, dense = pair
    for name in ("durations", "pinned", "eligible", "whole_durations", "usable_durations", "static_bytes", "unit", "paths"):
        assert same(getattr(by_kind, name), getattr(dense, name)), name
    assert same(by_kind.arrays.durations[:, by_kind.arrays.column], dense.arrays.durations)
    assert by_kind.arrays.durations.shape[1] <= dense.n_devices


@pytest.mark.slow
@examples(40)
@given(pairs(largest=3))
def test_both_forms_have_the_same_schedules_and_bounds(pair: tuple[hs.Problem, hs.Problem]) -> None:
    by_kind, dense = pair
    for name in (
        entry.name for entry in select(kind=Kind.CONSTRUCTIVE, problem=by_kind) if "metis" not in entry.name
    ):  # it starts a process
        one, other = (hs.solve(problem, name, seed=0) for problem in (by_kind, dense))
        assert one.makespan == other.makespan or np.isnan([one.makespan, other.makespan]).all(), name
        if one.schedule is not None and other.schedule is not None:
            assert same(one.schedule.batches.device, other.schedule.batches.device), name
            assert same(one.schedule.batches.start, other.schedule.batches.start), name
            assert not hs.verify(by_kind, other.schedule), name
        assert one.bound == other.bound, name
    searched = [hs.solve(problem, "annealing", seed=0, evaluations=50).makespan for problem in (by_kind, dense)]
    assert searched[0] == searched[1] or np.isnan(searched).all()


@examples(40)
@given(pairs(largest=3))
def test_documents_copies_and_pickles_keep_the_kinds(pair: tuple[hs.Problem, hs.Problem]) -> None:
    by_kind, dense = pair
    for again in (documents.decode(documents.encode(by_kind)), by_kind.replace(memory=by_kind.memory), pickle.loads(pickle.dumps(by_kind))):
        assert isinstance(again, Problem)
        assert again == by_kind
        assert again.kinds == by_kind.kinds
    assert by_kind.replace(durations=by_kind.durations) == dense
    assert same(by_kind.replace(durations=2 * by_kind.table, kinds=by_kind.kinds).durations, 2 * dense.durations)


def rack(**arguments: object) -> hs.Problem:
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 1.0)])
    cluster = hs.Cluster([hs.Device("x", kind="fast"), hs.Device("y", kind="slow"), hs.Device("z", kind="fast")], bandwidth=1.0)
    return hs.Problem(graph, cluster, **arguments)


def test_labels_of_durations_are_kinds() -> None:
    problem = rack(durations={"b": {"slow": 4, "fast": 2}, "a": {"fast": 1, "slow": 3}}, kinds=["fast", "slow"])
    assert problem.durations[:, :, 0].tolist() == [[1, 3, 1], [2, 4, 2]]


def test_a_cost_model_computes_durations_for_one_device_of_each_kind() -> None:
    seen = []

    class Counting:
        def durations(self, graph: hs.TaskGraph, cluster: hs.Cluster, batch_sizes: list[int]) -> np.ndarray:
            seen.append(cluster.names)
            return np.array([[1.0, 3.0], [2.0, 4.0]])[:, :, None]

    problem = rack(costs=Counting(), kinds=["fast", "slow"])
    assert seen == [("x", "y")]
    assert problem.durations[:, :, 0].tolist() == [[1, 3, 1], [2, 4, 2]]
    assert problem.cluster.kinds == ("fast", "slow")


@pytest.mark.parametrize("kinds", [["fast"], ["fast", "slow", "other"], ["fast", "fast"], "fast", [], [1, 2]])
def test_kinds_that_are_not_those_of_the_devices_are_refused(kinds: object) -> None:
    with pytest.raises(hs.InvalidProblem, match="the devices have the kinds .*name each of these once"):
        rack(durations=np.ones((2, 2)), kinds=kinds)


def test_messages_about_durations_name_kinds() -> None:
    with pytest.raises(hs.InvalidProblem, match=r"durations has shape \[2, 3\] but \[2 tasks, 2 kinds\] is needed"):
        rack(durations=np.ones((2, 3)), kinds=["fast", "slow"])
    with pytest.raises(hs.InvalidProblem, match="duration of task 'b' on 'slow' is -1"):
        rack(durations=[[1, 1], [1, -1]], kinds=["fast", "slow"])
    graph, cluster = hs.TaskGraph(["a"], [], devices=[["x", "z"]]), rack(durations=np.ones((2, 3))).cluster
    with pytest.raises(hs.InvalidProblem, match="task 'a' is pinned to 'x', 'z' but has durations only on 'y'"):
        hs.Problem(graph, cluster, durations=[[np.nan, 1.0]], kinds=["fast", "slow"])


def test_thousands_of_devices_of_few_kinds_need_no_table_of_tasks_and_devices() -> None:
    n, size = 10_000, 1_024
    cluster = hs.Cluster([hs.Device(f"d{k}", kind=f"kind{k % 4}") for k in range(size)], bandwidth=1e9)
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], np.stack([np.arange(n - 1), np.arange(1, n)], axis=1), output_bytes=1e3)
    problem = hs.Problem(graph, cluster, durations=np.random.default_rng(0).uniform(1, 2, (n, 4)), kinds=cluster.kinds)
    solution = hs.solve(problem, "heft")
    assert not hs.verify(problem, solution.schedule)
    assert 0 < solution.bound <= solution.makespan * (1 + 1e-9)
    held = {name: value.nbytes for name, value in vars(problem).items() if isinstance(value, np.ndarray)}
    assert max(held.values()) < n * size, held  # not even a byte for each task and device
