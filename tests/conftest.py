"""Fixtures of all tests: the hypothesis profile, and the data beside the repository."""

from __future__ import annotations

import gc
import os
import random
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from hetsched.testing import profiles
from tests.browser import launched

profiles.register()
settings.load_profile("ci" if os.environ.get("CI") else "dev")
# Without this, hypothesis also draws constants of the modules loaded so far, so examples depend on the order of tests.
providers._get_local_constants = providers.Constants
gc.set_threshold(50_000, 20, 50)  # a full collection visits all that the tests import, for a quarter of a second

SEED, MINUTES = "HETSCHED_THOROUGH_SEED", "HETSCHED_THOROUGH_MINUTES"
END = pytest.StashKey[float]()


def drawn_anew(config: pytest.Config) -> bool:
    """Return whether this is `make thorough`, or a part of it."""
    return bool(config.getoption("--hypothesis-profile") == "thorough")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of the thorough tests; the processes that share the tests inherit it."""
    config.stash[END] = time.monotonic() + 60 * float(os.environ.get(MINUTES, "inf"))
    os.environ.setdefault(SEED, str(secrets.randbelow(2**32)))
    if drawn_anew(config) and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = os.environ[SEED]


def pytest_report_header(config: pytest.Config) -> str | None:
    return f"to draw the same again: {SEED}={os.environ[SEED]}" if drawn_anew(config) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Count tests in a browser as slow; shuffle the tests, so that a part of them is a different part in each run."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    if drawn_anew(config):
        random.Random(os.environ[SEED]).shuffle(items)


def pytest_collection_finish() -> None:
    """Exempt what the tests have imported from the collections to come."""
    gc.freeze()


def over(*_: object) -> None:
    pytest.skip(f"the {os.environ[MINUTES]} minutes are over")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if drawn_anew(item.config) and time.monotonic() > item.config.stash[END]:
        over()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """End a test with the minutes too: ten times the usual examples may take half an hour."""
    left = item.config.stash[END] - time.monotonic()
    if not drawn_anew(item.config) or left == float("inf"):
        return (yield)
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(left, 0.001), 10)  # again, if something has swallowed it
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of public instances beside the repository."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the public instances are not at {folder}")
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return a headless Chromium."""
    yield from launched()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Make Ctrl-C interrupt this process and its children, even if a shell started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _same_tensors() -> None:
    """Seed torch, so that a test does not depend on the tests before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _methods_found() -> None:
    """Load all methods before a test replaces the registry."""
    from hetsched.solving import methods

    methods()
