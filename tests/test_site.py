"""The documentation site is built as by `make docs`, and every page is checked."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

import hetsched
from tests.browser import visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[1]
PARTS = (
    "costs",
    "documents",
    "experiments",
    "frontends",
    "report",
    "runtime",
    "testing",
    "workloads",
)  # whose public names have entries of their own
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
WIDTHS = {"a phone": 390, "a small window": 1280}

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """The links, the anchors and the loaded files of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.links, self.anchors, self.loaded = path, set[str](), set[str](), set[str]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if tag in LOADED and LOADED[tag] in given:
            self.loaded.add(given[LOADED[tag]])


OF_SPHINX = ("genindex.html", "py-modindex.html", "search.html")
"""Pages without a source."""


def built(folder: Path) -> Path:
    """Return the site in HETSCHED_SITE, if that is set; else build it from a copy of its sources, independent of other builds."""
    if made := os.environ.get("HETSCHED_SITE"):
        return Path(made)
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("_build", "_made", "__pycache__"))
    for name in ("README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder / name)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "--quiet", "docs", "site"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def check_every_page_is_there(site: Path) -> None:
    sources = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    wanted = {page.with_suffix(".html") for page in sources if page.parts[0] not in ("_build", "_made")}
    pages = {Page(page) for page in site.rglob("*.html") if str(page.relative_to(site)) not in OF_SPHINX}
    assert wanted <= {page.path.relative_to(site) for page in pages}
    reached = {(page.path.parent / urlsplit(link).path).resolve() for page in pages for link in page.links}
    assert {site / page for page in wanted} <= {*reached, site / "index.html"}, "a page that no other links to"


def check_every_link_leads_somewhere(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links | page.loaded:
            parts = urlsplit(link)
            if parts.scheme or link in ("#", ""):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.relative_to(site)} links to {link}, which is not there"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.relative_to(site)} links to {link}: no such place"


def check_nothing_comes_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        remote = [file for file in Page(path).loaded if urlsplit(file).netloc]
        assert not remote, f"{path.relative_to(site)} loads {remote}"
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import\s+)[\"']?(https?:)?//", path.read_text(encoding="utf-8")), f"{path} loads from elsewhere"


def check_every_public_name_has_an_entry(site: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    entries = {name for role, names in inventory.items() if role.startswith("py:") for name in names}
    wanted = {f"hetsched.{name}" for name in hetsched.__all__}
    for part in PARTS:
        module = importlib.import_module(f"hetsched.{part}")
        own = {name for name in module.__all__ if getattr(module, name) is not getattr(hetsched, name, None)}
        wanted |= {f"hetsched.{part}.{name}" for name in own}
    assert wanted - entries == set()


def check_pages_fit_the_window(site: Path, browser: Browser) -> None:
    for name in ("index", "tutorial", "howto/own_method", "reference/problem", "reference/terminal", "benchmarks"):
        for what, width in WIDTHS.items():
            seen = visit(browser, (site / f"{name}.html").as_uri())
            seen.page.set_viewport_size({"width": width, "height": 900})
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider than {what}"
            pictures = seen.page.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)")
            assert (pictures, seen.complaints, seen.requests) == ([], [], [])
            seen.page.close()


def test_a_number_that_comes_from_nowhere_ends_the_build(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="the site needs pip install 'hetsched[docs]'")
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.md", "_build", "_made"))
    (tmp_path / "README.md").write_text("# Nothing runs here\n")
    (tmp_path / "docs" / "index.md").write_text("# A page\n\nIt takes 1 s\nor 7 s.\n\n```python\nprint('1 s')\n```\n")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "--quiet", "docs", "site"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert re.search(r"index\.md:4: WARNING: .*'7 s' is in no block of this page; print it", done.stderr)
    assert "'1 s'" not in done.stderr


def test_the_site(tmp_path: Path, browser: Browser) -> None:
    pytest.importorskip("sphinx", reason="the site needs pip install 'hetsched[docs]'")
    pytest.importorskip("torch", reason="the site runs the tutorial, which needs torch")
    site = built(tmp_path)
    check_every_page_is_there(site)
    check_every_link_leads_somewhere(site)
    check_nothing_comes_from_elsewhere(site)
    check_every_public_name_has_an_entry(site)
    check_pages_fit_the_window(site, browser)
