"""A clock for tests of time limits, advanced by the test or by a fixed step at each reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hetsched.problem.problem import Problem
from hetsched.search import Budget, Monitor
from hetsched.solving import methods
from hetsched.stopping import Deadline

TICK = 1e-3
"""Step of the clock in `watched`, in seconds; short, for solvers have their own clock."""


class SteppingClock:
    """A clock that advances by a step at each reading, for ``Deadline(clock=)`` and ``Monitor(clock=)``.

    With it a test can count, independently of the machine's load, how often code reads the clock and
    how much it does after the deadline.

    Parameters
    ----------
    step : float
        Seconds between readings; 0 for a clock that only the test advances.

    Attributes
    ----------
    now : float
        Seconds; the test may advance it.
    looks : list of float
        The result of every reading.
    on_look : callable or None
        Called before each reading.
    """

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 100.0, step
        self.looks: list[float] = []
        self.on_look: Callable[[], object] | None = None

    def __call__(self) -> float:
        """Return the seconds, and advance."""
        if self.on_look is not None:
            self.on_look()
        shown = self.now
        self.looks.append(shown)
        self.now += self.step
        return shown

    def late(self, deadline: Deadline) -> int:
        """Return the number of readings after the deadline."""
        return sum(shown >= deadline.end for shown in self.looks)


class Watched(NamedTuple):
    """Counts of clock readings and evaluations of a method during and after its time."""

    monitor: Monitor
    late: int
    """Readings of the clock after the end."""
    after: int
    """Evaluations after the end."""
    between: int
    """The most evaluations between two readings."""


def watched(problem: Problem, method: str, looks: int, options: Mapping[str, Any] | None = None) -> Watched:
    """Run a method with a time limit of `looks` readings of the clock, or until it ends by itself."""
    methods()  # finds them all
    clock, made = SteppingClock(), list[int]()
    monitor = Monitor(problem, Budget(looks * TICK), clock=clock)
    clock.looks.clear()
    clock.step, clock.on_look = TICK, lambda: made.append(monitor.evaluations)
    monitor.run(method, options)
    made.append(monitor.evaluations)
    late = clock.late(monitor.deadline)
    return Watched(monitor, late, made[-1] - made[-1 - late], int(np.diff(made, prepend=0).max()))
