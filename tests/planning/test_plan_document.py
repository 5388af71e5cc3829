"""Plans as documents: what comes back is the plan, verified."""

from __future__ import annotations

import json
import math

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import documents
from hetsched.planning import words
from hetsched.planning.tools import TOOLS
from hetsched.testing.profiles import examples
from tests.planning.test_planner import card, cards, machine, machines, workloads
from tests.planning.test_questions import NAMES, boxes

SCHEMA = jsonschema.Draft202012Validator(documents.schema("plan"))


def check(plan, text):
    """Assert that a plan comes back from its text."""
    back = documents.decode(text)
    for what in (
        "card",
        "machine",
        "work",
        "costs",
        "regime",
        "tool",
        "status",
        "placement",
        "value",
        "missing_bytes",
        "baselines",
        "called",
    ):
        assert getattr(back, what) == getattr(plan, what), what
    assert repr(back.explanation) == repr(plan.explanation)  # with nan
    assert documents.encode(back) == text


@examples(30)
@given(cards, boxes, workloads, st.sampled_from([None, *NAMES]))
def test_a_plan_comes_back(model, where, work, name):
    plan = hs.plan(model, where, work, tool=name)
    check(plan, documents.encode(plan))


@examples(6)
@given(cards, machines, workloads, st.sampled_from([None, "vllm", "transformers"]))
def test_what_a_document_says_is_what_the_plan_is(model, where, work, name):
    plan = hs.plan(model, where, work, tool=name)
    plan = plan.with_explanation(hs.planning.explain(plan, most_work=1e6 * work.prompt), model="m")
    text = documents.encode(plan)
    check(plan, text)
    told = json.loads(text)
    SCHEMA.validate(told)
    assert told["bound_evidence"] == dict(told["sentences"]).get("proven", told["bound_evidence"])
    lacking = plan.status == "infeasible" and plan.question.offloads is None and model.total_bytes > sum(plan.problem.memory_bytes)
    assert told["bound_name"] in (["sum of bytes"] if lacking else ["exact search", "sum of bytes"])
    assert told["bound_name"] == "exact search" or plan.status == "infeasible"
    assert ["plan", words.headline(plan)] == told["sentences"][0]
    assert {label for label, _ in told["sentences"]} >= {"plan", "model", "machine", "asked", "limits"}
    devices = {row["device"]: row for row in told["devices"]}
    assert list(devices) == list(plan.problem.devices)
    assert set(told["commands"]) == ({name} if name else set(TOOLS))
    for tool, command in told["commands"].items():
        assert command == {} if plan.placement is None else bool(command.get("text")) != bool(command.get("refusal"))
        if command.get("text"):
            assert command["text"] == plan.command(tool, model="m" if name else None).text
    if plan.placement is None:
        return
    for row in told["stages"]:
        assert row["prompt_seconds"] + row["output_seconds"] == pytest.approx(row["seconds"])
        own = devices[row["device"]]
        parts = [own.get(f"{part}_bytes", 0.0) for part in ("weight", "cache", "workspace")]
        assert math.fsum(parts) == pytest.approx(row["bytes"])
    assert [row["source"] for row in told.get("transfers", told["stages"][1:])] == [row["device"] for row in told["stages"]][
        : len(plan.placement) if len(plan.placement) > 1 else 0
    ]
    spent = math.fsum(row["seconds"] for row in [*told["stages"], *told.get("transfers", [])])
    assert spent == pytest.approx(plan.value if plan.regime == "latency" else plan.values.latency)


def test_plans_of_before_are_read(tmp_path):
    plan = hs.plan(card(6), machine(), hs.Workload(20, 5))
    plan.with_explanation(hs.planning.explain(plan)).write(tmp_path / "plan.json")
    value = json.loads((tmp_path / "plan.json").read_text())
    new = ("bound_name", "bound_evidence", "transfers", "devices", "limits", "sensitivity", "called", "commands", "sentences")
    old = {key: part for key, part in value.items() if key not in new}
    old["stages"] = [{key: part for key, part in row.items() if "t_seconds" not in key} for row in value["stages"]]
    (tmp_path / "plan.json").write_text(json.dumps(old))
    back = hs.read(tmp_path / "plan.json")
    assert (back.value, back.placement, back.explanation) == (plan.value, plan.placement, None)


def test_what_is_not_a_plan():
    plan = hs.plan(card(6), machine(), hs.Workload(20, 5))
    text = documents.encode(plan.with_explanation(hs.planning.explain(plan)))

    def changed(change):
        """Return the error of reading a plan of which the JSON is changed."""
        value = json.loads(text)
        change(value)
        with pytest.raises(hs.InvalidProblem) as error:
            documents.decode(json.dumps(value))
        return str(error.value)

    def stages(value, **fields):
        value["stages"][0] |= fields

    assert "the stages are not valid: the stated latency is" in changed(lambda value: value.update(seconds=1.0))
    assert "a stage is on 'x', which is none of the devices g0, g1, g2" in changed(lambda value: stages(value, device="x"))
    assert "the stages are not valid: item" in changed(lambda value: stages(value, last=0))
    assert "the status is 'infeasible' with 2 stages" in changed(lambda value: value.update(status="infeasible"))
    assert "tool is 'x'; choose from accelerate" in changed(lambda value: value.update(tool="x"))
    assert "the stages are not valid: the stated latency is" in changed(
        lambda value: value["sensitivity"]["second_best"].update(seconds=1e-9)
    )
    assert "a stage is on 'x', which is none" in changed(lambda value: value["sensitivity"]["devices"][0].update(device="x"))
