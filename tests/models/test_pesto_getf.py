"""The relaxations and baselines: the load-only assignment, missing memory, GETF's groups, Pesto's pair of devices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.models import Assignment, CongestionAware, Pesto, getf
from hetsched.models.shortage import shortage
from hetsched.problem.links import CONTENDED
from hetsched.testing import brute_force, problems, task_graphs
from hetsched.testing.profiles import examples
from tests.golden import topcuoglu

few = examples(15)
plain = {"batching": "once", "memory": "static", "n_tasks": st.integers(1, 4), "communication": "delay"}


@few
@given(problem=problems(**plain, inputs=1))
def test_the_least_load_is_a_bound_and_its_devices_make_a_schedule(problem: hs.Problem) -> None:
    optimum = brute_force(problem)
    solution = Assignment(problem).solve("scip", time_limit=30)
    if optimum is None:
        assert solution.schedule is None
        return
    assert solution.bound <= optimum.makespan * (1 + 1e-9)
    assert solution.schedule is not None
    assert hs.verify(problem, solution.schedule) == []


def test_the_least_load_is_that_of_the_best_spread() -> None:
    durations = np.array([[4.0, 5.0], [3.0, 4.0], [2.0, 9.0], [7.0, 6.0]])
    problem = hs.Problem(hs.TaskGraph(list("abcd")), hs.Cluster(["x", "y"], bandwidth=1.0), durations=durations)
    spreads = itertools.product(range(2), repeat=4)
    best = min(max(sum(durations[i, k] for i, k in enumerate(where) if k == u) for u in range(2)) for where in spreads)
    solution = Assignment(problem).solve("highs")
    assert solution.makespan == best
    assert solution.status == "optimal"


@st.composite
def crowded(draw: st.DrawFn) -> hs.Problem:
    """Draw a problem whose memory may be too small."""
    n, k = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    weights = draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    capacities = draw(st.lists(st.integers(0, 15), min_size=k, max_size=k))
    cluster = hs.Cluster([hs.Device(f"d{i}", memory_bytes=float(size)) for i, size in enumerate(capacities)], bandwidth=1.0)
    return hs.Problem(hs.TaskGraph([f"t{i}" for i in range(n)], weight_bytes=weights), cluster, durations=np.ones((n, k)))


@given(problem=crowded())
@examples(60)
def test_missing_memory_is_explained(problem: hs.Problem) -> None:
    weights, capacities = problem.graph.weight_bytes, problem.cluster.memory_bytes
    missing = min(
        sum(max(0.0, weights[np.array(where) == k].sum() - capacities[k]) for k in range(problem.n_devices))
        for where in itertools.product(range(problem.n_devices), repeat=problem.n_tasks)
    )
    message = shortage(problem)
    assert bool(message) == (missing > 0)
    if missing:
        assert f"at least {missing:g} bytes are missing" in message
        assert hs.solve(problem, "cpsat").status == "infeasible"


def test_the_explanation_reaches_the_user() -> None:
    devices = [hs.Device("x", memory_bytes=70), hs.Device("y", memory_bytes=89)]
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b"), ("b", "c")], weight_bytes=[60, 50, 40])
    problem = hs.Problem(graph, hs.Cluster(devices, bandwidth=1.0), durations=np.ones((3, 2)))
    solution = hs.solve(problem, "milp")
    assert solution.status == "infeasible"
    assert solution.messages == (
        "memory: at least 1 bytes are missing, however the tasks are placed; placed best, 1 on 'y' (89 there) with 'b', 'c'",
    )


@st.composite
def related(draw: st.DrawFn) -> hs.Problem:
    """Draw a problem on related devices."""
    graph = draw(task_graphs(n_tasks=st.integers(1, 6)))
    speed = np.array(draw(st.lists(st.sampled_from([1.0, 1.5, 2.0, 4.0, 16.0]), min_size=1, max_size=5)))
    work = draw(st.lists(st.integers(0, 20), min_size=graph.n_tasks, max_size=graph.n_tasks))
    cluster = hs.Cluster([f"d{k}" for k in range(len(speed))], bandwidth=draw(st.sampled_from([1.0, np.inf])))
    return hs.Problem(graph, cluster, durations=np.array(work, float)[:, None] / speed)


@few
@given(problem=related())
def test_getf_solves_problems_on_related_devices(problem: hs.Problem) -> None:
    speed = getf.mean_speeds(problem)
    work = problem.durations[:, :, 0] * speed
    assert work == pytest.approx(np.repeat(work[:, :1], problem.n_devices, axis=1), rel=1e-9)
    solution = hs.solve(problem, "getf")
    assert solution.schedule is not None
    group = getf.speed_groups(speed)
    assert (group >= -1).all()
    assert group[speed.argmax()] == group.max()
    used = group[solution.schedule.batches.device]
    assert (used >= 0).all(), "devices slower than the fastest by more than their number stay idle"


def test_groups_take_half_of_a_unit_and_the_most_speed() -> None:
    speed = np.array([1.0, 1.0, 3.0])
    group = getf.speed_groups(speed)
    assert group.tolist() == [0, 0, 1]
    assert getf.speed_groups(np.array([1.0, 4.0, 8.0])).tolist() == [-1, 0, 1]
    fractions = np.array([[0.3, 0.1, 0.6], [0.4, 0.4, 0.2]])
    assert getf.chosen_groups(fractions, group, speed).tolist() == [1, 1]
    assert getf.chosen_groups(fractions, group, np.array([2.0, 2.0, 3.0])).tolist() == [1, 0]


@few
@given(problem=problems(**plain, inputs=1), integral=st.booleans())
def test_getf_on_unrelated_devices_stays_in_the_chosen_groups(problem: hs.Problem, integral: bool) -> None:
    """Tasks that no device of their group runs keep all their devices."""
    model, x = getf.group_program(problem, integral=integral)
    values = model.solve("scip").values
    fractions, speed = x.value(values), getf.mean_speeds(problem)
    if integral:
        assert sorted(set(fractions.round(6).ravel().tolist())) in ([0.0, 1.0], [1.0], [])
    group = getf.speed_groups(speed)
    chosen = getf.chosen_groups(fractions, group, speed)[problem.unit]
    solution = hs.solve(problem, "getf", options={"integral": integral})
    if solution.schedule is None:
        assert solution.messages
        return
    for i, k in zip(solution.schedule.batches.task.tolist(), solution.schedule.batches.device.tolist(), strict=True):
        inside = [d for d in range(problem.n_devices) if group[d] == chosen[i] and problem.eligible[i, d]]
        assert k in inside or not inside


def test_speeds_of_unrelated_devices_are_geometric_means() -> None:
    """One task is four times as long on v, the other as long on both: v has half of the speed of u."""
    durations = np.array([[1.0, 4.0], [3.0, 3.0]])
    problem = hs.Problem(hs.TaskGraph("ab", [("a", "b")]), hs.Cluster(["u", "v"], bandwidth=1.0), durations=durations)
    speed = getf.mean_speeds(problem)
    assert speed[0] / speed[1] == pytest.approx(2.0)
    assert hs.solve(topcuoglu(), "getf").schedule is not None


@few
@given(problem=problems(**{**plain, "communication": "channel"}, inputs=1, n_devices=2))
def test_pesto_is_optimal_on_two_devices(problem: hs.Problem) -> None:
    optimum = brute_force(problem)
    solution = Pesto(problem).solve("cpsat", time_limit=60)
    assert solution.status == ("infeasible" if optimum is None else "optimal")
    if optimum is not None:
        assert solution.makespan == pytest.approx(optimum.makespan, rel=1e-6)


@pytest.mark.parametrize(
    ("devices", "communication", "message"),
    [(3, "channel", "on two devices, not 3; use CongestionAware"), (2, "delay", "use problem.replace")],
)
def test_pesto_refuses_unsupported_problems(devices: int, communication: str, message: str) -> None:
    cluster = hs.Cluster([f"d{k}" for k in range(devices)], bandwidth=1.0)
    problem = hs.Problem(hs.TaskGraph(["a"]), cluster, durations=np.ones((1, devices)), communication=communication)
    with pytest.raises(hs.UnsupportedFeature, match=message):
        Pesto(problem)


@few
@given(problem=problems(**{**plain, "communication": st.sampled_from(["delay", *CONTENDED])}, inputs=1))
def test_moirai_as_printed_finds_the_optimum(problem: hs.Problem) -> None:
    optimum = brute_force(problem)
    solution = CongestionAware(problem, faithful=True).solve("cpsat", time_limit=60)
    assert solution.makespan == pytest.approx(math.inf if optimum is None else optimum.makespan, rel=1e-6)
