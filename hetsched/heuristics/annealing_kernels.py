"""The inner loop of annealing, in numba."""

from __future__ import annotations

import numpy as np

from hetsched.compiled import kernel
from hetsched.heuristics import moves
from hetsched.schedule import edits, sequences
from hetsched.schedule.edits import Log
from hetsched.schedule.sequences import State, Tables

CRITICAL = 0.5
"""Share of the changes that begin at a node of a critical chain."""
EVERY = 16
"""Changes tried with one chain before another is looked for."""
PRESS = 1.003
"""Factor by which the price of memory rises with each step beyond it, and falls with each step within."""


@kernel
def anneal(
    t: Tables,
    s: State,
    best: State,
    log: Log,
    rng: np.random.Generator,
    steps: int,
    hot: float,
    cold: float,
    pressure: float,
    current: float,
    least: float,
) -> tuple[float, float, float]:
    """Try `steps` random changes while the temperature falls geometrically from `hot` to `cold` seconds.

    A byte claimed beyond a device's memory costs `pressure` seconds, more with every step spent so and
    less with every other. Returns the makespan of `s`, the makespan of `best`, into which every better
    state within the memory is copied, and the pressure.
    """
    temperature = hot
    factor = (cold / hot) ** (1.0 / max(1, steps))
    chain, links, stale, age = s.chain, 0, True, 0
    sequences.tails(t, s, 0, s.length[0])
    over, most = edits.excess(t, s), 1e6 * pressure
    for _ in range(steps):
        temperature *= factor
        age += 1
        pressure = min(pressure * PRESS, most) if over > 0.0 else max(pressure / PRESS, 1e-6 * most)
        if rng.random() < CRITICAL:
            if links == 0 or (stale and age >= EVERY):
                links, stale, age = moves.critical_chain(t, s, chain), False, 0
            v = chain[moves.below(rng, links)]
            if s.position[v] < 0:
                continue
        else:
            v = s.sequence[moves.below(rng, s.length[0])]
        if not moves.any_change(t, s, log, v, rng):
            continue
        first, now_over = log.size[1], edits.excess(t, s)
        limit = current - temperature * np.log(1.0 - rng.random()) - pressure * (now_over - over)
        makespan, end, _ = sequences.update(t, s, first, log.size[2], limit)
        if makespan <= limit:
            sequences.commit(t, s, first)
            sequences.tails(t, s, first, log.size[2])
            current, over, stale = makespan, now_over, True
            if current < least and over == 0.0:
                least = current
                sequences.copy(s, best)
        else:
            sequences.rollback(t, s, first, end)
            edits.undo(s, log)
    return current, least, pressure
