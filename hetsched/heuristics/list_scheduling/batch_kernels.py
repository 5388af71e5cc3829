"""Numba kernels that share the inputs of each task out over the devices in batches.

Every device gets at most one stretch of consecutive inputs of a task, and the stretches lie in the
order of the devices: an input tends to stay where it is from task to task. Among all such
partitions of a task the best is found by dynamic programming over devices and cut points.
Contention is not planned for: the simulator re-times the decision. A co-location unit settles, for
every input, on a device when its first member is placed, and claims the memory of all members.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched import heap_kernels
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import builder, inner
from hetsched.heuristics.list_scheduling.kernels import MEMORY_SLACK, fill_gap, first_gap
from hetsched.problem.link_kernels import link_seconds, multiplier
from hetsched.problem.problem import ProblemArrays

Batches = tuple[IntArray, IntArray, IntArray, IntArray, FloatArray, int]
"""Task, device, first input, input after the last and planned start of each batch, [m] each, in
the order of placing, and the task that found no place, or -1."""

# What the partition of a task minimises: its latest finish, or its seconds of device time.
FINISH, DURATION = 0, 1


@builder
def cut_points(sizes: IntArray, inputs: int, most: int) -> IntArray:
    """Return the numbers of inputs, ascending from 0 to L, after which a batch may end.

    A number counts if it, and what is left of L, are sums of sizes, of `most` batches in all.
    """
    never = most + 1
    fewest = np.full(inputs + 1, never)
    fewest[0] = 0
    for q in range(1, inputs + 1):
        for size in sizes:
            if size <= q:
                fewest[q] = min(fewest[q], fewest[q - size] + 1)
    return np.flatnonzero(fewest + fewest[::-1] <= most)


@builder
def work_per_task(arrays: ProblemArrays) -> FloatArray:
    """Return the mean over the devices that can run a task of L x its least seconds per input, [n]."""
    n, size, _ = arrays.durations.shape
    mean = np.empty(n)
    for i in range(n):
        total, count = 0.0, 0
        for k in range(size):
            least = np.inf
            for s in range(len(arrays.sizes)):
                least = min(least, arrays.durations[i, k, s] / arrays.sizes[s])
            if least < np.inf:
                total += least * arrays.inputs
                count += 1
        mean[i] = total / count
    return mean


@builder
def shared_counts(arrays: ProblemArrays, unit: IntArray, row_of: IntArray, n_rows: int, once: bool) -> BoolArray:
    """Return whether all members of a co-location unit can process q inputs on a device, [rows, K, L + 1].

    `row_of` [n_units] is the row of a unit here, -1 for one without a row.
    """
    n, size, n_sizes = arrays.durations.shape
    inputs = arrays.inputs
    common = np.ones((n_rows, size, inputs + 1), np.bool_)
    own = np.empty(inputs + 1, np.bool_)
    for i in range(n):
        row = row_of[unit[i]]
        if row < 0:
            continue
        for k in range(size):
            own[:] = False
            own[0] = True
            for q in range(1, inputs + 1):
                for s in range(n_sizes):
                    left = q - arrays.sizes[s]
                    if arrays.durations[i, k, s] < np.inf and left >= 0 and own[left] and (left == 0 or not once):
                        own[q] = True
            common[row, k] &= own
    return common


@inner
def _data_ready(
    arrays: ProblemArrays,
    i: int,
    cuts: IntArray,
    first: IntArray,
    device: IntArray,
    low: IntArray,
    high: IntArray,
    finish: FloatArray,
    ready: FloatArray,
) -> None:
    """Fill `ready` [P, B, K]: when the data of a batch of each size, from each cut point on, are on each device.

    The batches of a task p are rows ``first[p, 0]`` to ``first[p, 1]`` of the other columns, by inputs.
    """
    ready[:] = 0.0
    size = ready.shape[2]
    for x in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
        e, parent = arrays.pred_edge[x], arrays.pred[x]
        begin, end = first[parent, 0], first[parent, 1]
        for a in range(len(cuts) - 1):
            while high[begin] <= cuts[a]:
                begin += 1
            for s in range(len(arrays.sizes)):
                until = cuts[a] + arrays.sizes[s]
                if until > arrays.inputs:
                    break  # sizes ascend
                b = begin
                while b < end and low[b] < until:
                    count = min(high[b], until) - max(low[b], cuts[a])
                    factor = multiplier(arrays.links, count)
                    for k in range(size):
                        ready[a, s, k] = max(ready[a, s, k], finish[b] + link_seconds(arrays.links, e, device[b], k, factor))
                    b += 1


@inner
def _start_in(gap_start: FloatArray, gap_end: FloatArray, k: int, count: int, ready: float, length: float) -> tuple[float, int]:
    """Return the earliest start on device k, and the gap it is in; -1 for a batch of length zero."""
    if length == 0.0:
        return ready, -1
    gap = first_gap(gap_start, gap_end, k, count, ready, length, np.inf)
    return max(ready, gap_start[k, gap]), gap


@inner
def _stretches(
    durations: FloatArray,
    sizes: IntArray,
    cuts: IntArray,
    place: IntArray,
    ready: FloatArray,
    gap_start: FloatArray,
    gap_end: FloatArray,
    gaps: int,
    k: int,
    a: int,
    once: bool,
    by_finish: bool,
    limit: float,
    value: FloatArray,
    batches: IntArray,
    last: IntArray,
) -> None:
    """Fill [P] arrays for the inputs from cut point a to each cut point, done on device k alone.

    `value` is the earliest finish, or the least seconds, of batches one after another; inf if
    impossible or above `limit`. `batches` is their number, `last` the place of the size of the last.
    """
    value[a:] = np.inf
    value[a], batches[a] = 0.0, 0
    for c in range(a, a + 1 if once else len(cuts) - 1):
        if value[c] == np.inf:
            continue
        for s in range(len(sizes)):
            length = durations[k, s]
            until = cuts[c] + sizes[s]
            if until > cuts[-1]:
                break
            b = place[until]
            if length == np.inf or b < 0 or ready[c, s, k] == np.inf:
                continue
            if by_finish:
                start, _ = _start_in(gap_start, gap_end, k, gaps, max(ready[c, s, k], value[c]), length)
                through = start + length
            else:
                through = value[c] + length
            if through <= limit and (through < value[b] or (through == value[b] and batches[c] + 1 < batches[b])):
                value[b], batches[b], last[b] = through, batches[c] + 1, s


@builder
def _twice(table: Any) -> Any:
    """Return a table of twice as many columns."""
    larger = np.empty((table.shape[0], 2 * table.shape[1]), table.dtype)
    larger[:, : table.shape[1]] = table
    return larger


@builder
def _longer(column: Any) -> Any:
    """Return a column of twice the length."""
    larger = np.empty(2 * len(column), column.dtype)
    larger[: len(column)] = column
    return larger


@builder
def _least_durations(arrays: ProblemArrays) -> FloatArray:
    """Return the least positive duration of a batch on each device, [K]."""
    least = np.full(arrays.durations.shape[1], np.inf)
    for i in range(arrays.durations.shape[0]):
        for k in range(len(least)):
            for length in arrays.durations[i, k]:
                if length > 0.0:
                    least[k] = min(least[k], length)
    return least


@builder
def in_batches(
    arrays: ProblemArrays,
    priority: FloatArray,
    unit: IntArray,
    claim: FloatArray,
    capacity: FloatArray,
    row_of: IntArray,
    counts: BoolArray,
    once: bool,
    criterion: int,
    insertion: bool,
) -> Batches:
    """Place the ready task of highest priority in the best batches, again and again.

    Parameters
    ----------
    priority : float64 array [n]
        The highest goes first, then the lowest task.
    claim : float64 array [n_units, 2]
        Bytes a co-location unit claims on a device, and for each input there.
    capacity : float64 array [K]
    row_of, counts : int64 array [n_units], bool array [rows, K, L + 1]
        See `shared_counts`.
    once : bool
        Whether a device runs at most one batch of a task.
    criterion : int
        ``FINISH`` or ``DURATION``; ties go to fewer batches, then to lower devices.
    insertion : bool
        Whether a batch may start in a gap between batches placed before.
    """
    n, size, _ = arrays.durations.shape
    sizes, inputs = arrays.sizes, arrays.inputs
    by_finish = criterion == FINISH
    cuts = cut_points(sizes, inputs, size if once else inputs)
    n_cuts = len(cuts)
    place = np.full(inputs + 1, -1)
    for a in range(n_cuts):
        place[cuts[a]] = a
    # The batches placed so far; those of one task lie together, by inputs.
    first = np.zeros((n, 2), np.int64)
    task, device, low, high = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    begin, finish = np.empty(n), np.empty(n)
    made = 0
    used = np.zeros(size)
    settled = np.zeros(len(claim), np.bool_)
    unit_low, unit_high = np.zeros((len(claim), size), np.int64), np.zeros((len(claim), size), np.int64)
    least = _least_durations(arrays) if insertion else np.full(size, np.inf)
    gap_start, gap_end, gap_after = np.zeros((size, 8)), np.full((size, 8), np.inf), np.full((size, 8), -1)
    gaps = np.ones(size, np.int64)
    ready = np.empty((n_cuts, len(sizes), size))
    # Row k + 1: the best way to have the inputs up to each cut point done on devices 0 to k.
    total, number, since = np.empty((size + 1, n_cuts)), np.empty((size + 1, n_cuts), np.int64), np.empty((size + 1, n_cuts), np.int64)
    value, batches, last = np.empty(n_cuts), np.empty(n_cuts, np.int64), np.empty(n_cuts, np.int64)
    keys, items, queued = np.empty(n), np.empty(n, np.int64), 0
    waiting = np.empty(n, np.int64)
    for i in range(n):
        waiting[i] = arrays.pred_ptr[i + 1] - arrays.pred_ptr[i]
        if waiting[i] == 0:
            queued = heap_kernels.push(keys, items, 0, queued, -priority[i], i)
    while queued > 0:
        i = items[0]
        queued = heap_kernels.pop(keys, items, 0, queued)
        u, durations = unit[i], arrays.durations[i]
        _data_ready(arrays, i, cuts, first, device, low, high, finish, ready)
        total[0], number[0] = np.inf, 0
        total[0, 0] = 0.0
        for k in range(size):
            total[k + 1], number[k + 1], since[k + 1] = total[k], number[k], -1
            if settled[u]:
                if unit_low[u, k] == unit_high[u, k]:
                    continue
                total[k + 1] = np.inf
            for a in range(n_cuts - 1):
                limit = total[k + 1, n_cuts - 1]  # whatever lies above cannot win
                if total[k, a] == np.inf or total[k, a] > limit or (settled[u] and cuts[a] != unit_low[u, k]):
                    continue
                _stretches(
                    durations, sizes, cuts, place, ready, gap_start, gap_end, gaps[k], k, a, once, by_finish, limit, value, batches, last
                )
                for b in range(a + 1, n_cuts):
                    count = cuts[b] - cuts[a]
                    if value[b] == np.inf:
                        continue
                    if settled[u]:
                        if cuts[b] != unit_high[u, k]:
                            continue
                    else:
                        if used[k] + claim[u, 0] + count * claim[u, 1] > capacity[k] * MEMORY_SLACK:
                            break
                        if row_of[u] >= 0 and not counts[row_of[u], k, count]:
                            continue
                    through = max(total[k, a], value[b]) if by_finish else total[k, a] + value[b]
                    parts = number[k, a] + batches[b]
                    if through < total[k + 1, b] or (through == total[k + 1, b] and parts < number[k + 1, b]):
                        total[k + 1, b], number[k + 1, b], since[k + 1, b] = through, parts, a
        if total[size, n_cuts - 1] == np.inf:
            return task[:made], device[:made], low[:made], high[:made], begin[:made], i
        while made + number[size, n_cuts - 1] > len(task):
            task, device, low, high = _longer(task), _longer(device), _longer(low), _longer(high)
            begin, finish = _longer(begin), _longer(finish)
        # Lay the batches out backwards, by inputs, then give them times in their order.
        first[i, 0], first[i, 1] = made, made + number[size, n_cuts - 1]
        row, b = first[i, 1], n_cuts - 1
        for k in range(size - 1, -1, -1):
            a = since[k + 1, b]
            if a < 0:
                continue
            _stretches(
                durations, sizes, cuts, place, ready, gap_start, gap_end, gaps[k], k, a, once, by_finish, np.inf, value, batches, last
            )
            if not settled[u]:
                unit_low[u, k], unit_high[u, k] = cuts[a], cuts[b]
                used[k] += claim[u, 0] + (cuts[b] - cuts[a]) * claim[u, 1]
            while b > a:
                row -= 1
                task[row], device[row], high[row] = i, k, cuts[b]
                low[row] = cuts[b] - sizes[last[b]]
                b = place[low[row]]
        settled[u] = True
        made = first[i, 1]
        for row in range(first[i, 0], made):
            k, s = device[row], np.searchsorted(sizes, high[row] - low[row])
            arrival = ready[place[low[row]], s, k]
            if row > first[i, 0] and device[row - 1] == k:
                arrival = max(arrival, finish[row - 1])
            begin[row], gap = _start_in(gap_start, gap_end, k, gaps[k], arrival, durations[k, s])
            finish[row] = begin[row] + durations[k, s]
            if gap >= 0:
                gaps[k] = fill_gap(gap_start[k], gap_end[k], gap_after[k], gaps[k], gap, row, begin[row], finish[row], least[k])
                if gaps[k] == gap_start.shape[1]:
                    gap_start, gap_end, gap_after = _twice(gap_start), _twice(gap_end), _twice(gap_after)
        for x in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
            j = arrays.succ[x]
            waiting[j] -= 1
            if waiting[j] == 0:
                queued = heap_kernels.push(keys, items, 0, queued, -priority[j], j)
    return task[:made], device[:made], low[:made], high[:made], begin[:made], -1
