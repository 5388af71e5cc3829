"""The independent check of placements: every rule is found exactly, and it agrees with enumeration and with `evaluate`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.chain.evaluation import evaluate
from hetsched.chain.offloading import Offloading
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.testing import best_placements, chain_problems, placements
from hetsched.testing.profiles import examples
from hetsched.verification.placement import PLACEMENT_RULES, verify_placement

NOT_OF_EVALUATE = {"item-time", "hop", "memory"}
"""The rules that a placement may break for which `evaluate` has values."""


def rules(violations):
    return {violation.rule for violation in violations}


# ---------------------------------------------------------------------- against the enumeration and the evaluation


@given(chain_problems())
def test_what_the_enumeration_returns_is_valid_and_evaluate_agrees(problem):
    best = best_placements(problem)
    for row in (best.latency, *best.latency_by_stages):
        if row.placement is not None:
            assert verify_placement(problem, row.placement, latency=row.value) == []
            assert evaluate(problem, row.placement).latency == row.value
            assert evaluate(problem, row.placement).fits
    if best.period.placement is not None:
        assert verify_placement(problem, best.period.placement, period=best.period.value) == []
        assert evaluate(problem, best.period.placement).period == best.period.value
    least = best.missing_bytes
    assert evaluate(problem, least.placement).missing_bytes.sum() == least.value
    violations = verify_placement(problem, least.placement)
    assert sum(violation.amount for violation in violations) == least.value
    assert rules(violations) <= {"memory"}


@pytest.mark.slow
@examples(300)
@given(st.data())
def test_it_agrees_with_evaluate_about_every_placement(data):
    problem = data.draw(chain_problems())
    placement = data.draw(placements(problem))
    violations = verify_placement(problem, placement)
    if rules(violations) - NOT_OF_EVALUATE:
        with pytest.raises(hs.InvalidSchedule):
            evaluate(problem, placement)
        return
    values = evaluate(problem, placement)
    assert [violation.amount for violation in violations if violation.rule == "memory"] == values.missing_bytes[
        values.missing_bytes > 0
    ].tolist()
    assert ("hop" in rules(violations)) == math.isinf(values.latency)
    assert verify_placement(problem, placement, latency=values.latency, period=values.period) == violations


@given(st.data())
def test_a_stated_time_that_is_off_is_found_and_one_within_the_tolerance_is_not(data):
    problem = data.draw(chain_problems(impossible=False))
    placement = Placement([(data.draw(st.integers(0, problem.n_devices - 1)), 0, problem.n_items)])
    value = evaluate(problem, placement).latency
    others = verify_placement(problem, placement)
    assert verify_placement(problem, placement, latency=value * (1 + 5e-10), period=value * (1 - 5e-10)) == others
    for off in (value * (1 + 2e-9) + 1e-300, -1.0, math.inf):
        for rule in ("latency", "period"):
            (violation,) = [row for row in verify_placement(problem, placement, **{rule: off}) if row not in others]
            assert (violation.rule, violation.amount, violation.times) == (rule, abs(off - value), (off, value))


@given(st.data())
def test_no_violation_hides_another(data):
    problem = data.draw(chain_problems(tight=True, impossible=True))
    placement = data.draw(placements(problem))
    violations = verify_placement(problem, placement)
    unknown = [stage for stage in placement.stages if not 0 <= stage.device < problem.n_devices]
    expected = {
        "range": any(not 0 <= i < problem.n_items for stage in placement.stages for i in range(stage.first, stage.end)),
        "empty": any(stage.first >= stage.end for stage in placement.stages),
        "device": bool(unknown),
        "one-stage": len({stage.device for stage in placement.stages}) < len(placement.stages),
    }
    assert {rule for rule, broken in expected.items() if broken} == rules(violations) & set(expected)
    held = [i for stage in placement.stages for i in range(stage.first, stage.end)]
    wrong = {f"i{i}" for i in range(problem.n_items) if held.count(i) != 1}
    assert {violation.tasks[0] for violation in violations if violation.rule == "coverage"} == wrong
    # The memory of a stage does not depend on what is wrong elsewhere.
    alone = [row for stage in placement.stages for row in verify_placement(problem, Placement([stage])) if row.rule == "memory"]
    together = [row for row in violations if row.rule == "memory"]
    assert [(row.amount, row.tasks, row.devices) for row in together] == [(row.amount, row.tasks, row.devices) for row in alone]
    told = verify_placement(problem, placement, latency=math.nan)
    assert ("latency" in rules(told)) == (bool(placement.stages) and not expected["range"] and not unknown)
    assert [row for row in told if row.rule != "latency"] == violations


# ---------------------------------------------------------------------- by hand


def chain(**changes):
    """Return a chain of 4 items on 3 devices, on which no number occurs twice."""
    given = {
        "weight_bytes": [10, 20, 30, 40],
        "cache_bytes": [1, 2, 3, 4],
        "workspace_bytes": [5, 50, 7, 6],
        "memory_bytes": [83, 84, 150],
        "stage_seconds": [0.125, 0.25, 0.5],
        "hops": [[0, 1, 2], [3, 0, 4], [5, math.inf, 0]],
        "closing": [[0, 0.0625, 0.25], [0.5, 0, 0.75], [math.inf, 1.25, 0]],
        "shared_bytes": 9,
    }
    seconds = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]
    return ChainProblem(["a", "b", "c", "d"], ["x", "y", "z"], seconds, **{**given, **changes})


def told(placement, problem=None, **stated):
    return [(str(row), row.amount) for row in verify_placement(problem or chain(), Placement(placement), **stated)]


VALID = [(0, 0, 2), (1, 2, 4)]
LATENCY = 0.125 + 1 + 4 + 1 + 0.25 + 8 + 11 + 0.5


def test_a_placement_by_hand_is_valid():
    assert told(VALID, latency=LATENCY, period=19.25) == []
    assert told([(0, 0, 4)], chain(memory_bytes=None), latency=22.125, period=22.125) == []


def test_of_overlapped_times_only_the_largest_counts():
    """The stages overlap with 1.5 and 4 of their seconds, the hop with 1."""
    overlapped = chain(overlapped_seconds=[[0.5, 0, 0], [1, 0, 0], [0, 1, 0], [0, 3, 0]], overlapped_hops=[[0, 1, 0], [0, 0, 0], [0, 0, 0]])
    assert told(VALID, overlapped, latency=LATENCY - 1.5 - 1, period=19.25) == []
    assert told(VALID, overlapped, latency=LATENCY) == [
        (f"latency: the stated latency is {LATENCY} s, that of the stages {LATENCY - 2.5} s", 2.5)
    ]
    one = [(0, 0, 4)]
    assert told(one, overlapped.replace(memory_bytes=None), latency=22.125, period=22.125) == []
    limited = overlapped.replace(most_in_progress=1)
    assert told(VALID, limited, period=LATENCY - 2.5) == []


def test_the_period_is_the_mean_where_it_is_more_than_the_largest_load():
    roomy, even = chain(memory_bytes=None), [(0, 0, 3), (1, 3, 4)]
    assert told(even, roomy, latency=12.125 + 1 + 11.25 + 0.5, period=12.4375) == []
    assert told(even, roomy, period=12.125) == [("period: the stated period is 12.125 s, that of the stages 12.4375 s", 0.3125)]
    limited = [("period: the stated period is 12.4375 s, that of the stages 24.875 s", 12.4375)]
    assert told(even, roomy.replace(most_in_progress=1), period=12.4375) == limited
    assert (
        told(even, roomy.replace(most_in_progress=2), period=12.4375) == told(even, roomy.replace(most_in_progress=3), period=12.4375) == []
    )
    assert told([(1, 0, 2), (2, 2, 4)], chain(stage_seconds=None, closing=None), latency=7 + 4 + 21, period=21.0) == []


@pytest.mark.parametrize(
    ("placement", "violations"),
    [
        ([], [(f"coverage: item {name!r} is in no stage", 1.0) for name in "abcd"]),
        ([(0, 0, 2), (1, 2, 3)], [("coverage: item 'd' is in no stage", 1.0)]),
        (
            [(0, 0, 1), (1, 2, 4)],
            [("coverage: item 'b' is in no stage", 1.0), ("order: stage 1 begins with item 2, but stage 0 ends before item 1", 1.0)],
        ),
        (
            [(0, 0, 2), (1, 1, 2), (2, 1, 4)],
            [
                ("coverage: item 'b' is in stages 0, 1, 2", 2.0),
                ("order: stage 1 begins with item 1, but stage 0 ends before item 2", 1.0),
                ("order: stage 2 begins with item 1, but stage 1 ends before item 2", 1.0),
                ("hop: from the last stage back to the first, 'z' to 'x', is impossible: inf seconds", 1.0),
            ],
        ),
        (
            [(1, 2, 4), (0, 0, 2)],
            [
                ("order: stage 0 begins with item 2, but the chain begins with item 0", 2.0),
                ("order: stage 1 begins with item 0, but stage 0 ends before item 4", 4.0),
            ],
        ),
        ([(0, 0, 2), (1, 2, 6)], [("range: stage 1 on 'y' has items 2 to 5; the chain has 0 to 3", 2.0)]),
        (
            [(0, -1, 2), (1, 2, 4)],
            [
                ("range: stage 0 on 'x' has items -1 to 1; the chain has 0 to 3", 1.0),
                ("order: stage 0 begins with item -1, but the chain begins with item 0", 1.0),
            ],
        ),
        (
            [(0, 0, 2), (2, 2, 2), (1, 2, 4)],
            [
                ("empty: stage 1 has no item: it begins with item 2 and ends before item 2", 1.0),
                ("hop: from stage 1 to stage 2, 'z' to 'y', is impossible: inf seconds", 1.0),
            ],
        ),
        (
            [(0, 0, 2), (2, 2, 1), (1, 2, 4)],
            [
                ("order: stage 2 begins with item 2, but stage 1 ends before item 1", 1.0),
                ("empty: stage 1 has no item: it begins with item 2 and ends before item 1", 2.0),
                ("hop: from stage 1 to stage 2, 'z' to 'y', is impossible: inf seconds", 1.0),
            ],
        ),
        ([(0, 0, 2), (3, 2, 4)], [("device: stage 1 is on device 3; the problem has devices 0 to 2", 1.0)]),
        ([(-1, 0, 2), (1, 2, 4)], [("device: stage 0 is on device -1; the problem has devices 0 to 2", 1.0)]),
        (
            [(9, 0, 1), (0, 1, 2), (9, 2, 4)],
            [
                ("device: stage 0 is on device 9; the problem has devices 0 to 2", 1.0),
                ("device: stage 2 is on device 9; the problem has devices 0 to 2", 1.0),
                ("one-stage: device 9 has stages 0, 2; a device has at most one", 1.0),
            ],
        ),
        ([(0, 0, 1), (0, 1, 2), (1, 2, 3), (0, 3, 4)], [("one-stage: 'x' has stages 0, 1, 3; a device has at most one", 2.0)]),
        ([(0, 0, 2), (2, 2, 4)], [("hop: from the last stage back to the first, 'z' to 'x', is impossible: inf seconds", 1.0)]),
        ([(2, 0, 2), (1, 2, 4)], [("hop: from stage 0 to stage 1, 'z' to 'y', is impossible: inf seconds", 1.0)]),
        ([(1, 0, 2), (0, 2, 4)], [("memory: stage 1 on 'x' needs 84 bytes, 1 more than its 83", 1.0)]),
        ([(2, 0, 4)], [("memory: stage 0 on 'z' needs 151 bytes, 1 more than its 150", 1.0)]),
    ],
)
def test_each_rule_is_found_exactly(placement, violations):
    assert told(placement) == violations


def test_one_byte_decides():
    for device, memory in ((0, [84, 0, 0]), (1, [0, 84, 0])):
        problem = chain(memory_bytes=[memory[0] or 200, memory[1] or 200, 200], hops=None, closing=None)
        assert told([(1 - device, 0, 2), (device, 2, 4)], problem) == []
        lower = chain(memory_bytes=[memory[0] - 1 if memory[0] else 200, memory[1] - 1 if memory[1] else 200, 200], hops=None, closing=None)
        (violation,) = verify_placement(lower, Placement([(1 - device, 0, 2), (device, 2, 4)]))
        assert (violation.rule, violation.amount, violation.tasks, violation.devices) == ("memory", 1.0, ("c", "d"), ("xyz"[device],))
    large = chain(weight_bytes=[80e9, 20, 30, 40], memory_bytes=[80e9 + 72, 84, 0], hops=None, closing=None)
    assert told(VALID, large) == [("memory: stage 0 on 'x' needs 80000000073 bytes, 1 more than its 80000000072", 1.0)]


def test_shared_weights_count_once_in_a_stage_of_the_whole_chain_only():
    assert told([(2, 0, 4)], chain(memory_bytes=[0, 0, 151])) == []
    assert told([(2, 0, 4)], chain(memory_bytes=[0, 0, 151], shared_bytes=8)) != []
    beyond = verify_placement(chain(memory_bytes=[0, 0, 150]), Placement([(2, -3, 9)]))
    assert [(row.rule, row.amount) for row in beyond] == [("range", 8.0), ("order", 3.0), ("memory", 1.0)]


def test_infinite_times_of_items_and_stages_are_found():
    seconds = [[1, 2, 3], [math.inf, 5, 6], [7, 8, 9], [math.inf, 11, 12]]
    problem = ChainProblem(["a", "b", "c", "d"], ["x", "y", "z"], seconds, stage_seconds=[0, 0, math.inf])
    assert told([(0, 0, 4)], problem, latency=math.inf) == [
        ("item-time: 2 items of stage 0 on 'x', the first of them 'b', cannot run there: inf seconds", 2.0)
    ]
    assert told([(2, 0, 2), (0, 2, 3), (1, 3, 4)], problem, period=math.inf) == [("item-time: a stage on 'z' takes inf seconds", 1.0)]


def test_stated_times_are_compared():
    assert told(VALID, latency=LATENCY + 0.5, period=20.0) == [
        ("latency: the stated latency is 26.375 s, that of the stages 25.875 s", 0.5),
        ("period: the stated period is 20 s, that of the stages 19.25 s", 0.75),
    ]
    assert told(VALID, latency=math.nan) == [("latency: the stated latency is nan s, that of the stages 25.875 s", math.inf)]
    impossible = [(2, 0, 2), (1, 2, 4)]
    assert [row for row, _ in told(impossible, latency=1.0, period=math.inf)] == [
        "hop: from stage 0 to stage 1, 'z' to 'y', is impossible: inf seconds",
        "latency: the stated latency is 1 s, that of the stages inf s",
    ]
    zero = ChainProblem(["a"], ["x"], [[0.0]])
    assert told([(0, 0, 1)], zero, latency=0.0, period=0.0) == []
    assert told([(0, 0, 1)], zero, latency=1e-30) == [("latency: the stated latency is 1e-30 s, that of the stages 0 s", 1e-30)]


def test_stated_times_are_compared_beside_other_violations():
    gap = [(0, 0, 1), (1, 2, 4)]
    assert [row.rule for row in verify_placement(chain(), Placement(gap), latency=25.875, period=19.25)] == ["coverage", "order", "latency"]
    assert [row.rule for row in verify_placement(chain(), Placement([(0, 0, 2), (7, 2, 4)]), latency=1.0)] == ["device"]
    assert [row.rule for row in verify_placement(chain(), Placement([(0, 0, 2), (1, 2, 5)]), period=1.0)] == ["range"]
    assert "latency" not in rules(verify_placement(chain(), Placement([]), latency=1.0))


def offloading(**changes):
    """Return a chain of two items, of 4 and 5 bytes, whose weights x and y may hold."""
    moved = Offloading([4.0, 5.0], np.ones((2, 3)), [[2.0, 2.0, math.inf]] * 2, **changes)
    return ChainProblem("ab", "xyz", np.ones((2, 3)), weight_bytes=[4.0, 5.0], memory_bytes=[10, 5, 10], offloading=moved)


@pytest.mark.parametrize(
    ("stages", "offloaded", "expected"),
    [
        ([(0, 0, 2)], [(0, 1)], []),
        ([(0, 0, 2)], [(0, 1), (1, 1)], ["kept: stage 0 on 'x' keeps no weights: all are offloaded",
                                         "memory: 'y' holds 9 bytes for stages, 4 more than its 5"]),
        ([(2, 0, 2)], [(1, 2)], ["offload: item 'b' is offloaded to 'z', which is impossible: inf seconds",
                                 "memory: stage 0 on 'z' needs 14 bytes, 5 of them for other stages, 4 more than its 10"]),
        ([(0, 0, 2)], [(1, 2)], ["offload: item 'b' is offloaded to 'z', which is impossible: inf seconds"]),
        ([(0, 0, 2)], [(1, 7)], ["offload: item 'b' is offloaded to device 7; the problem has devices 0 to 2"]),
        ([(0, 0, 2)], [(7, 1)], ["offload: item 'number 7' has no weights that may be offloaded"]),
        ([(0, 0, 2)], [(0, 1), (0, 1)], ["offload: item 'a' is offloaded twice",
                                         "memory: 'y' holds 8 bytes for stages, 3 more than its 5"]),
        ([(2, 0, 1), (1, 1, 2)], [(0, 1)], ["kept: stage 0 on 'z' keeps no weights: all are offloaded",
                                            "memory: stage 1 on 'y' needs 9 bytes, 4 of them for other stages, 4 more than its 5"]),
    ],
)  # fmt: skip
def test_offloaded_items(stages, offloaded, expected):
    found = [f"{row.rule}: {row.message}" for row in verify_placement(offloading(), Placement(stages, offloaded))]
    assert found == expected


def test_items_are_offloaded_from_the_first_stage_where_no_other_may():
    placement = Placement([(2, 0, 1), (0, 1, 2)], [(1, 1)])
    found = [row.message for row in verify_placement(offloading(only_first=True), placement) if row.rule == "offload"]
    assert found == ["item 'b' is offloaded behind the first stage"]
    assert [row.rule for row in verify_placement(offloading(), Placement([(0, 1, 2)], [(0, 1)])) if row.rule == "offload"] == ["offload"]


def test_the_time_of_offloaded_items_is_stated():
    assert verify_placement(offloading(), Placement([(0, 0, 2)], [(0, 1)]), latency=4.0) == []
    wrong = verify_placement(offloading(), Placement([(0, 0, 2)], [(0, 1)]), latency=2.0)
    assert [row.message for row in wrong] == ["the stated latency is 2 s, that of the stages 4 s"]


def test_every_rule_has_a_case_here():
    many = [
        *verify_placement(chain(), Placement([(0, 0, 2), (0, 1, 5), (9, 3, 3), (2, 0, 4), (1, 0, 1)])),
        *verify_placement(chain(), Placement([(1, 0, 2), (0, 2, 4)]), latency=1.0, period=1.0),
        *verify_placement(ChainProblem(["a"], ["x"], [[math.inf]]), Placement([(0, 0, 1)])),
        *verify_placement(offloading(), Placement([(0, 0, 2)], [(0, 1), (1, 0)])),
        *verify_placement(offloading(), Placement([(0, 0, 2)], [(0, 1), (1, 1)])),
        *verify_placement(chain().replace(nodes=[0, 1, 0]), Placement([(0, 0, 1), (1, 1, 2), (2, 2, 4)])),
    ]
    assert rules(many) == set(PLACEMENT_RULES)


def test_wrong_arguments_are_refused():
    with pytest.raises(hs.InvalidArgument, match="problem is 3; it must be a ChainProblem"):
        verify_placement(3, Placement([]))
    with pytest.raises(hs.InvalidArgument, match="it must be a Placement"):
        verify_placement(chain(), VALID)
    with pytest.raises(hs.InvalidArgument, match="latency is 'fast'; it must be a number, or None"):
        verify_placement(chain(), Placement(VALID), latency="fast")
