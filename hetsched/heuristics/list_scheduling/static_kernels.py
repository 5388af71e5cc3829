"""Numba kernels of list schedulers with static priorities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched import heap_kernels
from hetsched.analysis import ranking_kernels
from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder, inner, kernel, linear, nearly_linear
from hetsched.heuristics.list_scheduling.gap_kernels import Gaps, fill_gap, first_gap, new_gaps
from hetsched.heuristics.list_scheduling.kernels import MEMORY_SLACK, NONE, ListProblem, Placed, arrivals
from hetsched.heuristics.list_scheduling.transfer_kernels import Transfers, book, planned_arrivals

# Criteria that a static list scheduler minimises over the devices.
FINISH, START, DURATION, AVAILABLE, ADJUST = 0, 1, 2, 3, 4
CROWDED = 16
"""The most comparisons for each task for which tasks are sorted in advance."""


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
    """[n]: the queue of ready tasks, or all tasks in the order of placement; see `_sort`."""


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
def clear(p: ListProblem, s: ListState, insertion: bool) -> None:
    """Reset a state to no task placed."""
    n, size, classes = len(p.durations), len(p.column), p.durations.shape[1]
    for i in range(n):
        s.device[i], s.finish[i] = NONE, 0.0
    for u in range(len(s.unit_device)):
        s.unit_device[u] = NONE
    for k in range(size):
        s.used[k], s.head[k] = 0.0, NONE
        s.gaps.start[k, 0], s.gaps.end[k, 0], s.gaps.after[k, 0], s.gaps.number[k], s.gaps.least[k] = 0.0, np.inf, NONE, 1, np.inf
    if insertion:
        least = s.ready  # of each class, of which there are no more than devices
        for c in range(classes):
            least[c] = np.inf
        for i in range(n):
            for c in range(classes):
                if 0.0 < p.durations[i, c] < least[c]:
                    least[c] = p.durations[i, c]
        for k in range(size):
            s.gaps.least[k] = least[p.column[k]]


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
def _sort(p: ListProblem, s: ListState, priority: FloatArray) -> bool:
    """Write all tasks in descending priority, ties to the lowest, into ``s.items``, if that is the order of the queue; return if it is.

    It is if each task is in it after its parents: the first task that is not placed yet is then ready, and is the first of the
    ready ones. The tasks are distributed over n intervals of priority, and sorted by insertion, unless too many are in one interval.
    A heap mispredicts half of its branches.
    """
    n, low, high = len(priority), np.inf, -np.inf
    for j in range(n):
        own = priority[j]
        low, high = min(low, own), max(high, own)
        for x in range(p.arrays.pred_ptr[j], p.arrays.pred_ptr[j + 1]):
            i = p.arrays.pred[x]
            if priority[i] < own or (priority[i] == own and i > j):
                return False
        s.waiting[j] = 0
    scale = (n - 1) / (high - low) if high > low else np.inf
    if not 0.0 < scale < np.inf:
        return False
    end, compared = 0, 0
    for i in range(n):
        b = min(int((high - priority[i]) * scale), n - 1)  # monotone, rounding included
        compared += s.waiting[b]
        s.waiting[b] += 1
    if compared > CROWDED * n:
        return False
    for b in range(n):
        end, s.waiting[b] = end + s.waiting[b], end
    for i in range(n):
        b = min(int((high - priority[i]) * scale), n - 1)
        x = s.waiting[b]
        s.waiting[b] += 1
        s.keys[x], s.items[x] = priority[i], i
    for position in range(1, n):
        key, i, x = s.keys[position], s.items[position], position
        while x > 0 and s.keys[x - 1] < key:
            s.keys[x], s.items[x] = s.keys[x - 1], s.items[x - 1]
            x -= 1
        s.keys[x], s.items[x] = key, i
    return True


@inner
def _alone(p: ListProblem) -> bool:
    """Return whether each task is a co-location unit of its own, so that no unit has a device before its task."""
    return len(p.need) == len(p.unit)


@inner
def admits(p: ListProblem, s: ListState, i: int, k: int) -> bool:
    """Return whether device k can run task i, can receive its data (see `arrivals`), and is that of its unit, if that is fixed."""
    bound_to = NONE if _alone(p) else s.unit_device[p.unit[i]]
    return bool(p.durations[i, p.column[k]] != np.inf and s.ready[k] != np.inf and (bound_to < 0 or bound_to == k))


@inner
def has_room(p: ListProblem, s: ListState, i: int, k: int) -> bool:
    """Return whether device k has the memory for the unit of task i, or is the device of the unit."""
    if p.capacity[k] == np.inf:
        return True
    u = p.unit[i]
    return bool(s.unit_device[u] >= 0 or s.used[k] + p.need[u] <= p.capacity[k] * MEMORY_SLACK)


@inner
def claim(p: ListProblem, s: ListState, i: int, k: int) -> None:
    """Give the unit of task i to device k unless it has one."""
    u = p.unit[i]
    if s.unit_device[u] < 0:
        s.unit_device[u] = k
        s.used[k] += p.need[u]


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
            length, ready, extra = p.durations[i, p.column[k]], s.ready[k], 0.0
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


@inner
def _in_order(p: ListProblem, rule: Rule, s: ListState, transfers: Transfers | None) -> int:
    """Run `in_order` without transfers, which numba compiles without the branches for them, or `in_planned_order` with them."""
    clear(p, s, rule.insertion)
    gaps, following, head, latest, placed = s.gaps, s.following, s.head, NONE, 0
    taken, is_sorted = 0, _sort(p, s, rule.priority)
    queued = len(rule.priority) if is_sorted else enqueue_first(p, s, rule.priority)
    while taken < queued:
        i = s.items[taken]
        if is_sorted:
            taken += 1
        else:
            queued = heap_kernels.pop(s.keys, s.items, 0, queued)
        if transfers is None:
            arrivals(p.arrays, i, s.device, s.finish, s.ready)
        else:
            planned_arrivals(p.arrays, transfers, i, s.device, s.finish, s.ready)
        k, start, gap = _best_device(p, rule, s, i, latest)
        if k < 0:
            return int(i)
        latest = k
        if transfers is not None:
            book(p.arrays, transfers, i, k, s.device, s.finish)
        s.device[i], s.finish[i] = k, start + p.durations[i, p.column[k]]
        if p.capacity[k] < np.inf or not _alone(p):
            claim(p, s, i, k)
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
        if not is_sorted:
            queued = enqueue_after(p, s, rule.priority, i, queued)
    for k in range(len(head)):
        i = head[k]
        while i >= 0:
            s.sequence[placed] = i
            placed += 1
            i = following[i]
    return NONE


@linear
@kernel
def in_order(p: ListProblem, rule: Rule, s: ListState) -> int:
    """Place the ready task of highest priority on its best device until all are placed; return the task that fits nowhere, or -1."""
    return _in_order(p, rule, s, None)


@nearly_linear
@kernel
def in_planned_order(p: ListProblem, rule: Rule, s: ListState, transfers: Transfers) -> int:
    """Do the same with planned transfers; `transfers` are at first as `new_transfers` returns them."""
    return _in_order(p, rule, s, transfers)


@linear
@builder
def heft(p: ListProblem, order: IntArray, mean: int) -> Placed:
    """Return the placement of HEFT: ranks, order and placement in one call, the one whose speed is measured.

    The rule is known when this is compiled, so that numba leaves out the branches for others: a tenth of the time.
    """
    weight, transfer = ranking_kernels.mean_durations(p.durations, p.column), ranking_kernels.mean_transfers(p.arrays, mean)
    rank = ranking_kernels.upward(p.arrays, order, weight, transfer)
    state = new_state(len(rank), len(p.column), len(p.need))
    stuck = _in_order(p, Rule(FINISH, True, rank, np.empty((0, 0)), np.empty(0, np.int64)), state, None)
    return state.device, state.sequence, stuck
