"""Numba kernels that choose devices, or clusters, without exact times; the simulator computes these."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched import heap_kernels
from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder, inner, kernel, nearly_linear
from hetsched.heuristics.list_scheduling.dynamic_kernels import MORE, PLANNING, Choice, Choosing, put
from hetsched.heuristics.list_scheduling.kernels import MEMORY_SLACK, NONE, ListProblem, arrivals
from hetsched.heuristics.list_scheduling.pair_kernels import (
    PairOrder,
    Pairs,
    admissible,
    best_arrived,
    best_awaited,
    join,
    join_children,
    leave,
    readmit,
)
from hetsched.heuristics.list_scheduling.transfer_kernels import Transfers, book, refresh
from hetsched.problem.problem import ProblemArrays

ALL_RULES, UNRESERVED, OVER_MEMORY = 0, 1, 2
"""The rules that `small_communication` applies: all; without reservations; without reservations and memory."""


class Reservations(NamedTuple):
    """Reservations of devices for favourite children."""

    favourite: IntArray
    """[n]: the child for which the device of a task is reserved, or -1."""
    last: IntArray
    """[K]: the task that each device ran last, or -1; changed in place."""


class Members(NamedTuple):
    """Co-location units, and ``tasks[ptr[u]:ptr[u + 1]]``, the members of each."""

    unit: IntArray
    ptr: IntArray
    tasks: IntArray


class Balance(NamedTuple):
    """Costs and the ideal load of every device, in seconds."""

    cost: FloatArray
    """[n_units, K]: seconds of each unit on each device; inf where it cannot run."""
    ideal: float
    slack: float
    """Permitted deviation from the ideal to either side."""


class Partition(NamedTuple):
    """The device of each unit, and the load of each device by the units that count; see `partition`."""

    device: IntArray
    load: FloatArray


def partition(device: IntArray, cost: FloatArray, units: IntArray) -> Partition:
    """Return the partition with the given devices, which are copied; the loads are the costs [n_units, K] of `units`."""
    own = device[units]
    return Partition(device.copy(), np.bincount(own, cost[units, own], cost.shape[1]).astype(np.float64))


@nearly_linear
@builder
def fill(order: IntArray, unit: IntArray, need: FloatArray, limit: FloatArray, durations: FloatArray, devices: IntArray) -> IntArray:
    """Fill one device after another up to its limit; return the device of each unit.

    A unit that cannot run on the current device is placed on the next one with room for it, or, if there is none, on the
    one with the most memory left.

    Parameters
    ----------
    order : int64 array [n]
        Tasks; a unit is placed with its first member.
    need : float64 array [n_units]
    limit : float64 array [K]
    durations : float64 array [n, K]
        inf where a task, or its unit, cannot run.
    devices : int64 array [K]
        The order in which devices are filled.
    """
    size = len(devices)
    chosen, used = np.full(len(need), -1), np.zeros(size)
    current = 0
    for i in order:
        u = unit[i]
        if chosen[u] >= 0:
            continue
        while current < size - 1 and used[devices[current]] + need[u] > limit[devices[current]] * MEMORY_SLACK:
            current += 1
        best, most = -1, -np.inf
        for x in range(size):
            k = devices[(current + x) % size]
            if durations[i, k] == np.inf:
                continue
            left = limit[k] * MEMORY_SLACK - used[k] - need[u]
            if left >= 0:
                best = k
                break
            if left > most:
                best, most = k, left
        chosen[u] = best
        used[best] += need[u]
    return chosen


@nearly_linear
@builder
def spread(order: IntArray, seconds: FloatArray, need: FloatArray, capacity: FloatArray) -> IntArray:
    """Place clusters in the given order, each on the device of least resulting load within memory; return their devices.

    A cluster that fits no device is placed on the one with the most memory left.

    Parameters
    ----------
    order : int64 array [C]
    seconds : float64 array [C, K]
        inf where a cluster cannot run.
    need, capacity : float64 arrays [C], [K]
    """
    count, size = seconds.shape
    device, load, used = np.full(count, -1), np.zeros(size), np.zeros(size)
    for c in order:
        best, least, roomiest, most = -1, np.inf, -1, -np.inf
        for k in range(size):
            if seconds[c, k] == np.inf:
                continue
            left = capacity[k] * MEMORY_SLACK - used[k] - need[c]
            if left >= 0 and load[k] + seconds[c, k] < least:
                best, least = k, load[k] + seconds[c, k]
            if left > most:
                roomiest, most = k, left
        if best < 0:
            best = roomiest
        device[c] = best
        load[best] += seconds[c, best]
        used[best] += need[c]
    return device


@nearly_linear
@builder
def linear_clusters(arrays: ProblemArrays, order: IntArray, weight: FloatArray, transfer: FloatArray) -> IntArray:
    """Cluster by longest paths, each in the graph of the remaining tasks; return the cluster of each task, [n]."""
    succ_ptr, succ, succ_edge = arrays.succ_ptr, arrays.succ, arrays.succ_edge
    n = len(order)
    cluster, below, following = np.full(n, -1), np.zeros(n), np.full(n, -1)
    left, size, count = order.copy(), n, 0
    while size > 0:
        start = -1
        for position in range(size - 1, -1, -1):
            i = left[position]
            longest, following[i] = 0.0, -1
            for x in range(succ_ptr[i], succ_ptr[i + 1]):
                j = succ[x]
                if cluster[j] < 0 and transfer[succ_edge[x]] + below[j] > longest:
                    longest, following[i] = transfer[succ_edge[x]] + below[j], j
            below[i] = weight[i] + longest
            if start < 0 or below[i] >= below[start]:
                start = i
        while start >= 0:
            cluster[start] = count
            start = following[start]
        count += 1
        kept = 0
        for position in range(size):
            if cluster[left[position]] < 0:
                left[kept] = left[position]
                kept += 1
        size = kept
    return cluster


@nearly_linear
@builder
def dominant_sequence(arrays: ProblemArrays, weight: FloatArray, transfer: FloatArray, below: FloatArray) -> tuple[IntArray, FloatArray]:
    """Cluster by dominant sequences; return the cluster of each task, [n], and the start of each cluster in seconds.

    Of the tasks whose parents are clustered, the one on the longest path joins the cluster of the parent whose data arrive last,
    if it does not start later there; otherwise it begins a cluster.

    Parameters
    ----------
    below : float64 array [n]
        Longest path from the start of a task to the end.
    """
    pred_ptr, pred, pred_edge, succ_ptr, succ = arrays.pred_ptr, arrays.pred, arrays.pred_edge, arrays.succ_ptr, arrays.succ
    n = len(weight)
    cluster, finish, arrival = np.full(n, -1), np.zeros(n), np.zeros(n)
    available, begin, count = np.zeros(n), np.zeros(n), 0
    keys, items, queued = np.empty(n), np.empty(n, np.int64), 0
    waiting = np.empty(n, np.int64)
    for i in range(n):
        waiting[i] = pred_ptr[i + 1] - pred_ptr[i]
        if waiting[i] == 0:
            queued = heap_kernels.push(keys, items, 0, queued, -below[i], i)
    while queued > 0:
        i = items[0]
        queued = heap_kernels.pop(keys, items, 0, queued)
        last = -1.0
        home = -1
        for x in range(pred_ptr[i], pred_ptr[i + 1]):
            reached = finish[pred[x]] + transfer[pred_edge[x]]
            if reached > last:
                last, home = reached, cluster[pred[x]]
        start = arrival[i]
        if home >= 0:
            there = available[home]
            for x in range(pred_ptr[i], pred_ptr[i + 1]):
                there = max(there, finish[pred[x]] + (0.0 if cluster[pred[x]] == home else transfer[pred_edge[x]]))
            if there <= start:
                start = there
            else:
                home = -1
        if home < 0:
            home, begin[count] = count, start
            count += 1
        cluster[i] = home
        finish[i] = start + weight[i]
        available[home] = max(available[home], finish[i])
        for x in range(succ_ptr[i], succ_ptr[i + 1]):
            j = succ[x]
            waiting[j] -= 1
            if waiting[j] == 0:
                for y in range(pred_ptr[j], pred_ptr[j + 1]):
                    arrival[j] = max(arrival[j], finish[pred[y]] + transfer[pred_edge[y]])
                queued = heap_kernels.push(keys, items, 0, queued, -(arrival[j] + below[j]), j)
    return cluster, begin[:count].copy()


@inner
def _earliest(
    rules: int, p: ListProblem, choice: Choice, order: PairOrder, s: Choosing, pairs: Pairs, reservations: Reservations
) -> tuple[int, int]:
    """Return the ready task of earliest start within memory, and its device; -1 if none is allowed. Ties go to the lowest task.

    While a device is reserved, its awaited tasks are not allowed, except for the favourite child.
    """
    earliest, chosen, device = np.inf, NONE, NONE
    for k in range(len(s.used)):
        kept = reservations.favourite[reservations.last[k]] if reservations.last[k] >= 0 and rules == ALL_RULES else NONE
        reserved = kept >= 0 and s.device[kept] < 0
        found, i = best_awaited(p, choice, order, s, pairs, k)
        start = -found
        if reserved:
            able = s.waiting[kept] == 0 and p.durations[kept, p.column[k]] < np.inf and admissible(p, s, kept, k)
            i, start = (kept, max(s.ready[kept, k], s.available[k])) if able and s.ready[kept, k] < np.inf else (NONE, np.inf)
        if i >= 0 and (start < earliest or (start == earliest and i < chosen)):
            earliest, chosen, device = start, i, k
        found, i = best_arrived(p, choice, order, s, pairs, k)
        if i >= 0 and (-found < earliest or (-found == earliest and i < chosen)):
            earliest, chosen, device = -found, i, k
    return chosen, device


@inner
def _roomiest(p: ListProblem, s: Choosing, n_ready: int) -> tuple[int, int]:
    """Return the first ready task that can run on the device with the most memory left, of those that can run any, and the device."""
    most = -np.inf
    for k in range(len(s.used)):
        most = max(most, p.capacity[k] - s.used[k])
    chosen, device, room = NONE, NONE, -np.inf
    for position in range(n_ready):
        i = s.ready_tasks[position]
        bound_to = s.unit_device[p.unit[i]]
        for k in range(len(s.used)):
            possible = p.durations[i, p.column[k]] < np.inf and s.ready[i, k] < np.inf and (bound_to < 0 or bound_to == k)
            if possible and p.capacity[k] - s.used[k] > room:
                chosen, device, room = i, k, p.capacity[k] - s.used[k]
        if room == most:
            break
    return chosen, device


@nearly_linear
@kernel
def small_communication(
    p: ListProblem, choice: Choice, order: PairOrder, s: Choosing, pairs: Pairs, reservations: Reservations, most: int
) -> int:
    """Run a slice, see `in_slices`, of placements by earliest start with devices reserved for favourite children.

    Until the favourite child of the last task of a device is placed, the device runs only this child and tasks whose data
    have arrived when the device becomes idle. Reservations are ignored if they exclude every choice. If no device has the
    memory for any ready task, one of the tasks is placed where the most memory is left. The rule is ``ETF``; what changes is as
    at the end of the previous slice, which ends after `most` looks at a device.
    """
    arrays, at, n_ready = p.arrays, s.at, s.at[1]
    if at[0] < 0:
        for i in range(len(s.device)):
            s.waiting[i] = arrays.pred_ptr[i + 1] - arrays.pred_ptr[i]
            if s.waiting[i] == 0:
                arrivals(arrays, i, s.device, s.finish, s.ready[i])
                join(p, choice, order, s, pairs, i, n_ready)
                n_ready += 1
    looks = 0
    for step in range(max(0, at[0]), len(s.device)):
        if looks > most:
            at[0], at[1] = step, n_ready
            return MORE
        looks += len(s.used)
        i, k = NONE, NONE
        for rules in range(ALL_RULES, OVER_MEMORY):
            if i < 0:
                i, k = _earliest(rules, p, choice, order, s, pairs, reservations)
        over = i < 0
        if over:
            i, k = _roomiest(p, s, n_ready)
        if i < 0:
            return int(s.ready_tasks[0])
        n_ready = leave(order, s, pairs, i, n_ready)
        reservations.last[k] = i
        if put(p, s, i, k, step, order.waits) and over:
            readmit(p, choice, order, s, pairs, i, k)
        n_ready = join_children(p, choice, order, s, pairs, i, n_ready)
    return NONE


@inner
def _earliest_planned(
    rules: int, p: ListProblem, s: Choosing, reservations: Reservations, transfers: Transfers, n_ready: int
) -> tuple[int, int, int]:
    """Return what `_earliest` does, by a look at all ready tasks, and the number of transfers planned for that."""
    earliest, chosen, device, planned = np.inf, NONE, NONE, 0
    for k in range(len(s.used)):
        kept = reservations.favourite[reservations.last[k]] if reservations.last[k] >= 0 and rules == ALL_RULES else NONE
        reserved = kept >= 0 and s.device[kept] < 0
        for position in range(n_ready):
            i = s.ready_tasks[position]
            soonest = max(transfers.least[i, k], s.available[k])
            if soonest > earliest or (soonest == earliest and i > chosen):
                continue
            if p.durations[i, p.column[k]] == np.inf or not admissible(p, s, i, k):
                continue
            if refresh(p.arrays, transfers, i, s.device, s.finish, s.ready[i]):
                planned += len(s.used) * (p.arrays.pred_ptr[i + 1] - p.arrays.pred_ptr[i])
            ready = s.ready[i, k]
            if ready == np.inf:
                continue
            if reserved and i != kept and ready > s.available[k]:
                continue
            start = max(ready, s.available[k])
            if start < earliest or (start == earliest and i < chosen):
                earliest, chosen, device = start, i, k
    return chosen, device, planned


@nearly_linear
@kernel
def small_planned_communication(p: ListProblem, s: Choosing, reservations: Reservations, transfers: Transfers, most: int) -> int:
    """Run a slice of `small_communication` with planned transfers, under which each ready task is looked at in each step."""
    arrays, at, n_ready = p.arrays, s.at, s.at[1]
    if at[0] < 0:
        for i in range(len(s.device)):
            s.waiting[i] = arrays.pred_ptr[i + 1] - arrays.pred_ptr[i]
            if s.waiting[i] == 0:
                s.ready_tasks[n_ready] = i
                n_ready += 1
    looks = 0
    for step in range(max(0, at[0]), len(s.device)):
        if looks > most:
            at[0], at[1] = step, n_ready
            return MORE
        looks += n_ready * len(s.used)
        i, k = NONE, NONE
        for rules in range(ALL_RULES, OVER_MEMORY):
            if i < 0:
                i, k, planned = _earliest_planned(rules, p, s, reservations, transfers, n_ready)
                looks += PLANNING * planned
        if i < 0:
            for position in range(n_ready):
                j = s.ready_tasks[position]
                refresh(arrays, transfers, j, s.device, s.finish, s.ready[j])
            i, k = _roomiest(p, s, n_ready)
        if i < 0:
            return int(s.ready_tasks[0])
        position = 0
        while s.ready_tasks[position] != i:
            position += 1
        n_ready -= 1
        s.ready_tasks[position] = s.ready_tasks[n_ready]
        reservations.last[k] = i
        book(arrays, transfers, i, k, s.device, s.finish)
        put(p, s, i, k, step, True)
        for x in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
            j = arrays.succ[x]
            s.waiting[j] -= 1
            if s.waiting[j] == 0:
                s.ready_tasks[n_ready] = j
                n_ready += 1
    return NONE


# The kernel allocates its scratch: with scratch of the caller, which the compiler must assume to overlap the loads, a pass over
# 1,500 tasks took 91 us instead of 75.


@nearly_linear
@builder
def repartition(
    arrays: ProblemArrays, order: IntArray, members: Members, weight: FloatArray, balance: Balance, partition: Partition
) -> int:
    """Make one pass over the units in `order`, and move those whose incoming communication decreases, or that balance loads.

    The device of least communication is chosen among those whose load stays within the slack of the ideal. Changes the
    devices and loads of `partition`; returns the number of units moved. `weight` [E] is that of each edge.
    """
    unit, member_ptr, tasks = members
    cost, ideal, slack = balance
    device, load = partition
    pred_ptr, pred, pred_edge = arrays.pred_ptr, arrays.pred, arrays.pred_edge
    size = len(load)
    incoming = np.empty(size)
    moved = 0
    for u in order:
        q = device[u]
        for r in range(size):
            incoming[r] = 0.0
        for x in range(member_ptr[u], member_ptr[u + 1]):
            i = tasks[x]
            for y in range(pred_ptr[i], pred_ptr[i + 1]):
                other = unit[pred[y]]
                if other != u:
                    incoming[device[other]] += weight[pred_edge[y]]
        left = load[q] - cost[u, q]
        closer, most, balancing, nearest = q, incoming[q], -1, -1.0
        for r in range(size):
            if r == q or cost[u, r] == np.inf:
                continue
            then = load[r] + cost[u, r]
            # D = external - internal decreases by twice the difference of the communication from r and from q
            if incoming[r] > most and then - ideal <= slack and ideal - left <= slack:
                closer, most = r, incoming[r]
            if left > ideal and then < ideal and incoming[r] > nearest:
                balancing, nearest = r, incoming[r]
        to = closer if closer != q else balancing
        if to >= 0 and to != q:
            device[u] = to
            load[q] = left
            load[to] += cost[u, to]
            moved += 1
    return moved


@nearly_linear
@builder
def follow(arrays: ProblemArrays, order: IntArray, members: Members, weight: FloatArray, cost: FloatArray, placed: Partition) -> None:
    """Place the units in `order` that have no device, -1, each where the most weight of its edges to placed units is.

    Ties go to the device of the earliest finish of its load with the unit. Changes the devices and loads of `placed`.
    """
    unit, member_ptr, tasks = members
    device, load = placed
    size = len(load)
    near = np.empty(size)
    for u in order:
        for k in range(size):
            near[k] = 0.0
        for x in range(member_ptr[u], member_ptr[u + 1]):
            i = tasks[x]
            for y in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
                k = device[unit[arrays.pred[y]]]
                if k >= 0:
                    near[k] += weight[arrays.pred_edge[y]]
            for y in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
                k = device[unit[arrays.succ[y]]]
                if k >= 0:
                    near[k] += weight[arrays.succ_edge[y]]
        best = -1
        for k in range(size):
            if cost[u, k] == np.inf:
                continue
            if best < 0 or near[k] > near[best] or (near[k] == near[best] and load[k] + cost[u, k] < load[best] + cost[u, best]):
                best = k
        device[u] = best
        load[best] += cost[u, best]
