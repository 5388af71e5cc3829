"""The messages between `auto` and its worker processes: jobs and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from hetsched.processes import ProcessDied, Ready
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import Stop


@dataclass(frozen=True)
class Job:
    """One run of a method: arguments, start and limits."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    start: Schedule | Decision | None = None
    """The start; only better decisions are reported."""
    bound: Bound = NO_BOUND
    time_limit: float | None = None
    evaluations: int | None = None
    objective: str = "makespan"


@dataclass(frozen=True)
class Found:
    """A better decision."""

    decision: Decision
    value: float
    source: str
    nodes: int = 0


@dataclass(frozen=True)
class Proved:
    """A better bound."""

    bound: Bound
    nodes: int = 0


class Failure(StrEnum):
    """The kind of a job's failure."""

    NONE = ""
    """It has not failed."""
    REFUSED = "refused"
    """The method does not support the problem or an option."""
    UNKNOWN = "unknown"
    """The process has no such method."""
    INCONSISTENT = "inconsistent"
    """A bound is above the value of a schedule."""
    FAILED = "failed"
    """Any other error."""


@dataclass(frozen=True)
class Done:
    """The end of a job."""

    efforts: tuple[tuple[str, float, int, float], ...] = ()
    """(method, best value, evaluations, seconds) of the method and of those it called."""
    messages: tuple[str, ...] = ()
    stopped: Stop = Stop.FINISHED
    failure: Failure = Failure.NONE
    error: str = ""
    """The message of the error."""


Message: TypeAlias = Ready | Found | Proved | Done | ProcessDied
