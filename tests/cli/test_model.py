"""The command that writes formulations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hetsched as hs


def test_a_model_is_described_and_written(run: Any, problem: hs.Problem) -> None:
    shown = run("model", "problem.json", "-o", "model.lp")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "(7) NoOverlap" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "wrote model.lp"
    assert "Subject to" in Path("model.lp").read_text()
    literal = run("model", "problem.json", "--faithful").stdout
    assert "cut" not in literal


def test_another_ending_is_refused_before_the_work(run: Any, problem: hs.Problem) -> None:
    failed = run("model", "problem.json", "-o", "model.txt")
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert "'model.txt' does not end in .lp or .mps" in failed.stderr


def test_what_no_formulation_supports_is_one_line(run: Any, problem: hs.Problem) -> None:
    problem.replace(memory="peak").write("peak.json")
    failed = run("model", "peak.json")
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert "memory='peak' is not supported" in failed.stderr
