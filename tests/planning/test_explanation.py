"""What limits a plan is what solving the changed problems again says."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.chain.evaluation import evaluate
from hetsched.planning import explain, explanation
from hetsched.testing.profiles import examples
from tests.planning.test_planner import card, cards, machine, machines, workloads
from tests.planning.test_questions import placements


@pytest.mark.slow
@examples(40)
@given(cards, machines, workloads)
def test_a_plan_is_explained_by_other_plans(model, where, work):
    plan = hs.plan(model, where, work)
    told = explain(plan, most_work=math.inf)
    assert (told.most_context, told.most_sequences, told.most_bits) == (plan.most_context(), plan.most_sequences(), plan.most_bits())
    assert told.left_out == ()
    if plan.placement is None:
        assert told.devices == ()
        return
    assert told.without_hops == plan.without_hops().value
    assert told.second_best.value >= plan.value * (1 - 1e-9)
    for limit in told.devices:
        step = plan.next_memory_step(limit.device)
        assert limit.with_more.value == plan.with_memory(limit.device, 1e9).value
        assert (step is None) == math.isinf(limit.step_bytes)
        assert math.isnan(limit.factors[0]) == (plan.regime == "throughput")


@examples(40)
@given(cards, machines, workloads)
def test_the_next_best_is_the_best_of_the_other_orders(model, where, work):
    plan = hs.plan(model, where, work, regime="latency")
    groups = plan.problem.groups
    if plan.placement is None or len(set(groups.tolist())) < len(groups):
        return
    own = [stage.device for stage in plan.placement.stages]
    others = [p for p in placements(model.n_items, len(groups)) if [stage.device for stage in p.stages] != own]
    values = [found.latency for p in others if (found := evaluate(plan.problem, p)).fits]
    assert plan.second_best().value == pytest.approx(min(values, default=math.inf), rel=1e-9)


@pytest.mark.slow
@examples(40)
@given(cards, machines, workloads, st.sampled_from([0.1, 0.5]))
@example(card(1), machine((140496.0, 140496.0), (2.0, 2.0)), hs.Workload(1, 1), 0.1)  # the idle one of two alike is faster
def test_the_regret_is_that_of_the_worst_device(model, where, work, share):
    plan = hs.plan(model, where, work)
    if plan.placement is None:
        return
    worst = 0.0
    for k, device in enumerate(where.cluster.devices):
        for factor in (1 - share, 1 + share):
            slower = hs.Device(
                device.name,
                memory_bytes=device.memory_bytes,
                peak_flops={"float16": device.peak_flops["float16"] / factor},
                memory_bandwidth=device.memory_bandwidth / factor,
            )
            devices = [slower if i == k else other for i, other in enumerate(where.cluster.devices)]
            changed = hs.plan(
                model,
                hs.Machine(hs.Cluster(devices, bandwidth=where.cluster.bandwidth, latency=1e-5)),
                work,
                regime=plan.regime,
                costs=hs.costs.LanguageRoofline(item_seconds=0.0),
            )
            same = changed.question.judged(plan.placement)[1]
            worst = max(worst, same / changed.value - 1)
    exact = hs.plan(model, where, work, regime=plan.regime, costs=hs.costs.LanguageRoofline(item_seconds=0.0))
    if exact.placement == plan.placement:
        assert exact.regret(share) == pytest.approx(worst, abs=1e-8)


@examples(60)
@given(
    st.integers(3, 6),
    st.lists(st.tuples(st.sampled_from([2e5, 4e5, 8e5]), st.sampled_from([1.0, 1.5, 2.0])), min_size=2, max_size=4),
    st.integers(1, 6),
    st.sampled_from([1e3, 5e4, 1e9]),
)
def test_what_memory_gives_is_solved_again_for_each_device_or_for_all_with_room(blocks, devices, sequences, more):
    plan = hs.plan(card(blocks), machine(*zip(*devices, strict=True)), hs.Workload(20, 5, sequences=sequences))
    with mock.patch.object(explanation, "MORE", more):
        told = explain(plan, most_work=math.inf)
    for limit in told.devices:
        own = plan.problem.memory_bytes[plan.problem.devices.index(limit.device)]
        assert limit.with_more == plan.with_memory(limit.device, more)
        step = plan.next_memory_step(limit.device)
        assert limit.step_bytes == (math.inf if step is None else step.memory_bytes - own)
        assert limit.step.value == (math.inf if step is None else step.best.value)


def test_what_takes_long_is_left_out_and_named():
    plan = hs.plan(card(6), machine(), hs.Workload(20, 5))
    told = explain(plan, most_work=0)
    assert told.left_out == (
        "faster links",
        "more memory",
        "the next step of memory",
        "the next best order of devices",
        "wrong times",
        "the times of a device alone",
    )
    assert np.isnan(told.without_hops)
    assert all(math.isinf(limit.with_more.value) for limit in told.devices)
