"""The numba kernel of lookahead HEFT: a device is chosen by what it does to the children."""

from __future__ import annotations

import numpy as np

from hetsched import heap_kernels
from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder, inner
from hetsched.heuristics.list_scheduling.kernels import MEMORY_SLACK, Placed, arrivals, fill_gap, first_gap, least_durations
from hetsched.problem.link_kernels import link_seconds, multiplier
from hetsched.problem.problem import ProblemArrays


@inner
def _start_beside(
    gap_start: FloatArray,
    gap_end: FloatArray,
    k: int,
    count: int,
    ready: float,
    length: float,
    taken_on: IntArray,
    taken_from: FloatArray,
    taken_to: FloatArray,
    taken: int,
) -> float:
    """Return the earliest start on device k in a gap and outside the first `taken` tentative tasks."""
    start = ready
    clear = length == 0.0
    while not clear:
        gap = first_gap(gap_start, gap_end, k, count, start, length, np.inf)
        start = max(start, gap_start[k, gap])
        end = start + length
        clear = True
        for x in range(taken):
            if taken_on[x] == k and taken_from[x] < end and taken_to[x] > start:
                start, clear = max(start, taken_to[x]), False
    return start


@builder
def lookahead(
    arrays: ProblemArrays,
    durations: FloatArray,
    priority: FloatArray,
    child: IntArray,
    child_edge: IntArray,
    most: int,
    unit: IntArray,
    need: FloatArray,
    capacity: FloatArray,
) -> Placed:
    """Place the ready task of highest priority where its children can finish first, again and again.

    Parameters
    ----------
    priority : float64 array [n]
        The highest goes first, then the lowest task.
    child, child_edge : int64 arrays [E]
        As ``arrays.succ`` and ``arrays.succ_edge``, but the children of a task by descending priority.
    most : int
        Children looked at; those of highest priority.
    unit, need, capacity
        As in `kernels.in_order`.
    """
    n, size = durations.shape
    pred_ptr, pred, pred_edge, succ_ptr = arrays.pred_ptr, arrays.pred, arrays.pred_edge, arrays.succ_ptr
    links, factor = arrays.links, multiplier(arrays.links, arrays.inputs)
    device, finish = np.full(n, -1), np.zeros(n)
    unit_device, used = np.full(len(need), -1), np.zeros(size)
    least = least_durations(durations)
    gap_start, gap_end, gap_after = np.zeros((size, n + 1)), np.full((size, n + 1), np.inf), np.full((size, n + 1), -1)
    gaps = np.ones(size, np.int64)
    begin, sequence, placed = np.empty(n), np.empty(n, np.int64), 0
    ready = np.empty(size)
    most = min(most, n)
    data = np.empty((most, size))  # when the data of the children from parents placed before are on each device
    # Edges between children, by the child they enter, and where a child is put for a try.
    among_ptr, among = np.zeros(most + 1, np.int64), np.empty(len(child), np.int64)
    tried_for, tried_on, tried_until = np.full(n, -1), np.empty(n, np.int64), np.empty(n)
    taken_on, taken_from, taken_to = np.empty(most + 1, np.int64), np.empty(most + 1), np.empty(most + 1)
    keys, items, queued = np.empty(n), np.empty(n, np.int64), 0
    waiting = np.empty(n, np.int64)
    for i in range(n):
        waiting[i] = pred_ptr[i + 1] - pred_ptr[i]
        if waiting[i] == 0:
            queued = heap_kernels.push(keys, items, 0, queued, -priority[i], i)
    while queued > 0:
        i = items[0]
        queued = heap_kernels.pop(keys, items, 0, queued)
        arrivals(arrays, i, device, finish, ready)
        first, last = succ_ptr[i], min(succ_ptr[i + 1], succ_ptr[i] + most)
        data[: last - first] = 0.0
        for x in range(first, last):
            among_ptr[x - first + 1] = among_ptr[x - first]
            for y in range(pred_ptr[child[x]], pred_ptr[child[x] + 1]):
                p = pred[y]
                if tried_for[p] == i:
                    among[among_ptr[x - first + 1]] = y
                    among_ptr[x - first + 1] += 1
                if device[p] >= 0:
                    for m in range(size):
                        through = finish[p] + link_seconds(links, pred_edge[y], device[p], m, factor)
                        data[x - first, m] = max(data[x - first, m], through)
            tried_for[child[x]] = i
        u = unit[i]
        chosen, chosen_start, best, best_own = -1, 0.0, np.inf, np.inf
        for k in range(size):
            length = durations[i, k]
            if length == np.inf or ready[k] == np.inf or (unit_device[u] >= 0 and unit_device[u] != k):
                continue
            if unit_device[u] < 0 and used[k] + need[u] > capacity[k] * MEMORY_SLACK:
                continue
            start = _start_beside(gap_start, gap_end, k, gaps[k], ready[k], length, taken_on, taken_from, taken_to, 0)
            own = start + length
            taken_on[0], taken_from[0], taken_to[0] = k, start, own
            taken = 1 if length > 0.0 else 0
            latest = own
            for x in range(first, last):
                j, v = child[x], unit[child[x]]
                bound_to = k if v == u else unit_device[v]
                where, where_start, earliest = -1, 0.0, np.inf
                for m in range(size):
                    if durations[j, m] == np.inf or (bound_to >= 0 and bound_to != m):
                        continue
                    claimed = used[m] + (need[u] if m == k and unit_device[u] < 0 else 0.0)
                    if bound_to < 0 and claimed + need[v] > capacity[m] * MEMORY_SLACK:
                        continue
                    there = max(data[x - first, m], own + link_seconds(links, child_edge[x], k, m, factor))
                    for z in range(among_ptr[x - first], among_ptr[x - first + 1]):
                        p = pred[among[z]]
                        if tried_on[p] >= 0:
                            there = max(there, tried_until[p] + link_seconds(links, pred_edge[among[z]], tried_on[p], m, factor))
                    if there + durations[j, m] >= earliest:
                        continue
                    at = _start_beside(gap_start, gap_end, m, gaps[m], there, durations[j, m], taken_on, taken_from, taken_to, taken)
                    if at + durations[j, m] < earliest:
                        where, where_start, earliest = m, at, at + durations[j, m]
                tried_on[j], tried_until[j] = where, earliest
                latest = max(latest, earliest)
                if latest > best:
                    break
                if earliest > where_start and where >= 0:
                    taken_on[taken], taken_from[taken], taken_to[taken] = where, where_start, earliest
                    taken += 1
            if chosen < 0 or latest < best or (latest == best and own < best_own):
                chosen, chosen_start, best, best_own = k, start, latest, own
        if chosen < 0:
            return device, sequence, i
        k = chosen
        device[i], begin[i], finish[i] = k, chosen_start, best_own
        sequence[placed] = i
        placed += 1
        if unit_device[u] < 0:
            unit_device[u] = k
            used[k] += need[u]
        if durations[i, k] > 0.0:
            gap = first_gap(gap_start, gap_end, k, gaps[k], ready[k], durations[i, k], np.inf)
            gaps[k] = fill_gap(gap_start[k], gap_end[k], gap_after[k], gaps[k], gap, i, chosen_start, finish[i], least[k])
        for x in range(succ_ptr[i], succ_ptr[i + 1]):
            j = arrays.succ[x]
            waiting[j] -= 1
            if waiting[j] == 0:
                queued = heap_kernels.push(keys, items, 0, queued, -priority[j], j)
    by_start = np.argsort(begin[sequence], kind="mergesort")
    return device, sequence[by_start], -1
