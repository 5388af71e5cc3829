"""Names and words that have been replaced do not come back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "developer" / "style.md"
CHANGELOG = ROOT / "CHANGELOG.md"  # has the old names of what was renamed
SOURCES = ("hetsched/**/*.py", "hetsched/**/*.jinja", "benchmarks/*.py", "docs/*.md", "docs/*/*.md", "*.md")
GENERATED = ("_build", "_made")


def replaced() -> list[str]:
    """Return the left column of the table on the page."""
    section = PAGE.read_text(encoding="utf-8").split("## Replaced words")[1]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [word for row in rows for word in re.findall("`([^`]+)`", row)]


def pattern(word: str) -> re.Pattern[str]:
    """Return the pattern of a word; a word of prose, in lower case, is found in capitals too."""
    prose = word.islower() and not set(word) & set("_.")
    return re.compile(rf"(?<!\w){re.escape(word)}\b".replace(r"\ ", r"\s+"), re.IGNORECASE if prose else 0)


def uses(words: list[str], text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the word of each use."""
    lowered = text.lower()
    for word in words:
        if word.lower().split()[0] not in lowered:
            continue  # what a pattern would take a hundred times as long to find out
        for match in pattern(word).finditer(text):
            yield text.count("\n", 0, match.start()) + 1, word


def sources() -> list[Path]:
    """Return the files that are searched."""
    paths = {path for glob in SOURCES for path in ROOT.glob(glob)}
    return sorted(path for path in paths if path not in (PAGE, CHANGELOG) and not set(path.relative_to(ROOT).parts) & set(GENERATED))


def test_replaced_names_and_words_are_not_used() -> None:
    words = replaced()
    broken = [
        f"{path.relative_to(ROOT)}:{line}: {word!r}" for path in sources() for line, word in uses(words, path.read_text(encoding="utf-8"))
    ]
    assert broken == []


def test_the_search_finds_what_the_page_lists() -> None:
    words = replaced()
    assert {"Ledger", "raise_by_load", "at hand", "foretold"} <= set(words)
    assert all(list(uses([word], f"a line\nwith {word} in it")) == [(2, word)] for word in words)
    assert list(uses(["at hand"], "the devices at\nhand")) == [(1, "at hand")]
    assert list(uses(["dear"], "a Dear cost, endearing")) == [(1, "dear")]
    assert list(uses(["Died", "links_of"], "it died; ProcessDied; my_links_of")) == []
    assert len(sources()) > 200
