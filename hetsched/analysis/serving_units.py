"""How much devices give to items, in units that bound the tokens per second of serving."""

from __future__ import annotations

import numpy as np

from hetsched.arguments import COUNT, checked, number
from hetsched.arrays import FloatArray
from hetsched.chain.serving import ServingProblem

PARTS = 64
"""The most parts that bounds and models count with."""
SLACK = 1e-12
"""What is added before a number of parts is rounded down, so that rounding makes no unit too few."""


@checked(above=number(0), parts=COUNT.or_none)
def units(problem: ServingProblem, above: float, parts: int | None = None) -> FloatArray:
    """Return the units of a device by type and number of items [K, longest], of which an item needs `needed` to pass on more.

    Parameters
    ----------
    above : float
        Tokens per second F.
    parts : int, optional
        With m parts, a device of throughput T has ``floor(m min(T/F, 1)) + 1`` units, and an item needs m + 1. Without, it has
        ``min(T/F, 1)``, and an item needs 1.

    Notes
    -----
    Devices that together pass F on through an item have shares of F that add up to 1, each at most ``min(T/F, 1)``, so those add up to 1
    at least. Each is less than ``(floor(m share) + 1) / m``, so the floors and ones add up to more than m, and they are whole.
    """
    share = np.minimum(problem.throughput / above, 1.0) if above else np.ones(problem.throughput.shape)
    counted = share if parts is None else np.floor(parts * share + SLACK) + 1
    return np.where(problem.throughput > 0, counted, 0.0)


@checked(parts=COUNT.or_none)
def needed(parts: int | None) -> int:
    """Return how many units an item needs; see `units`."""
    return 1 if parts is None else parts + 1


@checked(above=number(0), parts=COUNT.or_none)
def excess(problem: ServingProblem, above: float, parts: int | None = None) -> float:
    """Return how many more units the devices have than all items need; if it is negative, no placement passes `above` tokens/s on.

    A device that holds so many items gives each of them its units for as many; it holds as many as give the most.
    """
    return float(most_units(problem, above, parts) @ problem.counts) - needed(parts) * problem.n_items


@checked(above=number(0), parts=COUNT.or_none)
def most_units(problem: ServingProblem, above: float, parts: int | None = None) -> FloatArray:
    """Return the most units that a device of each type gives to items."""
    held = np.arange(1, problem.throughput.shape[1] + 1)
    return np.asarray((units(problem, above, parts) * held).max(axis=1))
