"""benchmarks/scale.py: its tables and its picture for two small sizes, and the slope."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import scale


@pytest.mark.slow
def test_every_stage_is_measured_and_the_page_and_the_picture_are_written(docs: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    kept = tmp_path / "scale.json"
    scale.main(["--quick", "--sizes", "300", "100", "--docs", str(docs), "--json", str(kept)])
    runs = json.loads(kept.read_text())["figures"]
    assert [run["tasks"] for run in runs] == [100, 300]
    for run in runs:
        assert [stage["name"] for stage in run["stages"]] == list(scale.STAGES)
        assert all(stage["wall"] > 0 and stage["peak"] >= 0.9 * run["base"] for stage in run["stages"])
        assert run["edges"] >= 3 * run["tasks"]
        assert 0 <= run["gap"] < 1
        assert run["problem"] > 0
        assert run["solution"] > 0
    page = (docs / "benchmarks.md").read_text()
    for stage in (*scale.STAGES, "all"):
        assert page.count(f"| {stage} |") >= 2
    assert (docs / "images" / "scale.svg").read_text().startswith("<?xml")


def run_of(tasks: int, cpu: float, peak: float) -> scale.Run:
    rows = [scale.Stage(name, cpu, 2 * cpu, peak) for name in scale.STAGES]
    return scale.Run(tasks, 3 * tasks, 0, 100.0, 0.5, 1.0, 1.0, rows)


def test_a_slope_is_the_exponent_from_ten_thousand_tasks_on() -> None:
    runs = [run_of(tasks, 5.0 if tasks < 10_000 else (tasks / 1e4) ** 2, 100.0 + tasks) for tasks in scale.SIZES]
    assert scale.slope(runs, [run.stages[0].cpu for run in runs]) == pytest.approx(2)
    assert math.isnan(scale.slope(runs[:3], [1.0, 1.0, 1.0]))
    text = scale.text(runs).replace("\N{NO-BREAK SPACE}", " ")
    assert "| heft | 5.00 | 5.00 | 1.00 | 100 | 10 000 | 2.00 |" in text
    assert "**90 000** s of CPU time (180 000 s of wall time) and **1 000 100** MiB" in text
    assert "| heft | 200 | 1 100 | 10 100 | 100 100 | 1 000 100 | 1.00 |" in text


def test_several_runs_count_with_the_least_of_each_figure() -> None:
    best = scale.least([run_of(100, 3.0, 200.0), run_of(100, 1.0, 400.0), run_of(100, 2.0, 300.0)])
    assert {stage[1:] for stage in best.stages} == {(1.0, 2.0, 200.0)}
