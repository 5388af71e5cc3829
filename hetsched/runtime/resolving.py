"""Solving again after changes of devices and links: the baseline of the assistants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hetsched.arguments import checked
from hetsched.errors import InvalidProblem
from hetsched.problem.problem import Problem
from hetsched.runtime.iterations import Observation, expected_makespan, fits, migration
from hetsched.runtime.speeds import Conditions
from hetsched.schedule.decision import Decision
from hetsched.solving import solve


class Resolve:
    """Solve the problem again, with the observed speeds and capacities, whenever these have changed.

    The solver starts from the current decision, so its answer is never worse. The answer is used if it saves
    more in `repay` iterations than its migration takes, or if the current decision no longer fits the memory. The
    simulated time excludes that of the solver, which is in `Run.thinking`.

    Parameters
    ----------
    method : str
        As for `hetsched.solve`, as are `time_limit`, `evaluations`, `seed` and `options`.
    time_limit : float, optional
        Seconds; without `evaluations` the default is 1.
    evaluations : int, optional
    seed : int
    options : mapping, optional
    repay : int
        Iterations.
    window, drift
        A speed has drifted if its median over `window` iterations differs by more than `drift` (relative) from
        that of the last solve.
    """

    @checked
    def __init__(
        self,
        method: str = "auto",
        *,
        time_limit: float | None = None,
        evaluations: int | None = None,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        repay: int = 10,
        window: int = 3,
        drift: float = 0.1,
    ) -> None:
        if repay < 0:
            raise InvalidProblem(f"repay is {repay!r}; it must be at least 0 iterations")
        self.method, self.seed, self.options = method, seed, options
        self.time_limit = 1.0 if time_limit is None and evaluations is None else time_limit
        self.evaluations, self.repay, self.window, self.drift = evaluations, repay, window, drift

    @checked
    def begin(self, problem: Problem, decision: Decision) -> None:
        """Reset the state, with the speeds of the problem."""
        self._conditions = Conditions(problem, window=self.window, drift=self.drift)

    @checked
    def observe(self, observation: Observation) -> Decision | None:
        """Return a better decision for the observed speeds if they have drifted, else None."""
        if not self._conditions.observe(observation):
            return None
        problem, current = self._conditions.problem, observation.decision
        still_fits = fits(problem, current)
        solution = solve(
            problem,
            self.method,
            time_limit=self.time_limit,
            evaluations=self.evaluations,
            seed=self.seed,
            options=self.options,
            start=current if still_fits else None,
        )
        if solution.schedule is None:
            return None
        proposal = solution.schedule.decision
        pause = migration(problem, current, proposal)[0]
        saved = expected_makespan(problem, current, self._conditions.speeds.seconds) - solution.schedule.makespan
        return proposal if math.isfinite(pause) and (not still_fits or saved * self.repay > pause) else None
