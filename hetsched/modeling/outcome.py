"""Results of a solver: the reason of the end, the solution, the proof."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.errors import SolverFailed
from hetsched.stopping import Stop


@dataclass(frozen=True)
class Incumbent:
    """A better solution during a solve."""

    time: float
    """Seconds since the start of the solve."""
    objective: float
    values: FloatArray
    """[columns]"""
    nodes: int = 0
    """Nodes or branches explored so far."""


@dataclass(frozen=True)
class NewBound:
    """A better bound during a solve."""

    time: float
    """Seconds since the start of the solve."""
    bound: float
    """Bound on the objective."""
    nodes: int = 0
    """Nodes or branches explored so far."""


@dataclass(frozen=True)
class Outcome:
    """The result of a solve; `stopped`, `values` and `proven` are independent of one another.

    Attributes
    ----------
    stopped : Stop
        The reason of the end; for other limits of the solver "stopped", with the solver's status in `detail`.
    values : float64 array [columns] or None
        The best solution found.
    proven : str
        "optimal" (within the solver's tolerance), "infeasible", "unbounded", or "" without a proof.
    objective : float
        Objective of the best solution; inf (-inf when maximising) without one.
    bound : float
        Proven bound on the optimal objective, also without a solution.
    solver : str
    seconds : float
        Wall-clock time, including the construction of the model.
    nodes : int
        Nodes or branches explored.
    detail : str
        Details of the end, if any: how the solver's process died, or the step for which there was no time.
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
        """Return the outcome; raise `SolverFailed` if the solver's process died."""
        if self.stopped is Stop.FAILED:
            raise SolverFailed(self.detail)
        return self

    @checked
    def signed(self, sign: float) -> Outcome:
        """Return the outcome of the original model, for `sign` -1 of a maximisation."""
        return self if sign > 0 else replace(self, objective=-self.objective, bound=-self.bound)
