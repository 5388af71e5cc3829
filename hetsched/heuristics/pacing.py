"""Number of evaluations of a search between two checks of its limits."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hetsched.search import Monitor

SECONDS = 10.0
"""Time limit of a search for which no limit is given."""
_STEPS = 1_000_000


def bursts(monitor: Monitor, *, weight: float = 1.0) -> Iterator[int]:
    """Yield the number of evaluations to make next, until the method has to stop.

    The number depends on the size of the problem and the remaining evaluations, never on the clock, so
    that a search is deterministic under an evaluation limit; it takes a few milliseconds. Without a limit
    the bursts end after `SECONDS`.

    Parameters
    ----------
    monitor : Monitor
        The caller reports the evaluations to it.
    weight : float
        Cost of an evaluation, as a multiple of one pass over all tasks and edges.
    """
    problem, budget = monitor.problem, monitor.budget
    size = max(1, int(_STEPS / (weight * (problem.n_tasks + problem.graph.n_edges + 1))))
    end = monitor.elapsed + SECONDS if math.isinf(monitor.time_left) and budget.evaluations is None else math.inf
    while not monitor.should_stop and monitor.elapsed < end:
        yield size if budget.evaluations is None else min(size, budget.evaluations - monitor.evaluations)


def progress(monitor: Monitor, started: float, before: int) -> float:
    """Return the share of its budget that a search has used since its start, from 0 to 1.

    The share is of evaluations if they are limited, else of time; `started` and `before` are the monitor's
    `elapsed` and `evaluations` at the start.
    """
    if monitor.budget.evaluations is not None:
        return min(1.0, (monitor.evaluations - before) / max(1, monitor.budget.evaluations - before))
    spent = monitor.elapsed - started
    left = monitor.time_left
    return min(1.0, spent / (SECONDS if math.isinf(left) else max(spent + left, 1e-9)))
