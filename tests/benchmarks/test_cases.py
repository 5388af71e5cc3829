"""Measurements by case: results are kept, reused, and checked against each other and against published values."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cases
import exact
import instances
import published
import pytest
import search

from hetsched.experiments import Results
from hetsched.experiments.results import sources
from hetsched.modeling import Model

WORK = """
def do(case):
    if case["name"] == "bad":
        raise ValueError("no such thing")
    return {"says": "done"}
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module of work functions that other processes can import."""
    (tmp_path / "work_of_benchmarks.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "work_of_benchmarks", raising=False)
    return importlib.import_module("work_of_benchmarks")


def test_progress_is_printed_and_failures_are_left_out(tmp_path: Path, work: ModuleType, capsys: pytest.CaptureFixture[str]):
    path, ended = tmp_path / "results.jsonl", list[Any]()
    selected = [{"name": name} for name in ("a", "bad", "b")]
    cases.measure(selected, work.do, Results(path), done=ended.append)
    assert ended == [{"name": "a"}, {"name": "b"}]
    shown = capsys.readouterr().out
    assert f"0 of 3 cases are measured already in {path}" in shown
    assert "2 of 3: bad: failed: ValueError: no such thing" in shown
    assert "1 of 3 cases failed and are left out" in shown
    path.write_text(path.read_text().replace(sources(), "changed"))
    cases.measure(selected[:1], work.do, Results(path))
    assert "1 of 1 cases are measured already" in (shown := capsys.readouterr().out)
    assert "1 of them with an older version of hetsched" in shown


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path, work: ModuleType, capsys: pytest.CaptureFixture[str]):
    def pressed(case: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "results.jsonl"
    with pytest.raises(SystemExit) as stop:
        cases.measure([{"name": name} for name in "abc"], work.do, Results(path), done=pressed)
    assert stop.value.code == 130
    assert "1 of 3 cases are measured" in capsys.readouterr().out
    assert {"name": "a"} in Results(path)


@pytest.mark.parametrize("script", [exact, published, search])
def test_the_stored_results_of_a_script_are_readable(script: ModuleType):
    path = cases.KEPT / f"{script.REGION}.jsonl"
    if not path.exists():
        pytest.skip("nothing is stored")
    assert len(Results(path).rows()) == len(path.read_text().splitlines())


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([4, 3], "3, 4"), ([7, 2, 0, 1, 2], "0 to 2, 7")])
def test_spans(numbers: list[int], text: str):
    assert cases.spans(numbers) == text


# exact.py


def row(**changes: Any) -> dict[str, Any]:
    """Return a result of exact.py, proven in a second."""
    usual = {
        "kind": "er",
        "n": 32,
        "seed": 0,
        "solver": "scip",
        "variant": "tightened",
        "limit": 60.0,
        "makespan": 100.0,
        "bound": 100.0,
        "gap": 0.0,
        "proven": True,
        "wall_s": 1.0,
        "cpu_s": 1.0,
    }
    return usual | changes


def results_of(path: Path, rows: list[dict[str, Any]], fields: tuple[str, ...]) -> Results:
    """Return results, written to `path`, with the given rows; `fields` are the names of their cases."""
    with open(path, "w") as file:
        for row in rows:
            case = {name: row[name] for name in fields}
            result = {name: value for name, value in row.items() if name not in fields}
            print(json.dumps({"case": case, "found": result, "where": "here", "date": "2026-01-01"}), file=file)
    return Results(path)


CASE = ("kind", "n", "seed", "solver", "variant", "limit")


def test_solvers_that_contradict_each_other_stop_the_run(tmp_path: Path):
    rows = [
        row(solver="highs", bound=101.0, makespan=None, proven=False, limit=10.0),
        row(solver="cpsat", makespan=100.5, variant="literal"),
        row(seed=1, bound=200.0, makespan=200.0),
    ]
    results = results_of(tmp_path / "results.jsonl", rows, CASE)
    with pytest.raises(SystemExit, match="er, 32 tasks, seed 0: highs .tightened, 10 s. .* 101.0, cpsat .literal, 60 s. .* 100.5"):
        exact.check(results, rows[0])
    exact.check(results, rows[2])


def test_solvers_may_differ_by_rounding(tmp_path: Path):
    rows = [row(bound=100 * (1 + 9e-7)), row(solver="highs")]
    exact.check(results_of(tmp_path / "results.jsonl", rows, CASE), rows[0])
    none = [row(makespan=None, bound=3.0, proven=False)]
    exact.check(results_of(tmp_path / "results.jsonl", none, CASE), none[0])


def test_what_is_not_proven_took_longer_than_the_limit():
    rows = [row(cpu_s=2.0), row(cpu_s=60.1, proven=False, gap=0.5), row(cpu_s=4.0)]
    assert exact.middle(rows, 60.0) == "4.0"
    assert exact.middle([*rows, rows[1]], 60.0) == "> 60"


def test_tables_count_what_is_proven_and_what_is_reached():
    rows = [row(solver="cpsat"), row(solver="cpsat", seed=1, proven=False, makespan=None, gap=0.25)]
    rows += [row(proven=False, gap=0.03), row(seed=2, proven=False, gap=0.031)]
    lines = exact.table(rows, 32, 60.0).splitlines()
    assert lines[2:] == [
        "| scip, tightened | 0, 2 | 0 of 2 | 0 | > 60 | 3.0 % | 3.1 % |",
        "| cpsat, tightened | 0, 1 | 1 of 2 | 1 | > 60 | 12.5 % | 25.0 % |",
    ]
    assert exact.targets(rows, 60.0).splitlines()[2:] == [
        "| scip, 32 tasks: a gap of at most 3 % in 60 s | **1 of 2** | 3.0 % |",
        "| cpsat, 32 tasks: proven in 60 s | **1 of 2** | > 60 s |",
    ]
    small = [row(n=10, cpu_s=2.0, wall_s=3.0), row(n=10, kind="ws", cpu_s=3.0), row(n=10, solver="cpsat", cpu_s=0.3)]
    assert exact.targets(small, 60.0).splitlines()[2:] == [
        "| scip, er, 10 tasks: proven in 2 s of CPU time | 1 of 1 | 2.0 s |",
        "| cpsat, er, 10 tasks: proven in 0.2 s of CPU time | **0 of 1** | 0.30 s |",
    ]


@pytest.mark.slow
def test_exact_writes_its_tables_and_its_plot_and_goes_on(docs: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("matplotlib")
    words = ["--quick", "--docs", str(docs), "--results", str(docs / "exact.jsonl"), "--json", str(docs / "exact.json"), "--kinds", "er"]
    exact.main([*words, "--seeds", "1", "--variants", "tightened", "without cuts", "without start"])
    assert "0 of 9 cases" in capsys.readouterr().out
    exact.main([*words, "--seeds", "1", "--variants", "tightened", "literal", "--solvers", "cpsat"])
    assert "1 of 2 cases" in capsys.readouterr().out
    page = (docs / "benchmarks.md").read_text()
    assert "kept exact" in page
    full = "(the full set: er, ws, ba, seeds 0 to 9, 720 solves of 60 s)"
    assert f"Modules er, seeds 1; 2 s of CPU time for each of 10 solves {full}." in page
    lines = page.partition("### 10 tasks")[2].partition("##")[0].splitlines()
    names = [line.split(" | ")[0] for line in lines if " | 1 | " in line]
    usual = ("tightened", "without cuts", "without start")
    assert names == [*(f"| {solver}, {variant}" for solver in exact.SOLVERS for variant in usual), "| cpsat, literal"]
    rows = json.loads((docs / "exact.json").read_text())["figures"]
    proven = [row["makespan"] for row in rows if row["proven"]]
    assert len(proven) > 5
    assert max(proven) - min(proven) < 1e-6 * min(proven)
    assert (docs / "images" / "exact.svg").exists()


def test_without_a_start_the_solver_gets_no_hint(monkeypatch: pytest.MonkeyPatch):
    hints, run = [], Model.run

    def recorded(model: Model, solver: Any, request: Any) -> Any:
        hints.append(request.hint)
        return run(model, solver, request)

    monkeypatch.setattr(Model, "run", recorded)
    problem = instances.module("er", 10, 1, unrelated=True)
    for variant in ("tightened", "without start"):
        exact.formulated(problem, "scip", variant, 0.3)
    with_start, without_start = hints
    assert with_start is not None
    assert without_start is None


# published.py


def test_published_reads_every_instance(shared_data: Path):
    instances_of = published.known(shared_data)
    counts = {name: sum(group == name for group, _ in instances_of) for name in published.SETS}
    assert sum(counts.values()) == len(instances_of)
    assert (counts["papers"], counts["moirai"]) == (2, 4)
    assert counts["stg"] == len(instances.rows(shared_data / "stg")), "one graph is there for 2 processors and for 16"
    assert min(counts.values()) >= 2
    assert set(published.HARD) <= {name for _, name in instances_of}
    for instance in instances_of.values():
        assert instance.lower <= instance.upper


@pytest.mark.slow
def test_published_writes_its_table(shared_data: Path, docs: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--quick", "--docs", str(docs), "--data", str(shared_data), "--sets", "papers", "moirai", "kacem", "--time-limit", "20"]
    published.main([*words, "--results", str(docs / "published.jsonl"), "--json", str(docs / "published.json")])
    assert "papers topcuoglu auto 20.0: reached: makespan 73, published 73, bound 73" in capsys.readouterr().out
    page = (docs / "benchmarks.md").read_text()
    assert "kept published" in page
    assert "| examples of the HEFT and PEFT papers | 2 | 20 | 2 |  | 2 | " in page
    assert "| all | 6 of " in page
    assert "Not measured: fattahi, mk, dafjs, yfjs, stg." in page
    assert "In full the limits are: papers 60 s, moirai 60 s, kacem 60 s." in page
    assert "contradict" not in page
    makespans = {row["name"]: row["makespan"] for row in json.loads((docs / "published.json").read_text())["figures"]}
    assert (makespans["example-1, delay"], makespans["example-1, channel"], len(makespans)) == (30, 30, 6)


def test_misses_are_named_and_contradictions_are_errors(shared_data: Path, docs: Path):
    instances_of = published.known(shared_data)

    def measured(name: str, makespan: float | None, bound: float) -> dict[str, Any]:
        group = next(group for group, other in instances_of if other == name)
        return {
            "set": group,
            "name": name,
            "method": published.METHOD,
            "limit": published.SETS[group][1],
            "makespan": makespan,
            "bound": bound,
            "proven": makespan == bound,
            "wall_s": 5.0,
            "cpu_s": 5.0,
        }

    fine = [measured("mk01", 40.0, 36.0), measured("mk10", 200.0, 183.0)]
    fine += [measured("topcuoglu", None, 70.0), measured("arabnejad", 113.0, 113.0)]
    words = ["--docs", str(docs), "--data", str(shared_data), "--results", str(docs / "published.jsonl"), "--sets"]

    def publish(rows: list[dict[str, Any]]) -> str:
        results_of(docs / "published.jsonl", rows, ("set", "name", "method", "limit"))
        published.main([*words, "papers"])
        return (docs / "benchmarks.md").read_text()

    page = publish(fine)
    assert "| flexible job shops: mk | 2 of 12 | 60 | 1 | all but mk10, mk12 | 0 | 5.0 | 5.0 |" in page
    assert "- mk10: makespan 200, published 189 to 193, bound 183\n- topcuoglu: no schedule, published 73, bound 70" in page
    assert "Reached but not proven: mk01." in page
    page = publish([*fine, measured("mk03", 205.0, 204.0)])
    assert "| flexible job shops: mk | 3 of 12 | 60 | **1** | " in page
    assert "Better than published:\n\n- mk10: makespan 190" in publish([*fine[2:], measured("mk10", 190.0, 183.0)])
    for wrong, message in (
        (measured("mk01", 41.0, 40.5), "mk01: the bound 40.5 is above the published upper bound 40"),
        (measured("mk10", 188.0, 183.0), "mk10: the makespan 188.0 is below the published lower bound 189"),
    ):
        with pytest.raises(SystemExit, match=f"CONTRADICTIONS.*\n{message}"):
            publish([wrong, *fine[2:]])
        assert f"**These contradict what is published:**\n\n- {message}" in (docs / "benchmarks.md").read_text()
