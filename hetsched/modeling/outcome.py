"""What a solver returns: why it stopped, whether there is a solution, what is proven."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.errors import SolverFailed
from hetsched.stopping import Stop


@dataclass(frozen=True)
class Incumbent:
    """A better solution found on the way."""

    time: float
    """Seconds since the start of the solve."""
    objective: float
    values: FloatArray
    """[columns]"""
    nodes: int = 0
    """Nodes or branches explored so far."""


@dataclass(frozen=True)
class NewBound:
    """A better bound found on the way."""

    time: float
    """Seconds since the start of the solve."""
    bound: float
    """On the objective."""
    nodes: int = 0
    """Nodes or branches explored so far."""


@dataclass(frozen=True)
class Outcome:
    """The result of a solve: three facts that do not follow from one another, and numbers.

    Attributes
    ----------
    stopped : Stop
        Why it ended; at another limit of the solver's own "stopped", and `detail` has the solver's word.
    values : float64 array [columns] or None
        The best solution found.
    proven : str
        "optimal" (within the solver's tolerance), "infeasible", "unbounded", or "" for nothing.
    objective : float
        Of the best solution; inf (-inf when maximising) without one.
    bound : float
        Proven bound on the optimal objective; kept even where there is no solution.
    solver : str
    seconds : float
        Wall time, building included.
    nodes : int
        Nodes or branches explored.
    detail : str
        What the user should read about the end, if anything: how the solver's process died, or what there was no time for.
    """

    stopped: Stop
    values: FloatArray | None
    proven: str
    objective: float
    bound: float
    solver: str
    seconds: float
    nodes: int = 0
    detail: str = ""

    @property
    def gap(self) -> float:
        """``abs(objective - bound) / abs(objective)``; inf without a solution."""
        if self.values is None:
            return math.inf
        return abs(self.objective - self.bound) / max(abs(self.objective), 1e-9)

    def raise_for_failure(self) -> Outcome:
        """Return the outcome; raises `SolverFailed` if the solver's process died."""
        if self.stopped is Stop.FAILED:
            raise SolverFailed(self.detail)
        return self

    @checked
    def signed(self, sign: float) -> Outcome:
        """Return the outcome of the model before it was made a minimisation."""
        return self if sign > 0 else replace(self, objective=-self.objective, bound=-self.bound)
