"""Errors and warnings of the package; every message has the value, the rule and the remedy."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)

LONGEST = 500
"""The most characters of an error message."""


def printable(text: object) -> str:
    """Return `text` with its unprintable characters escaped, for a terminal interprets some of them."""
    characters = str(text)
    return (
        characters
        if characters.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in characters)
    )


def one_line(text: object) -> str:
    """Return `text` on one printable line."""
    return printable(" ".join(str(text).split()))


def shortened(text: str, most: int = LONGEST) -> str:
    """Return `text` without its middle if it has more than `most` characters: value and remedy are at the ends."""
    if len(text) <= most:
        return text
    kept = most - len(" ... ")
    tail = kept // 3
    return f"{text[: kept - tail]} ... {text[len(text) - tail :]}"


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Emit a warning at the line of the user's code that called the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class HetschedError(Exception):
    """Base class of the errors of this package; the message is one printable line of at most `LONGEST` characters."""

    def __init__(self, message: object = "") -> None:
        super().__init__(shortened(one_line(shortened(str(message), 20 * LONGEST))))  # shortened first, against the cost of long texts


class InvalidArgument(HetschedError, ValueError, TypeError):
    """An argument of a call is of the wrong kind or outside its range."""


class InvalidProblem(HetschedError, ValueError):
    """A graph, cluster, problem or document breaks a rule of the problem statement."""


class InvalidSchedule(HetschedError, ValueError):
    """A decision or schedule does not fit its problem, or breaks one of its rules."""


class InvalidModel(HetschedError, ValueError):
    """Columns, expressions or rows of an optimisation model do not fit together."""


class Infeasible(HetschedError):
    """A problem is proven to have no valid schedule (raised by ``Solution.raise_for_status``)."""


class UnsupportedFeature(HetschedError):
    """A method, solver or format does not support a request."""


class SolverFailed(HetschedError):
    """A solver's process died before it had finished; its results so far are kept."""


class OutOfTime(HetschedError):
    """The time limit is over, or the next step would take longer than the time left (see `hetsched.stopping.Deadline`)."""


class Timeout(HetschedError, TimeoutError):
    """A run of an executor took longer than its time-out; the message has the step of each device."""


class OutOfMemory(HetschedError, MemoryError):
    """A device of an executor has no memory for a value; the message has the device and, of a run, the task and the need of the plan."""


class Cancelled(HetschedError):
    """A run of an executor was cancelled by another thread, or the executor was closed."""


class PeerLost(HetschedError):
    """A rank of a run over several processes has ended, or has given up; `rank` is its number."""

    def __init__(self, message: object = "", rank: int = -1) -> None:
        super().__init__(message)
        self.rank = rank


class MissingDependency(HetschedError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        requirement = f"hetsched[{extra}]" if extra else package
        super().__init__(f"{package!r} is not installed; install it with: pip install {requirement!r}")
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.package, self.extra)


class InconsistentBound(HetschedError):
    """A lower bound is above the makespan of a valid schedule: one of the two is a bug."""
