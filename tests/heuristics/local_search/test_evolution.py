"""Evolutionary search: the path between two states, the population, and published optima."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.heuristics.local_search import edit_kernels, relinking_kernels, state_kernels, tabu_kernels
from hetsched.heuristics.local_search.evolution import NEAR, Population, distance, places
from hetsched.heuristics.local_search.search import StateSearch
from hetsched.heuristics.local_search.states import States
from hetsched.search import Budget, Monitor
from hetsched.solving import methods
from hetsched.testing import conformance, strategies
from hetsched.testing.profiles import examples
from tests.golden import arabnejad, topcuoglu


class TestEvolution(conformance.MethodSuite):
    method = "evolution"
    options = {"size": 3, "effort": 60}


def two(problem: hs.Problem, seed: int):
    """Return the states of a problem, and two of them made from that of HEFT by random changes; None if HEFT has no schedule."""
    methods()
    monitor = Monitor(problem)
    monitor.run("bheft" if problem.inputs > 1 else "heft")
    states, rng = States(problem), np.random.default_rng(seed)
    made = [states.empty(), states.empty()]
    if monitor.best is None or math.isinf(states.load(made[0], monitor.best)):
        return None
    states.load(made[1], monitor.best)
    for state in made:
        tabu_kernels.shake(states.tables, state, edit_kernels.new_log(states.tables), rng, 30, states.settle(state))
    return states, *made


@examples(60)
@given(problem=strategies.problems(inputs=1, tight=False, n_tasks=st.integers(1, 8)), seed=st.integers(0, 1000))
def test_the_way_ends_at_the_other_state(problem, seed):
    made = two(problem, seed)
    if made is None:
        return
    states, one, other = made
    child, log, start = states.empty(), edit_kernels.new_log(states.tables), states.settle(one)
    lowest, makespan = relinking_kernels.relink(states.tables, one, other, child, log, 4)
    assert makespan == states.settle(other)
    assert (one.sequence == other.sequence).all()
    assert (one.position == other.position).all()
    assert (one.device == other.device).all()
    assert one.used == pytest.approx(other.used)
    if math.isfinite(lowest):
        assert states.settle(child) == lowest
        assert child.used == pytest.approx(states.claims(child))
    assert start < math.inf


@examples(60)
@given(problem=strategies.problems(tight=True, n_tasks=st.integers(1, 5)), seed=st.integers(0, 1000))
def test_states_on_the_way_keep_the_rules(problem, seed):
    """Also with several inputs and little memory, where the path may end before the other state."""
    made = two(problem, seed)
    if made is None:
        return
    states, one, other = made
    t, fits = states.tables, (one.used <= states.tables.capacity).all() and (other.used <= states.tables.capacity).all()
    child = states.empty()
    lowest, _ = relinking_kernels.relink(t, one, other, child, edit_kernels.new_log(t), 16)
    if math.isinf(lowest):
        return
    assert states.settle(child) == lowest
    if fits:
        assert (states.claims(child) <= t.capacity).all()
    decision = states.decision(child)
    schedule = hs.simulate(problem, decision)
    broken = [violation for violation in hs.verify(problem, schedule) if "memory" not in violation.rule]
    assert broken == []


def test_places_and_distance():
    """A device runs 0, 1, 2 and 3: the exchange of 1 and 2 changes the predecessors of both, and of 3."""
    problem = hs.Problem(hs.TaskGraph(list("abcd"), []), hs.Cluster(["x", "y"], bandwidth=1.0), durations=np.ones((4, 2)))
    states = States(problem)
    rows = []
    for order in ([0, 1, 2, 3], [0, 2, 1, 3]):
        state = states.empty()
        state.sequence[:], state.length[0], state.device[:] = order, 4, 0
        rows.append(places(states.tables.cell, state))
    assert rows[0].tolist() == [[0, -1], [0, 0], [0, 1], [0, 2]]
    members = [type("Member", (), {"places": place})() for place in rows]
    assert distance(members[0], members[1]) == 0.75
    assert distance(members[0], members[0]) == 0.0


def test_a_population_holds_different_states_and_no_more_than_its_size():
    problem = arabnejad()
    methods()
    monitor = Monitor(problem, Budget(evaluations=10**9), seed=1)
    search = StateSearch(monitor)
    assert search.start()
    population = Population(search, size=4, effort=100)
    for _ in range(200):
        population.advance(37)
        assert len(population.members) <= 4
        for x, member in enumerate(population.members):
            assert all(distance(member, other) >= NEAR for other in population.members[:x])
            state_kernels.copy(member.state, search.current)
            assert search.states.settle(search.current) == member.makespan
            population._go_to(population.walk.state)
    assert search.least <= min(member.makespan for member in population.members)


@pytest.mark.parametrize(("instance", "makespan"), [(topcuoglu, 73), (arabnejad, 113)])
def test_published_examples_are_solved(instance, makespan):
    assert hs.solve(instance(), "evolution", evaluations=20_000, options={"effort": 1000}).makespan == makespan


def test_two_runs_are_one():
    one, other = (hs.solve(topcuoglu(), "evolution", evaluations=5000, seed=3, options={"effort": 300}) for _ in range(2))
    assert one.schedule == other.schedule
    assert list(one.history.incumbent) == list(other.history.incumbent)
