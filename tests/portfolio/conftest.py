"""Fixtures of tests with several processes."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.portfolio.workers import Pool


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Pool]:
    """Return the pools that `auto` makes during the test."""
    made: list[Pool] = []

    class Seen(Pool):
        def __init__(self, *args: Any) -> None:
            made.append(self)
            super().__init__(*args)

    monkeypatch.setattr("hetsched.portfolio.auto.Pool", Seen)
    return made
