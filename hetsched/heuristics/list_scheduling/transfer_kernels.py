"""Numba kernels that plan transfers together with tasks: each in the earliest slot in which the resources of its link are idle.

This is edge scheduling (O. Sinnen, L. A. Sousa, "Communication contention in task scheduling", IEEE Transactions on Parallel and
Distributed Systems 16(6), 2005) on the resources of `LinkTable`: the transfers to a task are planned one after another, by finish
of the parent, ties by number of the edge. Each starts, by insertion, at the earliest time from the finish of its parent at which
both resources are idle until its end. The slots for a device are tentative until the task is placed there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched import heap_kernels
from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder, inner, linear
from hetsched.problem.link_kernels import link_seconds, multiplier
from hetsched.problem.problem import ProblemArrays

FEWEST = 4
"""Gaps for which a resource has room at its first transfer; the room is doubled when it is full."""
BOOKED, POOL = 0, 1


class Transfers(NamedTuple):
    """Planned transfers, the idle gaps of the resources, and tentative slots for the transfers to one task."""

    edge: IntArray
    start: FloatArray
    finish: FloatArray
    """[E]: the edges with a planned transfer that takes time, in the order of planning, and its seconds."""
    sizes: IntArray
    """[2]: the number of planned transfers (`BOOKED`), and of gaps that have room in the arrays below (`POOL`)."""
    gap_start: FloatArray
    gap_end: FloatArray
    """The gaps of resource r, in order of time, are ``gap_start[base[r] : base[r] + number[r]]``; the last one is open-ended."""
    base: IntArray
    number: IntArray
    room: IntArray
    """[n_resources]; without a transfer the number is 0, and the resource is idle throughout."""
    changed: IntArray
    """[n_resources]: the number of planned transfers after the last one on the resource."""
    checked: IntArray
    """[n]: the number of planned transfers when the arrivals of a task were last computed, see `refresh`; -1 for never."""
    keys: FloatArray
    heap: IntArray
    parent: IntArray
    """[most parents]: a heap, and the positions of the parents of one task in the order in which transfers are planned."""
    slot_edge: IntArray
    slot_one: IntArray
    slot_other: IntArray
    """[most parents]: edge and resources of each tentative slot, -1 for none, in order of time."""
    slot_start: FloatArray
    slot_finish: FloatArray
    idle: FloatArray
    """[E, K] or [0, 0]: the earliest start, tentative slots left out, found last for the transfer of an edge to a device, or 0. It is
    a lower bound from then on, because planned transfers stay."""
    least: FloatArray
    """[n, K] or [0, 0]: the lower bound of an arrival that follows from `idle`, or 0."""
    upper_score: FloatArray
    """[n] or [0]: an upper bound of the score of a task, see ``dynamic_kernels``, or inf."""


@linear
@builder
def new_transfers(arrays: ProblemArrays, again: bool) -> Transfers:
    """Return no planned transfers, with scratch for a problem; `again` says whether arrivals are computed repeatedly, by `refresh`."""
    n, n_edges, n_resources, most = len(arrays.pred_ptr) - 1, len(arrays.pred), arrays.links.n_resources, 0
    for i in range(n):
        most = max(most, arrays.pred_ptr[i + 1] - arrays.pred_ptr[i])
    # A resource with g gaps has had room for less than 4 g in all. A transfer adds a gap to two resources, each of which has one before.
    pool, size = 4 * FEWEST * n_edges, len(arrays.links.resource)
    return Transfers(
        np.empty(n_edges, np.int64),
        np.empty(n_edges),
        np.empty(n_edges),
        np.zeros(2, np.int64),
        np.empty(pool),
        np.empty(pool),
        np.zeros(n_resources, np.int64),
        np.zeros(n_resources, np.int64),
        np.zeros(n_resources, np.int64),
        np.zeros(n_resources, np.int64),
        np.full(n, -1),
        np.empty(most),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most),
        np.empty(most),
        np.zeros((n_edges, size)) if again else np.empty((0, 0)),
        np.zeros((n, size)) if again else np.empty((0, 0)),
        np.full(n if again else 0, np.inf),
    )


@inner
def clear_transfers(t: Transfers) -> None:
    """Forget the transfers planned, in scratch of arrivals that are computed once."""
    t.sizes[BOOKED], t.sizes[POOL] = 0, 0
    for r in range(len(t.number)):
        t.number[r], t.room[r] = 0, 0


@inner
def _idle_from(t: Transfers, r: int, ready: float, seconds: float) -> float:
    """Return the earliest time from `ready` at which resource r is idle for some seconds."""
    if t.number[r] == 0:
        return ready
    low = t.base[r]
    high = low + t.number[r] - 1  # the first gap that ends after `ready`
    while low < high:
        middle = (low + high) // 2
        if t.gap_end[middle] > ready:
            high = middle
        else:
            low = middle + 1
    start = max(ready, t.gap_start[low])
    while start + seconds > t.gap_end[low]:
        low += 1
        start = max(ready, t.gap_start[low])
    return float(start)


@inner
def _both_idle_from(t: Transfers, one: int, other: int, ready: float, seconds: float) -> float:
    """Return the earliest time from `ready` at which two resources are idle for some seconds."""
    start = _idle_from(t, one, ready, seconds)
    while other != one:
        before, start = start, _idle_from(t, other, start, seconds)
        if start == before:
            break
        before, start = start, _idle_from(t, one, start, seconds)
        if start == before:
            break
    return start


@inner
def _slot(t: Transfers, one: int, other: int, ready: float, seconds: float, slots: int) -> float:
    """Return the same with tentative slots, from a time at which both are idle without these."""
    start, seen = ready, 0
    while True:
        before = start
        while seen < slots:
            if t.slot_finish[seen] > start and (t.slot_one[seen] == one or t.slot_other[seen] == other):
                if t.slot_start[seen] >= start + seconds:
                    break
                start = t.slot_finish[seen]
            seen += 1
        if start == before:
            return start
        start = _both_idle_from(t, one, other, start, seconds)


@inner
def sort_parents(arrays: ProblemArrays, t: Transfers, i: int, finish: FloatArray) -> None:
    """Write the order in which the transfers to task i are planned into ``t.parent``."""
    first, count = arrays.pred_ptr[i], arrays.pred_ptr[i + 1] - arrays.pred_ptr[i]
    if count == 1:
        t.parent[0] = first
        return
    size = 0
    for x in range(first, first + count):
        size = heap_kernels.push(t.keys, t.heap, 0, size, finish[arrays.pred[x]], x)
    for y in range(count):
        t.parent[y] = t.heap[0]
        size = heap_kernels.pop(t.keys, t.heap, 0, size)


@inner
def plan(arrays: ProblemArrays, t: Transfers, i: int, k: int, device: IntArray, finish: FloatArray) -> tuple[float, int]:
    """Plan the transfers of task i to device k in tentative slots, after `sort_parents`.

    Returns the earliest time at which all data are on the device, inf if they cannot reach it, and the number of slots.
    """
    links, ready, slots, least, again = arrays.links, 0.0, 0, 0.0, len(t.idle) > 0
    factor = multiplier(links, arrays.inputs)
    for y in range(arrays.pred_ptr[i + 1] - arrays.pred_ptr[i]):
        x = t.parent[y]
        h, done = device[arrays.pred[x]], finish[arrays.pred[x]]
        seconds = link_seconds(links, arrays.pred_edge[x], h, k, factor)
        if seconds == np.inf:
            return np.inf, 0
        start, soonest = done, done
        if seconds > 0.0:
            one, other = links.resource[h, k, 0], links.resource[h, k, 1]
            if one >= 0:
                e = arrays.pred_edge[x]
                soonest = _both_idle_from(t, one, other, max(done, t.idle[e, k]) if again else done, seconds)
                if again:
                    t.idle[e, k] = soonest
                start = _slot(t, one, other, soonest, seconds, slots)
            z = slots
            while z > 0 and t.slot_start[z - 1] > start:
                t.slot_edge[z], t.slot_one[z], t.slot_other[z] = t.slot_edge[z - 1], t.slot_one[z - 1], t.slot_other[z - 1]
                t.slot_start[z], t.slot_finish[z] = t.slot_start[z - 1], t.slot_finish[z - 1]
                z -= 1
            t.slot_edge[z], t.slot_one[z], t.slot_other[z] = arrays.pred_edge[x], one, other
            t.slot_start[z], t.slot_finish[z] = start, start + seconds
            slots += 1
        ready, least = max(ready, start + seconds), max(least, soonest + seconds)
    if again:
        t.least[i, k] = least
    return ready, slots


@inner
def planned_arrivals(arrays: ProblemArrays, t: Transfers, i: int, device: IntArray, finish: FloatArray, ready: FloatArray) -> None:
    """Write into `ready` [K] the earliest time at which all data of task i are on each device, with transfers in idle slots."""
    sort_parents(arrays, t, i, finish)
    for k in range(len(ready)):
        ready[k], _ = plan(arrays, t, i, k, device, finish)


@inner
def refresh(arrays: ProblemArrays, t: Transfers, i: int, device: IntArray, finish: FloatArray, ready: FloatArray) -> bool:
    """Compute the arrivals of task i again, see `planned_arrivals`, where a resource has a new transfer; return if there is any."""
    links, since, found = arrays.links, t.checked[i], False
    if since == t.sizes[BOOKED]:
        return False
    for k in range(len(ready)):
        stale = since < 0
        for x in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
            if stale:
                break
            h = device[arrays.pred[x]]
            if links.resource[h, k, 0] >= 0:
                stale = t.changed[links.resource[h, k, 0]] > since or t.changed[links.resource[h, k, 1]] > since
        if stale:
            if not found:
                sort_parents(arrays, t, i, finish)
            found = True
            ready[k], _ = plan(arrays, t, i, k, device, finish)
    t.checked[i] = t.sizes[BOOKED]
    return found


@inner
def _reserve(t: Transfers, r: int, start: float, finish: float) -> None:
    """Take the time from `start` to `finish`, in which it is idle, from the gaps of resource r."""
    t.changed[r] = t.sizes[BOOKED]
    if t.number[r] == 0:
        if t.room[r] == 0:
            t.base[r], t.room[r] = t.sizes[POOL], FEWEST
            t.sizes[POOL] += FEWEST
        t.gap_start[t.base[r]], t.gap_end[t.base[r]], t.number[r] = 0.0, np.inf, 1
    low = t.base[r]
    high = low + t.number[r] - 1  # the first gap that ends at `finish` or later
    while low < high:
        middle = (low + high) // 2
        if t.gap_end[middle] >= finish:
            high = middle
        else:
            low = middle + 1
    if finish <= start:  # too short for the precision of times
        return
    behind = t.base[r] + t.number[r]
    if t.gap_start[low] < start and finish < t.gap_end[low]:
        if t.number[r] == t.room[r]:
            base = t.sizes[POOL]
            for x in range(t.number[r]):
                t.gap_start[base + x], t.gap_end[base + x] = t.gap_start[t.base[r] + x], t.gap_end[t.base[r] + x]
            low, behind = low + base - t.base[r], base + t.number[r]
            t.base[r], t.room[r] = base, 2 * t.room[r]
            t.sizes[POOL] += t.room[r]
        for x in range(behind, low + 1, -1):
            t.gap_start[x], t.gap_end[x] = t.gap_start[x - 1], t.gap_end[x - 1]
        t.gap_start[low + 1], t.gap_end[low + 1] = finish, t.gap_end[low]
        t.gap_end[low] = start
        t.number[r] += 1
    elif t.gap_start[low] < start:
        t.gap_end[low] = start
    elif finish < t.gap_end[low]:
        t.gap_start[low] = finish
    else:
        for x in range(low, behind - 1):
            t.gap_start[x], t.gap_end[x] = t.gap_start[x + 1], t.gap_end[x + 1]
        t.number[r] -= 1


@inner
def book(arrays: ProblemArrays, t: Transfers, i: int, k: int, device: IntArray, finish: FloatArray) -> None:
    """Plan the transfers of task i to device k for good, in the slots by which its arrival there was computed."""
    sort_parents(arrays, t, i, finish)
    _, slots = plan(arrays, t, i, k, device, finish)
    for z in range(slots):
        x = t.sizes[BOOKED]
        t.sizes[BOOKED] += 1
        t.edge[x], t.start[x], t.finish[x] = t.slot_edge[z], t.slot_start[z], t.slot_finish[z]
        one, other = t.slot_one[z], t.slot_other[z]
        if one >= 0:
            _reserve(t, one, t.slot_start[z], t.slot_finish[z])
            if other != one:
                _reserve(t, other, t.slot_start[z], t.slot_finish[z])
