"""benchmarks/many_devices.py: its tables for small sizes."""

from __future__ import annotations

import json
from pathlib import Path

import many_devices
import pytest


@pytest.mark.slow
def test_every_stage_is_measured_and_the_page_is_written(docs: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    many_devices.main(["--quick", "--sizes", "48", "4", "--docs", str(docs), "--json", str(kept)])
    runs = json.loads(kept.read_text())["figures"]
    assert [(run["tasks"], run["devices"], run["kinds"]) for run in runs] == [(300, 4, 1), (300, 48, 3), (300, 64, 4)]
    for run in runs:
        assert [stage["name"] for stage in run["stages"]] == list(many_devices.STAGES)
        assert all(stage["wall"] > 0 for stage in run["stages"])
        assert 0 <= run["gap"] < 1
        assert run["document"] > 0
    page = (docs / "benchmarks.md").read_text()
    assert "300 tasks and " in page
    assert "64 devices of 4 kinds" in page
    for stage in many_devices.STAGES:
        assert page.count(f"| {stage} |") >= 2
