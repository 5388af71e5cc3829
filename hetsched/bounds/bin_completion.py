"""Bin completion as a method: tasks on identical devices between two times, packed into as many bins as there are devices.

Tasks that start at least a after the beginning and end at least b before the end keep each device busy for no longer than the time between.
So on m identical devices a + b + the least load of the fullest of m bins with their durations is at most the makespan. Independent tasks
are such a set with a = b = 0, and the packing is an optimal schedule; so are the tasks between a fork and a join without transfers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.analysis.levels import Levels
from hetsched.analysis.load import thresholds
from hetsched.analysis.packing import LARGEST, SETS, Packing, first_packing, least_packing
from hetsched.analysis.time_divisor import rounded_up, time_divisor
from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import UnsupportedFeature
from hetsched.problem.graph import plural
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Monitor
from hetsched.search.solution import Bound

SAME_WORK = 4
"""Sets of tasks after which the next ones get less work, so that all take some seconds."""
OFFERS = 20
"""The most schedules of packings that prove nothing new."""


def alike(problem: Problem) -> bool:
    """Return whether every task takes the same time on all devices, which all have paths to one another, and units are few."""
    durations = problem.usable_durations[:, :, 0]
    same = bool(np.isfinite(durations).all()) and bool((durations == durations[:, :1]).all())
    device = np.arange(problem.n_devices)
    every = problem.transfer_times(np.arange(problem.graph.n_edges)[:, None, None], device[:, None], device)
    return problem.inputs == 1 and 0 < problem.n_units <= LARGEST and same and bool(np.isfinite(every).all())


def bin_completion(problem: Problem, monitor: Monitor) -> None:
    """Offer the schedules of packings and raise the bound; see the method ``"bin-completion"``."""
    if not alike(problem):
        raise UnsupportedFeature(
            f"bin-completion takes up to {LARGEST} tasks that take the same time on all devices, with paths between all devices; "
            "use method 'branch', or a search"
        )
    sets, divisor = _sets(problem), time_divisor(problem)
    low, offers = 0.0, 0
    for number, one in enumerate(sets):
        between = low - one.before - one.after
        offers += one.found.load <= between  # it proves nothing, but its schedule may be better
        if monitor.should_stop or offers > OFFERS:
            break
        most = SETS[-1 - min(number // SAME_WORK, len(SETS) - 1)]
        best = least_packing(one.length, problem.n_devices, divisor=divisor, enough=between, sets=most, deadline=monitor.deadline)
        monitor.offer(_decision(problem, one, best))
        low = max(low, rounded_up(one.before + best.least + one.after, divisor))
        evidence = (
            f"{plural(len(one.tasks), 'task')} that start after {one.before:.6g} s and end {one.after:.6g} s before the end, packed whole "
            f"into {plural(problem.n_devices, 'device')}, keep one busy for {best.least:.6g} s"
        )
        monitor.raise_bound(Bound(low, "bin completion", evidence))


class _Set(NamedTuple):
    """Tasks between two times."""

    before: float
    after: float
    tasks: IntArray
    unit: IntArray
    """Their units, each once."""
    length: FloatArray
    """Seconds of each of these units."""
    found: Packing
    """The first packing of the units."""


def _sets(problem: Problem) -> list[_Set]:
    """Return the sets of tasks between two times that may prove most, by the makespan that their first packings have."""
    levels = Levels(problem)
    head, tail = levels.starts.min(axis=1), levels.tails.min(axis=1)
    durations = problem.usable_durations[:, 0, 0]
    sets: dict[bytes, _Set] = {}
    for before in thresholds(head):
        for after in thresholds(tail)[::-1]:
            within = (head >= before) & (tail >= after)
            tasks = np.flatnonzero(within)
            if len(tasks) and within.tobytes() not in sets:
                unit, number = np.unique(problem.unit[tasks], return_inverse=True)
                length = np.bincount(number, durations[tasks], len(unit)).astype(np.float64)
                found = first_packing(length, problem.n_devices)
                before_all, after_all = float(head[tasks].min()), float(tail[tasks].min())
                sets[within.tobytes()] = _Set(before_all, after_all, tasks, unit, length, found)
    return sorted(sets.values(), key=lambda one: -(one.before + one.found.load + one.after))


def _decision(problem: Problem, one: _Set, packing: Packing) -> Decision:
    """Return the decision of a packing: long ways to the end first, tasks outside of the set where there is least to do until then."""
    place = np.full(problem.n_units, -1)
    place[one.unit] = packing.bin
    tail = Levels(problem).tails.min(axis=1) + problem.usable_durations[:, 0, 0]
    order = problem.graph.topological_order
    order = order[np.argsort(-tail[order], kind="stable")]
    durations, busy = problem.usable_durations[:, 0, 0], np.zeros(problem.n_devices)
    for i in order:
        unit = problem.unit[i]
        place[unit] = k = int(busy.argmin()) if place[unit] < 0 else place[unit]
        busy[k] += durations[i]
    return Decision(order, place[problem.unit[order]])
