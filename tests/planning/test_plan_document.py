"""Plans as documents: what comes back is the plan, verified."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.testing.profiles import examples
from tests.planning.test_planner import card, cards, machine, workloads
from tests.planning.test_questions import NAMES, boxes


@examples(30)
@given(cards, boxes, workloads, st.sampled_from([None, *NAMES]))
def test_a_plan_comes_back(tmp_path_factory, model, where, work, name):
    plan, file = hs.plan(model, where, work, tool=name), tmp_path_factory.getbasetemp() / "plan.json"
    plan.write(file)
    back = hs.read(file)
    for what in ("card", "machine", "work", "costs", "regime", "tool", "status", "placement", "value", "missing_bytes", "baselines"):
        assert getattr(back, what) == getattr(plan, what), what


def changed(tmp_path, change, **asked):
    """Return the error of reading a plan of which the JSON is changed."""
    hs.plan(card(6), machine(), hs.Workload(20, 5), **asked).write(tmp_path / "plan.json")
    value = json.loads((tmp_path / "plan.json").read_text())
    change(value)
    (tmp_path / "plan.json").write_text(json.dumps(value))
    with pytest.raises(hs.InvalidProblem) as error:
        hs.read(tmp_path / "plan.json")
    return str(error.value)


def test_what_is_not_a_plan(tmp_path):
    def stages(value, **fields):
        value["stages"][0] |= fields

    assert "the stages are not valid: the stated latency is" in changed(tmp_path, lambda value: value.update(seconds=1.0))
    assert "a stage is on 'x', which is none of the devices g0, g1, g2" in changed(tmp_path, lambda value: stages(value, device="x"))
    assert "the stages are not valid: item" in changed(tmp_path, lambda value: stages(value, last=0))
    assert "the status is 'infeasible' with 2 stages" in changed(tmp_path, lambda value: value.update(status="infeasible"))
    assert "tool is 'x'; choose from accelerate" in changed(tmp_path, lambda value: value.update(tool="x"))
