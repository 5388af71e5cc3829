"""Numba kernels that turn orders into times; `simulate` is their front door.

Batches and *arcs* are nodes of one graph. An arc is an (edge, source batch, target batch) with at
least one input in common: a transfer if the batches sit on different devices, else a mere
precedence of length zero. Batches and transfers of length zero take no part in resource orders.
"""

from __future__ import annotations

import numpy as np

from hetsched import heap_kernels
from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder
from hetsched.problem.links import LinkTable


@builder
def by_source(source: IntArray, n_batches: int) -> tuple[IntArray, IntArray]:
    """Return (row starts, arcs) grouped by source batch, the order of arcs kept."""
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


@builder
def earliest(
    duration: FloatArray, next_batch: IntArray, source: IntArray, target: IntArray, arc_duration: FloatArray, next_arc: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the earliest starts of batches [m] and arcs [x] under fixed orders; NaN in a deadlock.

    `next_batch` [m] is the batch that follows on the device, `next_arc` [x, 2] the transfers that
    follow on the two resources of an arc, -1 for none.
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


@builder
def first_come_first_served(
    duration: FloatArray, device: IntArray, source: IntArray, target: IntArray, arc_duration: FloatArray, links: LinkTable
) -> tuple[FloatArray, FloatArray]:
    """Return the starts of batches [m] and arcs [x] when transfers contend; NaN in a deadlock.

    Batches are listed in running order, grouped by `device`. A transfer holds the resources of its
    link. Whenever resources free up, the waiting transfers whose every resource is free start in
    order of (ready time, source batch, edge, target batch).
    """
    m, n_arcs, n_devices = len(duration), len(source), len(links.resource)
    out_ptr, out = by_source(source, m)
    priority = np.empty(n_arcs, np.int64)
    for position in range(n_arcs):
        priority[out[position]] = position  # by (source batch, edge, target batch), as arcs are sorted by edge first
    waiting = np.zeros(m, np.int64)
    for x in range(n_arcs):
        waiting[target[x]] += 1
    start, arc_start = np.full(m, np.nan), np.full(n_arcs, np.nan)

    # Per device the batches of positive length, in order.
    queue = np.empty(m, np.int64)
    queue_ptr = np.zeros(n_devices + 1, np.int64)
    total = 0
    for b in range(m):
        if duration[b] > 0:
            queue[total] = b
            total += 1
            queue_ptr[device[b] + 1] = total
    for k in range(n_devices):
        queue_ptr[k + 1] = max(queue_ptr[k + 1], queue_ptr[k])
    turn = queue_ptr[:-1].copy()
    device_busy = np.zeros(n_devices, np.bool_)

    # Per ordered pair of devices a heap of waiting transfers, keyed by (ready time, priority).
    n_pairs = n_devices * n_devices
    pair_base = np.zeros(n_pairs + 1, np.int64)
    for x in range(n_arcs):
        if arc_duration[x] > 0:
            pair_base[device[source[x]] * n_devices + device[target[x]] + 1] += 1
    for p in range(n_pairs):
        pair_base[p + 1] += pair_base[p]
    pair_size = np.zeros(n_pairs, np.int64)
    ready_keys, ready_items = np.empty(pair_base[n_pairs]), np.empty(pair_base[n_pairs], np.int64)
    in_use = np.zeros(links.n_resources, np.bool_)

    event_keys, event_items = np.empty(m + n_arcs), np.empty(m + n_arcs, np.int64)
    events = 0
    finished = np.empty(m + n_arcs, np.int64)
    count = 0
    now = 0.0
    for b in range(m):
        if waiting[b] == 0 and duration[b] == 0:
            start[b] = now
            finished[count] = b
            count += 1
    while True:
        # Settle everything that happens now: finishes, what they release, batches that can start.
        while True:
            while events > 0 and event_keys[0] == now:
                finished[count] = event_items[0]
                count += 1
                events = heap_kernels.pop(event_keys, event_items, 0, events)
            while count > 0:
                count -= 1
                node = finished[count]
                first, last = 0, 1
                if node < m:
                    if duration[node] > 0:
                        device_busy[device[node]] = False
                    first, last = out_ptr[node], out_ptr[node + 1]
                for position in range(first, last):
                    x = out[position] if node < m else node - m
                    if node < m:
                        if arc_duration[x] > 0:
                            pair = device[source[x]] * n_devices + device[target[x]]
                            pair_size[pair] = heap_kernels.push(ready_keys, ready_items, pair_base[pair], pair_size[pair], now, priority[x])
                            continue
                        arc_start[x] = now
                    else:
                        h, k = device[source[x]], device[target[x]]
                        one, other = links.resource[h, k, 0], links.resource[h, k, 1]
                        if one >= 0:
                            in_use[one], in_use[other] = False, False
                    b = target[x]
                    waiting[b] -= 1
                    if waiting[b] == 0 and duration[b] == 0:
                        start[b] = now
                        finished[count] = b
                        count += 1
            for k in range(n_devices):
                if not device_busy[k] and turn[k] < queue_ptr[k + 1] and waiting[queue[turn[k]]] == 0:
                    b = queue[turn[k]]
                    turn[k] += 1
                    device_busy[k] = True
                    start[b] = now
                    events = heap_kernels.push(event_keys, event_items, 0, events, now + duration[b], b)
            if events == 0 or event_keys[0] > now:
                break
        # Start waiting transfers, the earliest ready first; a blocked one delays no other.
        while True:
            best = -1
            for pair in range(n_pairs):
                if pair_size[pair] == 0:
                    continue
                one, other = links.resource[pair // n_devices, pair % n_devices, 0], links.resource[pair // n_devices, pair % n_devices, 1]
                if one >= 0 and (in_use[one] or in_use[other]):
                    continue
                if best >= 0:
                    key, other = ready_keys[pair_base[pair]], ready_keys[pair_base[best]]
                    if key > other or (key == other and ready_items[pair_base[pair]] > ready_items[pair_base[best]]):
                        continue
                best = pair
            if best < 0:
                break
            x = out[ready_items[pair_base[best]]]
            pair_size[best] = heap_kernels.pop(ready_keys, ready_items, pair_base[best], pair_size[best])
            one, other = links.resource[best // n_devices, best % n_devices, 0], links.resource[best // n_devices, best % n_devices, 1]
            if one >= 0:
                in_use[one], in_use[other] = True, True
            arc_start[x] = now
            events = heap_kernels.push(event_keys, event_items, 0, events, now + arc_duration[x], m + x)
        if events == 0:
            break
        now = event_keys[0]
    return start, arc_start
