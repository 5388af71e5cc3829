"""`compare` of methods on problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetsched as hs
from hetsched import checker
from hetsched.experiments import Results

WORDS = ("compare", "problem.json", "--methods", "heft,best-device", "--results", "run.jsonl")


@pytest.mark.slow
def test_methods_are_compared_and_the_file_is_shown_again(run: Any, problem: hs.Problem) -> None:
    done = run(*WORDS)
    assert done.exit_code == 0, done.stderr
    assert "measured: 2 of 2: problem best-device 0 time=10.0: feasible" in done.stderr
    assert "heft / best-device" in done.stdout
    assert "taken on: " in done.stdout
    assert run(*WORDS).stderr == ""
    shown = run("compare", "--results", "run.jsonl", "--table", "gaps", "--markdown")
    assert "| instance | best | bound | heft | best-device |" in shown.stdout
    facts = json.loads(run("compare", "--results", "run.jsonl", "--json").stdout)
    assert facts["tables"]["summary"]["head"][0] == "method"
    assert facts["contradictions"] == []
    assert {row["limits"]["time"] for row in Results("run.jsonl").rows()} == {10.0}


@pytest.mark.slow
def test_a_page_is_written(run: Any, problem: hs.Problem) -> None:
    done = run(*WORDS, "--html", "run.html")
    assert done.stdout.endswith("wrote run.html\n")
    assert Path("run.html").stat().st_size > 1e6


@pytest.mark.slow
def test_bounds_are_certified_and_what_the_checker_does_not_take_is_told_at_once(run: Any, problem: hs.Problem) -> None:
    n = checker.MOST_TASKS + 1
    large = hs.Problem(hs.TaskGraph([f"t{i}" for i in range(n)]), hs.Cluster(["a"]), durations=np.ones((n, 1)))
    large.write("large.json")
    done = run("compare", "large.json", "problem.json", "--methods", "branch", "--certify", 20, "--json")
    assert done.exit_code == 0, done.stderr
    told = "bounds on large are not certified, which stay 'computed' or a solver's: the number of tasks is 5001; it must be at most 5000"
    assert told in done.stderr.splitlines()[0]
    summary = json.loads(done.stdout)["tables"]["summary"]
    assert dict(zip(summary["head"], summary["rows"][-1], strict=True))["checked"] == "1"


def test_a_bound_above_a_makespan_ends_with_code_1(run: Any, folder: Path) -> None:
    key = {"instance": "mine", "digest": "00", "method": "heft", "options": {}, "seed": 0, "limits": {}}
    store = Results("run.jsonl")
    store.add(key, {"status": "feasible", "makespan": 1.0, "bound": 0.5, "history": [], "wall_s": 1.0, "cpu_s": 1.0})
    assert run("compare", "--results", "run.jsonl").exit_code == 0
    store.add(
        {**key, "method": "bounds"}, {"status": "unknown", "makespan": None, "bound": 1.5, "history": [], "wall_s": 1.0, "cpu_s": 1.0}
    )
    done = run("compare", "--results", "run.jsonl")
    assert done.exit_code == 1
    assert "error: one is wrong: the bound of bounds on mine" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["problem.json"], "1 files are given; name the --methods to compare on problems, or give PROBLEM SCHEDULE RUN, or two profiles"),
        (["problem.json", "--methods", "hefty"], "unknown method 'hefty'"),
        (["problem.json", "--methods", "heft", "--seeds", "4..0"], "'4..0' is not a list of whole numbers such as 0..4 or 0,7"),
        (["problem.json", "--methods", "heft", "--table", "all"], "there is no table 'all'; choose from summary, pairs, gaps, makespans"),
        (["problem.json", "--methods", "heft", "--gantt", "x.png"], "methods have no Gantt chart in common"),
        (["problem.json", "--methods", "heft", "--json", "--markdown"], "Markdown is not JSON"),
        (["problem.json", "--results", "run.jsonl"], "no methods are named"),
        (["--results", "run.jsonl"], "no such file of results; name --methods and problems to make it"),
        (["nothing.json", "--methods", "heft"], "'nothing.json' is neither a file"),
        (["problem.json", "--methods", "heft", "--time-limit", "1", "--cpu-limit", "1"], "are both given; choose one clock"),
        (["--methods", "heft"], "problems is empty; give at least one"),
    ],
)
def test_wrong_words_are_told(run: Any, problem: hs.Problem, words: list[str], said: str) -> None:
    done = run("compare", *words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_problem_is_not_overwritten_by_its_page(run: Any, problem: hs.Problem) -> None:
    before = Path("problem.json").read_bytes()
    assert run("compare", "problem.json", "--methods", "heft", "--html", "problem.json").exit_code == 2
    assert Path("problem.json").read_bytes() == before
