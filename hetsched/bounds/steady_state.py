"""Lower bounds on the load per input when inputs stream through: objectives ``"period"`` and ``"max-load"``.

They leave transfers out, so they hold for both; method ``"load-milp"`` counts transfers.
"""

from __future__ import annotations

import numpy as np

from hetsched.analysis.levels import Levels, unit_sums
from hetsched.analysis.load import priced
from hetsched.analysis.load_data import device_prices
from hetsched.arguments import checked
from hetsched.bounds import combinatorial
from hetsched.problem.graph import named
from hetsched.problem.problem import Problem
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline


@checked
def largest_unit(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the load of the unit that keeps even its best device the longest, for one input, which is on one device."""
    levels = Levels(problem) if levels is None else levels
    least = unit_sums(problem, levels.work).min(axis=1)
    if problem.inputs > 1 or not len(least):
        return Bound(0.0, "largest unit", "several inputs may go to several devices" if len(least) else "there are no tasks", "period")
    unit = int(least.argmax())
    tasks = named(np.flatnonzero(problem.unit == unit), problem.graph.names)
    value = float(least[unit] * (1 - len(problem.unit) * np.finfo(float).eps))  # its sum is rounded
    return Bound(value, "largest unit", f"{tasks} on one device, the best for it", "period")


@checked
def priced_load(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the load of `combinatorial.load` per input, memory left out, at prices that are nearly the best."""
    levels = Levels(problem) if levels is None else levels
    cost = unit_sums(problem, levels.work)
    prices = device_prices(cost)
    listed = ", ".join(f"{price:.4g} on {name!r}" for name, price in zip(problem.cluster.names, prices, strict=True) if price > 0)
    return Bound(priced(cost, prices) / problem.inputs, "priced load", f"work spread over the devices at prices {listed}", "period")


@checked
def load_per_input(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return `combinatorial.load`, by a linear program and memory considered, per input."""
    combined = combinatorial.load(problem, levels=levels)
    return Bound(combined.value / problem.inputs, combined.name, combined.evidence, "period")
