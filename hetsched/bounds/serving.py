"""Upper bounds on the tokens per second of serving, each with a proof that needs no search."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hetsched.analysis.serving_units import PARTS, excess, most_units, needed
from hetsched.arguments import COUNT, checked
from hetsched.chain.serving import ServingProblem

ROUNDING = 1e-9
"""Share by which bounds are raised, so that no rounding makes them too low."""


@checked
@dataclass(frozen=True)
class ThroughputBound:
    """An upper bound on the tokens per second of a serving problem.

    Attributes
    ----------
    value : float
        Tokens per second.
    name : str
    evidence : str
        Its evidence, in a line.
    parts : int or None
        Of `counting`: the number of parts of the value; the proof is checked with these two numbers alone.
    """

    value: float
    name: str
    evidence: str = ""
    parts: int | None = None


@checked
def capped_load(problem: ServingProblem) -> ThroughputBound:
    """Return the most tokens per second F for which the devices can do the work, if none passes on more than F.

    With T the throughput for l items, F is at most ``sum(count * max(l min(T, F))) / n``; by bisection.
    """
    low, high = 0.0, float(problem.throughput.max(axis=1) @ problem.counts)
    enough = problem.n_items * -ROUNDING
    if excess(problem, 0.0) < 0:
        return ThroughputBound(0.0, "capped load", "the devices together hold fewer items than there are")
    while high - low > ROUNDING * high:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(problem, middle) >= enough else (low, middle)
    return ThroughputBound(high * (1 + ROUNDING), "capped load", _evidence(problem, high * (1 + ROUNDING), None))


@checked(parts=COUNT)
def counting(problem: ServingProblem, parts: int) -> ThroughputBound:
    """Return the most tokens per second for which the devices have the units that all items need; see `units`."""
    table = problem.throughput[problem.throughput > 0]
    values = np.unique(np.append(0.0, (parts * table[:, None] / np.arange(1, parts + 1)).ravel())) * (1 + ROUNDING)
    low, high = -1, len(values)  # the units are enough at `low`, and not at `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if excess(problem, values[middle], parts) >= 0 else (low, middle)
    value = float(values[high]) if high < len(values) else math.inf
    return ThroughputBound(value, "counting", _evidence(problem, value, parts), parts)


@checked
def tightest(problem: ServingProblem) -> ThroughputBound:
    """Return the least of all bounds: `capped_load`, and `counting` with up to `PARTS` parts."""
    return min((capped_load(problem), *(counting(problem, m) for m in range(1, PARTS + 1))), key=lambda bound: bound.value)


def _evidence(problem: ServingProblem, value: float, parts: int | None) -> str:
    if math.isinf(value):
        return "no count excludes anything"
    most = most_units(problem, value, parts)
    kind = "of 1 at most" if parts is None else f"of 1/{parts}"
    given = " + ".join(f"{c} x {u:.6g} ({name})" for c, u, name in zip(problem.counts.tolist(), most, problem.types, strict=True))
    return (
        f"to pass on {value:.6f} tokens/s an item needs {needed(parts)} units {kind}, {problem.n_items} items "
        f"{needed(parts) * problem.n_items}, but the devices have {given} = {most @ problem.counts:.6g}"
    )
