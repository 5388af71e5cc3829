"""Lateness of methods: the CPU time after a limit, including child processes, and the table of the script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import punctual
import pytest

import hetsched as hs
from hetsched.experiments import Results

BUSY = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass"


def test_the_cpu_time_of_children_counts_while_they_run_and_afterwards() -> None:
    before = punctual.cpu_seconds(os.getpid())
    child = subprocess.Popen(
        [sys.executable, "-c", f"{BUSY.format(0.2)}\nprint('now', flush=True)\ninput()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    running = punctual.cpu_seconds(os.getpid())
    child.communicate(b"\n")
    assert running >= before + 0.15
    assert punctual.cpu_seconds(os.getpid()) >= running - 0.02


@pytest.mark.slow
def test_work_after_the_limit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> hs.Solution:
        exec(BUSY.format(0.6))
        return hs.solve(punctual.problem_of(10, "plain", False), "heft")

    case = {"method": "heft", "tasks": 10, "feature": "plain", "limit": 0.1}
    punctual.warm("heft", "plain")
    assert punctual.measure(case)["late_s"] < 0.3
    monkeypatch.setattr(punctual, "run", late)
    assert punctual.measure(case)["late_s"] > 0.3
    assert punctual.measure({**case, "limit": 100.0})["late_s"] == 0.0


@pytest.mark.parametrize("feature", punctual.FEATURES)
def test_every_problem_has_schedules(feature: str) -> None:
    problem = punctual.problem_of(30, feature, False)
    assert problem.n_tasks == 30
    solution = hs.solve(problem, ["heft", "packing"])
    assert solution.schedule is not None
    assert hs.verify(problem, solution.schedule) == []


@pytest.mark.slow
def test_the_table_has_a_row_for_each_method(docs: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    limits = ("0.1", "1.0")
    words = ["--quick", "--docs", str(docs), "--methods", "heft", "pesto", "--sizes", "10", "--limits", *limits, "--results", str(kept)]
    punctual.main(words)
    text = (docs / "benchmarks.md").read_text()
    assert "kept punctual" in text
    assert "| all | 0.0" in text
    assert "| heft | 0.0" in text
    assert "| pesto | 0.0" in text
    assert "Warm: " in text
    assert "Cold: 2 solves; " in text
    assert len(Results(kept)) == 2 * sum(limit in (0.1, 1.0) for limits in punctual.FEATURES.values() for limit in limits)


def test_what_misses_the_target_is_bold() -> None:
    assert punctual.cell([0.0, 0.0, 0.2]) == "0.00 / 0.20 / 0.20"
    assert punctual.cell([0.0, 0.6]) == "**0.30 / 0.59 / 0.60**"
    assert punctual.cell([]) == ""
