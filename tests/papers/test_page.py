"""The page about the papers is that of the stored results."""

from __future__ import annotations

from pathlib import Path

import pytest

import hetsched as hs
from hetsched.papers import papers, rendering

DOCS = Path(__file__).resolve().parents[2] / "docs"
DATA = DOCS.parents[1] / "shared" / "data"


@pytest.mark.slow
def test_the_page_is_made_of_the_stored_results() -> None:
    """``hetsched reproduce all --stored --results docs/papers --data DATA --output docs/papers.md`` makes it."""
    if not DATA.exists():
        pytest.skip("some items read data that the papers' authors have published, which is not here")
    made = [one for paper in papers() for one in hs.reproduce(paper.name, results=DOCS / "papers", data=DATA, stored=True)]
    assert (DOCS / "papers.md").read_text(encoding="utf-8") == rendering.page(made)


def test_every_claim_has_a_row_and_every_item_a_section() -> None:
    text = (DOCS / "papers.md").read_text(encoding="utf-8")
    for paper in papers():
        assert f"\n## {paper.title}\n" in text
        for item in paper.items:
            assert f"\n### {item.title}\n" in text
        for claim in paper.besides:
            assert claim.text in text
