"""Lower bounds on the load when inputs stream through: objectives ``"period"`` and ``"max-load"``."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hetsched.analysis import levels
from hetsched.analysis.load import priced
from hetsched.analysis.streams import device_prices
from hetsched.arguments import checked
from hetsched.bounds import combinatorial
from hetsched.problem.graph import named
from hetsched.problem.problem import Problem
from hetsched.schedule.steady import find_objective
from hetsched.solution import Bound


@checked
def quick(problem: Problem, objective: str = "period") -> Iterator[Bound]:
    """Yield the bounds that need no linear program: the largest unit, the load at prices that are nearly the best.

    If memory alone rules every schedule out, that proof (value inf) is the only one. They leave
    transfers out, so they hold for ``"period"`` and ``"max-load"`` alike; method ``"load-milp"`` counts them.
    """
    find_objective(objective)
    proof = combinatorial.memory(problem)
    if math.isinf(proof.value):
        yield Bound(proof.value, proof.name, proof.evidence, objective)
        return
    if problem.inputs == 1:
        yield _largest(problem, objective)
    yield _at_prices(problem, objective)


@checked
def every(problem: Problem, objective: str = "period") -> Iterator[Bound]:
    """Yield all bounds on the largest load per input of any device: those of `quick`, then the load by linear program."""
    for found in quick(problem, objective):
        yield found
        if math.isinf(found.value):
            return
    spread = combinatorial.load(problem)
    yield Bound(spread.value / problem.inputs, spread.name, spread.evidence, objective)


def _at_prices(problem: Problem, objective: str) -> Bound:
    """Return the load of `combinatorial.load`, memory left out, at prices that are nearly the best."""
    cost = levels.unit_sums(problem, levels.least_work(problem))
    prices = device_prices(cost)
    listed = ", ".join(f"{price:.4g} on {name!r}" for name, price in zip(problem.cluster.names, prices, strict=True) if price > 0)
    return Bound(priced(cost, prices) / problem.inputs, "priced load", f"work spread over the devices at prices {listed}", objective)


def _largest(problem: Problem, objective: str) -> Bound:
    """Return the load of the unit that keeps even its best device the longest; with one input it is on one device."""
    least = levels.unit_sums(problem, levels.least_work(problem)).min(axis=1)
    if not len(least):
        return Bound(0.0, "largest unit", "there are no tasks", objective)
    unit = int(least.argmax())
    tasks = named(np.flatnonzero(problem.unit == unit), problem.graph.names)
    value = float(least[unit] * (1 - len(problem.unit) * np.finfo(float).eps))  # its sum is rounded
    return Bound(value, "largest unit", f"{tasks} on one device, the best for it", objective)
