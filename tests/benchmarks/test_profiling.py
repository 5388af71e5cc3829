"""benchmarks/profiling.py: its tables on a small network, and for given times."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import figures
import profiling

from hetsched.costs import Deviations


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(profiling, "SIZE", {"squeezenet": 48})
    monkeypatch.setattr(profiling, "LARGE", 9)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_it_writes_its_tables(docs: Path):
    profiling.main(["--quick", "--docs", str(docs), "--warmup", "0", "--repeats", "1"])
    page = (docs / "benchmarks.md").read_text()
    assert "kept profiling" in page
    assert "| memory, estimated | 0.0 % |" in page, "tensors grow with the batch"
    assert "| tasks | 77 |" in page
    assert "| time, estimated | 7.99 % | 10.85 % | 14.16 % | 11.32 % |" in page
    shares = next(line for line in page.splitlines() if line.startswith("| squeezenet | ") and "/" in line)
    estimated = [float(cell.split(" % / ")[0]) for cell in shares.split(" | ")[1:]]
    assert estimated == sorted(estimated)


def test_the_page_of_the_docs_has_its_region():
    assert figures.replaced(figures.DOCS / "benchmarks.md", profiling.REGION, "x")


def test_the_ratio_is_of_the_sums():
    assert profiling.ratio(Deviations.between(["a", "b"], ["x", "x"], [1, 1], [1.0, 5.0], [2.0, 2.0])) == 1.5
