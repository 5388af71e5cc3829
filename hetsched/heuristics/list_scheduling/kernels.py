"""Numba kernels of list schedulers, which place tasks on devices one after another.

Every task is one batch of all inputs. Contention is ignored: the simulator re-times the decision.
When the first member of a co-location unit is placed, the device of the unit is fixed, and the unit
claims the memory of all its members there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched import heap_kernels
from hetsched.analysis import ranking_kernels
from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder, inner, kernel, linear
from hetsched.problem.link_kernels import bytes_seconds, multiplier
from hetsched.problem.problem import ProblemArrays

Placed = tuple[IntArray, IntArray, int]
"""Device per task [n], a sequence of all tasks [n], and the task that fits nowhere, or -1."""

# Criteria that a static list scheduler minimises over the devices.
FINISH, START, DURATION, AVAILABLE, ADJUST = 0, 1, 2, 3, 4
# Rules by which a dynamic list scheduler selects among the ready tasks.
ETF, DLS, BIL, MIN_MIN, MAX_MIN, SUFFERAGE = 0, 1, 2, 3, 4, 5

MEMORY_SLACK = 1 + 1e-9
NONE = -1
MORE, SLICE = -2, 4_000_000
"""Return value at the end of a slice that is not the last, and ready tasks examined in a slice, which take a tenth of a second."""


class ListProblem(NamedTuple):
    """Data of list schedulers; all arrays but `need` are read-only."""

    arrays: ProblemArrays
    durations: FloatArray
    """[n, K] seconds of one batch of all inputs; inf where it cannot run."""
    unit: IntArray
    """[n]: the co-location unit of each task."""
    need: FloatArray
    """[n_units]: bytes that each unit claims."""
    capacity: FloatArray
    """[K] bytes"""


class Rule(NamedTuple):
    """Settings of a static list scheduler."""

    criterion: int
    """``FINISH``, ``START``, ``DURATION``, ``AVAILABLE`` or ``ADJUST``."""
    insertion: bool
    """Whether a task may start in a gap between tasks placed before."""
    priority: FloatArray
    """[n]: the task of highest priority is first; ties go to the lowest task."""
    bias: FloatArray
    """[n, K] or [0, 0]: added to the finish in comparisons of devices. Under ``ADJUST``, [n, 1]: the minimum by which a start on
    another device must be earlier than on the device of the previous task; if no device has the memory, the one with the most
    memory left is used."""
    only: IntArray
    """[n] or [0]: a device preferred to all others if it is admissible, or -1."""


class Gaps(NamedTuple):
    """The idle gaps of each device, in order of time; the last one is open-ended, and the only one without insertion."""

    start: FloatArray
    end: FloatArray
    after: IntArray
    """[K, most]: seconds, and the task before each gap, -1 for none."""
    number: IntArray
    """[K]: number of gaps of each device."""
    least: FloatArray
    """[K]: shorter gaps fit no task and are dropped."""


class ListState(NamedTuple):
    """Results and scratch of list scheduling."""

    device: IntArray
    finish: FloatArray
    sequence: IntArray
    """[n]"""
    unit_device: IntArray
    """[n_units]: the device of each unit, or -1 if no member is placed."""
    used: FloatArray
    """[K]: bytes claimed."""
    gaps: Gaps
    following: IntArray
    head: IntArray
    """[n], [K]: the next task on the device of each task, and the first of each device, -1 for none."""
    ready: FloatArray
    """[K]: seconds at which the data of one task are on each device."""
    waiting: IntArray
    """[n]: parents that are not placed yet."""
    keys: FloatArray
    items: IntArray
    """[n]: the queue of ready tasks."""


@linear
@builder
def new_gaps(n_devices: int, most: int) -> Gaps:
    """Return the gaps of idle devices, with a capacity of `most` gaps for each device."""
    return Gaps(
        np.zeros((n_devices, most)),
        np.full((n_devices, most), np.inf),
        np.full((n_devices, most), NONE),
        np.ones(n_devices, np.int64),
        np.full(n_devices, np.inf),
    )


@linear
@builder
def new_state(n_tasks: int, n_devices: int, n_units: int) -> ListState:
    """Return a state for `clear`."""
    return ListState(
        np.empty(n_tasks, np.int64),
        np.empty(n_tasks),
        np.empty(n_tasks, np.int64),
        np.empty(n_units, np.int64),
        np.empty(n_devices),
        new_gaps(n_devices, n_tasks + 1),
        np.empty(n_tasks, np.int64),
        np.empty(n_devices, np.int64),
        np.empty(n_devices),
        np.empty(n_tasks, np.int64),
        np.empty(n_tasks),
        np.empty(n_tasks, np.int64),
    )


@inner
def arrivals(arrays: ProblemArrays, i: int, device: IntArray, finish: FloatArray, ready: FloatArray) -> None:
    """Write into `ready` [K] the earliest time at which all data of task i are on each device."""
    links, pred, pred_edge = arrays.links, arrays.pred, arrays.pred_edge
    size, factor = len(ready), multiplier(arrays.links, arrays.inputs)
    for k in range(size):
        ready[k] = 0.0
    for x in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
        e = pred_edge[x]
        h, done = device[pred[x]], finish[pred[x]]
        if links.given:
            for k in range(size):
                ready[k] = max(ready[k], done + links.transfers[e, h, k] * factor)
        else:
            amount = links.edge_bytes[e] * factor
            for k in range(size):
                ready[k] = max(ready[k], done + bytes_seconds(links, amount, h, k))


@inner
def first_gap(gaps: Gaps, k: int, ready: float, duration: float, limit: float) -> int:
    """Return the earliest gap of device k in which a task fits.

    If the task would start there at `limit` or later, the first such gap is returned, in which it may not fit.
    """
    low, high = 0, gaps.number[k] - 1  # the first gap that ends after `ready`
    while low < high:
        middle = (low + high) // 2
        if gaps.end[k, middle] > ready:
            high = middle
        else:
            low = middle + 1
    while low < gaps.number[k] - 1:
        start = max(ready, gaps.start[k, low])
        if start + duration <= gaps.end[k, low] or start >= limit:
            break
        low += 1
    return low


@inner
def fill_gap(gaps: Gaps, k: int, gap: int, i: int, start: float, finish: float) -> None:
    """Put task i into a gap of device k; the remainders before and after it become gaps unless they are too short."""
    count, end = gaps.number[k], gaps.end[k, gap]
    keep_left = gaps.start[k, gap] + gaps.least[k] <= start
    keep_right = finish + gaps.least[k] <= end
    if keep_left and keep_right:
        for x in range(count, gap + 1, -1):
            gaps.start[k, x], gaps.end[k, x], gaps.after[k, x] = gaps.start[k, x - 1], gaps.end[k, x - 1], gaps.after[k, x - 1]
        gaps.end[k, gap] = start
        gaps.start[k, gap + 1], gaps.end[k, gap + 1], gaps.after[k, gap + 1] = finish, end, i
        gaps.number[k] = count + 1
    elif keep_left:
        gaps.end[k, gap] = start
    elif keep_right:
        gaps.start[k, gap], gaps.after[k, gap] = finish, i
    else:
        for x in range(gap, count - 1):
            gaps.start[k, x], gaps.end[k, x], gaps.after[k, x] = gaps.start[k, x + 1], gaps.end[k, x + 1], gaps.after[k, x + 1]
        gaps.number[k] = count - 1


@inner
def clear(p: ListProblem, s: ListState, insertion: bool) -> None:
    """Reset a state to no task placed."""
    n, size = p.durations.shape
    for i in range(n):
        s.device[i], s.finish[i] = NONE, 0.0
    for u in range(len(s.unit_device)):
        s.unit_device[u] = NONE
    for k in range(size):
        s.used[k], s.head[k] = 0.0, NONE
        s.gaps.start[k, 0], s.gaps.end[k, 0], s.gaps.after[k, 0], s.gaps.number[k], s.gaps.least[k] = 0.0, np.inf, NONE, 1, np.inf
    if insertion:
        for i in range(n):
            for k in range(size):
                if 0.0 < p.durations[i, k] < s.gaps.least[k]:
                    s.gaps.least[k] = p.durations[i, k]


@inner
def enqueue_first(p: ListProblem, s: ListState, priority: FloatArray) -> int:
    """Fill the queue with the tasks without parents; return their number."""
    queued = 0
    for i in range(len(priority)):
        s.waiting[i] = p.arrays.pred_ptr[i + 1] - p.arrays.pred_ptr[i]
        if s.waiting[i] == 0:
            queued = heap_kernels.push(s.keys, s.items, 0, queued, -priority[i], i)
    return queued


@inner
def enqueue_after(p: ListProblem, s: ListState, priority: FloatArray, i: int, queued: int) -> int:
    """Add the children of task i whose parents are all placed to the queue; return its new length."""
    for x in range(p.arrays.succ_ptr[i], p.arrays.succ_ptr[i + 1]):
        j = p.arrays.succ[x]
        s.waiting[j] -= 1
        if s.waiting[j] == 0:
            queued = heap_kernels.push(s.keys, s.items, 0, queued, -priority[j], j)
    return queued


@inner
def admits(p: ListProblem, s: ListState, i: int, k: int) -> bool:
    """Return whether device k can run task i, can receive its data (see `arrivals`), and is that of its unit, if that is fixed."""
    bound_to = s.unit_device[p.unit[i]]
    return bool(p.durations[i, k] != np.inf and s.ready[k] != np.inf and (bound_to < 0 or bound_to == k))


@inner
def has_room(p: ListProblem, s: ListState, i: int, k: int) -> bool:
    """Return whether device k has the memory for the unit of task i, or is the device of the unit."""
    u = p.unit[i]
    return bool(s.unit_device[u] >= 0 or s.used[k] + p.need[u] <= p.capacity[k] * MEMORY_SLACK)


@inner
def _score(criterion: int, start: float, length: float, extra: float, idle: float) -> float:
    """Return the criterion, which is minimised over devices; `idle` is the finish of the last task on the device."""
    if criterion == FINISH:
        return start + length + extra
    if criterion == START:
        return start
    if criterion == DURATION:
        return length
    if criterion == AVAILABLE:
        return idle
    return start + extra


@inner
def _best_device(p: ListProblem, rule: Rule, s: ListState, i: int, latest: int) -> tuple[int, float, int]:
    """Return the best device for task i, or -1, its start there and the gap, -1 for tasks of duration 0.

    `latest` is the device of the previous task.
    """
    chosen, chosen_start, chosen_gap, best = NONE, 0.0, 0, np.inf
    gaps, criterion = s.gaps, rule.criterion
    preferred = rule.only[i] if len(rule.only) > 0 else NONE
    for attempt in range(2):
        forced = criterion == ADJUST and attempt == 1
        for k in range(len(s.used)):
            if not admits(p, s, i, k) or (attempt == 0 and preferred >= 0 and preferred != k) or not (forced or has_room(p, s, i, k)):
                continue
            length, ready, extra = p.durations[i, k], s.ready[k], 0.0
            if len(rule.bias) > 0:
                extra = rule.bias[i, k] if criterion == FINISH else rule.bias[i, 0]
            limit = np.inf  # a start at this time or later is not better than the best
            if criterion == FINISH:
                limit = best - length - extra
            elif criterion == START:
                limit = best
            if ready >= limit:
                continue
            start, gap = ready, NONE
            if length > 0.0:
                gap = first_gap(gaps, k, ready, length, limit)
                start = max(ready, gaps.start[k, gap])
                if start + length > gaps.end[k, gap]:  # the search ended at `limit`
                    continue
            if forced:
                score = s.used[k] - p.capacity[k]
            elif criterion == ADJUST and k == latest:
                score = start
            else:
                score = _score(criterion, start, length, extra, gaps.start[k, gaps.number[k] - 1])
            if score < best or (score == best and criterion == ADJUST and k == latest):
                chosen, chosen_start, chosen_gap, best = k, start, gap, score
        if chosen >= 0 or (len(rule.only) == 0 and criterion != ADJUST):
            break
    return chosen, chosen_start, chosen_gap


@linear
@kernel
def in_order(p: ListProblem, rule: Rule, s: ListState) -> int:
    """Place the ready task of highest priority on its best device until all are placed; return the task that fits nowhere, or -1."""
    clear(p, s, rule.insertion)
    gaps, following, head, latest, placed = s.gaps, s.following, s.head, NONE, 0
    queued = enqueue_first(p, s, rule.priority)
    while queued > 0:
        i = s.items[0]
        queued = heap_kernels.pop(s.keys, s.items, 0, queued)
        arrivals(p.arrays, i, s.device, s.finish, s.ready)
        k, start, gap = _best_device(p, rule, s, i, latest)
        if k < 0:
            return int(i)
        latest = k
        s.device[i], s.finish[i] = k, start + p.durations[i, k]
        if s.unit_device[p.unit[i]] < 0:
            s.unit_device[p.unit[i]] = k
            s.used[k] += p.need[p.unit[i]]
        if gap < 0:  # tasks of length zero occupy nothing
            s.sequence[placed] = i
            placed += 1
        else:
            before = gaps.after[k, gap]
            if before < 0:
                following[i], head[k] = head[k], i
            else:
                following[i], following[before] = following[before], i
            fill_gap(gaps, k, gap, i, start, s.finish[i])
        queued = enqueue_after(p, s, rule.priority, i, queued)
    for k in range(len(head)):
        i = head[k]
        while i >= 0:
            s.sequence[placed] = i
            placed += 1
            i = following[i]
    return NONE


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
def _value(choice: Choice, i: int, k: int, start: float, duration: float, crowd: float) -> float:
    """Return the value of device k for task i, which can start there at `start`; higher is better."""
    if choice.rule == ETF:
        return -start
    if choice.rule == DLS:
        return float(choice.level[i, 0] - start + (choice.median[i] - duration))
    if choice.rule == BIL:
        return -float(start + choice.level[i, k] + duration * crowd)
    return -(start + duration)


@inner
def _prefer(p: ListProblem, choice: Choice, s: Choosing, preferences: Preferences, i: int, n_ready: int) -> bool:
    """Write the preferences of ready task i; return whether it fits any device."""
    size, u, scratch = len(s.used), p.unit[i], preferences.scratch
    crowd = max(n_ready / size - 1.0, 0.0)
    best, other, first, second, fitting = NONE, NONE, -np.inf, -np.inf, 0
    for k in range(size):
        duration, ready = p.durations[i, k], s.ready[i, k]
        if duration == np.inf or ready == np.inf or (s.unit_device[u] >= 0 and s.unit_device[u] != k):
            continue
        if s.unit_device[u] < 0 and s.used[k] + p.need[u] > p.capacity[k] * MEMORY_SLACK:
            continue
        start = ready if duration == 0.0 else max(ready, s.available[k])
        value = _value(choice, i, k, start, duration, crowd)
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
def _goes_before(preferences: Preferences, i: int, j: int) -> bool:
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


@linear
@kernel
def by_choice(p: ListProblem, choice: Choice, s: Choosing, preferences: Preferences, most: int) -> int:
    """Run a slice of steps; each appends the ready task to the device that are best by the rule.

    The slice ends after `most` ready tasks have been examined. Returns -1 if all tasks are placed, the task that fits nowhere,
    or ``MORE``; state and preferences are then those that the next slice needs.
    """
    arrays, preferred, other = p.arrays, preferences.device, preferences.other
    at, n_ready, last_device, last_unit = s.at, s.at[1], s.at[2], s.at[3]
    if at[0] < 0:
        for i in range(len(s.device)):
            s.waiting[i] = arrays.pred_ptr[i + 1] - arrays.pred_ptr[i]
            if s.waiting[i] == 0:
                n_ready = _make_ready(p, s, i, n_ready)
    looks = 0
    for step in range(max(0, at[0]), len(s.device)):
        if looks > most:
            at[0], at[1], at[2], at[3] = step, n_ready, last_device, last_unit
            return MORE
        looks += n_ready
        chosen, place = NONE, NONE
        for position in range(n_ready):
            i = s.ready_tasks[position]
            stale = preferred[i] < 0 or preferred[i] == last_device or other[i] == last_device or p.unit[i] == last_unit
            if (stale or choice.rule == BIL) and not _prefer(p, choice, s, preferences, i, n_ready):
                return int(i)
            if chosen < 0 or _goes_before(preferences, i, chosen):
                chosen, place = i, position
        i, k = chosen, preferred[chosen]
        n_ready -= 1
        s.ready_tasks[place] = s.ready_tasks[n_ready]
        s.device[i], s.sequence[step] = k, i
        last_device, last_unit = k, p.unit[i]
        if s.unit_device[last_unit] < 0:
            s.unit_device[last_unit] = k
            s.used[k] += p.need[last_unit]
        s.finish[i] = s.ready[i, k]
        if p.durations[i, k] > 0.0:
            s.finish[i] = max(s.ready[i, k], s.available[k]) + p.durations[i, k]
            s.available[k] = s.finish[i]
        for x in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
            j = arrays.succ[x]
            s.waiting[j] -= 1
            if s.waiting[j] == 0:
                n_ready = _make_ready(p, s, j, n_ready)
    return NONE


@linear
@builder
def heft(p: ListProblem, order: IntArray, mean: int) -> Placed:
    """Return the placement of HEFT: ranks, order and placement in one call, the one whose speed is measured."""
    arrays, (n, size) = p.arrays, p.durations.shape
    rank = ranking_kernels.upward(arrays, order, ranking_kernels.mean_durations(p.durations), ranking_kernels.mean_transfers(arrays, mean))
    state = new_state(n, size, len(p.need))
    stuck = in_order(p, Rule(FINISH, True, rank, np.empty((0, 0)), np.empty(0, np.int64)), state)
    return state.device, state.sequence, stuck
