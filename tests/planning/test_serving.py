"""Serving: the search finds what the enumeration finds, its bounds hold, and each message says what to do."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import serving
from hypothesis import given
from hypothesis import strategies as st

from hetsched.analysis.serving_units import PARTS, excess
from hetsched.bounds.serving import capped_load, counting, tightest
from hetsched.chain.flow import max_flow
from hetsched.chain.serving import ServingPlacement, ServingProblem
from hetsched.errors import InvalidArgument, InvalidProblem, InvalidSchedule, UnsupportedFeature
from hetsched.modeling import backends
from hetsched.models.serving import ServingModel
from hetsched.planning import most_throughput, serving_starts
from hetsched.search.solution import Status
from hetsched.stopping import Stop
from hetsched.testing import best_serving, serving_problems
from hetsched.testing.profiles import examples
from hetsched.verification.serving import SERVING_RULES, verify_serving

T4 = [1987.96933583407, 901.9376894944129, 539.0387352860497, 404.2621425031171, 285.3446689050558, 331.3431275280855, 231.0619074422882]
L4 = [
    *(2485.538093984443, 1145.043877646622, 763.5176797357898, 480.9921941878029, 384.9009498403431, 286.5874097546421),
    *(245.7346965865289, 189.1084291640167, 168.1672159813898, 212.6372855671968, 193.4964086035588),
]
HELIX = ServingProblem(60, ["T4", "L4"], [6, 4], [T4, L4])
"""Helix's case of 10 nodes (Mei et al., ASPLOS 2025): 286.5874 tokens/s, whose proof took Gurobi 3,803 s."""
UNLIMITED = serving_problems(n_devices=st.integers(1, 5), limited=False)
LIMITED = serving_problems(n_items=st.integers(1, 3), n_devices=st.integers(1, 3), limited=True)


def refuted(problem, bound):
    """Return whether no placement passes a bound on, from its value and its number of parts alone, in exact arithmetic."""
    value, parts = Fraction(bound.value), bound.parts
    given = 0
    for count, table in zip(problem.counts.tolist(), problem.throughput.tolist(), strict=True):
        units = []
        for rate in table:
            share = min(Fraction(rate) / value, Fraction(1)) if value else Fraction(1)
            units.append(0 if rate == 0 else share if parts is None else math.floor(parts * share) + 1)
        given += count * max(held * unit for held, unit in enumerate(units, 1))
    return given < problem.n_items * (1 if parts is None else parts + 1)


# ---------------------------------------------------------------------- bounds


@pytest.mark.slow
@examples(100)
@given(UNLIMITED, st.integers(1, 8))
def test_bounds_are_above_the_enumeration_and_refute_themselves(problem, parts):
    best = best_serving(problem).value
    for bound in (capped_load(problem), counting(problem, parts), tightest(problem)):
        assert bound.value >= best
        assert math.isinf(bound.value) or refuted(problem, bound)


@pytest.mark.slow
@examples(100)
@given(LIMITED)
def test_bounds_hold_where_links_are_limited(problem):
    assert tightest(problem).value >= best_serving(problem).value


@pytest.mark.slow
@examples(60)
@given(serving_problems(n_items=st.integers(1, 60), n_devices=st.integers(1, 12), limited=False))
def test_the_tightest_bound_is_the_least_and_is_refuted(problem):
    bounds = [capped_load(problem), *(counting(problem, parts) for parts in range(1, PARTS + 1))]
    bound = tightest(problem)
    assert bound.value == min(each.value for each in bounds)
    assert refuted(problem, bound)


def test_the_case_of_ten_nodes_by_counting():
    bound = counting(HELIX, 1)
    assert bound.value == pytest.approx(L4[5], rel=1e-8)
    assert excess(HELIX, bound.value, 1) == 6 * 12 + 4 * 11 - 2 * 60
    assert refuted(HELIX, bound)
    assert bound.evidence == (
        "to pass on 286.587410 tokens/s an item needs 2 units of 1/1, 60 items 120, but the devices have 6 x 12 (T4) + 4 x 11 (L4) = 116"
    )


# ---------------------------------------------------------------------- flow and its check


@examples(100)
@given(st.data())
def test_a_flow_is_that_of_the_enumeration_and_keeps_every_rule(data):
    problem = data.draw(st.one_of(LIMITED, serving_problems(limited=False)))
    best = best_serving(problem)
    flow = max_flow(problem, best.placement)
    assert flow.throughput == best.value
    assert verify_serving(problem, best.placement, flow.transfers, throughput=best.value) == []


def test_each_broken_rule_is_found():
    problem = ServingProblem(2, ["a"], [2], [[4, 0]], links=[[0, 3, 5], [0, 0, 5], [5, 5, 0]])
    placement, good = ServingPlacement([0, 1], [1, 2]), np.array([[0, 3, 0], [0, 0, 3], [3, 0, 0.0]])
    assert verify_serving(problem, placement, good, throughput=3) == []

    def changed(**cells):
        transfers = good.copy()
        for cell, amount in cells.items():
            transfers[int(cell[1]), int(cell[2])] = amount
        return transfers

    found = {
        "devices": verify_serving(problem, ServingPlacement([0], [1])),
        "range": verify_serving(problem, ServingPlacement([0, 1], [1, 3])),
        "held": verify_serving(problem, ServingPlacement([0, 0], [2, 0])),
        "transfer": verify_serving(problem, placement, changed(t01=np.nan)),
        "meeting": verify_serving(problem, placement, changed(t21=1.0, t12=4.0)),
        "conservation": verify_serving(problem, placement, changed(t12=2.5)),
        "device-limit": verify_serving(problem, placement, changed(t20=4.5, t01=4.5, t12=4.5)),
        "link-limit": verify_serving(problem, placement, changed(t20=3.5, t01=3.5, t12=3.5)),
        "throughput": verify_serving(problem, placement, good, throughput=3.1),
    }
    assert list(found) == list(SERVING_RULES)
    for rule, violations in found.items():
        assert rule in [violation.rule for violation in violations]
    assert found["link-limit"][0].message == "from device 0 to device 1 go 3.5 tokens/s, 0.5 more than the link carries"


# ---------------------------------------------------------------------- model and search


@pytest.mark.slow
@examples(100)
@given(UNLIMITED)
def test_the_rows_cut_no_placement_that_reaches_what_they_are_made_for(problem):
    best = best_serving(problem)
    if best.value > 0:
        made = ServingModel(problem, best.value, tightest(problem).value)
        values = made.encode(best.placement)
        assert made.model.violations(values) == []
        assert max_flow(problem, made.decode(values)).throughput == best.value


@pytest.mark.slow
@examples(60)
@given(serving_problems(n_devices=st.integers(1, 5), limited=False))
def test_the_model_alone_reaches_the_enumeration(problem):
    best, bound = best_serving(problem).value, tightest(problem).value
    if bound > 0:
        outcome = ServingModel(problem, 0.0, bound).model.solve(backends.backend("scip"))
        assert (0.0 if outcome.values is None else outcome.objective * bound) == pytest.approx(best, rel=1e-6)


@examples(60)
@given(serving_problems(n_devices=st.integers(1, 5), limited=False), st.booleans())
def test_the_plan_is_that_of_the_enumeration(problem, search):
    """With search, or by the model after simple rules alone."""
    best = best_serving(problem).value
    with pytest.MonkeyPatch.context() as patch:
        if not search:
            patch.setattr(serving_starts, "groups_in_series", lambda *_, **__: None)
            patch.setattr("hetsched.planning.serving.ROUNDS", 0)
        plan = most_throughput(problem)
    assert plan.value == best
    assert plan.status == (Status.OPTIMAL if best > 0 else Status.INFEASIBLE)
    assert max(plan.baselines.values()) <= plan.value
    assert plan.intervals.devices.sum() <= problem.n_devices
    steps = [(step.value, -step.bound) for step in plan.history]
    assert all(a <= b for earlier, later in itertools.pairwise(steps) for a, b in zip(earlier, later, strict=True))


@pytest.mark.slow
@examples(60)
@given(LIMITED)
def test_with_limited_links_the_enumeration_is_between_value_and_bound(problem):
    best, plan = best_serving(problem).value, most_throughput(problem)
    assert plan.value <= best <= plan.bound


def test_the_case_of_ten_nodes_is_proven_without_a_solver():
    plan = most_throughput(HELIX, on_progress=lambda step: step.source.startswith("model"))
    assert plan.status == Status.OPTIMAL
    assert plan.stopped == Stop.OPTIMAL
    assert plan.value == L4[5]
    assert plan.proof.parts == 1
    assert plan.baselines["even"] == L4[5]
    assert set(plan.intervals.devices.tolist()) == {1}
    assert repr(plan) == "<ServingPlan of 286.587 tokens/s, at most 286.587: optimal>"


def test_a_slow_link_is_kept_clear_of():
    """Of two pairs of devices only those within a pair have a fast link."""
    links = np.full((5, 5), np.inf)
    links[:2, 2:4] = links[2:4, :2] = 1.0
    problem = ServingProblem(2, ["a"], [4], [[10.0]], links=links)
    plan = most_throughput(problem)
    assert plan.value == 20.0
    assert plan.status == Status.OPTIMAL
    across = plan.flow.transfers[:2, 2:4].sum() + plan.flow.transfers[2:4, :2].sum()
    assert across == 0


HARD = ServingProblem(12, ["fast", "slow"], [3, 4], [[90, 46, 31, 23, 18, 15], [50, 24, 17, 12]])
"""Two pipelines, of three fast and of four slow devices, are best: 40 tokens/s."""


@pytest.mark.parametrize("start", ["even", "replicas"])
def test_the_model_finds_and_proves_what_the_rules_miss(monkeypatch, start):
    monkeypatch.setattr(serving_starts, "groups_in_series", lambda *_, **__: None)
    monkeypatch.setattr("hetsched.planning.serving.ROUNDS", 0)
    plan = most_throughput(HARD)
    assert plan.baselines[start] == 35.0
    assert (plan.value, plan.status) == (40.0, Status.OPTIMAL)
    assert plan.history[-1].source == "model by scip"


def test_the_model_proves_what_no_count_does():
    """Two fast devices hold two items each or none, so an odd chain needs the slow one; without it there is no placement."""
    problem = ServingProblem(3, ["fast", "slow"], [2, 1], [[0, 5], [1]])
    plan = most_throughput(problem)
    assert tightest(problem).value == pytest.approx(5.0)
    assert (plan.value, plan.status, plan.proof.name) == (1.0, Status.OPTIMAL, "model by scip")
    plan = most_throughput(ServingProblem(3, ["fast"], [2], [[0, 5]]))
    assert (plan.value, plan.bound, plan.status, plan.stopped) == (0.0, 0.0, Status.INFEASIBLE, Stop.INFEASIBLE)
    assert len(plan.intervals) == 0


def test_the_end_by_a_callback_and_by_time():
    assert most_throughput(HARD, on_progress=lambda step: step.value > 0).stopped == Stop.CALLBACK
    plan = most_throughput(HARD, time_limit=0)
    assert plan.stopped == Stop.TIME_LIMIT
    assert plan.status == Status.FEASIBLE
    assert 0 < plan.value < plan.bound


@pytest.mark.parametrize("name", ["quality", "30b_a100", "30b_t4"])
def test_published_instances_are_proven_at_once(shared_data, name):
    if not (shared_data / "helix" / "open.json").is_file():
        pytest.skip(f"Helix's instances are not in {shared_data / 'helix'}")
    instance = serving.instances(shared_data / "helix" / "open.json")[name]
    plan = most_throughput(instance.problem)
    assert plan.status == Status.OPTIMAL
    assert plan.proof.name in ("counting", "capped load")
    assert plan.value == pytest.approx(instance.published, rel=1e-9)


# ---------------------------------------------------------------------- simple rules


def test_simple_rules_on_an_example():
    """Even: two stages of three items, a fast and a slow device; replicas: one pipeline, items in proportion to the speed."""
    problem = ServingProblem(6, ["fast", "slow"], [2, 2], [[8, 4, 3, 2], [4, 2, 1, 1]])
    assert max_flow(problem, serving_starts.even(problem)).throughput == 4.0
    split = serving_starts.replicas(problem)
    assert (split.end - split.first).tolist() == [2, 2, 1, 1]
    assert max_flow(problem, split).throughput == 4.0
    best = serving_starts.groups_in_series(problem, 0.0, tightest(problem).value)
    assert max_flow(problem, best).throughput == 4.0


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"counts": [0]}, "counts is [0]; it must be numbers from 0, together 1 to 256 devices"),
        ({"counts": [1, 1]}, "counts has shape [2]; it must be [1]"),
        ({"throughput": []}, "throughput has 0 tables; it must have one for each of 1 types"),
        ({"throughput": [[1, -1]]}, "throughput[0, 1] is -1.0; it must be 0 or a number from 1e-100 to 1e+100"),
        ({"throughput": [2]}, "throughput[0] has shape []; it must be [n]"),
        ({"links": [[1]]}, "links has shape [1, 1]; it must be [3, 3]"),
        ({"links": [[0, 1, 2], [0, 0, np.nan], [1, 1, 1]]}, "links[1, 2] is nan; it must be 0 or a number from 1e-100 to 1e+100, or inf"),
        ({"n_items": 0}, "n_items is 0; it must be a whole number, at least 1"),
    ],
)
def test_what_is_no_problem(wrong, message):
    right = {"n_items": 2, "types": ["a"], "counts": [2], "throughput": [[1.0, 1.0]]}
    with pytest.raises(InvalidProblem) as error:
        ServingProblem(**(right | wrong))
    assert str(error.value).startswith(message)


def test_what_is_no_placement():
    problem = ServingProblem(2, ["a"], [2], [[1.0]])
    with pytest.raises(InvalidArgument, match="intervals has 3 for 'a'; there are 2 such devices"):
        ServingPlacement.of(problem, [(0, 0, 1)] * 3)
    with pytest.raises(
        InvalidSchedule, match="device 1, a 'a', has the items from 0 to before 2; it must have some of 2 one after another"
    ):
        max_flow(problem, ServingPlacement([0, 0], [1, 2]))
    with pytest.raises(InvalidSchedule, match="give an interval for each of 2 devices"):
        max_flow(problem, ServingPlacement([0], [1]))
    with pytest.raises(UnsupportedFeature, match="above limit=1; take fewer items or devices, or raise the limit"):
        best_serving(problem, limit=1)
    with pytest.raises(TypeError, match="plans for serving are made by"):
        type(most_throughput(problem))()
