"""The page of a plan for serving says what the plan says, and loads nothing."""

from __future__ import annotations

import pytest

import hetsched as hs
from hetsched.chain import ServingProblem
from hetsched.planning import ServingQuestion, explain, most_throughput
from hetsched.planning.serving_words import serving_rows
from tests.planning.test_planner import card, machine
from tests.report.test_plan_page import EVIL, read

LARGE = ServingProblem(12, ["fast", EVIL], [2, 3], [[90, 46, 31, 23, 17], [50, 24, 17]])
QUESTION = ServingQuestion(card(6), machine((2e6, 2e6, 4e6), (1.0, 1.0, 2.0)), hs.Workload(20, 5, sequences=4))
NOTHING = ServingProblem(3, ["fast"], [2], [[0, 5]])


@pytest.mark.parametrize("problem", [LARGE, QUESTION, NOTHING])
def test_a_page_says_what_the_plan_says(problem):
    plan = most_throughput(problem, time_limit=2.0)
    text = read(hs.report.plan_html(plan)).lower()
    told = [row for name, row in serving_rows(plan) if name not in ("", "placement", "against", "bound")]
    assert [one for one in told if " ".join(one.lower().split()) not in text] == []
    assert plan.proof.evidence.lower() in text
    assert all(f"{value:.4g} tokens/s" in text for value in plan.baselines.values() if value)
    for row in plan.intervals:
        assert f"{row['type'].lower()} {row['devices']} {row['first']} {row['end'] - 1} {row['tokens_per_second']:.4g}" in text


def test_an_explanation_is_for_other_plans():
    plan = hs.plan(card(4), machine(), hs.Workload(20, 5))
    with pytest.raises(hs.InvalidArgument, match="explanation and model are for a ModelPlan, and the plan is for serving; leave them out"):
        hs.report.plan_html(most_throughput(NOTHING), explain(plan))
