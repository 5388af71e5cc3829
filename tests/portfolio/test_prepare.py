"""Compilation in advance: every family of heuristics is in a part, and the command reports each finished part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from hetsched.cli.app import app
from hetsched.portfolio import prepare
from hetsched.search import BUILT_IN


def test_every_family_of_heuristics_is_prepared() -> None:
    families = {module.split(".")[1] for module in BUILT_IN if module.startswith("heuristics.")}
    assert set(prepare.parts()) >= families - {"multilevel"}


def test_the_kinds_of_problems_differ_in_what_kernels_account_for() -> None:
    kinds = list(prepare._kinds())
    assert {problem.links.contended for problem in kinds} == {True, False}
    assert {problem.links.given for problem in kinds} == {True, False}
    assert {problem.inputs for problem in kinds} == {1, 2}


def test_the_command_reports_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    parts: dict[str, Callable[[], Any]] = {name: lambda name=name: done.append(name) for name in ("one", "other")}
    monkeypatch.setattr(prepare, "parts", lambda: parts)
    result = CliRunner().invoke(app, ["prepare", "--jobs", "1"])
    assert result.exit_code == 0
    assert done == ["one", "other"]
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == done
