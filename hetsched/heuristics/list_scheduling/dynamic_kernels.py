"""Numba kernels of list schedulers with dynamic priorities, which compare all ready tasks at each step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner, kernel, nearly_linear
from hetsched.heuristics.list_scheduling.kernels import MEMORY_SLACK, NONE, ListProblem, arrivals
from hetsched.heuristics.list_scheduling.transfer_kernels import BOOKED, Transfers, book, refresh

# Rules by which a dynamic list scheduler selects among the ready tasks.
ETF, DLS, BIL, MIN_MIN, MAX_MIN, SUFFERAGE = 0, 1, 2, 3, 4, 5

MORE, SLICE = -2, 4_000_000
"""Return value at the end of a slice that is not the last, and looks at a ready task or a device in a slice, which take a tenth of
a second."""
PLANNING = 4
"""Looks that take as long as to plan a transfer."""
WIDE = -3
"""Return value of `by_choice` where more tasks are ready than it is to examine."""


@inner
def _kth_least(values: FloatArray, count: int, k: int) -> float:
    """Return the k-th least (from 0) of the first `count` values; sorts them in place by insertion."""
    for x in range(1, count):
        value = values[x]
        y = x
        while y > 0 and values[y - 1] > value:
            values[y] = values[y - 1]
            y -= 1
        values[y] = value
    return float(values[k])


class Choice(NamedTuple):
    """The rule by which a dynamic list scheduler selects a ready task and a device."""

    rule: int
    """``ETF``, ``DLS``, ``BIL``, ``MIN_MIN``, ``MAX_MIN`` or ``SUFFERAGE``."""
    level: FloatArray
    """[n, 1] (static level), [n, K] (imaginary level) or [0, 0]"""
    median: FloatArray
    """[n] or [0]: median durations, for ``DLS``."""


class Choosing(NamedTuple):
    """State of a dynamic list scheduler between slices of steps."""

    at: IntArray
    """Number of steps done, -1 before the initially ready tasks are collected; number of ready tasks; last device; last unit."""
    device: IntArray
    finish: FloatArray
    sequence: IntArray
    waiting: IntArray
    ready: FloatArray
    """[n, K]"""
    ready_tasks: IntArray
    unit_device: IntArray
    used: FloatArray
    available: FloatArray

    @classmethod
    def begin(cls, n_tasks: int, n_devices: int, n_units: int) -> Choosing:
        """Return the state before the first step."""
        return cls(
            np.array([-1, 0, -1, -1]),
            np.full(n_tasks, -1),
            np.zeros(n_tasks),
            np.empty(n_tasks, np.int64),
            np.empty(n_tasks, np.int64),
            np.empty((n_tasks, n_devices)),
            np.empty(n_tasks, np.int64),
            np.full(n_units, -1),
            np.zeros(n_devices),
            np.zeros(n_devices),
        )


class Preferences(NamedTuple):
    """The best devices of each ready task, cached between steps.

    A placement only worsens the device it uses, so the cached devices of a task are valid until a task is placed on its best
    or second-best device, or from its co-location unit.
    """

    device: IntArray
    other: IntArray
    """[n]: the best and the second-best device, -1 for none."""
    score: FloatArray
    tie: FloatArray
    """[n]: keys of the comparison of ready tasks; the highest is first."""
    scratch: FloatArray
    """[K]"""

    @classmethod
    def begin(cls, n_tasks: int, n_devices: int) -> Preferences:
        """Return an empty cache."""
        return cls(np.full(n_tasks, -1), np.full(n_tasks, -1), np.empty(n_tasks), np.zeros(n_tasks), np.empty(n_devices))


@inner
def device_value(choice: Choice, i: int, k: int, start: float, duration: float, crowd: float) -> float:
    """Return the value of device k for task i, which can start there at `start`; higher is better."""
    if choice.rule == ETF:
        return -start
    if choice.rule == DLS:
        return float(choice.level[i, 0] - start + (choice.median[i] - duration))
    if choice.rule == BIL:
        return -float(start + choice.level[i, k] + duration * crowd)
    return -(start + duration)


@inner
def prefer(p: ListProblem, choice: Choice, s: Choosing, preferences: Preferences, i: int, n_ready: int) -> bool:
    """Write the preferences of ready task i; return whether it fits any device."""
    size, u, scratch = len(s.used), p.unit[i], preferences.scratch
    crowd = max(n_ready / size - 1.0, 0.0)
    best, other, first, second, fitting = NONE, NONE, -np.inf, -np.inf, 0
    for k in range(size):
        duration, ready = p.durations[i, p.column[k]], s.ready[i, k]
        if duration == np.inf or ready == np.inf or (s.unit_device[u] >= 0 and s.unit_device[u] != k):
            continue
        if s.unit_device[u] < 0 and s.used[k] + p.need[u] > p.capacity[k] * MEMORY_SLACK:
            continue
        start = ready if duration == 0.0 else max(ready, s.available[k])
        value = device_value(choice, i, k, start, duration, crowd)
        if choice.rule == BIL:
            scratch[fitting] = start + choice.level[i, k]
        fitting += 1
        if value > first:
            second, other = first, best
            best, first = k, value
        elif value > second:
            second, other = value, k
    if best < 0:
        return False
    preferences.device[i], preferences.other[i] = best, other
    if choice.rule == BIL:
        preferences.score[i] = _kth_least(scratch, fitting, min(n_ready, fitting) - 1)
    elif choice.rule == MAX_MIN:
        preferences.score[i] = -first
    elif choice.rule == SUFFERAGE:
        preferences.score[i] = first - second  # inf without a second device
    else:
        preferences.score[i] = first
        if choice.rule == ETF:
            preferences.tie[i] = choice.level[i, 0]
    return True


@inner
def goes_before(preferences: Preferences, i: int, j: int) -> bool:
    """Return whether ready task i is selected before j: by score, tie, then the lower task."""
    score, tie = preferences.score, preferences.tie
    if score[i] != score[j]:
        return bool(score[i] > score[j])
    return bool(tie[i] > tie[j] or (tie[i] == tie[j] and i < j))


@inner
def _make_ready(p: ListProblem, s: Choosing, i: int, n_ready: int) -> int:
    """Add a task to the ready tasks; return their number."""
    arrivals(p.arrays, i, s.device, s.finish, s.ready[i])
    s.ready_tasks[n_ready] = i
    return n_ready + 1


@inner
def put(p: ListProblem, s: Choosing, i: int, k: int, step: int, waits: bool) -> bool:
    """Append ready task i to device k; return whether this places its unit. A task of length zero occupies it only if it `waits`."""
    u = p.unit[i]
    first = s.unit_device[u] < 0
    s.device[i], s.sequence[step] = k, i
    if first:
        s.unit_device[u] = k
        s.used[k] += p.need[u]
    s.finish[i] = s.ready[i, k]
    if waits or p.durations[i, p.column[k]] > 0.0:
        s.finish[i] = max(s.ready[i, k], s.available[k]) + p.durations[i, p.column[k]]
        s.available[k] = s.finish[i]
    return bool(first)


@inner
def _surely_later(choice: Choice, preferences: Preferences, transfers: Transfers, i: int, chosen: int) -> bool:
    """Return whether task i is selected after another one whatever its transfers."""
    upper, score = transfers.upper_score[i], preferences.score[chosen]
    tie = choice.level[i, 0] if choice.rule == ETF else 0.0
    later = tie < preferences.tie[chosen] or (tie == preferences.tie[chosen] and i > chosen)
    return bool(upper < score or (upper == score and later))


@inner
def _upper_score(p: ListProblem, choice: Choice, s: Choosing, transfers: Transfers, i: int) -> float:
    """Return an upper bound of the score of task i from now on, inf under rules whose score may grow as starts become later."""
    if choice.rule != ETF and choice.rule != DLS and choice.rule != MIN_MIN:
        return np.inf
    best = -np.inf
    for k in range(len(s.used)):
        duration = p.durations[i, p.column[k]]
        if duration < np.inf:
            start = transfers.least[i, k] if duration == 0.0 else max(transfers.least[i, k], s.available[k])
            best = max(best, device_value(choice, i, k, start, duration, 0.0))
    return best


@inner
def _by_choice(
    p: ListProblem, choice: Choice, s: Choosing, preferences: Preferences, transfers: Transfers | None, few: int, most: int
) -> int:
    """Run `by_choice` without transfers, which numba compiles without the branches for them, or `by_planned_choice` with them."""
    arrays, preferred, other = p.arrays, preferences.device, preferences.other
    at, n_ready, last_device, last_unit = s.at, s.at[1], s.at[2], s.at[3]
    if at[0] < 0:
        for i in range(len(s.device)):
            s.waiting[i] = arrays.pred_ptr[i + 1] - arrays.pred_ptr[i]
            if s.waiting[i] == 0:
                n_ready = _make_ready(p, s, i, n_ready)
    looks = 0
    for step in range(max(0, at[0]), len(s.device)):
        if looks > most or n_ready > few:
            at[0], at[1], at[2], at[3] = step, n_ready, last_device, last_unit
            return MORE if n_ready <= few else WIDE
        looks += n_ready
        chosen, place = NONE, NONE
        for position in range(n_ready):
            i = s.ready_tasks[position]
            stale = preferred[i] < 0 or preferred[i] == last_device or other[i] == last_device or p.unit[i] == last_unit
            if transfers is not None:
                if chosen >= 0 and (stale or transfers.checked[i] < transfers.sizes[BOOKED]):
                    later_anyway = _surely_later(choice, preferences, transfers, i, chosen)
                    if not later_anyway:
                        transfers.upper_score[i] = _upper_score(p, choice, s, transfers, i)
                        later_anyway = _surely_later(choice, preferences, transfers, i, chosen)
                    if later_anyway:
                        preferred[i] = NONE
                        continue
                if refresh(arrays, transfers, i, s.device, s.finish, s.ready[i]):
                    stale = True
                    looks += PLANNING * len(s.used) * (arrays.pred_ptr[i + 1] - arrays.pred_ptr[i])
            if (stale or choice.rule == BIL) and not prefer(p, choice, s, preferences, i, n_ready):
                return int(i)
            if transfers is not None and stale:
                transfers.upper_score[i] = _upper_score(p, choice, s, transfers, i)
            if chosen < 0 or goes_before(preferences, i, chosen):
                chosen, place = i, position
        i, k = chosen, preferred[chosen]
        n_ready -= 1
        s.ready_tasks[place] = s.ready_tasks[n_ready]
        if transfers is not None:
            book(arrays, transfers, i, k, s.device, s.finish)
        put(p, s, i, k, step, False)
        last_device, last_unit = k, p.unit[i]
        for x in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
            j = arrays.succ[x]
            s.waiting[j] -= 1
            if s.waiting[j] == 0:
                n_ready = _make_ready(p, s, j, n_ready)
    return NONE


@nearly_linear
@kernel
def by_choice(p: ListProblem, choice: Choice, s: Choosing, preferences: Preferences, few: int, most: int) -> int:
    """Run a slice of steps; each appends the ready task to the device that are best by the rule.

    The slice ends after `most` ready tasks have been examined, or when more than `few` are ready. Returns -1 if all tasks are
    placed, the task that fits nowhere, ``MORE`` or ``WIDE``; state and preferences are then those that the next slice needs.
    """
    return _by_choice(p, choice, s, preferences, None, few, most)


@nearly_linear
@kernel
def by_planned_choice(p: ListProblem, choice: Choice, s: Choosing, preferences: Preferences, transfers: Transfers, most: int) -> int:
    """Do the same with planned transfers, however many tasks are ready; `transfers` are at first as `new_transfers` returns them."""
    return _by_choice(p, choice, s, preferences, transfers, len(s.device), most)
