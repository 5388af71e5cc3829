"""The best placement of a search so far, with a bound, until it is proven or the time is over."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from hetsched.chain.placement import Placement
from hetsched.errors import OutOfTime
from hetsched.stopping import NEVER, Deadline, Stop


class PlanProgress(NamedTuple):
    """A better placement or bound during a search."""

    elapsed: float
    """Seconds since the start."""
    value: float
    """Seconds of the best placement so far; inf if there is none."""
    bound: float
    """Seconds below which no placement is."""
    source: str
    """What it comes from."""


class Incumbent:
    """The best placement so far, and lower bounds on the values of all.

    A search is in parts, for instance by number of stages; no placement is below the least of their bounds.

    Parameters
    ----------
    value : float
        A value that is known to be reached.
    deadline : Deadline, optional
    on_progress : callable, optional
        Called with a `PlanProgress` for each better placement or bound; returning True ends the search.

    Attributes
    ----------
    value : float
    placement : Placement or None
        The best so far; None if none is as good as what was known.
    stop : Stop
        `Stop.CALLBACK` after that request, else `Stop.NONE`.
    """

    def __init__(
        self, value: float = math.inf, *, deadline: Deadline = NEVER, on_progress: Callable[[PlanProgress], object] | None = None
    ) -> None:
        self.value = value
        self.placement: Placement | None = None
        self.deadline, self.on_progress = deadline, on_progress
        self.stop = Stop.NONE
        self._started = deadline.clock()
        self._bounds = [0.0]
        self._quick: Callable[[int], float] = lambda part: 0.0

    @property
    def bound(self) -> float:
        """The least bound of the parts, or the value if that is less; inf if no placement is possible."""
        return min(self.value, *(raised if raised == math.inf else max(raised, self._quick(k)) for k, raised in enumerate(self._bounds)))

    def begin(self, parts: int, quick: Callable[[int], float]) -> None:
        """Begin a search in parts; `quick` returns a quick bound of each, which is asked for only where the bound is."""
        self._bounds, self._quick = [0.0] * parts, quick
        self._tell("quick bounds")

    def raise_bound(self, part: int, bound: float, source: str) -> None:
        """Raise the bound of a part of the search; inf if nothing in it is better than the value."""
        before = None if self.on_progress is None else self.bound
        self._bounds[part] = max(self._bounds[part], bound)
        if before is not None and self.bound > before:
            self._tell(source)

    def offer(self, value: float, placement: Placement, source: str) -> None:
        """Keep a placement if it is possible, and at least as good as what is known: the later of equals, which has fewer stages."""
        if value <= self.value and value < math.inf:
            self.value, self.placement = value, placement
            self._tell(source)

    def settles(self, bound: float) -> bool:
        """Return whether no placement of at least `bound` seconds is sought: it is no better than the best, or above what is known."""
        return bound > self.value or (bound == self.value and self.placement is not None)

    def check(self) -> None:
        """Raise `OutOfTime` if the search has to end."""
        if self.stop:
            raise OutOfTime("a callback ended the search")
        self.deadline.check("the search for the best placement")

    def _tell(self, source: str) -> None:
        if self.on_progress is not None:
            told = PlanProgress(self.deadline.clock() - self._started, self.value, self.bound, source)
            if self.on_progress(told) is True:
                self.stop = Stop.CALLBACK
