"""Records of cases: kept, read again whatever has happened to the file, and those of earlier versions too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import InvalidArgument, InvalidProblem
from hetsched.experiments import Results, results
from hetsched.testing.profiles import examples

cases = st.fixed_dictionaries({"name": st.sampled_from("abc"), "seed": st.integers(0, 2)})
found = st.dictionaries(st.sampled_from(["makespan", "bound"]), st.floats(allow_nan=False), max_size=2)


@examples(25)
@given(st.lists(st.tuples(cases, found | st.none()), max_size=8), st.integers(0, 8), st.integers(1, 60))
def test_a_file_torn_anywhere_has_what_was_stored_before(tmp_path_factory, records, whole, cut):
    path = tmp_path_factory.mktemp("torn") / "results.jsonl"
    store = Results(path)
    for case, result in records[:whole]:
        store.add(case, result, failure={"status": "late", "error": ""}) if result is None else store.add(case, result)
    before = Results(path)
    assert (before.rows(), before.failures()) == (store.rows(), store.failures())
    expected = store.rows()
    with open(path, "ab") as file:  # a process that is killed while it writes a line
        file.write(json.dumps({"case": {"name": "torn"}, "result": {"text": "x" * 60}}).encode()[:-cut])
    again = Results(path)
    assert again.rows() == expected
    again.add({"name": "next"}, {})
    assert Results(path).rows() == [*expected, {"name": "next"}]


def test_a_last_line_without_an_end_is_a_record_if_it_is_whole(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"case": {"x": 1}, "result": {}, "where": "here", "date": "2026-01-01"}')
    store = Results(path)
    store.add({"x": 2}, {"y": 3})
    assert Results(path).rows() == [{"x": 1}, {"x": 2, "y": 3}]


def test_a_later_record_replaces_an_earlier_one_and_files_may_be_joined(tmp_path: Path):
    first, second, joined = (tmp_path / f"{name}.jsonl" for name in ("first", "second", "joined"))
    Results(first).add({"x": 1}, failure={"status": "failed", "error": "no"})
    Results(first).add({"x": 2}, {"y": 1})
    Results(second).add({"x": 1}, {"y": 2})
    Results(second).add({"x": 2}, {"y": 3})
    assert ({"x": 1} in Results(first), {"x": 2} in Results(first)) == (False, True)
    assert Results(first).failures() == [{"x": 1, "status": "failed", "error": "no"}]
    joined.write_bytes(first.read_bytes() + second.read_bytes())
    assert Results(joined).rows() == [{"x": 1, "y": 2}, {"x": 2, "y": 3}]
    assert Results(joined).failures() == []
    assert len(Results(joined)) == 2


def test_names_of_a_problem_are_not_its_identity():
    store = Results()
    store.add({"instance": "mine", "digest": "00", "seed": 0}, {"makespan": 1.0})
    assert {"instance": "yours", "digest": "00", "seed": 0} in store
    assert {"instance": "mine", "digest": "01", "seed": 0} not in store
    store.add({"instance": "mine"}, {})
    assert {"instance": "yours"} not in store
    assert 3 not in store


def test_records_of_earlier_versions_are_read(tmp_path: Path):
    path = tmp_path / "old.jsonl"
    days = [("here", "2026-01-03"), ("here", "2026-01-01"), ("there", "2026-01-02"), ("here", "2026-01-02")]
    lines = [{"case": {"number": i}, "found": {"y": i}, "where": place, "date": day} for i, (place, day) in enumerate(days)]
    path.write_text("\n".join(map(json.dumps, lines)))
    store = Results(path)
    assert store.rows(lambda case: case["number"] > 1) == [{"number": 2, "y": 2}, {"number": 3, "y": 3}]
    assert store.taken() == "here, 2026-01-01 to 2026-01-03; there, 2026-01-02"
    assert store.taken([{"number": 1}, {"number": 9}]) == "here, 2026-01-01"
    assert store.outdated() == 4


def test_what_is_no_record_is_refused():
    store = Results()
    for arguments in ({}, {"result": {}, "failure": {}}):
        with pytest.raises(InvalidArgument, match="give either the result of a case or its failure, and not both"):
            store.add({"x": 1}, **arguments)
    with pytest.raises(InvalidArgument, match="cannot be written: .* give JSON values"):
        store.add({"x": 1}, {"y": object()})
    with pytest.raises(InvalidArgument, match="a case is 3; it must be a mapping"):
        store.rows([3])
    assert len(store) == 0


@pytest.mark.parametrize("line", ["{", "[]", '{"found": {}}', '{"case": {}}', '{"case": 3, "result": {}}'])
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str):
    path = tmp_path / "results.jsonl"
    path.write_text(f'{{"case": {{}}, "result": {{}}}}\n{line}\n')
    with pytest.raises(InvalidProblem, match="line 2 of .* is not a record; remove it, or give another file"):
        Results(path)


def test_a_frame_has_a_row_for_each_record():
    pytest.importorskip("pandas")
    store = Results()
    store.add({"x": 1}, {"makespan": 2.0, "status": "optimal"})
    store.add({"x": 2}, failure={"status": "late", "error": "too long"})
    frame = store.frame()
    assert frame["status"].tolist() == ["optimal", "late"]
    assert frame["makespan"].tolist()[0] == 2.0
    assert frame["sources"].tolist() == [results.sources()] * 2


@pytest.mark.parametrize("text", [b"precious text without an end", b"\xff\xfe", b"1", b"[]"])
def test_a_file_of_something_else_is_refused_and_stays(tmp_path: Path, text: bytes):
    path = tmp_path / "precious"
    path.write_bytes(text)
    with pytest.raises(InvalidProblem, match="line 1 of .*precious is not a record; remove it, or give another file"):
        Results(path)
    assert path.read_bytes() == text
