"""Stage schedules: the check finds every kind of fault, and documents are equal to the bit after a round trip."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import hetsched as hs
from hetsched.documents import KINDS, decode, encode
from hetsched.verification.stages import STAGE_RULES

GRAPH = hs.TaskGraph(list("abcde"), [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("c", "e")])
GROUPS = [[["a"]], [["b"], ["c", "e"]], [["d"]]]


def schedule(groups=GROUPS, strategies=("concurrent",) * 3, latencies=(1.0, 2.5, 0.5), **more):
    return hs.StageSchedule.from_groups(GRAPH.names, groups, strategies, latencies, **more)


def cost(tasks, strategy):
    return {("a",): 1.0, ("b", "c", "e"): 2.5, ("d",): 0.5}[tasks]


def test_a_valid_schedule():
    stages = schedule()
    assert hs.verify_stages(GRAPH, stages, groups=2, group_size=2, cost=cost) == []
    assert (stages.latency, len(stages)) == (4.0, 3)
    assert stages.groups(1) == [("b",), ("c", "e")]
    assert stages.stage_of.tolist() == [0, 1, 1, 2, 1]
    assert stages.start.tolist() == [0.0, 1.0, 3.5]


BROKEN = {
    "coverage": (
        schedule([[["a"]], [["b"], ["c"]], [["d"]]]),
        schedule([[["a"]], [["b"], ["c", "e"]], [["d"], ["a"]]]),
        schedule([*GROUPS, []], ("concurrent",) * 4, (1, 1, 1, 1)),
        schedule([[["a"], []], *GROUPS[1:]]),
    ),
    "ending": (schedule([[["b"], ["c", "e"]], [["a"]], [["d"]]]), schedule([[["a"]], [["b", "d"]], [["c", "e"]]])),
    "groups": (schedule([[["a"]], [["b"], ["c"], ["e"]], [["d"]]]), schedule([[["a"]], [["b", "c", "e"]], [["d"]]])),
    "order": (schedule([[["a"]], [["b"], ["e", "c"]], [["d"]]]),),
    "strategy": (schedule(strategies=("concurrent", "both", "concurrent")),),
    "latency": (
        schedule(latencies=(1.0, 2.0, 0.5)),
        schedule(latencies=(1.0, -2.5, 0.5)),
        schedule(latencies=(1.0, math.nan, 0.5)),
        schedule(latencies=(1.0, math.inf, 0.5)),
    ),
    "total": (schedule(latency=3.9), schedule(latency=math.nan), schedule(latency=4.0 + 1e-7)),
}


@pytest.mark.parametrize(("rule", "stages"), [(rule, stages) for rule, schedules in BROKEN.items() for stages in schedules])
def test_each_kind_of_broken_schedule_is_caught(rule, stages):
    violations = hs.verify_stages(GRAPH, stages, cost=lambda tasks, strategy: cost(tasks, strategy) if tasks in KNOWN else 1.0)
    assert rule in {violation.rule for violation in violations}
    assert all(violation.amount > 0 and str(violation).startswith(violation.rule) for violation in violations)


KNOWN = {("a",), ("b", "c", "e"), ("d",)}


@pytest.mark.parametrize(("limits", "rule"), [({"groups": 1}, "group-limit"), ({"group_size": 1}, "size-limit")])
def test_limits_are_checked(limits, rule):
    (violation,) = hs.verify_stages(GRAPH, schedule(), **limits)
    assert (violation.rule, violation.amount) == (rule, 1.0)


def test_every_rule_is_broken_somewhere_above():
    assert {*BROKEN, "group-limit", "size-limit"} == set(STAGE_RULES)


def test_a_schedule_of_other_tasks_is_refused():
    with pytest.raises(hs.InvalidSchedule, match="they differ in 'e'"):
        hs.verify_stages(hs.TaskGraph(list("abcd"), []), schedule())
    with pytest.raises(hs.InvalidSchedule, match="another order"):
        hs.verify_stages(hs.TaskGraph(list("edcba"), []), schedule())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": [[["x"]], [], []]}, "'x' is no task"),
        ({"latencies": (1.0,)}, "3 stages, 3 strategies and 1 latencies"),
        ({"strategies": ()}, "3 stages, 0"),
    ],
)
def test_what_does_not_fit_together_is_refused(arguments, message):
    with pytest.raises(hs.InvalidSchedule, match=message):
        schedule(**arguments)


def test_documents_come_back_to_the_bit(tmp_path: Path):
    stages = schedule(strategies=("concurrent", "merge", "concurrent"), latencies=(1 / 3, 0.1, 1e-7), asked=3, possible=9, messages=["cut"])
    stages.write(tmp_path / "stages.json")
    again = hs.read(tmp_path / "stages.json")
    assert again == stages
    assert encode(again) == encode(stages)
    assert not np.shares_memory(again.members, stages.members)
    assert hs.read(_written(tmp_path, schedule([], (), ()))) == schedule([], (), ())


def _written(folder: Path, stages):
    stages.write(folder / "empty.json")
    return folder / "empty.json"


def test_a_document_with_an_unknown_task_is_refused(tmp_path: Path):
    path = tmp_path / "stages.json"
    path.write_bytes(encode(schedule()).replace(b'["d"]', b'["x"]'))
    with pytest.raises(hs.InvalidSchedule, match="'x' is no task of the schedule"):
        hs.read(path)


def test_it_cannot_be_changed_or_made_by_hand():
    stages = schedule()
    with pytest.raises(AttributeError, match="immutable"):
        stages.latency = 1.0
    with pytest.raises(ValueError, match="read-only"):
        stages.members[0] = 1
    with pytest.raises(TypeError, match="made by hetsched.stages"):
        hs.StageSchedule()


@pytest.mark.slow
def test_many_stages_come_back():
    many = 50_000  # quadratic time would be minutes
    stages = schedule([GROUPS[1]] * many, ["concurrent"] * many, [1.0] * many)
    assert decode(encode(stages), KINDS) == stages


@pytest.mark.parametrize("wrong", [{"strategies": ["concurrent", "\ud800"]}, {"messages": ["\ud800"]}])
def test_stages_hold_only_text_that_a_document_can_hold(wrong):
    fields = {"strategies": ["concurrent", "concurrent"], **wrong}
    with pytest.raises(hs.InvalidSchedule, match="is not Unicode text, as strategies and messages must be"):
        hs.StageSchedule.from_groups(["a", "b"], [[["a"]], [["b"]]], latencies=[1.0, 1.0], **fields)
