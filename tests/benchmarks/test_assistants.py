"""benchmarks/assistants.py: its tables and its picture, on two small runs."""

from __future__ import annotations

import json
from pathlib import Path

import assistants
import figures
import pytest


@pytest.mark.slow
def test_it_writes_its_tables(docs: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assistants.main(["--quick", "--docs", str(docs), "--json", str(tmp_path / "figures.json")])
    page = (docs / "benchmarks.md").read_text()
    assert "kept assistants" in page
    for start in ("| googlenet, diviml | a100 |", "| googlenet, diviml: re-solve |", "### Without a change"):
        assert start in page
    assert (docs / "images" / "assistants.svg").stat().st_size > 10_000
    for row in json.loads((tmp_path / "figures.json").read_text())["figures"].values():
        after = row["after"]
        assert row["before"] < after["re-solve"] < after["static"]
        assert 0.2 < row["recovered"]["assistants"] < 1.5
        assert row["recovered"]["re-solve"] == 1
        assert row["migrations"]["static"] == 0
        assert [sum(moved[len(moved) // 2 :]) for moved in row["steady"]] == [0, 0, 0]


def test_the_page_of_the_docs_has_the_region() -> None:
    assert figures.replaced(figures.DOCS / "benchmarks.md", assistants.REGION, "x")
