"""Any invalid file gives one line on stderr that names it, exit code 2 and no traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from typer.testing import CliRunner

import hetsched as hs
from hetsched.cli.app import app
from hetsched.testing.profiles import examples

Spoil = Callable[[dict[str, Any]], object]


def put(*path: Any) -> Spoil:
    """Return a function that sets the value at a path in a document; the last item of `path` is the value."""
    *keys, last, value = path

    def spoil(document: dict[str, Any]) -> None:
        place: Any = document
        for key in keys:
            place = place[key]
        place[last] = value

    return spoil


def no_path(document: dict[str, Any]) -> None:
    document["cluster"]["bandwidth"] = 0.0
    document["graph"]["tasks"][0]["devices"] = ["cpu"]
    document["graph"]["tasks"][4]["devices"] = ["gpu"]


SPOILT: dict[str, tuple[Spoil, str]] = {
    "cycle": (lambda d: d["graph"]["edges"].append(["end", "load", 1.0]), "cycle: "),
    "self loop": (lambda d: d["graph"]["edges"].append(["end", "end", 1.0]), "end"),
    "dangling edge": (lambda d: d["graph"]["edges"].append(["end", "nobody", 1.0]), "'nobody'"),
    "duplicate task": (put("graph", "tasks", 1, "name", "load"), "duplicate task names: 'load'"),
    "empty name": (put("graph", "tasks", 1, "name", ""), "non-empty"),
    "negative weight": (put("graph", "tasks", 1, "weight_bytes", -1.0), "weight_bytes of task 'left' is -1.0"),
    "negative edge": (put("graph", "edges", 0, 2, -5.0), "-5.0 bytes"),
    "negative duration": (put("durations", 1, 0, -1.0), "duration of task 'left' on 'cpu' is -1.0"),
    "text for a number": (put("durations", 1, 0, "long"), "durations"),
    "number for a text": (put("graph", "tasks", 1, "name", 7), "graph.tasks"),
    "object for a list": (put("graph", "tasks", {}), "graph.tasks"),
    "null for an object": (put("graph", None), "graph"),
    "ragged durations": (put("durations", 1, [1.0]), "durations has rows of different lengths"),
    "too few durations": (lambda d: d["durations"].pop(), "durations has shape"),
    "runs nowhere": (put("durations", 1, [None, None]), "task 'left' runs on no device"),
    "unknown pin": (put("graph", "tasks", 1, "devices", ["tpu"]), "'tpu'"),
    "no pin left": (put("graph", "tasks", 1, "devices", []), "'left'"),
    "missing devices": (put("cluster", "devices", []), "at least one device"),
    "duplicate device": (put("cluster", "devices", 1, "name", "cpu"), "duplicate device names: 'cpu'"),
    "negative memory": (put("cluster", "devices", 1, "memory_bytes", -1.0), "memory_bytes of device 'gpu' is -1.0"),
    "negative bandwidth": (put("cluster", "bandwidth", -1.0), "bandwidth"),
    "no path between devices": (no_path, "no path between"),
    "unknown field": (put("colour", "green"), "colour"),
    "unknown format": (put("format", "hetsched-novel"), "'hetsched-novel'"),
    "later version": (put("version", 99), "version 99"),
    "missing field": (lambda d: d.pop("durations"), "durations"),
    "unknown communication": (put("communication", "telepathy"), "telepathy"),
    "no inputs": (put("inputs", 0), "inputs is 0"),
    "huge integer": (put("inputs", 10**40), "inputs"),
    "fractional inputs": (put("inputs", 1.5), "inputs"),
}


def assert_refused(result: Any, message: str) -> None:
    assert result.exit_code == 2, result.stdout
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


@pytest.mark.parametrize("name", SPOILT)
def test_spoilt_documents_are_refused_by_name(run: Any, document: dict[str, Any], name: str) -> None:
    spoil, message = SPOILT[name]
    spoil(document)
    Path("problem.json").write_text(json.dumps(document))
    assert_refused(run("bound", "problem.json"), message)


RAW: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "truncated"),
    "binary": (bytes(range(256)) * 20, "malformed"),
    "text": (b"hello\n", "malformed"),
    "not utf-8": (b'{"format": "hetsched-problem", "version": 1, "\xff": 1}', "problem.json"),
    "nested lists": (b"[" * 10**6, "problem.json"),
    "nested objects": (b'{"format":' * 10**6, "problem.json"),
    "nested in place": (b'{"format":"hetsched-problem","version":1,"durations":' + b"[" * 10**6 + b"]" * 10**6 + b"}", "problem.json"),
    "a list": (b"[1, 2, 3]", "object"),
    "null": (b"null", "object"),
    "no format": (b"{}", "format"),
    "NaN": (b'{"format":"hetsched-problem","version":1,"durations":[[NaN]]}', "problem.json"),
    "Infinity": (b'{"format":"hetsched-problem","version":1,"durations":[[Infinity]]}', "problem.json"),
    "a number out of range": (
        b'{"format":"hetsched-problem","version":1,"graph":{"tasks":[{"name":"a"}]},'
        b'"cluster":{"devices":[{"name":"cpu"}]},"durations":[[1e999]]}',
        "problem.json",
    ),
}


@pytest.mark.parametrize("name", RAW)
def test_what_is_no_document_is_refused(run: Any, folder: Path, name: str) -> None:
    data, message = RAW[name]
    Path("problem.json").write_bytes(data)
    assert_refused(run("bound", "problem.json"), message)


@pytest.mark.parametrize("words", [["solve"], ["bound"]])
def test_a_folder_is_no_document(run: Any, folder: Path, words: list[str]) -> None:
    assert_refused(run(*words, "."), "Is a directory")


def test_a_name_cannot_break_the_line(run: Any, document: dict[str, Any]) -> None:
    document["graph"]["tasks"][1]["name"] = "left\n\x1b[31mred"
    Path("problem.json").write_text(json.dumps(document))
    failed = run("bound", "problem.json")
    assert_refused(failed, "left")
    assert "\x1b" not in failed.stderr


@examples(40, HealthCheck.function_scoped_fixture)
@given(where=st.integers(0, 10**6), data=st.binary(max_size=3))
def test_a_cut_or_scribbled_document_never_tracebacks(tmp_path: Path, where: int, data: bytes) -> None:
    valid = VALID
    at = where % len(valid)
    path = tmp_path / "problem.json"
    path.write_bytes(valid[:at] + data + (valid[at + len(data) :] if data else b""))
    result = CliRunner().invoke(app, ["verify", str(path), str(path)])
    assert result.exit_code == 2  # a problem is not a schedule
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "(unexpected;" not in result.stderr


VALID = hs.documents.encode(
    hs.Problem(hs.TaskGraph(["a", "b"], [("a", "b", 1e6)]), hs.Cluster(["cpu", "gpu"], 1e9), durations=[[1.0, 2.0], [2.0, 1.0]])
)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (put("schedule", "batches", 0, "task", "nobody"), "'nobody'"),
        (put("schedule", "batches", 0, "device", "tpu"), "'tpu'"),
        (put("schedule", "batches", 0, "inputs", [10**30]), "`int` <= 9223372036854775807"),
        (put("schedule", "batches", 0, "start", "soon"), "start"),
        (put("schedule", "batches", None), "batches"),
        (put("schedule", "transfers", [{"edge": 0, "source": 99, "target": 0, "start": 0.0, "finish": 1.0}]), "99"),
        (put("schedule", "makespan", "long"), "makespan"),
    ],
)
def test_spoilt_schedules_are_refused(run: Any, schedule: hs.Schedule, spoil: Spoil, message: str) -> None:
    document = json.loads(Path("schedule.json").read_text())
    spoil(document)
    Path("schedule.json").write_text(json.dumps(document))
    assert_refused(run("verify", "problem.json", "schedule.json"), message)


def test_a_schedule_of_another_problem_is_refused(run: Any, schedule: hs.Schedule) -> None:
    other = hs.Problem(hs.TaskGraph(["a", "b"], [("a", "b", 1e6)]), hs.Cluster(["cpu", "tpu"], 1e9), durations=[[1.0, 2.0], [2.0, 1.0]])
    other.write("problem.json")
    assert_refused(run("verify", "problem.json", "schedule.json"), "the schedule has 5 tasks, the problem 2")
