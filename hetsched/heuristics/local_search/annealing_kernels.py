"""Numba kernel of the inner loop of annealing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.compiled import kernel
from hetsched.heuristics.local_search import edit_kernels, excess_kernels, move_kernels, state_kernels
from hetsched.heuristics.local_search.edit_kernels import Log
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState

CRITICAL = 0.5
"""Probability that a change starts from a node of a critical chain."""
EVERY = 16
"""Number of changes after which the critical chain is computed again."""
PRESS = 1.003
"""Factor by which the penalty of memory rises after a step over the capacities, and falls after any other step."""


class Course(NamedTuple):
    """Settings and state of one call of `anneal`."""

    steps: int
    hot: float
    cold: float
    """Initial and final temperature in seconds, with a geometric decrease."""
    pressure: float
    """Penalty in seconds per byte over a device's memory; it rises with each step over the capacities and falls with the others."""
    current: float
    least: float
    """Makespans of the current and the best state, in seconds."""


@kernel
def anneal(
    t: SearchData, s: SearchState, best: SearchState, log: Log, rng: np.random.Generator, course: Course
) -> tuple[float, float, float]:
    """Try random changes of `s`.

    Better states within the memory are copied into `best`. Returns the makespans of `s` and of `best`, and the pressure.
    """
    temperature, pressure, current, least = course.hot, course.pressure, course.current, course.least
    factor = (course.cold / course.hot) ** (1.0 / max(1, course.steps))
    chain, links, stale, age = s.chain, 0, True, 0
    state_kernels.tails(t, s, 0, s.length[0])
    over, most = excess_kernels.excess(t, s), 1e6 * pressure
    for _ in range(course.steps):
        temperature *= factor
        age += 1
        pressure = min(pressure * PRESS, most) if over > 0.0 else max(pressure / PRESS, 1e-6 * most)
        if rng.random() < CRITICAL:
            if links == 0 or (stale and age >= EVERY):
                links, stale, age = move_kernels.critical_chain(t, s, chain), False, 0
            v = chain[move_kernels.below(rng, links)]
            if s.position[v] < 0:
                continue
        else:
            v = s.sequence[move_kernels.below(rng, s.length[0])]
        if not move_kernels.any_change(t, s, log, v, rng):
            continue
        first, now_over = log.size[1], edit_kernels.excess(t, s)
        limit = current - temperature * np.log(1.0 - rng.random()) - pressure * (now_over - over)
        makespan, end = state_kernels.update(t, s, first, log.size[2], limit)
        if t.timed and makespan <= limit:  # the claims are the weights only
            limit += pressure * now_over
            now_over = excess_kernels.excess(t, s)
            limit -= pressure * now_over
        if makespan <= limit:
            state_kernels.commit(t, s, first)
            state_kernels.tails(t, s, first, log.size[2])
            current, over, stale = makespan, now_over, True
            if current < least and over == 0.0:
                least = current
                state_kernels.copy(s, best)
        else:
            state_kernels.rollback(t, s, first, end)
            edit_kernels.undo(s, log)
    return current, least, pressure
