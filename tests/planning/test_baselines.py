"""Placements by simple rules: what they promise, on random problems and on examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.chain.evaluation import evaluate, stage_bytes
from hetsched.chain.placement import ChainStage, Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import InvalidArgument
from hetsched.planning import baselines
from hetsched.testing.profiles import examples
from tests.planning.tools.cards import card, problem_of

BOX = ["a", "b"]


@st.composite
def problems(draw):
    """Draw a card and a problem with its items, some of them without the head."""
    model, m = card(draw(st.integers(1, 40)), tied=True), draw(st.integers(1, 4))
    memory = draw(st.lists(st.integers(1, 400), min_size=m, max_size=m))
    seconds = draw(st.lists(st.integers(1, 5), min_size=m, max_size=m))
    whole = draw(st.booleans())
    n = model.n_items - (not whole)
    problem = ChainProblem(
        model.items.name[:n].tolist(),
        [f"d{k}" for k in range(m)],
        np.broadcast_to(seconds, (n, m)),
        weight_bytes=model.weights[:n],
        cache_bytes=np.arange(n),
        memory_bytes=memory,
        shared_bytes=50.0 if whole else 0.0,
    )
    return model, problem


@given(problems())
@examples(100)
def test_every_rule_covers_the_chain_in_order(drawn):
    model, problem = drawn
    for placement in (
        baselines.even(model, problem),
        baselines.by_memory(model, problem),
        baselines.by_bandwidth(model, problem, 1.0 / problem.seconds[0]),
        baselines.fill_first(problem),
    ):
        assert evaluate(problem, placement).latency > 0  # it refuses what does not cover the chain


@given(problems())
@examples(100)
def test_shares_are_right_to_one_block(drawn):
    model, problem = drawn
    share = problem.memory_bytes / problem.memory_bytes.sum()
    held = np.zeros(problem.n_devices)
    for device, first, end in baselines.by_memory(model, problem).stages:
        held[device] = min(end, model.n_blocks + 1) - max(first, 1)
    assert held.sum() == model.n_blocks
    assert (abs(held - model.n_blocks * share) < 1 + 1e-6).all()


@given(problems())
@examples(100)
def test_fill_first_fills(drawn):
    """Each stage fits, unless it is of the last device; none could take one item more; no device that is left out is faster."""
    _, problem = drawn
    stages = baselines.fill_first(problem).stages
    speeds = problem.seconds.sum(axis=0)
    order = np.argsort(speeds, kind="stable").tolist()
    places = [order.index(stage.device) for stage in stages]
    assert places == sorted(places)
    for stage in stages:
        fits = stage_bytes(problem, stage) <= problem.memory_bytes[stage.device]
        assert fits or stage.device == order[-1]
        if stage.end < problem.n_items:
            more = ChainStage(stage.device, stage.first, stage.end + 1)
            assert stage_bytes(problem, more) > problem.memory_bytes[stage.device]


def test_examples():
    model = card(64)
    problem = problem_of(model, BOX, memory=[300.0, 100.0], seconds=[2.0, 1.0])
    assert baselines.even(model, problem) == Placement([(0, 0, 33), (1, 33, 66)])
    assert baselines.by_memory(model, problem) == Placement([(0, 0, 49), (1, 49, 66)])
    assert baselines.by_bandwidth(model, problem, [1, 7]) == Placement([(0, 0, 9), (1, 9, 66)])
    assert baselines.by_bandwidth(model, problem, [0, 7]) == Placement([(1, 0, 66)])
    # The second is faster and has room for the embedding alone; the first takes the rest, which does not fit.
    assert baselines.fill_first(problem) == Placement([(1, 0, 1), (0, 1, 66)])
    assert not evaluate(problem, baselines.fill_first(problem)).fits


def test_shared_bytes_count_once_on_one_device():
    problem = ChainProblem(["a", "b"], BOX, [[1, 2], [1, 2]], weight_bytes=[10, 10], memory_bytes=[12, 99], shared_bytes=8)
    assert baselines.fill_first(problem) == Placement([(0, 0, 2)])


@pytest.mark.parametrize(("bandwidth", "shown"), [([0, 0], "[0.0, 0.0]"), ([1, np.inf], "[1.0, inf]"), ([1, -1], "[1.0, -1.0]")])
def test_shares_of_nothing(bandwidth, shown):
    model = card(4)
    with pytest.raises(InvalidArgument) as error:
        baselines.by_bandwidth(model, problem_of(model, BOX), bandwidth)
    assert str(error.value) == f"bandwidth is {shown}; blocks are shared out by finite numbers from 0, one of them above 0"


def test_unlimited_memory():
    model = card(4)
    with pytest.raises(InvalidArgument, match="memory_bytes of the problem is .*inf.*; blocks are shared out by finite numbers from 0"):
        baselines.by_memory(model, problem_of(model, BOX))


def test_another_model():
    with pytest.raises(InvalidArgument, match="problem has 3 items; give one of the 6 items of 'M', or of all but the head"):
        baselines.even(card(4), problem_of(card(4), BOX, n_items=3))
