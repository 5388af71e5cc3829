"""Solving again when devices have changed their speed: the baseline of assistants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetsched.arguments import checked
from hetsched.errors import InvalidProblem
from hetsched.problem.problem import Problem
from hetsched.runtime.iterations import Observation, expected_makespan, migration
from hetsched.runtime.speeds import Speeds
from hetsched.schedule.decision import Decision
from hetsched.solving import solve


class Resolve:
    """Solve the problem anew, with the speeds observed, whenever they have drifted.

    The solver starts from the decision that holds, so its answer is never behind that. It is put in force if
    what it saves in `repay` iterations is more than its migration takes. An iteration waits for the solver no
    longer than the policy's caller does: `Run.thinking` says how long that would be.

    Parameters
    ----------
    method : str
        As for `hetsched.solve`, like `time_limit`, `evaluations`, `seed` and `options`.
    time_limit : float, optional
        Seconds; without `evaluations` the default is 1.
    evaluations : int, optional
    seed : int
    options : mapping, optional
    repay : int
        Iterations.
    window, drift
        When speeds count as changed: the median over `window` iterations differs by more than `drift` (relative)
        from what the last solve assumed.
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
        """Start afresh, with the speeds that the problem says."""
        self._problem = problem
        self._speeds = Speeds(problem, window=self.window, drift=self.drift)

    @checked
    def observe(self, observation: Observation) -> Decision | None:
        """Return a better decision for the speeds observed if they have changed, else None."""
        if not self._speeds.observe(observation):
            return None
        problem, current = self._problem, observation.decision
        changed = problem.replace(durations=problem.durations * self._speeds.factor[:, None])
        solution = solve(
            changed,
            self.method,
            time_limit=self.time_limit,
            evaluations=self.evaluations,
            seed=self.seed,
            options=self.options,
            start=current,
        )
        if solution.schedule is None:
            return None
        wanted = solution.schedule.decision
        saved = expected_makespan(problem, current, self._speeds.seconds) - solution.schedule.makespan
        return wanted if saved * self.repay > migration(problem, current, wanted)[0] else None
