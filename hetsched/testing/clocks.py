"""A clock for tests of limits of time: it advances by hand, or by itself whenever somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable

from hetsched.stopping import Deadline


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
