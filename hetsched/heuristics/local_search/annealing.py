"""Simulated annealing over devices, order and batches together."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import IntArray
from hetsched.heuristics.pacing import SECONDS
from hetsched.problem.problem import Problem
from hetsched.search import Auto, Monitor, method

CYCLES = ((1, 1.0), (4, 1.0), (16, 1.0))
"""Of one cooling after another: the share of the budget, and the factor of the temperatures. The first gives an early answer."""
GIVEN = ((4, 0.1), (4, 1.0), (16, 1.0))
"""The same from a schedule that is given: the first keeps to what is good in it, which the others may take too long to find again."""
APART = 0.75
"""Share of the limit for modules by themselves."""
JOINED = ((1, 0.1),)
"""As above, from the schedules of modules that were annealed by themselves."""


@method(
    "annealing",
    summary="simulated annealing over devices, order and batches together, half of it on the critical chain",
    source="Kirkpatrick, Gelatt and Vecchi 1983; the neighbourhood is ours",
    turn=300,
    auto=Auto(),
)
def annealing(problem: Problem, monitor: Monitor, *, hot: float = 0.01, cold: float = 0.0001) -> None:
    """Anneal from the best schedule, or from the best single device and HEFT.

    A change puts a task, or connected tasks, on another device, moves a task in the sequence, or
    shifts inputs between batches. The temperature falls geometrically from `hot` to `cold`, shares of
    the makespan, in cycles; each is four times as long as the previous one and starts from the best
    state. From a schedule that is given, the first is as long as the second and has a tenth of the
    temperatures. States over the memory capacities are allowed with a penalty, which grows while the
    search is in such states. Without a limit it ends after 10 s.

    With several inputs, at most one batch of a task on a device and more than 150 tasks, modules between tasks that cut the graph are
    first annealed by themselves for three quarters of the limit, and then their joint schedule, with a tenth of the temperatures.
    """
    from hetsched.heuristics.local_search.annealing_kernels import Course, anneal
    from hetsched.heuristics.local_search.in_series import in_series
    from hetsched.heuristics.local_search.search import StateSearch

    search, apart = StateSearch(monitor), False
    if not search.start() or problem.n_tasks == 0:
        return
    if parts := in_series(problem):
        apart = _modules_apart(parts, monitor)
        search = StateSearch(monitor)
        if not search.start():
            return
    shares, factors = np.transpose(JOINED if apart else GIVEN if monitor.from_start else CYCLES)
    ends = np.cumsum(shares) / shares.sum()
    cycle, pressure = 0, hot * search.least / search.states.typical_claim
    for count in search.bursts():
        done = search.progress
        if done >= ends[cycle] and cycle + 1 < len(ends):
            cycle += 1
            search.return_to_best()
        begin = ends[cycle - 1] if cycle else 0.0
        temperature = factors[cycle] * search.least * hot * (cold / hot) ** ((done - begin) / (ends[cycle] - begin))
        course = Course(count, temperature, temperature, pressure, search.makespan, search.least)
        search.makespan, search.least, pressure = anneal(search.states.tables, search.current, search.best, search.log, monitor.rng, course)


def _modules_apart(parts: list[IntArray], monitor: Monitor) -> bool:
    """Anneal modules by themselves, if the limit permits; return whether their joint schedule is the best."""
    from hetsched.heuristics.local_search.in_series import search_apart

    limit = monitor.budget.evaluations
    evaluations = None if limit is None else int(APART * (limit - monitor.evaluations))
    if evaluations is not None and evaluations < len(parts):
        return False
    time_limit = monitor.time_limit(APART)
    if time_limit is None and evaluations is None:
        time_limit = APART * SECONDS
    before = monitor.best
    search_apart(monitor, parts, "annealing", time_limit, evaluations)
    return monitor.best is not before
