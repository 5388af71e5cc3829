"""Redundant rows: they exclude no optimum, and every schedule has a canonical form that satisfies them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis.symmetry import exchanges
from hetsched.bounds import relaxation
from hetsched.models import formulate
from hetsched.testing import brute_force, decisions, task_graphs
from hetsched.testing.profiles import examples

few = examples(12)
CRITERIA = ("batches", "tasks", "time")


@st.composite
def alike(draw: st.DrawFn, inputs: int = 1, communication: str = "delay") -> hs.Problem:
    """Draw a problem on nodes of the same devices, of which some are identical."""
    nodes, kinds = draw(st.integers(1, 2)), draw(st.sampled_from([[0], [0, 0], [0, 1]]))
    graph = draw(task_graphs(n_tasks=st.integers(1, 3)))
    fast, slow = draw(st.sampled_from([(2.0, 2.0), (2.0, 0.5), (np.inf, 1.0)]))
    devices = [hs.Device(f"n{node}d{k}", node=f"n{node}") for node in range(nodes) for k in range(len(kinds))]
    same = np.array([[one.node == other.node for one in devices] for other in devices])
    cluster = hs.Cluster(devices, bandwidth=np.where(same, fast, slow))
    times = draw(st.lists(st.integers(0, 5), min_size=2 * graph.n_tasks, max_size=2 * graph.n_tasks))
    by_kind = np.array(times, float).reshape(graph.n_tasks, 2)
    durations = by_kind[:, kinds * nodes]
    if inputs > 1:
        durations = durations[:, :, None] * np.sqrt(np.arange(1, inputs + 1))
    sizes = {"batch_sizes": range(1, inputs + 1)} if inputs > 1 else {}
    return hs.Problem(graph, cluster, durations=durations, inputs=inputs, batching="once", communication=communication, **sizes)


def mirrored(problem: hs.Problem, schedule: hs.Schedule, pair: tuple[np.ndarray, np.ndarray]) -> hs.Schedule:
    """Return the schedule with two groups of devices exchanged."""
    place = np.arange(problem.n_devices)
    place[pair[0]], place[pair[1]] = pair[1], pair[0]
    decision = schedule.decision
    return hs.simulate(problem, hs.Decision(decision.task, place[decision.device], decision.item_ptr, decision.items))


@given(problem=alike(), data=st.data())
def test_devices_that_may_trade_places_change_no_time(problem: hs.Problem, data: st.DataObject) -> None:
    schedule = hs.simulate(problem, data.draw(decisions(problem)))
    for pair in exchanges(problem):
        assert mirrored(problem, schedule, pair).makespan == schedule.makespan


def test_identical_devices_and_nodes_are_found() -> None:
    def problem(bandwidth: np.ndarray) -> hs.Problem:
        devices = [hs.Device(f"{node}{k}", node=node) for node in "ABC" for k in range(2)]
        durations = np.array([[1.0, 2.0] * 3])
        return hs.Problem(hs.TaskGraph(["t"]), hs.Cluster(devices, bandwidth=bandwidth), durations=durations)

    def pairs_of(instance: hs.Problem) -> list[tuple[list[int], list[int]]]:
        pairs = (sorted(zip(first.tolist(), second.tolist(), strict=True)) for first, second in exchanges(instance))
        return [([a for a, _ in pair], [b for _, b in pair]) for pair in pairs]

    assert pairs_of(problem(np.full((6, 6), 1.0))) == [([0], [2]), ([2], [4]), ([1], [3]), ([3], [5])]
    nodes = np.kron(np.eye(3), np.ones((2, 2))) + 1.0
    assert pairs_of(problem(nodes)) == [([0, 1], [2, 3]), ([2, 3], [4, 5])]
    nodes[0, 2] = nodes[2, 0] = 1.5  # one link distinguishes A and B from C
    assert pairs_of(problem(nodes)) == [([0, 1], [2, 3])]


@pytest.mark.parametrize("criterion", CRITERIA)
@few
@given(problem=alike() | alike(inputs=2) | alike(communication="channel") | alike(inputs=2, communication="port"))
def test_symmetry_rows_change_no_optimum(criterion: str, problem: hs.Problem) -> None:
    optimum = brute_force(problem)
    assert optimum is not None
    # Without a start: the rows alone must admit an optimum.
    outcome = formulate(problem, upper=optimum.makespan * 1.5 + 1, symmetry=criterion)
    solved = outcome.model.solve("cpsat", time_limit=60)
    assert solved.values is not None
    assert solved.objective / outcome.second == pytest.approx(optimum.makespan, rel=2e-6, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("criterion", CRITERIA)
@given(problem=alike() | alike(inputs=2) | alike(inputs=2, communication="port"), data=st.data())
def test_every_schedule_has_a_canonical_form_that_keeps_the_rows(criterion: str, problem: hs.Problem, data: st.DataObject) -> None:
    schedule = hs.simulate(problem, data.draw(decisions(problem)))
    formulation = formulate(problem, upper=schedule.makespan * 1.5 + 1e-6, symmetry=criterion)
    assume(formulation.representable(schedule))
    values = formulation.encode(schedule)
    assert formulation.model.violations(values) == []
    assert hs.simulate(problem, formulation.decode(values)).makespan <= schedule.makespan * (1 + 1e-9)


@few
@given(problem=alike() | alike(inputs=2) | alike(inputs=2, communication="channel") | alike(inputs=2, communication="node"))
def test_load_rows_change_no_optimum(problem: hs.Problem) -> None:
    optimum = brute_force(problem)
    assert optimum is not None
    for cuts in (True, False):
        formulation = formulate(problem, upper=optimum.makespan * 1.5 + 1)
        solved = formulation.model.solve("highs", time_limit=60, cuts=cuts)
        assert solved.objective / formulation.second == pytest.approx(optimum.makespan, rel=2e-6, abs=1e-9)


def test_flows_of_a_port_have_to_fit_one_after_another() -> None:
    """u runs a for 1 s, then sends 3 inputs to b, on v or w, for 10 s each, and b runs for 1 s: 32 s, however b's inputs are batched."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 10.0)], devices=[["u"], ["v", "w"]])
    durations, cluster = np.ones((2, 3, 3)), hs.Cluster(["u", "v", "w"], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=durations, inputs=3, batch_sizes=[1, 2, 3], communication="port")
    formulation = formulate(problem)
    assert relaxation.relax(formulation).value == pytest.approx(32.0)
    lines = formulation.model.describe()
    assert "flow load Linear (cut)" in lines
    assert "flow load" not in formulate(problem.replace(communication="delay")).model.describe()


def test_an_unknown_criterion_is_refused() -> None:
    with pytest.raises(hs.UnsupportedFeature, match="unknown criterion 'size' for symmetries; choose from batches, tasks, time"):
        formulate(hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["x"], bandwidth=1.0), durations=[[1.0]]), symmetry="size")
