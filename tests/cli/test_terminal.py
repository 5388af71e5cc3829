"""How the terminal words things."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hetsched.cli import terminal
from hetsched.errors import printable


def test_json_has_no_number_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say_json({"a": math.inf, "b": [math.nan, 1.5, ("x",)]})
    assert capsys.readouterr().out == '{\n  "a": null,\n  "b": [\n    null,\n    1.5,\n    [\n      "x"\n    ]\n  ]\n}\n'


@pytest.mark.parametrize("tty", [True, False])
@pytest.mark.parametrize("name", ["\x1b[2Jgone", "bell\x07", "\x9b31mred", "back\x08", "\u202eturned"])
def test_names_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch, tty: bool, name: str) -> None:
    drawn = terminal._console_type()(file=io.StringIO(), force_terminal=tty, width=60, color_system=None, markup=False, highlight=False)
    monkeypatch.setattr(terminal, "console", lambda: drawn)
    table = Table("name")
    table.add_row(Text(name))
    drawn.print(table)
    drawn.print(name)
    terminal.say(name)
    terminal.say_rows([("name", name)])
    written = drawn.file.getvalue()
    assert all(line.isprintable() for line in written.split("\n"))
    assert f"name      {printable(name)}\n" in written


@pytest.mark.parametrize(("tty", "expected"), [(True, ["name      one two", "          three"]), (False, ["name      one two three"])])
def test_facts_are_broken_beside_their_labels_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tty: bool, expected: list[str]
) -> None:
    monkeypatch.setattr(terminal, "console", lambda: Console(force_terminal=tty, width=18, color_system=None))
    terminal.say_rows([("name", "one two three")])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == expected
