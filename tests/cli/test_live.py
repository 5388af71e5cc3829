"""The status line of running commands: its text, its width and its clock."""

from __future__ import annotations

import io
import math
import os
import re
import subprocess
import sys
import time

import pytest
from rich.cells import cell_len
from rich.console import Console

import hetsched as hs
from hetsched.cli import terminal
from hetsched.cli.answers import News
from hetsched.search import Event


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Make stderr a terminal of 80 columns, with the status line shown at once; return its output."""
    file = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(terminal, "ONE_SECOND", 0.0)
    monkeypatch.setattr(terminal, "console", lambda stderr: Console(file=file, force_terminal=True, width=80, color_system=None))
    return file


def until(drawn: io.StringIO, *texts: str) -> None:
    """Wait until all `texts` are drawn."""
    deadline = time.monotonic() + 100
    while any(text not in drawn.getvalue() for text in texts):
        assert time.monotonic() < deadline, drawn.getvalue()[-500:]
        time.sleep(0.02)


@pytest.mark.parametrize(("tty", "seconds"), [(True, 60.0), (False, 0.0)])
def test_nothing_shows_of_short_work_or_off_a_terminal(monkeypatch: pytest.MonkeyPatch, tty: bool, seconds: float) -> None:
    file = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(terminal, "ONE_SECOND", seconds)
    monkeypatch.setattr(terminal, "console", lambda stderr: Console(file=file, force_terminal=tty, width=80))
    with terminal.Working("crunching") as working:
        time.sleep(0.3)
        working.update("more of it")
        time.sleep(0.3)
    assert file.getvalue() == ""


def test_the_text_is_exchanged(drawn: io.StringIO) -> None:
    with terminal.Working("crunching") as working:
        until(drawn, "crunching 0:00:0")
        working.update("more of it")
        until(drawn, "more of it 0:00:0")


def test_the_clock_ticks_with_no_news(drawn: io.StringIO) -> None:
    with terminal.Working("crunching"):
        until(drawn, "crunching 0:00:01", "crunching 0:00:02")


def test_it_is_drawn_on_one_line_and_wiped_out(drawn: io.StringIO) -> None:
    with terminal.Working("crunching") as working:
        until(drawn, "crunching")
        working.update("wide " * 30, "still too wide " * 10)
        until(drawn, " still too wide", "… 0:00:0")
    shown = drawn.getvalue()
    lines = re.split(r"\r|\n", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown))
    assert max(map(cell_len, lines)) == 80
    assert shown.count("\n") == 1  # the newline that rich writes after the line at the end, and erases with it
    assert shown.endswith("\x1b[1A\x1b[2K")


def test_of_several_texts_the_first_that_fits_is_drawn(drawn: io.StringIO) -> None:
    with terminal.Working("crunching") as working:
        working.update("w" * 71, "fits", "f")
        until(drawn, "fits 0:00:0")
        working.update("w" * 70, "fits")
        until(drawn, "w" * 70 + " 0:00:0")
    assert "w" * 71 not in drawn.getvalue()
    assert " f " not in drawn.getvalue()


def test_names_are_drawn_as_they_are(drawn: io.StringIO) -> None:
    with terminal.Working("a [bold]b[/bold]\x1b[31m\nc"):
        until(drawn, "a [bold]b[/bold]\\x1b[31m c")


@pytest.mark.parametrize(
    ("event", "names", "text"),
    [
        (
            Event(2.0, 0.1234, 0.1, "milp by scip", 1234567),
            ["milp"],
            "milp: makespan 123.4 ms, bound 100.0 ms, gap 18.96 %, 1,234,567 nodes",
        ),
        (Event(2.0, 0.1234, 0.1, "milp", 1), ["milp"], "milp: makespan 123.4 ms, bound 100.0 ms, gap 18.96 %, 1 node"),
        (Event(2.0, 0.1234, 0.1, "milp", 0), ["milp"], "milp: makespan 123.4 ms, bound 100.0 ms, gap 18.96 %"),
        (Event(2.0, math.inf, 0.1, "head-tail load", 0), ["milp"], "milp: no schedule yet, bound 100.0 ms"),
        (Event(2.0, 0.1, 0.1, "peft", 0), ["heft", "peft"], "makespan 100.0 ms (peft), bound 100.0 ms (peft), gap 0.00 %"),
        (Event(2.0, math.inf, 0.1, "head-tail load", 0), ["auto"], "auto: no schedule yet, bound 100.0 ms (head-tail load)"),
    ],
)
def test_news_are_method_makespan_bound_gap_and_nodes(event: Event, names: list[str], text: str) -> None:
    assert News(names)(event)[0] == text


def test_news_of_several_members_name_the_methods() -> None:
    news = News(["auto"])
    news(Event(0.1, math.inf, 0.09, "load", 0))
    news(Event(0.2, 0.2, 0.09, "heft", 0))
    news(Event(0.3, 0.2, 0.1, "series", 0))
    full, shorter, shortest = news(Event(0.4, 0.1234, 0.1, "annealing", 7))
    assert full == "auto: makespan 123.4 ms (annealing), bound 100.0 ms (series), gap 18.96 %"
    assert shorter == "auto: 123.4 ms (annealing), bound 100.0 ms, gap 18.96 %"
    assert shortest == "123.4 ms, bound 100.0 ms, gap 18.96 %"


def test_news_fit_80_columns() -> None:
    longest = Event(1.0, 0.1234, 0.1, "milp by highs", 12_345_678)
    text = News(["milp:highs"])(longest)[1]
    assert text == "milp:highs: 123.4 ms, bound 100.0 ms, gap 18.96 %, 12,345,678 nodes"
    assert len(text) <= 80 - len("| ") - len(" 0:00:00")


SOLVING = """
import sys, time
import hetsched
from hetsched.cli.app import app

@hetsched.method("slow", summary="finds something soon, then searches on")
def slow(problem, monitor):
    monitor.nodes = 1234
    monitor.offer(hetsched.Decision.from_assignment(problem, dict.fromkeys(problem.graph.names, "cpu")))
    time.sleep(3.5)

app(["solve", "problem.json", "--method", "slow"], prog_name="hetsched")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no pseudo-terminals here")
def test_a_solve_is_followed_on_a_terminal(problem: hs.Problem) -> None:
    import pty
    import termios

    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    environment = {**{k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}, "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-c", SOLVING], stdout=subprocess.PIPE, stderr=terminal, env=environment)
    os.close(terminal)
    output = b""
    try:
        while chunk := os.read(controller, 65536):
            output += chunk
    except OSError:  # Linux raises it when the other end is closed
        pass
    out, _ = process.communicate(timeout=60)
    os.close(controller)
    assert process.returncode == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.decode())
    times = set(re.findall(r"slow: makespan 5\.\d+ ms, bound \S+ ms, gap \S+ %, 1,234 nodes (\S+)", shown))
    assert {"0:00:01", "0:00:02", "0:00:03"} <= times
    assert max(map(len, re.split(r"\r|\n", shown))) <= 80
    assert b"nodes" not in out


@pytest.mark.slow
def test_nothing_is_drawn_without_a_terminal(problem: hs.Problem) -> None:
    done = subprocess.run([sys.executable, "-c", SOLVING], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
