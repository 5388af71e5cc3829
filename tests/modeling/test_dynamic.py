"""The lazy dynamic program against the plain one, against a linear program, and under failing executors."""

from __future__ import annotations

import concurrent.futures
import itertools
import math
import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.arrays import row_starts
from hetsched.errors import InvalidModel
from hetsched.modeling import DynamicProgram, Evaluation
from hetsched.stopping import Deadline
from hetsched.testing.clocks import SteppingClock
from hetsched.testing.profiles import examples

INF = math.inf


@st.composite
def programs(draw):
    """Draw layers of states with parallel transitions, some without a path to the end, and their costs and lower bounds."""
    layers = draw(st.integers(1, 4))
    width = draw(st.integers(1, 3))
    sizes = [1, *[width] * (layers - 1), 1]
    first = row_starts(sizes)
    arcs = [
        (first[x] + i, first[x + 1] + j)
        for x in range(layers)
        for i in range(sizes[x])
        for j in range(sizes[x + 1])
        for _ in range(draw(st.integers(1, 2)))
    ]
    cost = np.array(draw(st.lists(st.one_of(st.integers(0, 9), st.just(INF)), min_size=len(arcs), max_size=len(arcs))), float)
    share = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 0.9, 1.0]), min_size=len(arcs), max_size=len(arcs))))
    lower = np.where(np.isfinite(cost), np.where(np.isfinite(cost), cost, 0) * share, 3.0)
    tail, head = np.array(arcs).T
    shuffled = np.array(draw(st.permutations(range(len(arcs)))))
    return tail[shuffled], head[shuffled], cost[shuffled], lower[shuffled]


def plain(tail, head, cost):
    """Return the least cost by the textbook's dynamic program."""
    best = {0: 0.0}
    for state in range(1, int(head.max()) + 1):
        best[state] = min((best[t] + c for t, h, c in zip(tail, head, cost, strict=True) if h == state), default=INF)
    return best[int(head.max())]


@given(programs())
def test_it_finds_the_optimum_of_the_plain_program_with_no_needless_evaluation(made):
    tail, head, cost, lower = made
    program, evaluated = DynamicProgram(tail, head, lower), []

    def evaluate(query):
        t = query.transition
        evaluated.append(t)
        return Evaluation(cost[t], cost[t], f"answer {t}")

    result = program.solve(evaluate)
    expected = plain(tail, head, cost)
    assert result.value == pytest.approx(expected) or result.value == expected == INF
    assert result.bound == pytest.approx(result.value) or result.bound == result.value
    assert result.stopped == "finished"
    assert len(evaluated) == len(set(evaluated)) == result.evaluated
    if math.isfinite(expected):
        assert result.value == pytest.approx(sum(cost[t] for t in result.transitions))
        assert result.answers == [f"answer {t}" if t in evaluated else None for t in result.transitions]
        around = program.around(lower)
        assert all(around[t] + lower[t] <= expected + 1e-9 for t in evaluated)  # transitions excluded by the bound are not evaluated


@given(programs(), st.data())
def test_transitions_of_a_kind_share_bounds_costs_and_answers(made, data):
    tail, head, cost, lower = made
    kind = np.array(data.draw(st.lists(st.integers(0, len(cost) - 1), min_size=len(cost), max_size=len(cost))))
    evaluated = []

    def evaluate(query):
        evaluated.append(int(kind[query.transition]))
        return Evaluation(cost[evaluated[-1]], cost[evaluated[-1]], evaluated[-1])

    program = DynamicProgram(tail, head, lower, kind=kind)
    result, spelled = program.solve(evaluate), DynamicProgram(tail, head, lower[kind])
    expected = plain(tail, head, cost[kind])
    assert result.value == pytest.approx(expected) or result.value == expected == INF
    assert len(evaluated) == len(set(evaluated)) == result.evaluated
    if math.isfinite(expected):
        assert [answer for answer in result.answers if answer is not None] == [k for k in kind[result.transitions] if k in evaluated]
    assert program.around(lower).tolist() == spelled.around(lower[kind]).tolist()
    assert program.least(lower) == spelled.least(lower[kind])


@given(programs(), st.booleans())
@examples(25)
def test_agrees_with_its_linear_program(made, shared):
    tail, head, cost, lower = made
    kind = np.arange(len(cost)) // 2 if shared else np.arange(len(cost))
    program = DynamicProgram(tail, head, lower, kind=kind)
    model, flow = program.to_model(cost)
    cost = cost[kind]
    outcome = model.solve("scip")
    expected = plain(tail, head, cost)
    if math.isinf(expected):
        assert outcome.proven == "infeasible"
    else:
        assert outcome.objective == pytest.approx(expected, abs=1e-6)
        assert flow.value(outcome.values) @ np.where(np.isfinite(cost), cost, 0) == pytest.approx(expected, abs=1e-6)


@given(programs(), st.sampled_from([1, 2, 5]))
@examples(50)
def test_threads_find_the_same(made, parallel):
    tail, head, cost, lower = made
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        result = DynamicProgram(tail, head, lower).solve(
            lambda query: Evaluation(cost[query.transition], cost[query.transition]), executor=executor, parallel=parallel
        )
    expected = plain(tail, head, cost)
    assert result.value == pytest.approx(expected) or result.value == expected
    assert result.troubles == ()


@given(programs())
@examples(50)
def test_narrowing_bounds_little_by_little_ends_at_the_same_value(made):
    tail, head, cost, lower = made
    program, low = DynamicProgram(tail, head, lower), lower.copy()

    def evaluate(query):
        t = query.transition
        if math.isinf(cost[t]):
            return Evaluation(INF, INF)
        low[t] = min(cost[t], low[t] + 1.0)
        return Evaluation(low[t], cost[t] + (low[t] < cost[t]), t)  # the answer is not optimal until the bound equals it

    result = program.solve(evaluate)
    expected = plain(tail, head, cost)
    assert result.value == pytest.approx(expected) or result.value == expected


@given(programs())
@examples(50)
def test_a_proof_that_a_transition_is_too_expensive_is_enough(made):
    tail, head, cost, lower = made
    upper = np.where(np.isfinite(cost), cost + 1.0, INF)
    answers = ["known"] * len(cost)

    def evaluate(query):
        t = query.transition
        if cost[t] >= query.cutoff:
            return Evaluation(query.cutoff, INF)
        return Evaluation(cost[t], cost[t], "found")

    result = DynamicProgram(tail, head, lower, upper=upper, answers=answers).solve(evaluate)
    expected = plain(tail, head, cost)
    assert result.value == pytest.approx(expected) or result.value == expected
    assert result.bound == pytest.approx(result.value) or result.bound == result.value


@given(programs())
@examples(50)
def test_answers_without_proof_end_with_a_value_and_a_valid_bound(made):
    tail, head, cost, lower = made
    result = DynamicProgram(tail, head, lower).solve(lambda query: Evaluation(0.0, cost[query.transition], done=True))
    expected = plain(tail, head, cost)
    assert result.stopped == "finished"
    assert result.bound == pytest.approx(plain(tail, head, lower)) or result.bound == expected
    assert result.value >= expected - 1e-9
    assert math.isfinite(result.value) == math.isfinite(expected)


def test_a_kind_of_transitions_is_evaluated_once():
    tail, head, cost = chain(20)
    evaluated = []

    def evaluate(query):
        evaluated.append(query.transition)
        return Evaluation(cost[query.transition], cost[query.transition], cost[query.transition])

    program = DynamicProgram(tail, head, np.zeros(2), kind=np.arange(40) % 2)
    result = program.solve(evaluate)
    assert (result.value, result.bound, result.evaluated, program.n_kinds) == (20, 20, 2, 2)
    assert len(evaluated) == 2
    assert result.answers == [1.0] * 20


def test_repeated_queries_have_the_previous_answer_and_twice_the_time():
    queries = []

    def evaluate(query):
        queries.append(query)
        return Evaluation(len(queries), 4.0, f"answer {len(queries)}") if len(queries) < 4 else Evaluation(4.0, 4.0)

    result = DynamicProgram([0], [1], [0.0]).solve(evaluate, time_limit=60)
    assert result.value == result.bound == 4
    assert [query.tries for query in queries] == [0, 1, 2, 3]
    assert [query.answer for query in queries] == [None, "answer 1", "answer 1", "answer 1"]
    assert all(a.seconds < b.seconds for a, b in itertools.pairwise(queries[:3]))


def chain(length=4):
    """Return a chain of states with two transitions between neighbours: 1 s and 2 s."""
    tail = np.repeat(np.arange(length), 2)
    return tail, tail + 1, np.tile([1.0, 2.0], length)


def exact(query):
    cost = 1.0 + query.transition % 2
    return Evaluation(cost, cost, query.transition)


def deadly(query):
    """End the current process, unless it is that of the tests."""
    if os.environ.get("PYTEST_CURRENT_TEST") is None or os.getppid() == int(os.environ["PARENT_OF_DEADLY"]):
        os._exit(1)
    return exact(query)


def test_the_deadline_leaves_the_best_path_and_a_valid_bound():
    tail, head, cost = chain(20)
    program = DynamicProgram(tail, head, cost * 0.5, upper=cost + 1, answers=["start"] * 40)
    clock = SteppingClock(step=1.0)
    result = program.solve(exact, deadline=Deadline.after(10.0, clock))
    assert result.stopped == "time limit"
    assert 10.0 < result.bound < 20.0 < result.value < 40.0
    assert "start" in result.answers
    assert result.evaluated == 5, "a look before each, and one for the time that each may take"


def test_executors_evaluate_in_parallel():
    tail, head, _ = chain(20)
    together, calls = threading.Barrier(10, timeout=60), itertools.count()

    def evaluate(query):
        if next(calls) < 10:  # the first ten wait for one another
            together.wait()
        return exact(query)

    with concurrent.futures.ThreadPoolExecutor(10) as executor:
        result = DynamicProgram(tail, head, np.zeros(40)).solve(evaluate, executor=executor, parallel=10)
    assert result.value == 20
    assert not result.troubles


def test_a_killed_pool_loses_nothing_and_is_reported(monkeypatch):
    tail, head, _ = chain()
    monkeypatch.setenv("PARENT_OF_DEADLY", str(os.getpid()))
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        result = DynamicProgram(tail, head, np.zeros(8)).solve(deadly, executor=executor)
    assert result.value == result.bound == 4
    assert len(result.troubles) >= 1
    assert "BrokenProcessPool" in result.troubles[0]


def test_an_error_of_the_evaluation_itself_reaches_the_caller():
    def broken(query):
        raise ZeroDivisionError("no cost")

    tail, head, _ = chain()
    with pytest.raises(ZeroDivisionError), concurrent.futures.ThreadPoolExecutor(2) as executor:
        DynamicProgram(tail, head, np.zeros(8)).solve(broken, executor=executor)
    with pytest.raises(ZeroDivisionError):
        DynamicProgram(tail, head, np.zeros(8)).solve(broken)


def test_progress_is_reported_and_may_stop():
    tail, head, _ = chain()
    news = []
    result = DynamicProgram(tail, head, np.zeros(8)).solve(exact, on_progress=lambda progress: news.append(progress) or len(news) == 3)
    assert result.stopped == "stopped"
    assert [progress.evaluated for progress in news] == [1, 2, 3]
    assert all(a.bound <= b.bound <= b.value <= a.value for a, b in itertools.pairwise(news))


@pytest.mark.parametrize(
    ("tail", "head", "lower", "upper", "message"),
    [
        ([0], [1, 2], [0.0], None, "lengths"),
        ([], [], [], None, "not zero"),
        ([0, 1], [1, 1], [0.0, 0.0], None, "transition 1 leads from state 1 to 1"),
        ([0], [1], [-1.0], None, "lower bound -1.0"),
        ([0], [1], [3.0], [2.0], "known cost 2.0"),
        ([0], [1], [math.nan], None, "lower bound nan"),
    ],
)
def test_refusals(tail, head, lower, upper, message):
    with pytest.raises(InvalidModel, match=message):
        DynamicProgram(tail, head, lower, upper=upper)


@pytest.mark.parametrize("kind", [[0, 2], [-1, 0]])
def test_kinds_have_a_bound_each(kind):
    with pytest.raises(InvalidModel, match=f"kinds go from {kind[0]} to {kind[1]}, but there are 2 bounds; number the kinds from 0"):
        DynamicProgram([0, 0], [1, 1], [0.0, 0.0], kind=kind)


def test_contradicting_bounds_are_an_error():
    with pytest.raises(InvalidModel, match="has lower bound 3"):
        DynamicProgram([0], [1], [0.0]).solve(lambda query: Evaluation(3.0, 2.0))
