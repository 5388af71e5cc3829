"""A real browser without network, which records the errors of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request, Route

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


def launched() -> Iterator[Browser]:
    """Yield a headless Chromium; if there is none, skip the test, or fail in CI."""
    path = os.environ.get("HETSCHED_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        message = "no Chromium on the path; install one, or name it in HETSCHED_BROWSER"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page, its errors and warnings, and its requests to the network."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def visit(browser: Browser, url: str, *, local: str = "file://") -> Visit:
    """Return a page opened at `url`; requests that do not begin with `local` are recorded and refused."""
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    seen = Visit(page)

    def decide(route: Route, request: Request) -> None:
        if request.url.startswith((local, "blob:", "data:")):
            route.continue_()
        else:
            seen.requests.append(request.url)
            route.abort()

    page.route("**/*", decide)
    page.on("console", lambda message: seen.complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.goto(url)
    return seen
