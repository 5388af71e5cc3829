"""The inner loop of annealing, in numba."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.compiled import kernel
from hetsched.heuristics.local_search import edit_kernels, move_kernels, state_kernels
from hetsched.heuristics.local_search.edit_kernels import Log
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState

CRITICAL = 0.5
"""Share of the changes that begin at a node of a critical chain."""
EVERY = 16
"""Changes tried with one chain before another is looked for."""
PRESS = 1.003
"""Factor by which the price of memory rises with each step beyond it, and falls with each step within."""


class Course(NamedTuple):
    """How annealing goes on."""

    steps: int
    hot: float
    cold: float
    """The temperature falls geometrically from one to the other, in seconds."""
    pressure: float
    """Seconds that a byte beyond a device's memory costs: more with every step spent so, less with every other."""
    current: float
    least: float
    """Makespans of the current state, and of the best."""


@kernel
def anneal(
    t: SearchData, s: SearchState, best: SearchState, log: Log, rng: np.random.Generator, course: Course
) -> tuple[float, float, float]:
    """Try random changes of `s`.

    Returns the makespan of `s`, the makespan of `best`, into which every better state within the memory is copied, and the
    pressure.
    """
    temperature, pressure, current, least = course.hot, course.pressure, course.current, course.least
    factor = (course.cold / course.hot) ** (1.0 / max(1, course.steps))
    chain, links, stale, age = s.chain, 0, True, 0
    state_kernels.tails(t, s, 0, s.length[0])
    over, most = edit_kernels.excess(t, s), 1e6 * pressure
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
        makespan, end, _ = state_kernels.update(t, s, first, log.size[2], limit)
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
