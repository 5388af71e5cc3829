"""Numba kernels that divide the inputs of each task over the devices in batches.

Every device has at most one interval of consecutive inputs of a task, and the intervals are in the
order of the devices, so an input tends to stay on its device from task to task. The best of these
partitions of a task is found by dynamic programming over devices and cut points. Contention is
ignored: the simulator re-times the decision. When the first member of a co-location unit is placed,
the devices of all its inputs are fixed, and the unit claims the memory of all members.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched import heap_kernels
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import builder, inner, linear, nearly_linear
from hetsched.heuristics.list_scheduling.gap_kernels import Gaps, fill_gap, first_gap, new_gaps
from hetsched.heuristics.list_scheduling.kernels import MEMORY_SLACK, NONE
from hetsched.problem.link_kernels import link_seconds, multiplier
from hetsched.problem.problem import ProblemArrays

Batches = tuple[IntArray, IntArray, IntArray, IntArray, FloatArray, int]
"""Task, device, first input, last input + 1 and planned start of each batch, [m] each, in the order of
placement, and the task that fits nowhere, or -1."""


@linear
@builder
def cut_points(sizes: IntArray, inputs: int, most: int) -> IntArray:
    """Return the cut points: the numbers of inputs, ascending from 0 to L, after which a batch may end.

    For a cut point q, both q and L - q are sums of sizes, of at most `most` batches in all.
    """
    never = most + 1
    fewest = np.full(inputs + 1, never)
    fewest[0] = 0
    for q in range(1, inputs + 1):
        for size in sizes:
            if size <= q:
                fewest[q] = min(fewest[q], fewest[q - size] + 1)
    return np.flatnonzero(fewest + fewest[::-1] <= most)


@linear
@builder
def work_per_task(arrays: ProblemArrays) -> FloatArray:
    """Return the mean over the devices that can run a task of L x its least seconds per input, [n]."""
    n, size = len(arrays.durations), len(arrays.column)
    mean = np.empty(n)
    for i in range(n):
        total, count = 0.0, 0
        for k in range(size):
            least = np.inf
            for s in range(len(arrays.sizes)):
                least = min(least, arrays.durations[i, arrays.column[k], s] / arrays.sizes[s])
            if least < np.inf:
                total += least * arrays.inputs
                count += 1
        mean[i] = total / count
    return mean


@nearly_linear
@builder
def shared_counts(arrays: ProblemArrays, unit: IntArray, row_of: IntArray, n_rows: int, once: bool) -> BoolArray:
    """Return whether all members of a co-location unit can process q inputs on a device, [rows, K, L + 1].

    `row_of` [n_units] is the row of a unit here, -1 for one without a row.
    """
    size, n_sizes = len(arrays.column), len(arrays.sizes)
    inputs = arrays.inputs
    common = np.ones((n_rows, size, inputs + 1), np.bool_)
    own = np.empty(inputs + 1, np.bool_)
    for i in range(len(unit)):
        row = row_of[unit[i]]
        if row < 0:
            continue
        for k in range(size):
            own[:] = False
            own[0] = True
            for q in range(1, inputs + 1):
                for s in range(n_sizes):
                    left = q - arrays.sizes[s]
                    if arrays.durations[i, arrays.column[k], s] < np.inf and left >= 0 and own[left] and (left == 0 or not once):
                        own[q] = True
            common[row, k] &= own
    return common


class BatchProblem(NamedTuple):
    """Data of batched list schedulers. P is the number of cut points."""

    arrays: ProblemArrays
    unit: IntArray
    """[n]: the co-location unit of each task."""
    claim: FloatArray
    """[n_units, 2]: bytes that a unit claims once per device, and for each input on the device."""
    capacity: FloatArray
    """[K] bytes"""
    row_of: IntArray
    counts: BoolArray
    """[n_units], [rows, K, L + 1]: see `shared_counts`."""
    once: bool
    """Whether a device runs at most one batch of a task."""
    cuts: IntArray
    place: IntArray
    """[P], [L + 1]: cut points, see `cut_points`, and the index of each number of inputs among them, -1 for none."""


class Rows(NamedTuple):
    """The batches placed so far; those of one task are consecutive, in the order of inputs."""

    task: IntArray
    device: IntArray
    low: IntArray
    high: IntArray
    """First input, and last input + 1."""
    begin: FloatArray
    finish: FloatArray
    """Seconds."""


class Units(NamedTuple):
    """The devices of co-location units with a member placed."""

    used: FloatArray
    """[K]: bytes claimed."""
    settled: BoolArray
    """[n_units]"""
    low: IntArray
    high: IntArray
    """[n_units, K]: the inputs of a settled unit on each device."""


class Partition(NamedTuple):
    """Scratch: the best partition of one task's inputs over the devices."""

    ready: FloatArray
    """[P, B, K]: seconds at which the data of a batch of each size, from each cut point on, are on each device."""
    total: FloatArray
    number: IntArray
    since: IntArray
    """[K + 1, P]: row k + 1 holds the best partition of the inputs up to each cut point over devices 0 to k: its value, its
    number of batches, and the cut point at which the interval of device k begins, -1 if it is empty."""
    value: FloatArray
    batches: IntArray
    last: IntArray
    """[P]: the same on device k alone from one cut point on, see `_stretches`; `last` is the index of the size of the last batch."""


@linear
@builder
def _longer(rows: Rows) -> Rows:
    """Return a copy of the rows with twice the capacity."""
    count = len(rows.task)
    longer = Rows(
        np.empty(2 * count, np.int64),
        np.empty(2 * count, np.int64),
        np.empty(2 * count, np.int64),
        np.empty(2 * count, np.int64),
        np.empty(2 * count),
        np.empty(2 * count),
    )
    for row in range(count):
        longer.task[row], longer.device[row], longer.low[row], longer.high[row] = (
            rows.task[row],
            rows.device[row],
            rows.low[row],
            rows.high[row],
        )
        longer.begin[row], longer.finish[row] = rows.begin[row], rows.finish[row]
    return longer


@linear
@builder
def _more_gaps(gaps: Gaps) -> Gaps:
    """Return a copy of the gaps with twice the capacity."""
    size, most = gaps.start.shape
    more: Gaps = new_gaps(size, 2 * most)
    for k in range(size):
        more.number[k], more.least[k] = gaps.number[k], gaps.least[k]
        for x in range(gaps.number[k]):
            more.start[k, x], more.end[k, x], more.after[k, x] = gaps.start[k, x], gaps.end[k, x], gaps.after[k, x]
    return more


@inner
def _data_ready(p: BatchProblem, i: int, first: IntArray, rows: Rows, ready: FloatArray) -> None:
    """Fill `Partition.ready`; the batches of a task are the rows ``first[task, 0]`` to ``first[task, 1]``."""
    arrays, cuts, sizes = p.arrays, p.cuts, p.arrays.sizes
    for a in range(ready.shape[0]):
        for s in range(ready.shape[1]):
            for k in range(ready.shape[2]):
                ready[a, s, k] = 0.0
    for x in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
        e, parent = arrays.pred_edge[x], arrays.pred[x]
        begin, end = first[parent, 0], first[parent, 1]
        for a in range(len(cuts) - 1):
            while rows.high[begin] <= cuts[a]:
                begin += 1
            for s in range(len(sizes)):
                until = cuts[a] + sizes[s]
                if until > arrays.inputs:
                    break  # sizes ascend
                b = begin
                while b < end and rows.low[b] < until:
                    factor = multiplier(arrays.links, min(rows.high[b], until) - max(rows.low[b], cuts[a]))
                    for k in range(ready.shape[2]):
                        there = rows.finish[b] + link_seconds(arrays.links, e, rows.device[b], k, factor)
                        ready[a, s, k] = max(ready[a, s, k], there)
                    b += 1


@inner
def _start_in(gaps: Gaps, k: int, ready: float, length: float) -> tuple[float, int]:
    """Return the earliest start on device k, and its gap, -1 for a batch of length zero."""
    if length == 0.0:
        return ready, NONE
    gap = first_gap(gaps, k, ready, length, np.inf)
    return max(ready, gaps.start[k, gap]), gap


@inner
def _stretches(p: BatchProblem, i: int, gaps: Gaps, w: Partition, k: int, a: int, by_finish: bool, limit: float) -> None:
    """Fill `value`, `batches`, `last` for the inputs of task i from cut point a to each cut point, on device k alone.

    The value is the earliest finish, or the least total seconds, of consecutive batches; inf if impossible or above `limit`.
    """
    value, batches, cuts, sizes = w.value, w.batches, p.cuts, p.arrays.sizes
    for c in range(a, len(cuts)):
        value[c] = np.inf
    value[a], batches[a] = 0.0, 0
    for c in range(a, a + 1 if p.once else len(cuts) - 1):
        if value[c] == np.inf:
            continue
        for s in range(len(sizes)):
            length = p.arrays.durations[i, p.arrays.column[k], s]
            until = cuts[c] + sizes[s]
            if until > cuts[-1]:
                break
            b = p.place[until]
            if length == np.inf or b < 0 or w.ready[c, s, k] == np.inf:
                continue
            if by_finish:
                start, _ = _start_in(gaps, k, max(w.ready[c, s, k], value[c]), length)
                through = start + length
            else:
                through = value[c] + length
            if through <= limit and (through < value[b] or (through == value[b] and batches[c] + 1 < batches[b])):
                value[b], batches[b], w.last[b] = through, batches[c] + 1, s


@inner
def _share_out(p: BatchProblem, i: int, gaps: Gaps, units: Units, w: Partition, by_finish: bool) -> bool:
    """Fill `total`, `number`, `since` for task i; return whether there is a partition."""
    u, last = p.unit[i], len(p.cuts) - 1
    total, number, since, settled = w.total, w.number, w.since, units.settled[u]
    for b in range(last + 1):
        total[0, b], number[0, b] = np.inf, 0
    total[0, 0] = 0.0
    for k in range(len(units.used)):
        moot = settled and units.low[u, k] == units.high[u, k]
        for b in range(last + 1):
            total[k + 1, b] = np.inf if settled and not moot else total[k, b]
            number[k + 1, b], since[k + 1, b] = number[k, b], NONE
        if moot:
            continue
        for a in range(last):
            limit = total[k + 1, last]  # values above it are not minimal
            if total[k, a] == np.inf or total[k, a] > limit or (settled and p.cuts[a] != units.low[u, k]):
                continue
            _stretches(p, i, gaps, w, k, a, by_finish, limit)
            for b in range(a + 1, last + 1):
                count = p.cuts[b] - p.cuts[a]
                if w.value[b] == np.inf or (settled and p.cuts[b] != units.high[u, k]):
                    continue
                if not settled:
                    if units.used[k] + p.claim[u, 0] + count * p.claim[u, 1] > p.capacity[k] * MEMORY_SLACK:
                        break
                    if p.row_of[u] >= 0 and not p.counts[p.row_of[u], k, count]:
                        continue
                through = max(total[k, a], w.value[b]) if by_finish else total[k, a] + w.value[b]
                parts = number[k, a] + w.batches[b]
                if through < total[k + 1, b] or (through == total[k + 1, b] and parts < number[k + 1, b]):
                    total[k + 1, b], number[k + 1, b], since[k + 1, b] = through, parts, a
    return bool(total[len(units.used), last] < np.inf)


@inner
def _lay_out(p: BatchProblem, i: int, gaps: Gaps, units: Units, w: Partition, rows: Rows, end: int, by_finish: bool) -> None:
    """Write the batches of task i into the rows before `end`, from the last to the first, and fix the devices of its unit."""
    u, row, b = p.unit[i], end, len(p.cuts) - 1
    for k in range(len(units.used) - 1, -1, -1):
        a = w.since[k + 1, b]
        if a < 0:
            continue
        _stretches(p, i, gaps, w, k, a, by_finish, np.inf)
        if not units.settled[u]:
            units.low[u, k], units.high[u, k] = p.cuts[a], p.cuts[b]
            units.used[k] += p.claim[u, 0] + (p.cuts[b] - p.cuts[a]) * p.claim[u, 1]
        while b > a:
            row -= 1
            rows.task[row], rows.device[row], rows.high[row] = i, k, p.cuts[b]
            rows.low[row] = p.cuts[b] - p.arrays.sizes[w.last[b]]
            b = p.place[rows.low[row]]
    units.settled[u] = True


@inner
def _time_batch(p: BatchProblem, gaps: Gaps, w: Partition, rows: Rows, row: int, is_first: bool) -> None:
    """Write the start and finish of a batch, and fill its gap; `is_first` is whether it is the first of its task."""
    i, k, s = rows.task[row], rows.device[row], 0
    while p.arrays.sizes[s] < rows.high[row] - rows.low[row]:
        s += 1
    arrival = w.ready[p.place[rows.low[row]], s, k]
    if not is_first and rows.device[row - 1] == k:
        arrival = max(arrival, rows.finish[row - 1])
    rows.begin[row], gap = _start_in(gaps, k, arrival, p.arrays.durations[i, p.arrays.column[k], s])
    rows.finish[row] = rows.begin[row] + p.arrays.durations[i, p.arrays.column[k], s]
    if gap >= 0:
        fill_gap(gaps, k, gap, row, rows.begin[row], rows.finish[row])


@linear
@builder
def _new_gaps(arrays: ProblemArrays, insertion: bool) -> Gaps:
    """Return the gaps of idle devices; gaps shorter than the least positive duration of a batch will be dropped."""
    gaps: Gaps = new_gaps(len(arrays.column), 8)
    if insertion:
        for i in range(arrays.durations.shape[0]):
            for k in range(len(arrays.column)):
                for length in arrays.durations[i, arrays.column[k]]:
                    if length > 0.0:
                        gaps.least[k] = min(gaps.least[k], length)
    return gaps


# The queue is written out: with `enqueue_first` and `enqueue_after` on a record of it, which is reference-counted here, bheft took
# a third more time on 2,000 tasks.


@linear
@builder
def in_batches(p: BatchProblem, priority: FloatArray, by_finish: bool, insertion: bool) -> Batches:
    """Place the ready task of highest priority [n] in its best batches, until all are placed or one fits nowhere.

    The best batches have the earliest last finish, or with `by_finish` False the least total duration; ties go to fewer
    batches, then to lower devices. With `insertion` a batch may start in a gap between batches placed before.
    """
    arrays, n, size, n_sizes, n_cuts = p.arrays, len(p.arrays.durations), len(p.arrays.column), len(p.arrays.sizes), len(p.cuts)
    first, made = np.zeros((n, 2), np.int64), 0
    rows = Rows(np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n), np.empty(n))
    n_units = len(p.claim)
    units = Units(np.zeros(size), np.zeros(n_units, np.bool_), np.zeros((n_units, size), np.int64), np.zeros((n_units, size), np.int64))
    gaps = _new_gaps(arrays, insertion)
    w = Partition(
        np.empty((n_cuts, n_sizes, size)),
        np.empty((size + 1, n_cuts)),
        np.empty((size + 1, n_cuts), np.int64),
        np.empty((size + 1, n_cuts), np.int64),
        np.empty(n_cuts),
        np.empty(n_cuts, np.int64),
        np.empty(n_cuts, np.int64),
    )
    keys, items, queued = np.empty(n), np.empty(n, np.int64), 0
    waiting, stuck = np.empty(n, np.int64), NONE
    for i in range(n):
        waiting[i] = arrays.pred_ptr[i + 1] - arrays.pred_ptr[i]
        if waiting[i] == 0:
            queued = heap_kernels.push(keys, items, 0, queued, -priority[i], i)
    while queued > 0:
        i = items[0]
        queued = heap_kernels.pop(keys, items, 0, queued)
        _data_ready(p, i, first, rows, w.ready)
        if not _share_out(p, i, gaps, units, w, by_finish):
            stuck = i
            break
        first[i, 0], first[i, 1] = made, made + w.number[size, n_cuts - 1]
        while first[i, 1] > len(rows.task):
            rows = _longer(rows)
        _lay_out(p, i, gaps, units, w, rows, first[i, 1], by_finish)
        for row in range(made, first[i, 1]):
            _time_batch(p, gaps, w, rows, row, row == made)
            if gaps.number[rows.device[row]] == gaps.start.shape[1]:
                gaps = _more_gaps(gaps)
        made = first[i, 1]
        for x in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
            j = arrays.succ[x]
            waiting[j] -= 1
            if waiting[j] == 0:
                queued = heap_kernels.push(keys, items, 0, queued, -priority[j], j)
    return rows.task[:made], rows.device[:made], rows.low[:made], rows.high[:made], rows.begin[:made], stuck
