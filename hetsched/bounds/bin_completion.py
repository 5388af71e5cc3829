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
CLOSE = 1e-2
"""Share of the load by which a bound may stay below that of the best packing."""
OFFERS = 20
"""Sets whose first packings are offered as schedules."""


def alike(problem: Problem) -> bool:
    """Return whether every task takes the same time on all devices, which all have paths to one another, and units are few."""
    if problem.inputs > 1 or not 0 < problem.n_units <= LARGEST:
        return False
    durations = problem.usable_durations[:, :, 0]
    if not np.isfinite(durations).all() or (durations != durations[:, :1]).any():
        return False
    paths = problem.cluster.route_bandwidth > 0 if problem.transfers is None else np.isfinite(problem.transfers)
    return not problem.graph.n_edges or bool((paths | np.eye(problem.n_devices, dtype=bool)).all())


def bin_completion(problem: Problem, monitor: Monitor) -> None:
    """Offer the schedules of packings and raise the bound; see the method ``"bin-completion"``."""
    if not alike(problem):
        raise UnsupportedFeature(
            f"bin-completion takes up to {LARGEST} tasks that take the same time on all devices, with paths between all devices; "
            "use method 'branch', or a search"
        )
    levels, divisor, low = Levels(problem), time_divisor(problem), 0.0
    for number, one in enumerate(_sets(problem, levels)):
        if monitor.should_stop or one.most <= low:
            return
        rough = first_packing(one.length, problem.n_devices)
        if number < OFFERS:
            monitor.offer(_decision(problem, levels, one.unit, rough))
        # Of packings that are shorter than every schedule known only the bound matters, not which is the best to the last digit.
        close = CLOSE * rough.load if one.before + rough.load + one.after < monitor.incumbent else 0.0
        best = least_packing(
            one.length,
            problem.n_devices,
            divisor=divisor,
            enough=low - one.before - one.after,
            close=close,
            sets=SETS[-1 - min(number // SAME_WORK, len(SETS) - 1)],
            deadline=monitor.deadline,
        )
        value = rounded_up(one.before + best.least + one.after, divisor)
        if best.load < rough.load:
            monitor.offer(_decision(problem, levels, one.unit, best))
        if value > low:
            low = value
            evidence = (
                f"{plural(one.tasks, 'task')} that start after {one.before:.6g} s and end {one.after:.6g} s before the end, packed whole "
                f"into {plural(problem.n_devices, 'device')}, keep one busy for {best.least:.6g} s"
            )
            monitor.raise_bound(Bound(low, "bin completion", evidence))


class _Set(NamedTuple):
    """Tasks between two times."""

    most: float
    """A makespan that some packing has at most, by longest processing time first: the mean load and a longest item."""
    before: float
    after: float
    tasks: int
    unit: IntArray
    """The units of the tasks, each once."""
    length: FloatArray
    """Seconds of each of these units."""


def _sets(problem: Problem, levels: Levels) -> list[_Set]:
    """Return the different sets of tasks between two times, those first that may prove most."""
    head, tail = levels.starts.min(axis=1), levels.tails.min(axis=1)
    durations = problem.usable_durations[:, 0, 0]
    sets: dict[bytes, _Set] = {}
    for before in thresholds(head):
        for after in thresholds(tail)[::-1]:
            within = (head >= before) & (tail >= after)
            key = within.tobytes()
            if key in sets or not within.any():
                continue
            unit, number = np.unique(problem.unit[within], return_inverse=True)
            length = np.bincount(number, durations[within], len(unit)).astype(np.float64)
            first, last = float(head[within].min()), float(tail[within].min())
            most = first + float(length.sum() / problem.n_devices + length.max()) + last
            sets[key] = _Set(most, first, last, len(number), unit, length)
    return sorted(sets.values(), key=lambda one: -one.most)


def _decision(problem: Problem, levels: Levels, unit: IntArray, packing: Packing) -> Decision:
    """Return the decision of a packing: long ways to the end first, tasks outside of the set where there is least to do until then."""
    place = np.full(problem.n_units, -1)
    place[unit] = packing.bin
    durations, busy = problem.usable_durations[:, 0, 0], np.zeros(problem.n_devices)
    order = problem.graph.topological_order
    order = order[np.argsort(-(levels.tails.min(axis=1) + durations)[order], kind="stable")]
    for i in order:
        own = problem.unit[i]
        place[own] = k = int(busy.argmin()) if place[own] < 0 else place[own]
        busy[k] += durations[i]
    return Decision(order, place[problem.unit[order]])
