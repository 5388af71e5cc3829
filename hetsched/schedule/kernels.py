"""Numba kernels that compute the times of a decision; `simulate` calls them.

Batches and *arcs* are nodes of one graph. An arc is an (edge, source batch, target batch) with at
least one input in common: a transfer if the batches are on different devices, else a precedence of
length zero. Batches and transfers of length zero are not part of resource orders.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched import heap_kernels
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import builder, inner, linear, nearly_linear
from hetsched.problem.links import LinkTable


@linear
@builder
def by_source(source: IntArray, n_batches: int) -> tuple[IntArray, IntArray]:
    """Return (row starts, arcs) grouped by source batch, in the order of arcs within a group."""
    pointers = np.zeros(n_batches + 1, np.int64)
    for a in source:
        pointers[a + 1] += 1
    for a in range(n_batches):
        pointers[a + 1] += pointers[a]
    fill = pointers.copy()
    grouped = np.empty(len(source), np.int64)
    for x in range(len(source)):
        grouped[fill[source[x]]] = x
        fill[source[x]] += 1
    return pointers, grouped


@linear
@builder
def earliest(
    duration: FloatArray, next_batch: IntArray, source: IntArray, target: IntArray, arc_duration: FloatArray, next_arc: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the earliest starts of batches [m] and arcs [x] under fixed orders; NaN in a deadlock.

    `next_batch` [m] is the next batch on the device, `next_arc` [x, 2] the next transfers on the two
    resources of an arc, -1 for none.
    """
    m, n_arcs = len(duration), len(source)
    out_ptr, out = by_source(source, m)
    waiting = np.zeros(m + n_arcs, np.int64)
    for b in range(m):
        if next_batch[b] >= 0:
            waiting[next_batch[b]] += 1
    for x in range(n_arcs):
        waiting[target[x]] += 1
        waiting[m + x] += 1
        for side in range(2):
            if next_arc[x, side] >= 0:
                waiting[m + next_arc[x, side]] += 1
    time = np.zeros(m + n_arcs)
    done = np.zeros(m + n_arcs, np.bool_)
    stack = np.empty(m + n_arcs, np.int64)
    top = 0
    for b in range(m):
        if waiting[b] == 0:
            stack[top] = b
            top += 1
    while top > 0:
        top -= 1
        node = stack[top]
        done[node] = True
        is_batch = node < m
        first = out_ptr[node] if is_batch else 0
        n_after = 1 + out_ptr[node + 1] - first if is_batch else 3
        for position in range(n_after):
            if is_batch:
                finish = time[node] + duration[node]
                after = next_batch[node] if position == 0 else m + out[first + position - 1]
            else:
                finish = time[node] + arc_duration[node - m]
                after = target[node - m] if position == 0 else next_arc[node - m, position - 1]
                if position > 0 and after >= 0:
                    after += m
            if after < 0:
                continue
            time[after] = max(time[after], finish)
            waiting[after] -= 1
            if waiting[after] == 0:
                stack[top] = after
                top += 1
    time[~done] = np.nan
    return time[:m].copy(), time[m:].copy()


class Contest(NamedTuple):
    """State of `first_come_first_served`: batches [m] in running order, grouped by device, and arcs [x]."""

    duration: FloatArray
    device: IntArray
    """[m]"""
    source: IntArray
    target: IntArray
    arc_duration: FloatArray
    """[x]"""
    out_ptr: IntArray
    out: IntArray
    priority: IntArray
    """Arcs sorted by (source batch, edge, target batch), grouped by source, and the position of each arc there."""
    waiting: IntArray
    """[m]: number of arcs that have not arrived yet."""
    start: FloatArray
    arc_start: FloatArray
    """[m], [x]: the starts in seconds; NaN if not started."""
    queue_ptr: IntArray
    queue: IntArray
    turn: IntArray
    """The batches of positive length of each device, in order, and the next one of each device."""
    busy: BoolArray
    """[K]: whether a device runs a batch."""
    pair_ptr: IntArray
    pair_size: IntArray
    ready_keys: FloatArray
    ready_items: IntArray
    """A heap of waiting transfers for each ordered pair of devices, by (ready time, priority)."""
    in_use: BoolArray
    """[n_resources]"""
    event_keys: FloatArray
    event_items: IntArray
    """A heap of the running batches and arcs by finish time; arcs are numbered from m on."""
    finished: IntArray
    sizes: IntArray
    """A stack of the nodes that have just finished; its height, and the number of events."""


FINISHED, EVENTS = 0, 1


@linear
@builder
def _contest(
    duration: FloatArray, device: IntArray, source: IntArray, target: IntArray, arc_duration: FloatArray, links: LinkTable
) -> Contest:
    """Return the state before the first start."""
    m, n_arcs, n_devices = len(duration), len(source), len(links.resource)
    out_ptr, out = by_source(source, m)
    priority, waiting = np.empty(n_arcs, np.int64), np.zeros(m, np.int64)
    for position in range(n_arcs):
        priority[out[position]] = position  # by (source batch, edge, target batch), because arcs are sorted by edge first
        waiting[target[position]] += 1
    queue, queue_ptr, total = np.empty(m, np.int64), np.zeros(n_devices + 1, np.int64), 0
    for b in range(m):
        if duration[b] > 0:
            queue[total] = b
            total += 1
            queue_ptr[device[b] + 1] = total
    for k in range(n_devices):
        queue_ptr[k + 1] = max(queue_ptr[k + 1], queue_ptr[k])
    pair_ptr = np.zeros(n_devices * n_devices + 1, np.int64)
    for x in range(n_arcs):
        if arc_duration[x] > 0:
            pair_ptr[device[source[x]] * n_devices + device[target[x]] + 1] += 1
    for pair in range(n_devices * n_devices):
        pair_ptr[pair + 1] += pair_ptr[pair]
    return Contest(
        duration,
        device,
        source,
        target,
        arc_duration,
        out_ptr,
        out,
        priority,
        waiting,
        np.full(m, np.nan),
        np.full(n_arcs, np.nan),
        queue_ptr,
        queue,
        queue_ptr[:-1].copy(),
        np.zeros(n_devices, np.bool_),
        pair_ptr,
        np.zeros(n_devices * n_devices, np.int64),
        np.empty(pair_ptr[-1]),
        np.empty(pair_ptr[-1], np.int64),
        np.zeros(links.n_resources, np.bool_),
        np.empty(m + n_arcs),
        np.empty(m + n_arcs, np.int64),
        np.empty(m + n_arcs, np.int64),
        np.zeros(2, np.int64),
    )


@inner
def _finish(c: Contest, node: int) -> None:
    """Push a node on the stack of nodes that have just finished."""
    c.finished[c.sizes[FINISHED]] = node
    c.sizes[FINISHED] += 1


@inner
def _arrive(c: Contest, x: int, now: float) -> None:
    """Record the arrival of an arc; if its batch is then ready and has length zero, it starts and finishes."""
    b = c.target[x]
    c.waiting[b] -= 1
    if c.waiting[b] == 0 and c.duration[b] == 0:
        c.start[b] = now
        _finish(c, b)


@inner
def _release(c: Contest, links: LinkTable, node: int, now: float) -> None:
    """Release the resources of a finished node; the arcs of a batch then wait, or arrive if they have length zero."""
    m, n_devices = len(c.duration), len(c.busy)
    if node >= m:
        h, k = c.device[c.source[node - m]], c.device[c.target[node - m]]
        one, other = links.resource[h, k, 0], links.resource[h, k, 1]
        if one >= 0:
            c.in_use[one], c.in_use[other] = False, False
        _arrive(c, node - m, now)
        return
    if c.duration[node] > 0:
        c.busy[c.device[node]] = False
    for position in range(c.out_ptr[node], c.out_ptr[node + 1]):
        x = c.out[position]
        if c.arc_duration[x] > 0:
            pair = c.device[c.source[x]] * n_devices + c.device[c.target[x]]
            base = c.pair_ptr[pair]
            c.pair_size[pair] = heap_kernels.push(c.ready_keys, c.ready_items, base, c.pair_size[pair], now, c.priority[x])
        else:
            c.arc_start[x] = now
            _arrive(c, x, now)


@inner
def _settle(c: Contest, links: LinkTable, now: float) -> None:
    """Finish all nodes that finish at time `now`, release their successors, and start the batches that are ready."""
    while True:
        while c.sizes[EVENTS] > 0 and c.event_keys[0] == now:
            _finish(c, c.event_items[0])
            c.sizes[EVENTS] = heap_kernels.pop(c.event_keys, c.event_items, 0, c.sizes[EVENTS])
        while c.sizes[FINISHED] > 0:
            c.sizes[FINISHED] -= 1
            _release(c, links, c.finished[c.sizes[FINISHED]], now)
        for k in range(len(c.busy)):
            if not c.busy[k] and c.turn[k] < c.queue_ptr[k + 1] and c.waiting[c.queue[c.turn[k]]] == 0:
                b = c.queue[c.turn[k]]
                c.turn[k] += 1
                c.busy[k] = True
                c.start[b] = now
                c.sizes[EVENTS] = heap_kernels.push(c.event_keys, c.event_items, 0, c.sizes[EVENTS], now + c.duration[b], b)
        if c.sizes[EVENTS] == 0 or c.event_keys[0] > now:
            return


@inner
def _next_transfer(c: Contest, links: LinkTable) -> int:
    """Return the pair of devices of the first waiting transfer that can start, -1 for none; blocked transfers do not delay others."""
    best, n_devices = -1, len(c.busy)
    for pair in range(len(c.pair_size)):
        if c.pair_size[pair] == 0:
            continue
        h, k = pair // n_devices, pair % n_devices
        one, other = links.resource[h, k, 0], links.resource[h, k, 1]
        if one >= 0 and (c.in_use[one] or c.in_use[other]):
            continue
        if best >= 0:
            first, former = c.pair_ptr[pair], c.pair_ptr[best]
            if c.ready_keys[first] > c.ready_keys[former]:
                continue
            if c.ready_keys[first] == c.ready_keys[former] and c.ready_items[first] > c.ready_items[former]:
                continue
        best = pair
    return best


@inner
def _start_transfer(c: Contest, links: LinkTable, pair: int, now: float) -> None:
    """Start the first waiting transfer of a pair of devices."""
    n_devices, base = len(c.busy), c.pair_ptr[pair]
    x = c.out[c.ready_items[base]]
    c.pair_size[pair] = heap_kernels.pop(c.ready_keys, c.ready_items, base, c.pair_size[pair])
    h, k = pair // n_devices, pair % n_devices
    one, other = links.resource[h, k, 0], links.resource[h, k, 1]
    if one >= 0:
        c.in_use[one], c.in_use[other] = True, True
    c.arc_start[x] = now
    finish, node = now + c.arc_duration[x], len(c.duration) + x
    c.sizes[EVENTS] = heap_kernels.push(c.event_keys, c.event_items, 0, c.sizes[EVENTS], finish, node)


@nearly_linear
@builder
def first_come_first_served(
    duration: FloatArray, device: IntArray, source: IntArray, target: IntArray, arc_duration: FloatArray, links: LinkTable
) -> tuple[FloatArray, FloatArray]:
    """Return the starts of batches [m] and arcs [x] under contention; NaN in a deadlock.

    Batches are listed in running order, grouped by `device`. A transfer holds the resources of its
    link. When resources become free, the waiting transfers whose resources are all free start in
    order of (ready time, source batch, edge, target batch).
    """
    c, now = _contest(duration, device, source, target, arc_duration, links), 0.0
    for b in range(len(duration)):
        if c.waiting[b] == 0 and duration[b] == 0:
            c.start[b] = now
            _finish(c, b)
    while True:
        _settle(c, links, now)
        pair = _next_transfer(c, links)
        while pair >= 0:
            _start_transfer(c, links, pair, now)
            pair = _next_transfer(c, links)
        if c.sizes[EVENTS] == 0:
            return c.start, c.arc_start
        now = c.event_keys[0]
