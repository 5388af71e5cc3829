"""What every test shares: hypothesis profiles, and the data beside the repository."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.browser import launched

# No deadline: the first example of a test may compile a kernel. In CI the examples are always the same.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of public instances beside the repository."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the public instances are not at {folder}")
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    yield from launched()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Make Ctrl-C interrupt, here and in processes started from here, also where a shell started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def _methods_found() -> None:
    """Find all methods before a test exchanges the registry for one of its own."""
    from hetsched.portfolio import methods

    methods()
