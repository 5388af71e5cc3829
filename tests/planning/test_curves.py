"""Curves of a plan: each point is a plan of its own, and more context or more bits are never better."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.planning import curves
from hetsched.testing.profiles import examples
from tests.planning.test_planner import card, cards, machine, machines, workloads


@pytest.mark.slow
@examples(20)
@given(cards, machines, workloads, st.sampled_from([None, "vllm", "llama.cpp"]))
def test_points_are_plans_with_the_rest_as_asked_and_end_where_none_fits(model, where, work, tool):
    plan = hs.plan(model, where, work, tool=tool)

    def anew(model=model, work=work):
        return hs.plan(model, where, work, regime=plan.regime, tool=tool)

    context = curves.over_context(plan)
    contexts = sorted({(work.prompt + work.output) << k for k in range(curves.DOUBLINGS)} | {work.tokens})
    bits = curves.over_bits(plan)
    amounts = sorted({*curves.BITS, model.bits})
    for points, places, solved in (
        (context, contexts, lambda at: anew(work=dataclasses.replace(work, context=at))),
        (bits, amounts, lambda at: anew(model=model.scaled(at / model.bits))),
    ):
        assert [point.at for point in points] == places[: len(points)]
        assert [point.plan.value for point in points] == pytest.approx([solved(point.at).value for point in points])
        assert all(a.plan.value <= b.plan.value * (1 + 1e-9) for a, b in itertools.pairwise(points))
        assert len(points) == len(places) or solved(places[len(points)]).placement is None
        assert any(point.plan is plan for point in points) == (plan.placement is not None)


def test_a_context_that_is_asked_is_among_the_others():
    plan = hs.plan(card(), machine(), hs.Workload(20, 12, context=50))
    assert [point.at for point in curves.over_context(plan)][:4] == [32, 50, 64, 128]


def test_there_are_none_where_no_time_counts_or_all_would_take_long(monkeypatch):
    plan = hs.plan(card(), machine(), hs.Workload(20, 0))
    assert (bool(curves.over_context(plan)), bool(curves.over_bits(plan))) == (False, True)
    fit = hs.plan(card(), machine(), hs.Workload(20, 12), regime="fit")
    assert curves.over_context(fit) == curves.over_bits(fit) == ()
    monkeypatch.setattr(curves, "MOST_WORK", 0)
    assert curves.over_bits(plan) == ()
