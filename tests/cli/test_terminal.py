"""Text on the terminal."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

import hetsched as hs
from hetsched.arrays import Columns
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


STEERING = "\x1b]0;owned\x07\x1b[2J\u202e"


@pytest.mark.parametrize(
    "words",
    [
        "solve problem.json --method heft",
        "verify problem.json schedule.json",
        "show problem.json schedule.json",
        "modules problem.json",
        "solve broken.json",
        f"solve problem.json --method {STEERING}",
        f"show problem.json {STEERING}",
    ],
)
def test_no_command_prints_control_sequences(run: Callable[..., Any], words: str) -> None:
    names = [f"{name}{STEERING}" for name in "abc"]
    graph = hs.TaskGraph(names, [(names[0], names[1], 1.0)], op=STEERING, colocation=[STEERING, None, STEERING])
    cluster = hs.Cluster([hs.Device(f"{name}{STEERING}", STEERING, STEERING) for name in "xy"], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.ones((3, 2)))
    problem.write("problem.json")
    wrong = hs.simulate(problem, hs.Decision([0, 1, 2], [0, 1, 0])).batches.replace(start=[-1.0, 0.0, 0.0])
    none = Columns(**{name: np.empty(0, int) for name in ("edge", "source", "target", "start", "finish")})
    hs.Schedule.from_columns(graph.names, cluster.names, 1, wrong, range(4), [0, 0, 0], none).write("schedule.json")
    Path("broken.json").write_text(Path("problem.json").read_text().replace('"edges":[', f'"edges":[{json.dumps([STEERING, "z", 1])},'))
    ended = run(*words.split(" "))
    assert "Traceback" not in ended.output
    assert all(line.isprintable() for line in ended.output.split("\n"))
    assert r"\x1b]0;owned\x07" in ended.output


@pytest.mark.parametrize(("tty", "expected"), [(True, ["name      one two", "          three"]), (False, ["name      one two three"])])
def test_facts_are_broken_beside_their_labels_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tty: bool, expected: list[str]
) -> None:
    monkeypatch.setattr(terminal, "console", lambda: Console(force_terminal=tty, width=18, color_system=None))
    terminal.say_rows([("name", "one two three")])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == expected
