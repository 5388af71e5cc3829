"""Fixtures of the tests of benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

import figures
import pytest

REGION = re.compile(r"<!-- (\w+): begin -->")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Return a folder with a page that has the regions of the real one, without content."""
    names = REGION.findall((figures.DOCS / "benchmarks.md").read_text())
    regions = "".join(f"## {name}\n\n<!-- {name}: begin -->\n<!-- {name}: end -->\n\nkept {name}\n\n" for name in names)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "benchmarks.md").write_text(f"# Figures\n\n{regions}")
    return tmp_path / "docs"
