"""MILP-SPLIT against the unsplit problem: exact for one channel if nothing else joins modules, otherwise valid."""

from __future__ import annotations

import math

import instances
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.decomposition.series import Series, cut
from hetsched.problem.links import CONTENDED, MODELS, UNCONTENDED
from hetsched.testing import brute_force, conformance, problems
from hetsched.testing.profiles import examples

few = examples(15, HealthCheck.filter_too_much)


class TestSplit(conformance.MethodSuite):
    method = "split"


@st.composite
def series(draw, *, inputs=1, memory_bytes=math.inf, labels=None, **settings):
    """Draw problems of modules in series, joined at single tasks; the first and the last may have several ends."""
    arcs, n, cut_before = [], 0, None
    for _ in range(draw(st.integers(2, 3))):
        inner = list(range(n, n + draw(st.integers(0, 2 if inputs == 1 else 1))))
        n += len(inner)
        arcs += [(i, j) for i in inner for j in inner if i < j and draw(st.booleans())]
        if cut_before is not None:
            starts = [i for i in inner if not any(j == i for _, j in arcs)]
            arcs += [(cut_before, i) for i in inner if i in starts or draw(st.booleans())]
        after, n = n, n + 1
        lasts = [i for i in inner if not any(s == i for s, _ in arcs)]
        arcs += [(i, after) for i in inner if i in lasts or draw(st.booleans())]
        if cut_before is not None and not inner:
            arcs.append((cut_before, after))
        cut_before = after
    for i in range(n, n + draw(st.integers(0, 2 if inputs == 1 else 0))):  # parallel tasks after the last cut
        arcs.append((cut_before, i))
        n = i + 1
    shuffled = draw(st.permutations(range(n)))
    edges = [(f"t{shuffled[i]}", f"t{shuffled[j]}", float(draw(st.integers(0, 4)))) for i, j in arcs]
    settings.setdefault("communication", draw(st.sampled_from(list(MODELS))))
    devices = draw(st.integers(2, 3 if inputs == 1 else 2))
    times = draw(st.lists(st.integers(0, 5), min_size=n * devices, max_size=n * devices))
    durations = np.array(times, float).reshape(n, devices)
    sizes_of_batches = settings.get("batch_sizes")
    for i in range(n):
        if labels is None and draw(st.integers(0, 5)) == 0:
            durations[i, draw(st.integers(0, devices - 1))] = np.nan
    if sizes_of_batches is not None:
        settings["inputs"] = inputs
        durations = durations[:, :, None] * np.array([draw(st.sampled_from([0.7, 1.0])) * b for b in sizes_of_batches])
        settings["communication"] = draw(st.sampled_from(UNCONTENDED))
    links = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=devices**2, max_size=devices**2))
    cluster = hs.Cluster(
        [hs.Device(f"d{k}", memory_bytes=memory_bytes) for k in range(devices)],
        bandwidth=np.array(links).reshape(devices, devices),
        latency=draw(st.sampled_from([0.0, 0.5])),
    )
    graph = hs.TaskGraph(
        [f"t{i}" for i in range(n)], edges, weight_bytes=1.0, colocation=None if labels is None else [draw(labels) for _ in range(n)]
    )
    return hs.Problem(graph, cluster, durations=durations, **settings)


@examples(8, HealthCheck.filter_too_much)
@given(series(), st.sampled_from(["cpsat", "scip"]))
def test_one_channel_is_exact(problem, solver):
    assert len(cut(problem)) >= 2
    optimum = brute_force(problem)
    solution = hs.solve(problem, "split", options={"solver": solver})
    assert solution.makespan == pytest.approx(optimum.makespan, rel=1e-6)
    assert solution.status == "optimal"
    assert hs.bound(problem, time_limit=30).value == pytest.approx(optimum.makespan, rel=1e-6)
    assert hs.verify(problem, solution.schedule) == []


@pytest.mark.slow
@few
@given(series(memory_bytes=5.0))
def test_tight_memory_leaves_a_valid_bound_and_a_valid_schedule(problem):
    honest(problem)


@pytest.mark.slow
@few
@given(series(labels=st.sampled_from([None, "a", "b"])))
def test_labels_across_modules_leave_a_valid_bound_and_a_valid_schedule(problem):
    honest(problem)


@pytest.mark.slow
@few
@given(series(inputs=2, batch_sizes=[1, 2]))
def test_several_inputs(problem):
    honest(problem)


def honest(problem, **options):
    """Assert that bound <= optimum <= makespan, and that the status is optimal only at the optimum."""
    optimum = brute_force(problem)
    solution = hs.solve(problem, "split", evaluations=3000, options={"solver": "cpsat", **options})
    if optimum is None:
        assert solution.schedule is None
        return
    for bound in (solution.bound, hs.bound(problem, time_limit=0.3).value):
        assert bound <= optimum.makespan * (1 + 1e-9)
    if solution.schedule is not None:
        assert hs.verify(problem, solution.schedule) == []
        assert solution.makespan >= optimum.makespan * (1 - 1e-9)


@few
@given(problems(batching="once", memory="static", n_tasks=st.integers(2, 5), inputs=1), st.integers(1, 4))
def test_several_channels_are_honest(problem, channels):
    honest(problem, channels=channels, largest=2)


@st.composite
def stacks(draw):
    """Draw copies of a module in series, with tasks in different orders, on devices of which some are identical."""
    size, times = draw(st.integers(2, 3)), draw(st.integers(2, 3))
    arcs = [(i, j) for i in range(size) for j in range(i + 1, size) if draw(st.booleans())]
    cost = draw(st.lists(st.integers(1, 5), min_size=size + 1, max_size=size + 1))
    moved = [draw(st.integers(0, 3)) for _ in range(4)]
    speed = np.array(draw(st.sampled_from([(1.0, 1.0), (1.0, 1.0, 2.0), (1.0, 2.0)])))
    starts = [i for i in range(size) if all(j != i for _, j in arcs)]
    lasts = [i for i in range(size) if all(s != i for s, _ in arcs)]
    edges, costs = [], [float(cost[size])]
    for _ in range(times):
        order = draw(st.permutations(range(size)))
        first, place = len(costs), {i: len(costs) + order.index(i) for i in range(size)}
        edges += [(first - 1, place[i], float(moved[0])) for i in starts]
        edges += [(place[i], place[j], float(moved[1 + (i + j) % 2])) for i, j in arcs]
        edges += [(place[i], first + size, float(moved[3])) for i in lasts]
        costs += [float(cost[i]) for i in order] + [float(cost[size])]
    graph = hs.TaskGraph([f"t{i}" for i in range(len(costs))], [(f"t{i}", f"t{j}", size) for i, j, size in edges])
    cluster = hs.Cluster([f"d{k}" for k in range(len(speed))], bandwidth=1.0)
    communication = draw(st.sampled_from(["delay", *CONTENDED]))
    return hs.Problem(graph, cluster, durations=np.outer(costs, 1 / speed), communication=communication), times


@few
@given(stacks())
def test_identical_modules_between_identical_devices_are_solved_once(made):
    problem, times = made
    program = Series(problem, cut(problem)).program
    solved = np.flatnonzero(np.isinf(program.upper))
    pairs = problem.n_devices**2 + problem.n_devices  # of the first module, and of the last, whose end may be on any device
    assert len(solved) <= pairs
    if problem.durations[0, 0] == problem.durations[0, 1]:
        assert len(solved) <= (5 + 2 if problem.n_devices == 3 else 2 + 1)
    assert program.n_transitions >= times
    solution = hs.solve(problem, "split", options={"solver": "cpsat"})
    unsplit = hs.solve(problem, "cpsat", time_limit=60)
    assert unsplit.status == "optimal"
    assert solution.makespan == pytest.approx(unsplit.makespan, rel=1e-6)
    assert solution.status == "optimal"


@few
@given(series(), st.integers(2, 3))
def test_without_a_search_the_split_is_no_longer_than_its_starts(problem, channels):
    solution = hs.solve(problem, "split", evaluations=2000, options={"channels": channels, "largest": 2, "improve": False})
    assert set(solution.methods.method) <= {"best-device", "heft", "split"}
    if solution.schedule is not None:
        assert hs.verify(problem, solution.schedule) == []
        assert solution.makespan <= min(solution.methods.makespan) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("communication", "inputs"),
    [*((name, 1) for name in MODELS), ("delay", 16), *(pytest.param(name, 16, marks=pytest.mark.slow) for name in ("per-input", "port"))],
)
def test_windows_shorten_the_schedules_of_overlapping_modules(communication, inputs):
    """At each step the schedule is shorter than before; the split alone answers the same twice."""
    stack = instances.short(6, 4, channels=2, inputs=inputs)
    problem = stack.replace(communication=communication)
    options = {"channels": 2, "largest": 8, "improve": False, "solver": "annealing" if inputs > 1 else None}
    one, other = (hs.solve(problem, "split", evaluations=400, options=options) for _ in range(2))
    assert one.schedule == other.schedule
    assert (one.history.incumbent[1:] <= one.history.incumbent[:-1]).all()
    assert one.makespan < hs.solve(problem, "bheft").makespan
    assert hs.verify(problem, one.schedule) == []
    assert "annealing" not in one.methods.method
    alone = hs.solve(problem, "split", evaluations=400, options={**options, "windows": False})
    assert alone.makespan > one.makespan
    assert hs.verify(problem, alone.schedule) == []
    assert "annealing" in hs.solve(problem, "split", evaluations=400, options={**options, "improve": True}).methods.method
