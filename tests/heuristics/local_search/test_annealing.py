"""Search states and annealing: evaluation agrees with the simulator after any changes, commits and rollbacks."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

import hetsched as hs
from hetsched.documents import encode
from hetsched.heuristics.local_search import disjunctive_kernels, edit_kernels, move_kernels, state_kernels
from hetsched.heuristics.local_search.annealing_kernels import Course, anneal
from hetsched.heuristics.local_search.states import States
from hetsched.problem.links import MODELS, UNCONTENDED
from hetsched.testing import conformance, strategies
from hetsched.testing.profiles import examples

_SETTINGS = examples(150)


class TestAnnealing(conformance.MethodSuite):
    method = "annealing"


def loaded(problem, decision):
    """Return the states of a problem, the state of a decision, and its makespan."""
    states = States(problem)
    state = states.empty()
    return states, state, states.load(state, hs.simulate(problem, decision))


def sizes(schedule):
    """Return task, device and size of all batches."""
    batches = schedule.batches
    return sorted(zip(batches.task.tolist(), batches.device.tolist(), batches.size.tolist(), strict=True))


@pytest.mark.slow
@_SETTINGS
@given(data=st.data())
def test_a_state_is_worth_what_its_decision_is(data):
    problem = data.draw(strategies.problems(communication=data.draw(st.sampled_from(list(MODELS))), memory="static"))
    note(encode(problem).decode())
    decision = data.draw(strategies.decisions(problem))
    schedule = hs.simulate(problem, decision)
    states, state, makespan = loaded(problem, decision)
    assume(np.isfinite(makespan))
    again = hs.simulate(problem, states.decision(state))
    assert again.makespan == pytest.approx(makespan, rel=1e-12)
    assert states.claims(state) == pytest.approx(schedule.static_memory)
    assert sizes(again) == sizes(schedule)
    last = schedule.items[schedule.item_ptr[1:] - 1]
    intervals = (last - schedule.items[schedule.item_ptr[:-1]] < schedule.batches.size).all()
    if intervals and not problem.links.contended:
        # Batches appended in the order of starts do not start later.
        assert makespan <= schedule.makespan * (1 + 1e-12)


@pytest.mark.slow
@_SETTINGS
@given(data=st.data(), seed=st.integers(0, 1000), steps=st.integers(1, 200), heat=st.sampled_from([1e-9, 0.1, 10.0]))
def test_whatever_was_tried_the_state_is_sound(data, seed, steps, heat):
    communication = data.draw(st.sampled_from(list(MODELS)))
    features = data.draw(st.fixed_dictionaries({"inputs": st.integers(1, 3), "batching": st.sampled_from(["once", "free"])}))
    problem = data.draw(strategies.problems(communication=communication, memory="static", **features))
    note(encode(problem).decode())
    decision = data.draw(strategies.decisions(problem))
    states, state, makespan = loaded(problem, decision)
    assume(np.isfinite(makespan) and makespan > 0)
    best = states.empty()
    state_kernels.copy(state, best)
    tables, rng = states.tables, np.random.default_rng(seed)
    course = Course(steps, makespan * heat, makespan * heat, 1.0, makespan, makespan)
    current, lowest, pressure = anneal(tables, state, best, edit_kernels.new_log(tables), rng, course)
    assert lowest <= makespan
    assert pressure > 0
    for checked, value in ((state, current), (best, lowest)):
        length = int(checked.length[0])
        assert (checked.position[checked.sequence[:length]] == np.arange(length)).all()
        assert (checked.position >= 0).sum() == length
        assert checked.used == pytest.approx(states.claims(checked), abs=1e-6)
        finish = checked.finish.copy()
        assert states.settle(checked) == pytest.approx(value, rel=1e-12)
        if checked is state:
            nodes = checked.sequence[:length]
            assert finish[nodes] == pytest.approx(checked.finish[nodes], rel=1e-12)
        schedule = hs.simulate(problem, states.decision(checked))
        assert schedule.makespan == pytest.approx(value, rel=1e-12)
        broken = {violation.rule for violation in hs.verify(problem, schedule)}
        assert broken <= {"memory"}
        if checked is best and not hs.verify(problem, hs.simulate(problem, decision)):
            assert not broken


@pytest.mark.parametrize("communication", MODELS)
@pytest.mark.parametrize("given", [False, True])
def test_a_try_is_refused_exactly_where_its_makespan_is_above_the_limit(communication, given):
    problem = conformance._larger_problem()
    lasting = np.arange(problem.n_tasks) % 5 > 0  # some tasks have a duration of 0
    cluster = problem.cluster.replace(latency=0.5 * (1 - np.eye(problem.n_devices)))
    problem = problem.replace(cluster=cluster, communication=communication, durations=problem.durations * lasting[:, None, None])
    if given:
        problem = problem.replace(
            transfers=np.random.default_rng(1).random((problem.graph.n_edges, 1, 1)) * (1 - np.eye(problem.n_devices))
        )
    states, state, makespan = loaded(problem, hs.solve(problem, "heft").schedule.decision)
    t, other = states.tables, states.empty()
    net, length = disjunctive_kernels.new_graph(t), int(state.length[0])
    # The tails that annealing updates incrementally are those of a disjunctive graph built from the state.
    for seed in range(100):
        heat = 0.1 * makespan
        course = Course(10, heat, heat, 1.0, makespan, makespan)
        makespan, _, _ = anneal(t, state, other, edit_kernels.new_log(t), np.random.default_rng(seed), course)
        disjunctive_kernels.build(t, state, net)
        tails, expected = state.tail[state.sequence[:length]], net.duration[:length] + net.tail[:length]
        assert not state.marked.any()
        if communication in UNCONTENDED:
            assert tails == pytest.approx(expected, rel=1e-12)
        else:
            assert (tails <= expected * (1 + 1e-12)).all()

    def check(first, last):
        state_kernels.copy(state, other)
        value = states.settle(other)
        for limit, kept in ((value * (1 + 1e-9), True), (value * (1 - 1e-9), False)):
            makespan_found, end = state_kernels.update(t, state, first, last, limit)
            assert makespan_found == pytest.approx(value, rel=1e-12) if kept else makespan_found > limit
            state_kernels.rollback(t, state, first, end)

    for q in range(length):
        v = state.sequence[q]
        old = state.device[v]
        for k in range(problem.n_devices):
            state.device[v] = k
            check(q, q)
        state.device[v] = old
        if q + 1 < length and v not in producers(net, q + 1, state):
            for _ in range(2):
                state.sequence[q : q + 2] = state.sequence[q : q + 2][::-1].copy()
                state.position[state.sequence[q : q + 2]] = [q, q + 1]
                check(q, q + 1)


def producers(net, position, state):
    """Return the producers of the node at a position."""
    return state.sequence[net.pred[net.pred_ptr[position] : net.pred_ptr[position + 1]]]


def test_batches_that_are_no_intervals_become_intervals_after_their_producers():
    graph = hs.TaskGraph(["first", "a", "b"], [("a", "b", 0)])
    durations = np.array([[[9.0] * 4] * 2, [[1.0] * 4] * 2, [[1.0] * 4] * 2])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1), durations=durations, inputs=4, batch_sizes=[1, 2, 3, 4])
    rows = [("first", "x", range(4)), ("a", "x", [0, 2]), ("a", "y", [1, 3]), ("b", "y", [1]), ("b", "x", [0, 2, 3])]
    states, state, makespan = loaded(problem, hs.Decision.from_batches(problem, rows))
    found = states.decision(state)
    made = zip(found.task.tolist(), found.device.tolist(), np.split(found.items, found.item_ptr[1:-1]), strict=True)
    assert sorted((i, k, batch.tolist()) for i, k, batch in made) == [
        (0, 0, [0, 1, 2, 3]), (1, 0, [0, 1]), (1, 1, [2, 3]), (2, 0, [1, 2, 3]), (2, 1, [0])
    ]  # fmt: skip
    assert makespan == 11.0  # the batch on y began at 1 s; of other inputs, it follows a batch that begins at 9 s


@pytest.mark.parametrize("communication", MODELS)
def test_a_suffix_is_worth_what_the_whole_is(communication):
    problem = conformance._larger_problem().replace(communication=communication)
    states, state, makespan = loaded(problem, hs.solve(problem, "heft").schedule.decision)
    for first in range(0, problem.n_tasks, 7):
        assert state_kernels.evaluate(states.tables, state, first, np.inf)[0] == makespan
        assert state_kernels.evaluate(states.tables, state, first, makespan * 0.99)[0] == np.inf
    assert states.settle(state) == makespan


def test_kept_resources_need_not_be_those_of_every_position():
    problem = conformance._larger_problem().replace(communication="port")
    decision = hs.solve(problem, "heft").schedule.decision
    states, state, makespan = loaded(problem, decision)
    for stride in (3, 40, 1000):
        sparse = States(problem)
        sparse.tables = sparse.tables._replace(stride=stride)
        other = sparse.empty()
        assert sparse.load(other, hs.simulate(problem, decision)) == makespan
        for first in range(problem.n_tasks):
            assert state_kernels.evaluate(sparse.tables, other, first, np.inf)[0] == makespan
    assert states.settle(state) == makespan


def test_annealing_finds_what_list_schedulers_miss():
    problem = conformance._larger_problem()
    heft = hs.solve(problem, "heft").makespan
    assert hs.solve(problem, "annealing", evaluations=20_000, seed=1).makespan < 0.95 * heft


def test_a_start_whose_batches_are_not_intervals_is_replaced():
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 1.0)])
    cluster = hs.Cluster(["x", "y"], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.ones((2, 2, 4)), batch_sizes=[1, 2, 3, 4], inputs=4)
    odd = hs.Decision.from_batches(problem, [("a", "x", [0, 2]), ("a", "y", [1, 3]), ("b", "x", [0, 2]), ("b", "y", [1, 3])])
    solution = hs.solve(problem, "annealing", start=odd, evaluations=500)
    assert solution.makespan <= hs.simulate(problem, odd).makespan


@numba.njit
def chained(t, s, chain):
    """Call a kernel that only kernels can call."""
    return move_kernels.critical_chain(t, s, chain)


@pytest.mark.slow
def test_the_critical_chain_follows_the_latest_arrival():
    """Not the latest finish: a ends at 1 s, but its transfer from x to z takes 5 s; b ends at 3 s on y, with a fast link to z."""
    cluster = hs.Cluster(["x", "y", "z"], bandwidth=1.0, latency=[[0, 5, 5], [5, 0, 0], [5, 0, 0]])
    problem = hs.Problem(hs.TaskGraph("abc", [("a", "c", 0.0), ("b", "c", 0.0)]), cluster, durations=np.tile([[1.0], [3], [1]], (1, 3)))
    states, state, makespan = loaded(problem, hs.Decision.whole(problem, np.arange(3), np.arange(3)))
    assert makespan == 7
    chain = np.empty(3, np.int64)
    length = chained(states.tables, state, chain)
    assert chain[:length].tolist() == [2, 0]
