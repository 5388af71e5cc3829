"""Searches over device strings: decoding by hand, incremental evaluation, and the start of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import hetsched as hs
from hetsched.documents import encode
from hetsched.heuristics import diviml_kernels as kernels
from hetsched.heuristics.local_search.states import States
from hetsched.problem.links import CONTENDED
from hetsched.testing import conformance, strategies
from hetsched.testing.clocks import watched
from tests.heuristics.test_randomised import layered

NAN = np.nan


class TestSa(conformance.MethodSuite):
    method = "sa"


class TestEa(conformance.MethodSuite):
    method = "ea"


class Strings:
    """The data of a search over strings."""

    def __init__(self, problem: hs.Problem) -> None:
        self.problem = problem
        self.states = States(problem)
        self.sizes = np.flatnonzero(self.states.tables.size_of >= 0)
        self.cost = kernels.unit_costs(self.states.tables, self.sizes)
        self.order = problem.graph.topological_order
        place = np.argsort(self.order)
        self.rank = np.array([place[problem.unit == u].min() for u in range(problem.n_units)], np.int64)
        self.positions = problem.inputs // int(np.gcd.reduce(self.sizes))

    def fastest(self) -> np.ndarray:
        return kernels.fastest(self.cost, self.sizes, self.problem.inputs, self.states.tables.slots)

    def supported(self, counts: np.ndarray) -> bool:
        size_of = self.states.tables.size_of
        return bool((counts.sum(axis=1) == self.problem.inputs).all()) and all(
            count == 0 or (size_of[count] >= 0 and np.isfinite(self.cost[u, k, size_of[count]])) for (u, k), count in np.ndenumerate(counts)
        )


def batched(batching: str = "once", communication: str = "delay") -> hs.Problem:
    """Return a problem of 30 tasks and 8 inputs in batches of 2, 4, 6 and 8."""
    rng = np.random.default_rng(5)
    plain, sizes = layered(30), np.array([2, 4, 6, 8])
    return plain.replace(
        durations=rng.random((30, 3))[:, :, None] * (1.0 + sizes),
        batch_sizes=sizes,
        inputs=8,
        batching=batching,
        communication=communication,
    )


# ---------------------------------------------------------------------- start and decoding


@pytest.mark.parametrize("name", ["ea", "sa"])
def test_the_start_is_every_task_on_its_fastest_device_in_breadth_first_order(name):
    """c is first in index order, but the topological order has a and b before it, so c waits for b on y."""
    graph = hs.TaskGraph(["c", "a", "b"], [("a", "c", 1.0)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[5, 1], [2, 3], [9, 4]])
    schedule = hs.solve(problem, name, evaluations=1).schedule
    assert {task: schedule.device_of(task) for task in "abc"} == {"a": "x", "b": "y", "c": "y"}
    assert schedule.makespan == 5, "b until 4, then c although its data are there at 3"


def test_the_fastest_counts_are_those_of_least_device_time():
    problem = hs.Problem(
        hs.TaskGraph(["a"]),
        hs.Cluster(["x", "y"], bandwidth=1.0),
        inputs=4,
        batch_sizes=[1, 2, 3, 4],
        durations=[[[1, 2, 4, 9], [2, 2.5, NAN, NAN]]],
    )
    assert Strings(problem).fastest().tolist() == [[2, 2]], "2 + 2.5 s against 9, and 4 + 2 with three on x"


@pytest.mark.slow
@pytest.mark.parametrize("communication", ["delay", *CONTENDED])
@pytest.mark.parametrize("batching", ["once", "free"])
def test_a_string_is_worth_what_its_decision_simulates_to(batching, communication):
    strings = Strings(batched(batching, communication))
    rng = np.random.default_rng(0)
    state, counts = strings.states.empty(), strings.fastest()
    for _ in range(50):
        for u in range(len(counts)):
            kernels.redraw(strings.states.tables, counts, strings.cost, strings.sizes, rng, u, int(rng.integers(8)))
        assert strings.supported(counts)
        makespan = kernels.decode(strings.states.tables, state, counts, strings.order)
        schedule = hs.simulate(strings.problem, strings.states.decision(state))
        assert hs.verify(strings.problem, schedule) == []
        assert schedule.makespan == pytest.approx(makespan, rel=1e-9)


@given(problem=strategies.problems(inputs=st.sampled_from([1, 2, 4]), memory="static"), seed=st.integers(0, 99), mutate=st.booleans())
def test_the_state_of_the_search_is_that_of_decoding_its_string(problem, seed, mutate):
    note(encode(problem).decode())
    strings = Strings(problem)
    t, counts = strings.states.tables, strings.fastest()
    if (counts < 0).any() or problem.n_tasks == 0:
        return
    state, best = strings.states.empty(), strings.states.empty()
    start = kernels.decode(t, state, counts, strings.order)
    if np.isinf(start):
        return
    hot = 0.0 if mutate else 0.5 * start
    data = kernels.StringData(strings.cost, strings.sizes, strings.order, strings.rank, strings.positions)
    course = kernels.Course(mutate, 100, hot, hot / 10, False, start, start)
    rng = np.random.default_rng(seed)
    runs, current, lowest = kernels.search(t, state, best, data, counts, kernels.new_redrawn(*counts.shape), rng, course)
    assert runs == 100
    assert strings.supported(counts)
    again = strings.states.empty()
    assert current == kernels.decode(t, again, counts, strings.order)
    np.testing.assert_allclose(state.used, again.used, rtol=1e-12, atol=1e-9)
    if lowest < start:
        schedule = hs.simulate(problem, strings.states.decision(best))
        assert hs.verify(problem, schedule) == []
        assert schedule.makespan == pytest.approx(lowest, rel=1e-9)
    if mutate:
        assert current == lowest, "nothing worse is kept"


def test_every_device_is_drawn_as_often_as_any_other():
    problem = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["v", "w", "x", "y"], bandwidth=1.0), durations=[[1, NAN, 1, 1]])
    strings = Strings(problem)
    rng, drawn = np.random.default_rng(0), []
    for _ in range(2000):
        counts = np.array([[0, 0, 1, 0]])
        assert kernels.redraw(strings.states.tables, counts, strings.cost, strings.sizes, rng, 0, 0)
        drawn.append(int(counts[0].argmax()))
    assert np.bincount(drawn, minlength=4)[[1, 2]].tolist() == [0, 0]
    assert abs(np.bincount(drawn)[0] - 1000) < 150


def test_as_few_inputs_move_as_sizes_allow():
    problem = hs.Problem(
        hs.TaskGraph(["a"]), hs.Cluster(["x", "y"], bandwidth=1.0), inputs=8, batch_sizes=[3, 5], durations=[[[1, 1], [1, 1]]]
    )
    strings = Strings(problem)
    rng = np.random.default_rng(0)
    counts = np.array([[3, 5]])
    assert not kernels.redraw(strings.states.tables, counts, strings.cost, strings.sizes, rng, 0, 0), "x cannot give any"
    assert kernels.redraw(strings.states.tables, counts, strings.cost, strings.sizes, rng, 0, 3)
    assert counts.tolist() == [[5, 3]], "y gives two"


# ---------------------------------------------------------------------- the methods


@pytest.mark.parametrize("name", ["ea", "sa"])
@pytest.mark.parametrize("communication", ["delay", "channel"])
def test_they_find_much_better_strings_than_the_start(name, communication):
    for problem in (layered(60, communication), batched("once", communication)):
        start, solution = (hs.solve(problem, name, evaluations=count) for count in (1, 4000))
        assert solution.methods.evaluations.tolist() == [4000]
        assert not [message for message in solution.messages if "failed:" in message]
        assert solution.makespan < 0.9 * start.makespan


@pytest.mark.parametrize("name", ["ea", "sa"])
def test_a_small_problem_is_solved(name):
    """Two tasks that are best on different devices, although both are fastest on x."""
    problem = hs.Problem(hs.TaskGraph(["a", "b"]), hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[2, 3], [2, 3]])
    assert hs.solve(problem, name, evaluations=100).makespan == 3


@pytest.mark.parametrize("name", ["ea", "sa"])
def test_where_the_fastest_devices_lack_memory_it_starts_from_list_scheduling(name):
    graph = hs.TaskGraph(["a", "b", "c"], weight_bytes=[3, 3, 3])
    cluster = hs.Cluster([hs.Device("x", memory_bytes=3), hs.Device("y", memory_bytes=6)], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=[[1, 2], [1, 2], [1, 2]])
    assert hs.solve(problem, name, evaluations=50).makespan == 4
    tight = problem.replace(cluster=hs.Cluster([hs.Device("x", memory_bytes=3), hs.Device("y", memory_bytes=5)], bandwidth=1.0))
    monitor = hs.search.Monitor(tight)
    monitor.run(name)
    assert monitor.best is None
    assert "no initial string of devices" in monitor.solution(name).messages[0]


@pytest.mark.parametrize("name", ["ea", "sa"])
def test_more_batches_than_one_on_a_device_are_refused(name):
    problem = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["x"]), durations=[[1.0]], inputs=2, batching="free")
    with pytest.raises(hs.UnsupportedFeature, match="task 'a' cannot process all 2 inputs in that way; use annealing"):
        hs.solve(problem, name, evaluations=5)


@pytest.mark.parametrize("options", [{"hot": 0.0}, {"cold": 0.0}, {"hot": 1e-6}])
def test_temperatures_that_do_not_fall_are_refused(options):
    with pytest.raises(hs.UnsupportedFeature, match="both must be above 0, and cold at most hot"):
        hs.solve(layered(5), "sa", evaluations=5, options=options)


@pytest.mark.parametrize("name", ["ea", "sa"])
def test_the_clock_is_looked_at_in_time(name):
    for problem in (layered(2000), batched("free", "port")):
        run = watched(problem, name, looks=12)
        assert run.monitor.best is not None
        assert run.late <= 10
        assert max(run.after, run.between) * (problem.n_tasks + problem.graph.n_edges) <= 2e6, "milliseconds"
