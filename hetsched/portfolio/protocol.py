"""The messages between `auto` and its worker processes: what a job is, and what is told of it."""

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
    """One run of a method: what it is given and may spend."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    start: Schedule | Decision | None = None
    """What it starts from; only what is better is told."""
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
    """How a job failed."""

    NONE = ""
    """It has not."""
    REFUSED = "refused"
    """The method does not take the problem or an option."""
    UNKNOWN = "unknown"
    """The process has no such method."""
    INCONSISTENT = "inconsistent"
    """A bound lies above a schedule."""
    FAILED = "failed"
    """Any other error."""


@dataclass(frozen=True)
class Done:
    """A job has ended."""

    efforts: tuple[tuple[str, float, int, float], ...] = ()
    """(method, best value, evaluations, seconds) of the method and of those it called."""
    messages: tuple[str, ...] = ()
    stopped: Stop = Stop.FINISHED
    failure: Failure = Failure.NONE
    error: str = ""
    """Its message."""


Message: TypeAlias = Ready | Found | Proved | Done | ProcessDied
