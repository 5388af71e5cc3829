"""Numba kernels that place tasks on devices, one after another; list schedulers are settings of them.

Every task is one batch of all inputs. Contention is not planned for here: the decision is re-timed
by the simulator. A co-location unit settles on a device, and claims the memory of all its members
there, when its first member is placed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hetsched import heap_kernels
from hetsched.analysis import ranking_kernels
from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder, inner
from hetsched.problem.link_kernels import bytes_seconds, multiplier
from hetsched.problem.problem import ProblemArrays
from hetsched.stopping import Deadline

Placed = tuple[IntArray, IntArray, int]
"""Device per task [n], a sequence of all tasks [n], and the task that found no place, or -1."""

# What a static list scheduler minimises over the devices.
FINISH, START, DURATION, AVAILABLE, ADJUST = 0, 1, 2, 3, 4
# How a dynamic one picks among the ready tasks.
ETF, DLS, BIL, MIN_MIN, MAX_MIN, SUFFERAGE = 0, 1, 2, 3, 4, 5

MEMORY_SLACK = 1 + 1e-9
MORE, SLICE = -2, 4_000_000
"""What a kernel returns at the end of a slice that is not the last, and its looks at ready tasks: a tenth of a second."""


@inner
def arrivals(arrays: ProblemArrays, i: int, device: IntArray, finish: FloatArray, ready: FloatArray) -> None:
    """Fill `ready` [K] with the times at which all data of task i can be on each device."""
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
def first_gap(gap_start: FloatArray, gap_end: FloatArray, k: int, count: int, ready: float, duration: float, limit: float) -> int:
    """Return the earliest gap of device k in which a task fits; the last one is open-ended and always fits.

    Gaps are sorted by time. The search gives up at a gap where the task would start at `limit` or
    later, and returns that one.
    """
    low, high = 0, count - 1  # the first gap that ends after `ready`
    while low < high:
        middle = (low + high) // 2
        if gap_end[k, middle] > ready:
            high = middle
        else:
            low = middle + 1
    while low < count - 1:
        start = max(ready, gap_start[k, low])
        if start + duration <= gap_end[k, low] or start >= limit:
            break
        low += 1
    return low


@inner
def fill_gap(
    gap_start: FloatArray, gap_end: FloatArray, gap_after: IntArray, count: int, gap: int, i: int, start: float, finish: float, least: float
) -> int:
    """Put task i into a gap, keep what is left on either side, and return the number of gaps.

    `gap_after` holds the task before each gap. Remains shorter than `least` fit no task and are
    dropped.
    """
    end = gap_end[gap]
    keep_left = gap_start[gap] + least <= start
    keep_right = finish + least <= end
    if keep_left and keep_right:
        for x in range(count, gap + 1, -1):
            gap_start[x], gap_end[x], gap_after[x] = gap_start[x - 1], gap_end[x - 1], gap_after[x - 1]
        gap_end[gap] = start
        gap_start[gap + 1], gap_end[gap + 1], gap_after[gap + 1] = finish, end, i
        return count + 1
    if keep_left:
        gap_end[gap] = start
        return count
    if keep_right:
        gap_start[gap], gap_after[gap] = finish, i
        return count
    for x in range(gap, count - 1):
        gap_start[x], gap_end[x], gap_after[x] = gap_start[x + 1], gap_end[x + 1], gap_after[x + 1]
    return count - 1


@builder
def least_durations(durations: FloatArray) -> FloatArray:
    """Return the least positive duration on each device, [K]."""
    n, size = durations.shape
    least = np.full(size, np.inf)
    for i in range(n):
        for k in range(size):
            if 0.0 < durations[i, k] < least[k]:
                least[k] = durations[i, k]
    return least


@builder
def in_order(
    arrays: ProblemArrays,
    durations: FloatArray,
    priority: FloatArray,
    bias: FloatArray,
    only: IntArray,
    unit: IntArray,
    need: FloatArray,
    capacity: FloatArray,
    criterion: int,
    insertion: bool,
) -> Placed:
    """Place the ready task of highest priority on its best device, again and again.

    Parameters
    ----------
    priority : float64 array [n]
        The highest goes first, then the lowest task.
    bias : float64 array [n, K] or [0, 0]
        Added to the finish when devices are compared. Under ``ADJUST``, [n, 1]: by how much a start has to be earlier to leave the
        device of the task before; and where no device has the memory, the one with most left is taken.
    only : int64 array [n] or [0]
        A device to prefer to all others if it is admissible, or -1.
    need, capacity : float64 arrays [n_units], [K]
        Bytes a co-location unit claims; bytes there are.
    """
    n, size = durations.shape
    device, finish = np.full(n, -1), np.zeros(n)
    unit_device, used = np.full(len(need), -1), np.zeros(size)
    pred_ptr, succ_ptr, succ = arrays.pred_ptr, arrays.succ_ptr, arrays.succ
    # Per device its idle gaps, and its tasks as a linked list; without insertion only the last gap.
    least = least_durations(durations) if insertion else np.full(size, np.inf)
    gap_start, gap_end, gap_after = np.empty((size, n + 1)), np.empty((size, n + 1)), np.empty((size, n + 1), np.int64)
    gaps = np.ones(size, np.int64)
    following, head = np.empty(n, np.int64), np.full(size, -1)
    for k in range(size):
        gap_start[k, 0], gap_end[k, 0], gap_after[k, 0] = 0.0, np.inf, -1
    sequence, placed = np.empty(n, np.int64), 0
    ready = np.empty(size)
    keys, items, queued = np.empty(n), np.empty(n, np.int64), 0
    waiting = np.empty(n, np.int64)
    latest = -1  # the device of the task before
    for i in range(n):
        waiting[i] = pred_ptr[i + 1] - pred_ptr[i]
        if waiting[i] == 0:
            queued = heap_kernels.push(keys, items, 0, queued, -priority[i], i)
    while queued > 0:
        i = items[0]
        queued = heap_kernels.pop(keys, items, 0, queued)
        arrivals(arrays, i, device, finish, ready)
        u = unit[i]
        chosen, chosen_start, chosen_gap, best = -1, 0.0, 0, np.inf
        for attempt in range(2):
            for k in range(size):
                length = durations[i, k]
                if length == np.inf or ready[k] == np.inf or (unit_device[u] >= 0 and unit_device[u] != k):
                    continue
                if attempt == 0 and len(only) > 0 and only[i] >= 0 and only[i] != k:
                    continue
                forced = criterion == ADJUST and attempt == 1
                if unit_device[u] < 0 and used[k] + need[u] > capacity[k] * MEMORY_SLACK and not forced:
                    continue
                extra = 0.0
                if len(bias) > 0:
                    extra = bias[i, k] if criterion == FINISH else bias[i, 0]
                limit = np.inf  # a start from here on cannot win
                if criterion == FINISH:
                    limit = best - length - extra
                elif criterion == START:
                    limit = best
                if ready[k] >= limit:
                    continue
                start, gap = ready[k], -1
                if length > 0.0:
                    gap = first_gap(gap_start, gap_end, k, gaps[k], ready[k], length, limit)
                    start = max(ready[k], gap_start[k, gap])
                    if start + length > gap_end[k, gap]:  # the search gave up at `limit`
                        continue
                if criterion == FINISH:
                    score = start + length + extra
                elif criterion == START:
                    score = start
                elif criterion == DURATION:
                    score = length
                elif criterion == AVAILABLE:
                    score = gap_start[k, gaps[k] - 1]
                elif forced:
                    score = used[k] - capacity[k]
                else:
                    score = start if k == latest else start + extra
                if score < best or (score == best and criterion == ADJUST and k == latest):
                    chosen, chosen_start, chosen_gap, best = k, start, gap, score
            if chosen >= 0 or (len(only) == 0 and criterion != ADJUST):
                break
        if chosen < 0:
            return device, sequence, i
        k = latest = chosen
        device[i] = k
        finish[i] = chosen_start + durations[i, k]
        if unit_device[u] < 0:
            unit_device[u] = k
            used[k] += need[u]
        if chosen_gap < 0:  # tasks of length zero occupy nothing
            sequence[placed] = i
            placed += 1
        else:
            before = gap_after[k, chosen_gap]
            if before < 0:
                following[i], head[k] = head[k], i
            else:
                following[i], following[before] = following[before], i
            gaps[k] = fill_gap(gap_start[k], gap_end[k], gap_after[k], gaps[k], chosen_gap, i, chosen_start, finish[i], least[k])
        for x in range(succ_ptr[i], succ_ptr[i + 1]):
            j = succ[x]
            waiting[j] -= 1
            if waiting[j] == 0:
                queued = heap_kernels.push(keys, items, 0, queued, -priority[j], j)
    for k in range(size):
        i = head[k]
        while i >= 0:
            sequence[placed] = i
            placed += 1
            i = following[i]
    return device, sequence, -1


@inner
def _kth_least(values: FloatArray, count: int, k: int) -> float:
    """Return the k-th least (from 0) of the first `count` values, which get sorted; few, so by insertion."""
    for x in range(1, count):
        value = values[x]
        y = x
        while y > 0 and values[y - 1] > value:
            values[y] = values[y - 1]
            y -= 1
        values[y] = value
    return float(values[k])


class Choosing(NamedTuple):
    """How far one has come that looks at all ready tasks at every step: it works in slices, see `in_slices`."""

    at: IntArray
    """Steps done (-1 before the tasks that are ready at first are known), tasks ready, the last device, the last unit."""
    device: IntArray
    finish: FloatArray
    sequence: IntArray
    waiting: IntArray
    ready: FloatArray
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


def in_slices(work: Callable[[Choosing, int], int], state: Choosing, deadline: Deadline, what: str) -> Placed:
    """Return what ``work(state, most)`` comes to, a slice of `most` looks at ready tasks after another.

    `work` returns -1 if all tasks are placed, the task that found no place, or `MORE`. Raises `OutOfTime` past the deadline, but
    lets the first slice be done.
    """
    while (stuck := work(state, SLICE)) == MORE:
        deadline.check(what)
    return state.device, state.sequence, stuck


@builder
def by_choice(
    arrays: ProblemArrays,
    durations: FloatArray,
    rule: int,
    level: FloatArray,
    median: FloatArray,
    unit: IntArray,
    need: FloatArray,
    capacity: FloatArray,
    state: Choosing,
    preference: tuple[IntArray, IntArray, FloatArray, FloatArray],
    most: int,
) -> int:
    """Pick a ready task and a device by a rule over all ready tasks, append it there, again and again, for a slice.

    Parameters
    ----------
    rule : int
        ``ETF``, ``DLS``, ``BIL``, ``MIN_MIN``, ``MAX_MIN`` or ``SUFFERAGE``.
    level : float64 array [n, 1] (static level), [n, K] (imaginary level) or [0, 0]
    median : float64 array [n] or [0]
        Median durations, for ``DLS``.
    unit, need, capacity
        As in `in_order`.
    state, preference : as at the end of the slice before
        `preference` is what each ready task prefers, and how much.
    most : int
        Looks at ready tasks, after which the slice ends.
    """
    n, size = durations.shape
    pred_ptr, succ_ptr, succ = arrays.pred_ptr, arrays.succ_ptr, arrays.succ
    at, device, finish, sequence, waiting, ready, ready_tasks, unit_device, used, available = state
    # A placement only worsens its own device, so the preference of a task stands until its best or second-best device,
    # or its co-location unit, gets another task.
    preferred, other, score, tie = preference
    scratch = np.empty(size)
    n_ready, last_device, last_unit = at[1], at[2], at[3]
    if at[0] < 0:
        for i in range(n):
            waiting[i] = pred_ptr[i + 1] - pred_ptr[i]
            if waiting[i] == 0:
                arrivals(arrays, i, device, finish, ready[i])
                ready_tasks[n_ready] = i
                n_ready += 1
    looks = 0
    for step in range(max(0, at[0]), n):
        if looks > most:
            at[0], at[1], at[2], at[3] = step, n_ready, last_device, last_unit
            return MORE
        looks += n_ready
        chosen, place = -1, -1
        crowd = max(n_ready / size - 1.0, 0.0)
        for position in range(n_ready):
            i = ready_tasks[position]
            u = unit[i]
            if rule == BIL or preferred[i] < 0 or preferred[i] == last_device or other[i] == last_device or u == last_unit:
                best, first, second = -1, -np.inf, -np.inf
                other[i] = -1
                fitting = 0
                for k in range(size):
                    if durations[i, k] == np.inf or ready[i, k] == np.inf or (unit_device[u] >= 0 and unit_device[u] != k):
                        continue
                    if unit_device[u] < 0 and used[k] + need[u] > capacity[k] * MEMORY_SLACK:
                        continue
                    start = ready[i, k] if durations[i, k] == 0.0 else max(ready[i, k], available[k])
                    if rule == ETF:
                        value = -start
                    elif rule == DLS:
                        value = level[i, 0] - start + (median[i] - durations[i, k])
                    elif rule == BIL:
                        scratch[fitting] = start + level[i, k]
                        value = -(scratch[fitting] + durations[i, k] * crowd)
                    else:
                        value = -(start + durations[i, k])
                    fitting += 1
                    if value > first:
                        second, other[i] = first, best
                        best, first = k, value
                    elif value > second:
                        second, other[i] = value, k
                if best < 0:
                    return int(i)
                preferred[i] = best
                if rule == BIL:
                    score[i] = _kth_least(scratch, fitting, min(n_ready, fitting) - 1)
                elif rule == MAX_MIN:
                    score[i] = -first
                elif rule == SUFFERAGE:
                    score[i] = first - second  # inf where there is no second
                else:
                    score[i] = first
                    if rule == ETF:
                        tie[i] = level[i, 0]
            if chosen >= 0:
                if score[i] < score[chosen]:
                    continue
                if score[i] == score[chosen] and (tie[i] < tie[chosen] or (tie[i] == tie[chosen] and i > chosen)):
                    continue
            chosen, place = i, position
        i, k = chosen, preferred[chosen]
        n_ready -= 1
        ready_tasks[place] = ready_tasks[n_ready]
        device[i] = k
        sequence[step] = i
        last_device, last_unit = k, unit[i]
        if unit_device[unit[i]] < 0:
            unit_device[unit[i]] = k
            used[k] += need[unit[i]]
        if durations[i, k] > 0.0:
            finish[i] = max(ready[i, k], available[k]) + durations[i, k]
            available[k] = finish[i]
        else:
            finish[i] = ready[i, k]
        for x in range(succ_ptr[i], succ_ptr[i + 1]):
            j = succ[x]
            waiting[j] -= 1
            if waiting[j] == 0:
                arrivals(arrays, j, device, finish, ready[j])
                ready_tasks[n_ready] = j
                n_ready += 1
    return -1


@builder
def heft(
    arrays: ProblemArrays, order: IntArray, durations: FloatArray, unit: IntArray, need: FloatArray, capacity: FloatArray, mean: int
) -> Placed:
    """Ranks, order and placement of HEFT in one call, which is what its speed is measured on."""
    rank = ranking_kernels.upward(arrays, order, ranking_kernels.mean_durations(durations), ranking_kernels.mean_transfers(arrays, mean))
    nobody = np.empty(0, np.int64)
    placed: Placed = in_order(arrays, durations, rank, np.empty((0, 0)), nobody, unit, need, capacity, FINISH, True)
    return placed
