"""benchmarks/truth.py: its tables on a small network, and repetition of disturbed sessions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import figures
import truth


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the tasks take")  # which are small here
def test_it_writes_its_tables(docs: Path) -> None:
    truth.main(["--quick", "--docs", str(docs)])
    page = (docs / "benchmarks.md").read_text()
    assert "kept truth" in page
    row = next(line for line in page.splitlines() if line.startswith("| squeezenet | 1 | 77 |"))
    cells = row.strip("| ").split(" | ")
    assert len(cells) == len(truth.HEAD)
    assert cells[-2] == "yes", "to the bit without folding"
    assert float(cells[-1]) < 1e-5
    assert "A hand-off between two threads: " in page
    _, streams = page.split("### Streams of inputs")
    row = next(line for line in streams.splitlines() if line.startswith("| squeezenet | 1 |"))
    assert len(row.strip("| ").split(" | ")) == len(truth.STREAM_HEAD)
    assert "results differ" not in row


def test_the_page_of_the_docs_has_its_region() -> None:
    assert figures.replaced(figures.DOCS / "benchmarks.md", truth.REGION, "x")


def sessions(*disturbed: bool) -> Any:
    left = [SimpleNamespace(stolen=0.2 if one else 0.0, number=x) for x, one in enumerate(disturbed)]
    return lambda: left.pop(0)


def test_disturbed_sessions_are_repeated_but_not_for_ever() -> None:
    assert truth.undisturbed(sessions(True, True, False, False)).number == 2  # type: ignore[attr-defined]
    assert truth.undisturbed(sessions(*[True] * 9)).number == truth.SESSIONS - 1  # type: ignore[attr-defined]
