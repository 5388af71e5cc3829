"""How the terminal words things."""

from __future__ import annotations

import math

import pytest
from rich.console import Console

from hetsched.cli import terminal


def test_json_has_no_number_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say_json({"a": math.inf, "b": [math.nan, 1.5, ("x",)]})
    assert capsys.readouterr().out == '{\n  "a": null,\n  "b": [\n    null,\n    1.5,\n    [\n      "x"\n    ]\n  ]\n}\n'


@pytest.mark.parametrize(("tty", "expected"), [(True, ["name      one two", "          three"]), (False, ["name      one two three"])])
def test_facts_are_broken_beside_their_labels_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tty: bool, expected: list[str]
) -> None:
    monkeypatch.setattr(terminal, "console", lambda: Console(force_terminal=tty, width=18, color_system=None))
    terminal.say_rows([("name", "one two three")])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == expected
