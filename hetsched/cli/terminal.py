"""Output to the terminal: one line for an error, JSON for programs, a spinner for long work."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from hetsched.errors import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.live import Live
    from rich.text import Text

ONE_SECOND = 1.0
LABEL = 9  # columns of the labels of facts
NO_TERMINAL = 80  # columns of output to a file or a pipe
INTERRUPTED = {"interrupted": 130, "terminated": 143}
"""Exit codes after a signal: Ctrl-C, SIGTERM."""
SPINNER = "-\\|/"
SPINS = 8.0  # steps of the spinner per second


def warn(text: object, label: str = "error") -> None:
    """Write one line to stderr."""
    if sys.stderr is not None:
        sys.stderr.write(f"{label}: {one_line(text)}\n")
        sys.stderr.flush()


def close_quietly(stream: TextIO) -> None:
    """Discard further output to a stream whose reader has gone or whose disk is full."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):  # no file behind it, as in a test
        pass


@cache
def _console_type() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class Quiet(Console):
        """A console that ignores a closed pipe, so that the command finishes with its own exit code.

        Control characters in names are escaped: they move no cursor and change no colour.
        """

        def on_broken_pipe(self) -> None:
            close_quietly(sys.stdout)

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                if segment.control or segment.text.isprintable() or segment.text == "\n":
                    yield segment
                else:
                    yield Segment("\n".join(map(printable, segment.text.split("\n"))), segment.style)

    return Quiet


def console(*, stderr: bool = False) -> Console:
    """Return a console on the current stdout or stderr; without a terminal it has ``$COLUMNS`` or 80 columns."""
    made = _console_type()(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        made.width = NO_TERMINAL
    return made


def say(*lines: str) -> None:
    """Write lines to stdout as they are: no wrapping, no markup."""
    out = console()
    for line in lines:
        out.print(line, soft_wrap=True)


def say_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Write labelled facts to stdout, one a line; a terminal wraps them beside the labels."""
    from rich.table import Table

    screen = console()
    if not screen.is_terminal:
        say(*(f"{label:<{LABEL}} {one_line(value)}" for label, value in rows))
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, min_width=LABEL)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(label, one_line(value))
    screen.print(table)


def say_json(value: object) -> None:
    """Write one JSON value to stdout; numbers that are not finite become null."""
    say(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Working:
    """A progress line on stderr, with the elapsed time, for work of more than a second; shown on terminals only.

    Use as a context manager; `update` replaces the text.
    """

    def __init__(self, text: str) -> None:
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._live: Live | None = None
        self._began = time.monotonic()
        self.update(text)

    def __enter__(self) -> Working:
        shown = console(stderr=True)
        if shown.is_terminal and not shown.is_dumb_terminal:
            from rich.live import Live

            self._live = Live(console=shown, get_renderable=lambda: self._line(shown.width), refresh_per_second=10, transient=True)
            self._timer = threading.Timer(ONE_SECOND, self._start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def _start(self) -> None:
        with self._lock:
            if self._live is not None:
                self._live.start(refresh=True)

    def _line(self, width: int) -> Text:
        """Return the current line, cut to `width`."""
        from rich.text import Text

        seconds = time.monotonic() - self._began
        clock = f" {timedelta(seconds=int(seconds))}"
        room = max(0, width - len("| ") - len(clock))
        fitting = [text for text in map(Text, self._texts) if text.cell_len <= room]
        text = fitting[0] if fitting else Text(self._texts[-1])
        text.truncate(room, overflow="ellipsis")
        return Text.assemble((f"{SPINNER[int(SPINS * seconds) % len(SPINNER)]} ", "progress.spinner"), text, (clock, "progress.elapsed"))

    def update(self, *texts: str) -> None:
        """Replace the text; of several, the first that fits the terminal is drawn."""
        self._texts = [one_line(text) for text in texts]

    def __exit__(self, *failure: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None
