"""Tabu search: the values of places, moves in the sequence, and published optima."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.heuristics.local_search import disjunctive_kernels, edit_kernels, state_kernels, tabu_kernels
from hetsched.heuristics.local_search.states import States
from hetsched.testing import conformance, strategies
from tests.golden import arabnejad, topcuoglu


class TestTabu(conformance.MethodSuite):
    method = "tabu"


def started(problem: hs.Problem, seed: int):
    """Return the states of a problem and a random state with its makespan; it may break the rule of memory only."""
    states, rng = States(problem), np.random.default_rng(seed)
    state = states.empty()
    rank = rng.random(problem.n_tasks)
    order: list[int] = []
    left = np.diff(problem.graph.pred_ptr).copy()
    while len(order) < problem.n_tasks:
        free = [i for i in range(problem.n_tasks) if left[i] == 0 and i not in order]
        order.append(min(free, key=lambda i: rank[i]))
        left[problem.graph.target[problem.graph.source == order[-1]]] -= 1
    usable = np.isfinite(problem.whole_durations)
    state.sequence[:] = order
    state.position[order] = np.arange(len(order))
    state.length[0] = len(order)
    state.count[:], state.high[:] = 1, problem.inputs
    for u in range(problem.n_units):
        devices = np.flatnonzero(usable[problem.unit == u].all(axis=0))
        state.device[u] = rng.choice(devices)
    state.used[:] = states.claims(state)
    makespan = states.settle(state)
    assume(np.isfinite(makespan))  # a transfer may be impossible
    return states, state, makespan


def plain(**features):
    """Return problems of one batch per task without contention and with enough memory."""
    usual = {"inputs": 1, "communication": "delay", "tight": False, "absent": False, "missing_links": False, "n_tasks": st.integers(2, 9)}
    return strategies.problems(**{**usual, **features})


def remembering(states: States, room: int, **changed) -> tabu_kernels.TabuState:
    """Return the initial data of a tabu search; `changed` has other values of fields of the graph."""
    t = states.tables
    return tabu_kernels.TabuState(
        disjunctive_kernels.new_graph(t)._replace(**changed),
        disjunctive_kernels.new_candidates(room),
        edit_kernels.new_log(t),
        np.zeros((len(t.task), len(t.capacity)), np.int64),
        np.zeros(2, np.int64),
        np.full(1, np.inf),
        np.ones(1),
    )


def places(states: States, state, room: int = 1000, **changed):
    """Return the data of a search at a state, and the values and rows of all places of all nodes of a critical chain."""
    t = states.tables
    nodes, memory = len(t.task), remembering(states, room, **changed)
    memory.counts[0], memory.lowest[0] = 1, np.inf
    net, candidates = memory.graph, memory.candidates
    disjunctive_kernels.build(t, state, net)
    taken = tabu_kernels.find_moves(t, state, memory, nodes, nodes, np.random.default_rng(0))
    assert taken >= 1
    count = candidates.size[0]
    return memory, candidates.value[:count], candidates.places[:count]


@pytest.mark.slow
@given(problem=plain(colocation=False), seed=st.integers(0, 1000))
def test_a_value_is_the_makespan_where_nothing_contends(problem, seed):
    states, state, makespan = started(problem, seed)
    before = state.sequence.copy()
    memory, values, _ = places(states, state, balance=0.0)
    assert (np.diff(values) >= 0).all()
    for candidate, value in enumerate(values):
        exact = tabu_kernels.try_place(states.tables, state, memory, candidate, np.inf)
        assert exact <= value <= exact * (1 + 2 * disjunctive_kernels.TIE) + 1e-12
        assert (state.sequence == before).all()
        assert states.settle(state) == makespan


def test_ties_go_to_the_lower_squares_of_loads():
    """Two devices would finish with the task at the same time; one has 2 seconds more work than before, the other 6."""
    none = np.nan
    durations = [[5, none, none, none], [5, 2, 6, none], [none, 4, none, none], [none, none, none, 9]]
    problem = hs.Problem(hs.TaskGraph(list("wxyz"), []), hs.Cluster(list("abcd"), bandwidth=np.inf), durations=durations)
    states = States(problem)
    state = states.empty()
    assert states.load(state, hs.simulate(problem, hs.Decision.whole(problem, [0, 0, 1, 3], [0, 1, 2, 3]))) == 10
    _, values, rows = places(states, state)
    assert rows[0][:2].tolist() == rows[1][:2].tolist() == [1, 1]
    assert rows[2][:2].tolist() == [1, 2]
    assert values[2] - values[1] == pytest.approx(disjunctive_kernels.BALANCE * (18 - 10) / 10, rel=0.01)


@pytest.mark.parametrize(
    ("edges", "links", "takes"),
    [
        ([], {"bandwidth": 1.0, "latency": 1.0}, False),
        ([("a", "b", 1.0)], {"bandwidth": np.inf}, False),
        ([("a", "b", 0.0)], {"bandwidth": 1.0}, False),
        ([("a", "b", 1.0)], {"bandwidth": 1.0}, True),
        ([("a", "b", 0.0)], {"bandwidth": 1.0, "latency": 1.0}, True),
    ],
)
def test_loads_break_ties_only_where_no_transfer_takes_time(edges, links, takes):
    problem = hs.Problem(hs.TaskGraph(["a", "b"], edges), hs.Cluster(["x", "y"], **links), durations=np.ones((2, 2)))
    assert disjunctive_kernels.new_graph(States(problem).tables).balance == (0.0 if takes else disjunctive_kernels.BALANCE)


@given(problem=plain(colocation=False, transfers=False, n_tasks=5), seed=st.integers(0, 1000))
def test_every_place_that_keeps_the_order_is_found(problem, seed):
    """The places include all feasible orders of a device after the move of one critical task."""
    states, state, _ = started(problem, seed)
    memory, _, rows = places(states, state)
    chain = np.zeros(problem.n_tasks, np.int64)
    links = disjunctive_kernels.critical_chain(memory.graph, problem.n_tasks, chain, np.random.default_rng(0))
    sequence = state.sequence.copy()
    device = state.device[problem.unit]
    takes = problem.whole_durations > 0
    for v in sequence[chain[:links]]:
        for k in np.flatnonzero(np.isfinite(problem.whole_durations[v])):
            line = [w for w in sequence if w != v and device[w] == k and takes[w, k]]
            own = [w for w in sequence if device[w] == k and takes[w, k]]
            expected = set()
            if not takes[v, k] and k != device[v]:
                expected.add(-1)  # a task of duration 0 is in no order
            for place in range(len(line) + 1) if takes[v, k] else ():
                order = [*line[:place], v, *line[place:]]
                if order != own and acyclic(problem, sequence, device, takes, v, k, order):
                    expected.add(line[place] if place < len(line) else -1)
            got = {sequence[y] if y >= 0 else -1 for w, h, y in rows if w == v and h == k}
            assert got == expected


def acyclic(problem, sequence, device, takes, v, k, order) -> bool:
    """Return whether all tasks can run if device k runs `order` and the other devices keep their order in `sequence`."""
    arcs = [tuple(edge) for edge in problem.graph.edges.tolist()] + list(itertools.pairwise(order))
    for h in range(problem.n_devices):
        if h != k:
            line = [w for w in sequence if w != v and device[w] == h and takes[w, h]]
            arcs += itertools.pairwise(line)
    left = set(range(problem.n_tasks))
    while left:
        free = {i for i in left if not any(b == i and a in left for a, b in arcs)}
        if not free:
            return False
        left -= free
    return True


@given(problem=strategies.problems(inputs=1, absent=False, missing_links=False, n_tasks=st.integers(2, 7)), seed=st.integers(0, 1000))
def test_the_sequence_stays_one(problem, seed):
    """Also with contention, co-location and little memory: producers precede consumers, and trials are undone."""
    states, state, makespan = started(problem, seed)
    t = states.tables
    memory, values, _ = places(states, state)
    before = [field.copy() for field in state[:8]]
    for candidate in range(len(values)):
        tabu_kernels.try_place(t, state, memory, candidate, np.inf)
        for field, was in zip(state[:8], before, strict=True):
            assert (field == was).all()
    rng = np.random.default_rng(seed)
    memory, best = remembering(states, 3), states.empty()
    memory.lowest[0] = makespan
    state_kernels.copy(state, best)
    current, spent = tabu_kernels.search(t, state, best, memory, tabu_kernels.Settings(3, 1, 2, 1000), rng, 100, makespan)
    lowest = memory.lowest[0]
    assert spent <= 100
    assert lowest <= (makespan if t.timed else min(current, makespan))  # the last state may exceed the ``peak`` memory
    for kept, value in ((state, current), (best, lowest)):
        assert sorted(kept.sequence) == list(range(problem.n_tasks))
        assert (kept.position[kept.sequence] == np.arange(problem.n_tasks)).all()
        assert (kept.position[problem.graph.source] < kept.position[problem.graph.target]).all()
        assert kept.used == pytest.approx(states.claims(kept))
        assert states.settle(kept) == value


@pytest.mark.parametrize(("instance", "makespan"), [(topcuoglu, 73), (arabnejad, 113)])
def test_published_examples_are_solved(instance, makespan):
    assert hs.solve(instance(), "tabu", evaluations=20_000).makespan == makespan


def test_two_runs_are_one():
    one, other = (hs.solve(topcuoglu(), "tabu", evaluations=5000, seed=3) for _ in range(2))
    assert one.schedule == other.schedule
    assert list(one.history.incumbent) == list(other.history.incumbent)


def test_a_limit_of_evaluations_is_never_passed():
    for limit in (1, 2, 3, 10, 37, 500):
        monitor = hs.search.Monitor(topcuoglu(), hs.search.Budget(evaluations=limit))
        monitor.run("tabu")
        assert monitor.evaluations <= limit + 4, "list schedulers begin"
