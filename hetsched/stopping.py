"""Reasons of a stop, deadlines on the one clock, and signals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, TypeAlias, TypeVar

from hetsched.errors import OutOfTime

T = TypeVar("T")


class Stop(StrEnum):
    """The reason of the end of a solve."""

    NONE = ""
    """It has not ended."""
    FINISHED = "finished"
    TIME_LIMIT = "time limit"
    EVALUATIONS = "evaluations"
    OPTIMAL = "optimal"
    GAP = "gap"
    """The requested gap was reached."""
    INFEASIBLE = "infeasible"
    CALLBACK = "callback"
    """A callback returned True."""
    INTERRUPTED = "interrupted"
    """Ctrl-C."""
    TERMINATED = "terminated"
    """SIGTERM."""
    STOPPED = "stopped"
    """A request of the caller."""
    FAILED = "failed"


Clock: TypeAlias = Callable[[], float]
LONGEST = 1e9
"""Seconds (some thirty years) from which a limit is no limit; solvers refuse larger numbers."""


@dataclass(frozen=True)
class Deadline:
    """A point in time on a clock, which a test may advance by hand.

    Parameters
    ----------
    end : float
        Seconds on the clock; inf for no limit.
    clock : callable
        Returns seconds; must never go back.
    """

    end: float = math.inf
    clock: Clock = time.monotonic

    @classmethod
    def after(cls, seconds: float | None, clock: Clock = time.monotonic) -> Deadline:
        """Return the deadline in `seconds` from now; None, or more than `LONGEST`, for no limit."""
        return cls(math.inf if seconds is None or seconds > LONGEST else clock() + seconds, clock)

    @property
    def left(self) -> float:
        """Seconds left, negative after the end."""
        return self.end - self.clock()

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return not math.isinf(self.end) and self.left <= 0

    @property
    def limit(self) -> float | None:
        """Seconds left, as a time limit: at least 0, None without a limit."""
        return None if math.isinf(self.end) else max(0.0, self.left)

    def check(self, what: str) -> None:
        """Raise `OutOfTime` if the time is up; to be called between the steps of `what`, which takes long."""
        if self.over:
            raise OutOfTime(f"the time limit was reached during {what}; allow more time")

    def watch(self, items: Iterable[T], what: str, every: int = 1000) -> Iterator[T]:
        """Yield the items, and call `check` before the first and after each `every` items."""
        for place, item in enumerate(items):
            if place % every == 0:
                self.check(what)
            yield item

    def require(self, seconds: float, what: str) -> None:
        """Raise `OutOfTime` if fewer than `seconds`, the estimate for `what`, are left; for work that cannot be interrupted."""
        if seconds > self.left:
            raise OutOfTime(f"{what} takes about {seconds:.2g} s, but {max(0.0, self.left):.2g} s are left; allow more time")
        self.check(what)

    def part(self, share: float) -> Deadline:
        """Return the deadline after a share of the seconds left."""
        return self if math.isinf(self.end) else Deadline.after(share * max(0.0, self.left), self.clock)

    def earlier(self, other: Deadline) -> Deadline:
        """Return the earlier of two deadlines on the same clock."""
        return self if self.end <= other.end else other


NEVER = Deadline()


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C: results so far are kept. Raised where `terminate` handles the signal."""


def terminate(_number: int, _frame: object) -> NoReturn:
    """Handle SIGTERM by raising `Terminated`."""
    raise Terminated


def reason(interruption: KeyboardInterrupt) -> Stop:
    """Return the reason of the stop for an interruption."""
    return Stop.TERMINATED if isinstance(interruption, Terminated) else Stop.INTERRUPTED
