"""Fixtures of tests with several processes."""

from __future__ import annotations

import pytest

import hetsched as hs
from hetsched.portfolio.workers import Pool


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Pool]:
    """Return the pools that `auto` makes during the test."""
    made: list[Pool] = []

    class Seen(Pool):
        def __init__(self, problem: hs.Problem, count: int) -> None:
            made.append(self)
            super().__init__(problem, count)

    monkeypatch.setattr("hetsched.portfolio.auto.Pool", Seen)
    return made
