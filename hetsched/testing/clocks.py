"""A clock for tests of limits of time: it advances by hand, or by itself whenever somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hetsched.problem.problem import Problem
from hetsched.search import Budget, Monitor
from hetsched.solving import methods
from hetsched.stopping import Deadline

TICK = 1e-3
"""Seconds from one look at the clock to the next in `watched`: for a solver, whose own clock is another, a short time too."""


class SteppingClock:
    """A clock that goes on by some seconds at each look, for ``Deadline(clock=)`` and ``Monitor(clock=)``.

    With it a test proves, whatever else the machine does, that something looks at the clock, and how
    much it does after the end.

    Parameters
    ----------
    step : float
        Seconds from look to look; 0 for a clock that only the test advances.

    Attributes
    ----------
    now : float
        Seconds; the test may advance it.
    looks : list of float
        What every look has shown.
    on_look : callable or None
        Called at each look, before it.
    """

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 100.0, step
        self.looks: list[float] = []
        self.on_look: Callable[[], object] | None = None

    def __call__(self) -> float:
        """Return the seconds, and go on."""
        if self.on_look is not None:
            self.on_look()
        shown = self.now
        self.looks.append(shown)
        self.now += self.step
        return shown

    def late(self, deadline: Deadline) -> int:
        """Return how many looks have shown that the deadline is over."""
        return sum(shown >= deadline.end for shown in self.looks)


class Watched(NamedTuple):
    """What a method did as its time went by."""

    monitor: Monitor
    late: int
    """Looks at the clock after the end."""
    after: int
    """Evaluations after the end."""
    between: int
    """The most evaluations between two looks."""


def watched(problem: Problem, method: str, looks: int, options: Mapping[str, Any] | None = None) -> Watched:
    """Run a method until it has looked at the clock so many times, which is all its time, or until it ends by itself."""
    methods()  # finds them all
    clock, made = SteppingClock(), list[int]()
    monitor = Monitor(problem, Budget(looks * TICK), clock=clock)
    clock.looks.clear()
    clock.step, clock.on_look = TICK, lambda: made.append(monitor.evaluations)
    monitor.run(method, options)
    made.append(monitor.evaluations)
    late = clock.late(monitor.deadline)
    return Watched(monitor, late, made[-1] - made[-1 - late], int(np.diff(made, prepend=0).max()))
