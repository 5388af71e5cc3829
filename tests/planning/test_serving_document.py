"""Plans for serving as documents: what comes back is the plan, verified."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import documents
from hetsched.planning import ServingQuestion, most_throughput
from hetsched.planning.serving_words import serving_rows
from hetsched.planning.words import each_labelled
from hetsched.testing import serving_problems
from hetsched.testing.profiles import examples
from tests.planning.test_planner import card, machine

SCHEMA = jsonschema.Draft202012Validator(documents.schema("serving"))


def back(plan):
    """Return a plan that was written and read; its document meets the schema and does not change."""
    text = documents.encode(plan)
    SCHEMA.validate(json.loads(text))
    read = documents.decode(text)
    assert documents.encode(read) == text
    return read


@examples(20)
@given(serving_problems(n_devices=st.integers(1, 4)))
def test_a_plan_comes_back(problem):
    plan = most_throughput(problem, on_progress=lambda step: step.value > 0)  # what comes next takes long
    read = back(plan)
    for what in ("value", "bound", "status", "stopped", "baselines", "devices", "proof"):
        assert getattr(read, what) == getattr(plan, what), what
    assert read.problem == problem
    assert list(read.intervals) == list(plan.intervals)


def pool():
    return ServingQuestion(card(6), machine((2e6, 2e6, 4e6), (1.0, 1.0, 2.0)), hs.Workload(20, 5, sequences=4))


def test_a_plan_of_a_model_comes_back(tmp_path):
    plan = most_throughput(pool())
    assert back(plan).question == plan.question
    plan.write(tmp_path / "serving.json")
    value = json.loads((tmp_path / "serving.json").read_text())
    assert value["sentences"] == [list(row) for row in each_labelled(list(serving_rows(plan)))]
    assert [label for label, _ in value["sentences"]][:5] == ["plan", "model", "devices", "asked", "placement"]
    assert {row["name"] for row in value["intervals"]} <= {"g0", "g1", "g2"} == set(plan.devices)
    assert sum(row["tokens_per_second"] for row in value["flow"] if "source" not in row) == pytest.approx(plan.value)
    assert hs.read(tmp_path / "serving.json").value == plan.value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: value.update(tokens_per_second=1e9), "the intervals or the flow are not valid: "),
        (lambda value: value["intervals"][0].update(last=9), "the intervals or the flow are not valid: "),
        (lambda value: value["intervals"][0].update(device=3), "an interval or a flow is of device 3; there are 3, each with one"),
        (lambda value: value["bound"].update(tokens_per_second=1e-3), "the bound by "),
        (lambda value: value.update(stopped="x"), "stopped is 'x'; choose from finished"),
        (lambda value: value.update(status="unknown"), "the status is 'unknown', and by value and bound it is "),
        (lambda value: value["types"][0]["throughput"].reverse(), "the types or their throughput are not those of the question"),
        (lambda value: [value.pop("intervals"), value.pop("flow"), value.update(tokens_per_second=0.0)], "a simple rule passes "),
    ],
)
def test_what_is_not_a_plan(change, message):
    value = json.loads(documents.encode(most_throughput(pool())))
    change(value)
    with pytest.raises(hs.InvalidProblem) as error:
        documents.decode(json.dumps(value))
    assert str(error.value).startswith(message)


def test_a_bound_below_the_value_is_refused():
    problem = hs.chain.ServingProblem(2, ["a"], [2], [[2.0, 1.0]])
    value = json.loads(documents.encode(most_throughput(problem)))
    value["bound"] = {"tokens_per_second": 1.0, "name": "model by scip"}
    with pytest.raises(hs.InvalidProblem, match=r"the bound is 1 tokens/s, and the value 2; solve again"):
        documents.decode(json.dumps(value))
    assert np.isinf(
        documents.decode(json.dumps({**value, "status": "feasible", "bound": {"tokens_per_second": None, "name": "none"}})).bound
    )
