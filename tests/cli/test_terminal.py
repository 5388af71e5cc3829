"""How the terminal words things."""

from __future__ import annotations

import io
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from hetsched.cli import terminal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"), (1.0, "1.000 s"), (12345.6, "1.235e+04 s"), (0.00204, "2.040 ms"), (1e-6, "1.000 us"), (1.5e-9, "1.500 ns"),
        (3e-12, "0.003000 ns"), (math.inf, "inf"), (math.nan, "-"),
    ],
)  # fmt: skip
def test_seconds_have_a_unit_and_four_digits(value: float, text: str) -> None:
    assert terminal.seconds(value) == text


@given(st.floats(1e-12, 1e12))
def test_seconds_lose_nothing_but_digits(value: float) -> None:
    number, unit = terminal.seconds(value).split()
    assert float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit] == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize(("share", "text"), [(0.0, "0.00 %"), (1e-9, "< 0.01 %"), (0.5, "50.00 %"), (1.0, "100.00 %")])
def test_a_small_gap_is_not_called_none(share: float, text: str) -> None:
    assert terminal.percent(share) == text


@given(st.text())
def test_one_line_is_one_printable_line(text: str) -> None:
    line = terminal.one_line(text)
    assert line.isprintable()
    if text.isprintable() and "  " not in text:
        assert line == text.strip()


def test_json_has_no_number_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say_json({"a": math.inf, "b": [math.nan, 1.5, ("x",)]})
    assert capsys.readouterr().out == '{\n  "a": null,\n  "b": [\n    null,\n    1.5,\n    [\n      "x"\n    ]\n  ]\n}\n'


@pytest.mark.parametrize(("tty", "seconds", "shown"), [(True, 0.0, True), (True, 60.0, False), (False, 0.0, False)])
def test_progress_shows_on_a_terminal_once_work_takes_long(monkeypatch: pytest.MonkeyPatch, tty: bool, seconds: float, shown: bool) -> None:
    file = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(terminal, "ONE_SECOND", seconds)
    monkeypatch.setattr(terminal, "console", lambda stderr: Console(file=file, force_terminal=tty, width=80))
    with terminal.Working("crunching") as working:
        time.sleep(0.2)
        working.update("still crunching")
        time.sleep(0.2)
    assert ("crunching" in file.getvalue()) is shown
