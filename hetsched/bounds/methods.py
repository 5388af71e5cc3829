"""Lower bounds under the name of a method, so that `auto` and others can give them their share of a budget."""

from __future__ import annotations

import math

from hetsched.bounds import best
from hetsched.problem.problem import Problem
from hetsched.search import Monitor, method


@method(
    "bounds", summary="every lower bound from cheap to dear; finds no schedule", source="those of hetsched.bounds",
    supports="every problem and objective",
)  # fmt: skip
def bounds(problem: Problem, monitor: Monitor) -> None:
    """Raise the bound by one after the other, until the time limit."""
    limit = None if math.isinf(monitor.time_left) else max(0.0, monitor.time_left)
    for found in best.every(problem, objective=monitor.objective, time_limit=limit):
        monitor.raise_bound(found)
        if monitor.should_stop:
            return
