"""A limit of CPU time for a solver that works in this process."""

from __future__ import annotations

import time

from hetsched.problem.problem import Problem
from hetsched.search import Monitor
from hetsched.stopping import Stop


class CpuLimit(Monitor):
    """A monitor that stops after a limit of CPU seconds of this process, which hardly depend on other load of the machine."""

    def __init__(self, problem: Problem, limit: float, *, seed: int = 0) -> None:
        super().__init__(problem, seed=seed)
        self.end = time.process_time() + limit

    @property
    def stopped(self) -> Stop:
        if time.process_time() >= self.end:
            self.stop(Stop.TIME_LIMIT)
        return super().stopped
