"""benchmarks/large.py: its tables on a small training step."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import large


@pytest.mark.slow
def test_it_writes_its_tables(docs: Path):
    large.main(["--quick", "--docs", str(docs)])
    page = (docs / "benchmarks.md").read_text()
    assert "kept large" in page
    for title in ("Tasks and CCR", "Step time", "Placement time", "Celeritas' method in a process of its own"):
        assert f"### {title}" in page
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines() if line.startswith("| ")}
    for method in (*large.METHODS, *large.GIVEN_TIME):
        assert method in rows
    assert rows["holography"].startswith("| holography | 297")
