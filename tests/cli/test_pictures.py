"""Reports, traces and charts of `solve`, `demo` and `show`, and the output of `show`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hetsched as hs
from hetsched.search import Method, Monitor, temporarily

PICTURES = ["--report", "report.html", "--trace", "trace.json", "--gantt", "gantt.svg"]
FILES = ["trace.json", "gantt.svg", "report.html"]


def assert_pictures(problem: hs.Problem) -> None:
    """Assert that each picture has its format and shows this problem."""
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    assert {event["name"] for event in events} >= set(problem.graph.names)
    assert Path("gantt.svg").read_text().lstrip().startswith("<?xml")
    assert "<html" in Path("report.html").read_text()


@pytest.fixture
def nothing() -> Iterator[None]:
    """Register a method "idle" that finds no schedule."""

    def idle(problem: hs.Problem, monitor: Monitor) -> None:
        monitor.note("nothing fits")

    with temporarily(Method("idle", "offers nothing", idle)):
        yield


@pytest.fixture
def broken(schedule: hs.Schedule) -> None:
    """Change schedule.json so that it breaks a rule."""
    spoilt = json.loads(Path("schedule.json").read_text())
    spoilt["schedule"]["batches"][2]["finish"] += 5.0
    Path("schedule.json").write_text(json.dumps(spoilt))


@pytest.mark.slow
def test_solve_writes_and_lists_them(run: Any, problem: hs.Problem) -> None:
    solved = run("solve", "problem.json", "--method", "heft", "-o", "schedule.json", *PICTURES)
    assert (solved.exit_code, solved.stderr) == (0, "")
    assert [line.split()[1] for line in solved.stdout.splitlines() if line.startswith("wrote")] == ["schedule.json", *FILES]
    assert_pictures(problem)
    assert json.loads(run("solve", "problem.json", "--method", "heft", *PICTURES, "--json").stdout)["written"] == FILES


@pytest.mark.slow
@pytest.mark.usefixtures("short_demo")
def test_demo_writes_and_lists_them(run: Any) -> None:
    shown = run("demo", "--network", "googlenet", *PICTURES)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert [line for line in shown.stdout.splitlines() if line.startswith("wrote")] == [
        f"wrote {name}" for name in ("problem.json", "schedule.json", *FILES)
    ]
    problem = hs.read("problem.json")
    assert isinstance(problem, hs.Problem)
    assert_pictures(problem)
    assert all(name in Path("report.html").read_text() for name in ("heft", "best-device"))  # the methods compared


@pytest.mark.slow
def test_show_prints_draws_and_writes(run: Any, problem: hs.Problem, schedule: hs.Schedule) -> None:
    shown = run("show", "problem.json", "schedule.json", *PICTURES)
    assert (shown.exit_code, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert any(line.startswith("verified  yes") for line in lines)
    assert any(line.startswith("cpu ") and line.endswith("100%") for line in lines)
    assert [line.split()[1] for line in lines if line.startswith("wrote")] == FILES
    assert_pictures(problem)


def test_solve_show_draws_what_show_draws(run: Any, problem: hs.Problem) -> None:
    solved = run("solve", "problem.json", "--method", "heft", "--show", "--solution", "solution.json").stdout
    shown = run("show", "problem.json", "solution.json").stdout
    charts = [text[text.index(" long\n") :] for text in (solved, shown)]
    assert charts[0] == charts[1]
    assert "cpu" not in run("solve", "problem.json", "--method", "heft").stdout


def test_show_prints_the_bound_of_a_solution_or_a_quick_one(run: Any, problem: hs.Problem) -> None:
    solution = hs.solve(problem, "auto")
    assert solution.schedule is not None
    solution.write("solution.json")
    solution.schedule.write("schedule.json")
    facts = json.loads(run("show", "problem.json", "solution.json", "--json").stdout)
    assert (facts["valid"], facts["bound"], facts["method"]) == (True, solution.bound, solution.method)
    facts = json.loads(run("show", "problem.json", "schedule.json", "--json").stdout)
    assert 0 < facts["bound"] <= solution.makespan
    assert (facts["makespan"], facts["method"]) == (solution.makespan, "schedule.json")


def test_of_an_invalid_schedule_only_the_report_is_written(run: Any, problem: hs.Problem, broken: None) -> None:
    shown = run("show", "problem.json", "schedule.json", *PICTURES)
    assert shown.exit_code == 1
    assert "status    NOT VALID: " in shown.stdout
    assert "verified" not in shown.stdout
    assert shown.stderr.splitlines() == [f"note: {name} is not written: there is no valid schedule" for name in FILES[:2]]
    assert [Path(name).exists() for name in FILES] == [False, False, True]
    facts = json.loads(run("show", "problem.json", "schedule.json", "--json").stdout)
    assert (facts["valid"], facts["status"]) == (False, "invalid")


def test_without_a_schedule_only_the_report_is_written(run: Any, problem: hs.Problem, nothing: None) -> None:
    solved = run("solve", "problem.json", "--method", "idle", "--solution", "solution.json", "--show", *PICTURES)
    assert solved.exit_code == 1
    notes = [f"note: {name} is not written: there is no valid schedule" for name in FILES[:2]]
    assert solved.stderr.splitlines() == ["note: idle: nothing fits", *notes]
    assert [Path(name).exists() for name in FILES] == [False, False, True]
    shown = run("show", "problem.json", "solution.json")
    assert shown.exit_code == 2
    assert "solution.json holds a solution without a schedule; there is nothing to show" in shown.stderr


@pytest.mark.slow
def test_what_cannot_be_written_loses_nothing_else(run: Any, problem: hs.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device", "trace.json")

    def bug(*_: Any, **__: Any) -> None:
        raise KeyError("colour")

    monkeypatch.setattr(hs.report, "write_trace", full)
    monkeypatch.setattr(hs.report, "write_gantt", bug)
    solved = run("solve", "problem.json", "-o", "schedule.json", *PICTURES)
    assert solved.exit_code == 2
    assert solved.stderr.splitlines() == [
        "error: trace.json: No space left on device",
        "error: gantt.svg is not written: KeyError: 'colour' (unexpected; --debug shows where)",
    ]
    assert "makespan" in solved.stdout
    assert [line.split()[1] for line in solved.stdout.splitlines() if line.startswith("wrote")] == ["schedule.json", "report.html"]
    assert isinstance(run("solve", "problem.json", *PICTURES, "--debug").exception, ExceptionGroup)


COMMANDS = [["solve", "problem.json"], ["show", "problem.json", "schedule.json"], ["demo", "--out", "made"]]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (["--gantt", "chart.bmp"], "Invalid value for --gantt: 'chart.bmp' does not end in .png, .svg or .pdf"),
        (["--gantt", "chart"], "'chart' does not end in .png, .svg or .pdf"),
        (["--gantt", "nowhere/chart.PNG"], "nowhere: no such folder to write into"),
        (["--report", "page.txt"], "Invalid value for --report: 'page.txt' does not end in .html"),
        (["--trace", "trace.html"], "Invalid value for --trace: 'trace.html' does not end in .json"),
    ],
)
def test_pictures_that_cannot_be_are_refused_before_the_work(
    run: Any, schedule: hs.Schedule, words: list[str], picture: list[str], message: str
) -> None:
    failed = run(*words, *picture)
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert message in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert not Path("made/problem.json").exists()


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("picture", "library"), [(["--report", "r.html"], "plotly"), (["--report", "r.html"], "jinja2"), (["--gantt", "g.png"], "matplotlib")]
)
def test_a_missing_library_is_reported_before_the_work(
    run: Any, schedule: hs.Schedule, monkeypatch: pytest.MonkeyPatch, words: list[str], picture: list[str], library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    failed = run(*words, *picture)
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert failed.stderr == f"error: '{library}' is not installed; install it with: pip install 'hetsched[report]'\n"
    assert not Path(picture[1]).exists()


def test_an_input_is_never_overwritten(run: Any, schedule: hs.Schedule) -> None:
    before = Path("schedule.json").read_bytes()
    failed = run("show", "problem.json", "schedule.json", "--trace", "schedule.json")
    assert failed.exit_code == 2
    assert "schedule.json would be overwritten by the answer; give the output another name" in failed.stderr
    assert Path("schedule.json").read_bytes() == before


def test_a_file_named_for_two_outputs_is_refused(run: Any, schedule: hs.Schedule) -> None:
    failed = run("solve", "problem.json", "-o", "a.json", "--trace", "a.json")
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert "a.json is named for two outputs" in failed.stderr


def test_a_folder_is_no_file_to_write(run: Any, schedule: hs.Schedule) -> None:
    Path("folder.html").mkdir()
    failed = run("solve", "problem.json", "--report", "folder.html")
    assert failed.exit_code == 2
    assert "folder.html: Is a directory" in failed.stderr


@pytest.mark.slow
def test_colours_by_the_modules_of_the_graph(run: Any, problem: hs.Problem, schedule: hs.Schedule) -> None:
    for way in ("op", "cut"):
        shown = run("show", "problem.json", "schedule.json", "--gantt", f"{way}.svg", "--colour-by", way)
        assert shown.exit_code == 0, shown.stderr
    assert Path("op.svg").read_text() != Path("cut.svg").read_text()
    refused = run("show", "problem.json", "schedule.json", "--gantt", "x.svg", "--colour-by", "taste")
    assert refused.exit_code == 2
    assert "'taste' is none of op, module, cut" in refused.stderr
