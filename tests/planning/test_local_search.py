"""Placements on many different devices: local search is verified, its bound below the best, and no simple rule is better."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.errors import OutOfTime
from hetsched.planning import explain, local_search, question, tables, words
from hetsched.planning.incumbent import Incumbent
from hetsched.planning.local_search import find_near
from hetsched.stopping import Deadline
from hetsched.testing.chains import best_placements, chain_problems
from hetsched.testing.clocks import SteppingClock
from hetsched.testing.profiles import examples
from hetsched.verification.placement import verify_placement
from tests.planning.test_planner import CONFIG, card, cards, machines, workloads


@examples(15)
@given(chain_problems(unable=st.booleans()), st.booleans(), st.sampled_from([None, 1.0, 1.5]), st.booleans())
def test_the_best_of_the_enumeration_is_between_bound_and_value(problem, by_period, known, by_node):
    if by_node:
        problem = problem.replace(nodes=[k // 2 for k in range(problem.n_devices)])
    best = best_placements(problem)
    wanted = (best.period if by_period else best.latency).value
    told = []
    incumbent = Incumbent(math.inf if known is None else wanted * known * (1 + 1e-9), on_progress=told.append)
    with mock.patch.multiple(local_search, MOVES=50, CLIMBS=3, STEPS=30, CASES=20):
        find_near([problem], incumbent, by_period=by_period)
    assert incumbent.bound <= wanted * (1 + 1e-9)
    assert all(event.bound <= wanted * (1 + 1e-9) for event in told)
    if incumbent.placement is not None:
        assert incumbent.value >= wanted * (1 - 1e-9)
        assert verify_placement(problem, incumbent.placement, **{"period" if by_period else "latency": incumbent.value}) == []


@examples(15)
@given(chain_problems(n_items=st.integers(3, 7), n_devices=st.integers(2, 4), overlap=False, impossible=False), st.integers(1, 3))
def test_parts_are_problems_of_their_numbers_of_stages(problem, slower):
    """With more stages the items take longer here, as smaller batches do."""
    problems = [problem.replace(seconds=problem.seconds * (1 + slower * count)) for count in range(problem.n_devices)]
    exact, near = Incumbent(), Incumbent()
    question.find_period(problems, exact)
    with mock.patch.multiple(local_search, MOVES=50, CLIMBS=3, CASES=50):
        find_near(problems, near, by_period=True)
    assert near.bound <= exact.value * (1 + 1e-9)
    assert near.value >= exact.value * (1 - 1e-9)
    assert (near.bound == math.inf) <= (exact.value == math.inf)


def test_little_is_lost_where_the_best_is_known():
    """Of ten problems on four devices all are found, and most proven: blocks are alike and hops too."""
    rng = np.random.default_rng(1)
    for by_period in (False, True):
        for _ in range(5):
            speed, memory = rng.uniform(1, 4, 4), rng.integers(2, 6, 4)
            problem = hs.ChainProblem(map(str, range(7)), "abcd", np.ones((7, 1)) / speed, weight_bytes=np.ones(7), memory_bytes=memory,
                                      hops=np.full((4, 4), 0.1))  # fmt: skip
            incumbent = Incumbent()
            find_near([problem], incumbent, by_period=by_period)
            best = best_placements(problem)
            assert incumbent.value == pytest.approx((best.period if by_period else best.latency).value)
            assert incumbent.bound >= incumbent.value * (1 - 1e-3)


@examples(10)
@given(cards, machines, workloads)
def test_a_plan_is_between_its_bound_and_the_simple_rules_and_comes_back(tmp_path_factory, model, where, work):
    exact = hs.plan(model, where, work)
    with mock.patch.object(tables, "MOST_NUMBERS", 0), mock.patch.object(question, "SMALL", 0):
        plan = hs.plan(model, where, work)
        assert plan.bound <= exact.value * (1 + 1e-9)
        assert plan.value >= exact.value * (1 - 1e-9)
        assert all(row.value >= plan.value * (1 - 1e-9) for row in plan.baselines)
        assert plan.missing_bytes <= exact.missing_bytes or math.isnan(plan.missing_bytes)
        path = tmp_path_factory.mktemp("plan") / "plan.json"
        plan.write(path)
        back = hs.read(path)
        assert (back.status, back.value, back.bound) == (plan.status, plan.value, plan.bound)


def different(m, memory, seed=0):
    """Return a machine of GPUs of which no two are alike."""
    rng = np.random.default_rng(seed)
    devices = [
        hs.Device(f"g{k}", memory_bytes=each, peak_flops={"float16": 1e12 * fast}, memory_bandwidth=1e10 * wide)
        for k, (each, fast, wide) in enumerate(
            zip(rng.uniform(0.5, 2, m) * memory, rng.uniform(1, 5, m), rng.uniform(1, 5, m), strict=True)
        )
    ]
    return hs.Machine(hs.Cluster(devices, bandwidth=1e9, latency=1e-5))


def deep(blocks=80):
    return hs.frontends.configs.read({**CONFIG, "num_hidden_layers": blocks, "torch_dtype": "float16"}, name="deep")


@pytest.mark.slow
@pytest.mark.parametrize(("m", "sequences", "gap"), [(24, 1, 1e-6), (64, 1, 1e-6), (24, 24, 0.01), (64, 16, 0.03)])
def test_many_different_devices_have_an_answer_with_a_small_gap(m, sequences, gap):
    model = deep()
    plan = hs.plan(model, different(m, 6e5 * (1 + sequences / 4) * 24 / m), hs.Workload(128, 64, sequences=sequences))
    assert plan.stopped == "finished"
    assert plan.gap <= gap
    assert plan.value <= min(row.value for row in plan.baselines)
    assert verify_placement(plan.problem, plan.placement) == []


def test_what_is_not_exact_says_so():
    with mock.patch.object(tables, "MOST_NUMBERS", 0), mock.patch.object(question, "SMALL", 0):
        plan = hs.plan(card(6), different(5, 3e5), hs.Workload(20, 5, sequences=4))
        found = explain(plan, most_work=math.inf)
        told = " ".join(text for _, text in words.plan_rows(plan.with_explanation(found)))
        assert words.bound_name(plan) == "Lagrangian bound"
        assert "what follows is found by local search" in told
        assert "not computed, as too many devices differ for exact search: the most context, the most sequences, the most bits, " in told
        assert "--limits" not in told
        assert found.without_hops <= plan.value
        assert [limit.device for limit in found.devices] == [
            plan.problem.devices[k] for k in sorted(s.device for s in plan.placement.stages)
        ]
        assert all(limit.with_more.value <= plan.value and limit.with_more.placement is not None for limit in found.devices)
        assert explain(plan, most_work=0).left_out[-1] == "wrong times"
        assert "found by local search, as too many devices differ for exact search" in told or "local search and a bound" in told
        with pytest.raises(hs.UnsupportedFeature, match="0 are possible: leave devices out"):
            plan.second_best()


def test_a_search_without_time_has_a_bound():
    rng = np.random.default_rng(0)
    problem = hs.ChainProblem(map(str, range(12)), map(str, range(6)), rng.random((12, 6)))
    looks, exact = [], Incumbent()
    question.find_period([problem] * 3, exact)
    for count in (1, 4, 12):
        clock = SteppingClock(1.0)
        incumbent = Incumbent(deadline=Deadline.after(count, clock))
        with pytest.raises(OutOfTime):
            find_near([problem] * 3, incumbent, by_period=True)
        looks.append(incumbent.value)
        assert incumbent.bound <= exact.value
        assert clock.late(incumbent.deadline) <= 3
    assert looks == sorted(looks, reverse=True)
