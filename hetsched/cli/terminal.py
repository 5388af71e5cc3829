"""How the terminal speaks: one line for an error, JSON for machines, a spinner for what takes long."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

ONE_SECOND = 1.0
_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def one_line(text: object) -> str:
    """Return `text` on one line, its unprintable characters escaped (names come from anywhere)."""
    folded = " ".join(str(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in folded)


def warn(text: object, label: str = "error") -> None:
    """Write one line to stderr."""
    if sys.stderr is not None:
        sys.stderr.write(f"{label}: {one_line(text)}\n")
        sys.stderr.flush()


def close_quietly(stream: TextIO) -> None:
    """Send the rest of a stream nowhere: its reader has gone, or its disk is full."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):  # no file behind it, as in a test
        pass


@cache
def _console_type() -> type[Console]:
    from rich.console import Console

    class Quiet(Console):
        """A console that lets the command finish when nobody reads on, so that its exit code holds."""

        def on_broken_pipe(self) -> None:
            close_quietly(sys.stdout)

    return Quiet


def console(*, stderr: bool = False) -> Console:
    """Return a console on today's stdout or stderr."""
    return _console_type()(stderr=stderr, highlight=False, markup=False, emoji=False)


def say(*lines: str) -> None:
    """Write lines to stdout as they are: no wrapping, no markup."""
    out = console()
    for line in lines:
        out.print(line, soft_wrap=True)


def say_json(value: object) -> None:
    """Write one JSON value to stdout; numbers that are not finite become null."""
    say(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def seconds(value: float) -> str:
    """Return seconds in a unit that suits them, with four significant digits."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else "inf"
    if value == 0:
        return "0 s"
    unit, scale = next((pair for pair in _UNITS if abs(value) >= pair[1]), _UNITS[-1])
    return f"{value / scale:#.4g}".rstrip(".") + f" {unit}"


def percent(share: float) -> str:
    """Return a share as per cent; what rounds to nothing without being nothing says so."""
    return "< 0.01 %" if 0 < share < 1e-4 else f"{share:.2%}".replace("%", " %")


class Working:
    """A spinner on stderr from the second second of some work on, on a terminal only.

    Use as a context manager; `update` exchanges the text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._progress: Progress | None = None

    def __enter__(self) -> Working:
        shown = console(stderr=True)
        if shown.is_terminal and not shown.is_dumb_terminal:
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = SpinnerColumn("line"), TextColumn("{task.description}"), TimeElapsedColumn()
            self._progress = Progress(*columns, console=shown, transient=True)
            self._task = self._progress.add_task(self._text)
            self._timer = threading.Timer(ONE_SECOND, self._start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def _start(self) -> None:
        with self._lock:
            if self._progress is not None:
                self._progress.start()

    def update(self, text: str) -> None:
        """Exchange the text."""
        if self._progress is not None:
            self._progress.update(self._task, description=text)

    def __exit__(self, *failure: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            if self._progress is not None:
                self._progress.stop()
                self._progress = None
