"""The answers are those of the committed record, and the comparison finds a change."""

from __future__ import annotations

import json

import pytest

from tests.reference import record

COMMITTED = [section for section in record.SECTIONS if section != "versions" and (record.HERE / f"{section}.json").exists()]


QUICK = {"names"}


@pytest.mark.parametrize("section", [pytest.param(s, marks=() if s in QUICK else pytest.mark.slow) for s in COMMITTED])
def test_nothing_differs_from_the_record(section):
    other = record.differences("versions", record.committed("versions"), record.made("versions"))
    if other:
        pytest.skip(f"the record was made with other versions: {'; '.join(other)}")
    assert record.differences(section, record.committed(section), record.made(section)) == []


def test_a_changed_answer_is_a_difference():
    before = {"heft": {"a": "0x1.0p+0 12ab", "b": ["x", "y"]}, "etf": {"a": "refused"}}
    assert record.differences("methods", before, before) == []
    assert record.differences("methods", before, {"heft": {"a": "0x1.0p+0 12ac", "b": ["x", "y"]}, "cpop": {"a": "refused"}}) == [
        "methods: heft, a: was 0x1.0p+0 12ab, is 0x1.0p+0 12ac",
        "methods: etf, a: was refused, is absent",
        "methods: cpop, a: was absent, is refused",
    ]


def test_what_is_new_is_added_and_what_differs_is_not_overwritten(tmp_path, monkeypatch, capsys):
    old = {"heft": {"a": "0x1.0p+0 12ab"}}
    (tmp_path / "methods.json").write_text(json.dumps(old))

    def add(rows):
        monkeypatch.setitem(record.SECTIONS, "methods", lambda: iter(rows))
        return record.main(["--add", "--folder", str(tmp_path), "methods"]), record.committed("methods", tmp_path)

    assert add([("heft", "a", "0x1.0p+0 12ac"), ("new", "a", "refused")]) == (1, old)
    assert "methods: heft, a: was 0x1.0p+0 12ab, is 0x1.0p+0 12ac\n1 differences" in capsys.readouterr().out
    assert add([("new", "a", "refused")]) == (1, old)
    assert add([("heft", "a", "0x1.0p+0 12ab"), ("new", "a", "refused")]) == (0, {**old, "new": {"a": "refused"}})


@pytest.mark.parametrize(
    ("now", "same"),
    [
        (["optimal", "2.0000001", "2.0"], True),
        (["optimal", "2.00001", "2.0"], False),
        (["optimal", "2.0", "1.9"], False),
        (["feasible", "2.0", "2.0"], False),
        ("refused", False),
    ],
)
def test_what_solvers_find_is_compared_to_their_tolerance(now, same):
    assert (record.differences("exact", {"milp": {"a": ["optimal", "2.0", "2.0"]}}, {"milp": {"a": now}}) == []) == same


@pytest.mark.parametrize(
    ("now", "same"),
    [("0x1.0000000000001p+0", True), ("0x1.0000010000000p+0", False), ("absent", False), (["0x1.0p+0"], True), (["0x1.0p+0"] * 2, False)],
)
def test_bounds_may_differ_by_rounding(now, same):
    assert (record.differences("bounds", {"load": {"a": "0x1.0p+0"}}, {"load": {"a": now}}) == []) == same


def test_a_schedule_with_other_times_or_devices_has_another_digest():
    problem = record.cases(8)["plain 0"]
    schedules = [record.hs.solve(problem, method).schedule for method in ("heft", "best-device")]
    digests = [record.digest(schedule) for schedule in schedules]
    assert digests[0] != digests[1]
    assert digests[0] == record.digest(record.hs.simulate(problem, schedules[0].decision))
    slower = problem.replace(durations=problem.durations * 2)
    assert digests[0] != record.digest(record.hs.simulate(slower, schedules[0].decision))
