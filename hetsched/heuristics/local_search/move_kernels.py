"""Numba kernels of random changes of a search state."""

from __future__ import annotations

import numpy as np

from hetsched.compiled import inner
from hetsched.heuristics.local_search import edit_kernels
from hetsched.heuristics.local_search.edit_kernels import Log
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState, batch_duration, overlap, window
from hetsched.problem.link_kernels import link_seconds, multiplier

LARGEST_GROUP = 16
"""Maximum number of units that change their device together."""
DRAWS = 64
"""Maximum number of nodes drawn by `make_room`."""


@inner
def below(rng: np.random.Generator, n: int) -> int:
    """Return a random number from 0 to n - 1."""
    return min(int(rng.random() * n), n - 1)


@inner
def runs(t: SearchData, u: int, k: int, count: int) -> bool:
    """Return whether all members of a unit can run a batch of `count` inputs on device k."""
    for x in range(t.member_ptr[u], t.member_ptr[u + 1]):
        if batch_duration(t, t.members[x], k, count) == np.inf:
            return False
    return True


@inner
def other_device(t: SearchData, u: int, k: int, rng: np.random.Generator) -> int:
    """Return a random device other than k on which a unit may run, or -1."""
    first, count = t.choice_ptr[u], t.choice_ptr[u + 1] - t.choice_ptr[u]
    if count < 2:
        return -1
    chosen = t.choices[first + below(rng, count - 1)]
    return int(t.choices[first + count - 1] if chosen == k else chosen)


@inner
def change_device(t: SearchData, s: SearchState, log: Log, c: int, k: int) -> bool:
    """Put a cell on device k; if a device may run only one batch of a task, exchange it with the unit's cell on k."""
    u, old = c // t.slots, s.device[c]
    if k == old or not runs(t, u, k, s.high[c] - s.low[c]):
        return False
    rival = -1
    if t.once:
        for b in range(u * t.slots, u * t.slots + s.count[u]):
            if s.device[b] == k:
                rival = b
        if rival >= 0 and not runs(t, u, old, s.high[rival] - s.low[rival]):
            return False
    edit_kernels.release(t, s, u)
    edit_kernels.set_device(t, s, log, c, k)
    if rival >= 0:
        edit_kernels.set_device(t, s, log, rival, old)
    edit_kernels.claim(t, s, u)
    return True


@inner
def make_room(t: SearchData, s: SearchState, log: Log, c: int, old: int, rng: np.random.Generator) -> None:
    """Move a random cell from the device of c, which c has overfilled, to device `old`, from which c has come, if both then fit."""
    k = s.device[c]
    need, room = s.used[k] - t.capacity[k], t.capacity[old] - s.used[old]
    for _ in range(DRAWS):
        v = s.sequence[below(rng, s.length[0])]
        u, b = t.unit[t.task[v]], t.cell[v]
        frees = t.weight[u] + t.activation[u] * (s.high[b] - s.low[b])
        if s.device[b] == k and u != c // t.slots and need <= frees <= room and change_device(t, s, log, b, old):
            return


@inner
def reposition(t: SearchData, s: SearchState, log: Log, v: int, rng: np.random.Generator) -> bool:
    """Move a node to a random position between its producers and consumers, past another node of its device."""
    first, last = window(t, s, v)
    if last <= first:
        return False
    source = s.position[v]
    target = first + below(rng, last - first)
    target += 1 if target >= source else 0
    k = s.device[t.cell[v]]
    low, high = min(source, target), max(source, target)
    if not t.arrays.links.contended and log.size[0] == 0:
        crossed = False
        for position in range(low, high + 1):
            w = s.sequence[position]
            crossed = crossed or (w != v and s.device[t.cell[w]] == k)
        if not crossed:
            return False
    edit_kernels.move(s, log, source, target)
    return True


@inner
def change_group(t: SearchData, s: SearchState, log: Log, c: int, k: int, size: int, rng: np.random.Generator) -> bool:
    """Put a cell and up to `size` - 1 connected cells of its device on device k."""
    old = s.device[c]
    if not change_device(t, s, log, c, k):
        return False
    arrays = t.arrays
    for _ in range(2 * size):
        if log.size[0] >= size:
            break
        b = log.entries[below(rng, log.size[0]), 1]
        u = b // t.slots
        i = t.members[t.member_ptr[u] + below(rng, t.member_ptr[u + 1] - t.member_ptr[u])]
        before = arrays.pred_ptr[i + 1] - arrays.pred_ptr[i]
        after = arrays.succ_ptr[i + 1] - arrays.succ_ptr[i]
        if before + after == 0:
            continue
        x = below(rng, before + after)
        j = arrays.pred[arrays.pred_ptr[i] + x] if x < before else arrays.succ[arrays.succ_ptr[i] + x - before]
        for d in range(t.unit[j] * t.slots, t.unit[j] * t.slots + s.count[t.unit[j]]):
            if s.device[d] == old and overlap(s.low, s.high, b, d) > 0:
                change_device(t, s, log, d, k)
    return True


@inner
def change_inputs(t: SearchData, s: SearchState, log: Log, u: int, rng: np.random.Generator) -> bool:
    """Move inputs between two neighbouring slots of a unit, join the two, or cut a slot in two."""
    count, base = s.count[u], u * t.slots
    a = base + below(rng, count)
    beside = -1
    for b in range(base, base + count):
        if s.low[b] == s.high[a]:
            beside = b
    if beside < 0 or (count < t.slots and rng.random() < 0.3):
        return _cut(t, s, log, u, a, rng)
    total = s.high[beside] - s.low[a]
    sizes = t.arrays.sizes
    size = 0 if rng.random() < 0.2 else sizes[below(rng, len(sizes))]
    if rng.random() < 0.5:
        size = total - size
    if size < 0 or size > total or size == s.high[a] - s.low[a]:
        return False
    if (size > 0 and not runs(t, u, s.device[a], size)) or (size < total and not runs(t, u, s.device[beside], total - size)):
        return False
    edit_kernels.touch_unit(t, s, log, u)
    edit_kernels.release(t, s, u)
    low, high = s.low[a], s.high[beside]
    edit_kernels.set_inputs(s, log, a, low, low + size)
    edit_kernels.set_inputs(s, log, beside, low + size, high)
    if size == 0:
        _drop(t, s, log, u, a)
    elif size == total:
        _drop(t, s, log, u, beside)
    edit_kernels.claim(t, s, u)
    return True


@inner
def _cut(t: SearchData, s: SearchState, log: Log, u: int, a: int, rng: np.random.Generator) -> bool:
    """Move some inputs of a cell to a new slot on a random device, right after the cell in the sequence."""
    count, base = s.count[u], u * t.slots
    k = t.choices[t.choice_ptr[u] + below(rng, t.choice_ptr[u + 1] - t.choice_ptr[u])]
    total = s.high[a] - s.low[a]
    size = t.arrays.sizes[below(rng, len(t.arrays.sizes))]
    if count == t.slots or size >= total or not runs(t, u, k, size) or not runs(t, u, s.device[a], total - size):
        return False
    if t.once:
        for b in range(base, base + count):
            if s.device[b] == k:
                return False
    edit_kernels.touch_unit(t, s, log, u)
    edit_kernels.release(t, s, u)
    new, low, high = base + count, s.low[a], s.high[a]
    edit_kernels.set_count(s, log, u, count + 1)
    edit_kernels.set_device(t, s, log, new, k)
    if rng.random() < 0.5:
        edit_kernels.set_inputs(s, log, a, low, high - size)
        edit_kernels.set_inputs(s, log, new, high - size, high)
    else:
        edit_kernels.set_inputs(s, log, a, low + size, high)
        edit_kernels.set_inputs(s, log, new, low, low + size)
    for x in range(t.member_ptr[u], t.member_ptr[u + 1]):
        i = t.members[x]
        edit_kernels.insert(s, log, i * t.slots + count, s.position[i * t.slots + a - base] + 1)
    edit_kernels.claim(t, s, u)
    return True


@inner
def _drop(t: SearchData, s: SearchState, log: Log, u: int, a: int) -> None:
    """Remove the nodes of an empty cell from the sequence; the last slot of the unit takes its number."""
    base, last = u * t.slots, s.count[u] - 1
    for x in range(t.member_ptr[u], t.member_ptr[u + 1]):
        node = t.members[x] * t.slots
        edit_kernels.remove(s, log, s.position[node + a - base])
        if base + last != a:
            position = s.position[node + last]
            edit_kernels.remove(s, log, position)
            edit_kernels.insert(s, log, node + a - base, position)
    if base + last != a:
        edit_kernels.set_device(t, s, log, a, s.device[base + last])
        edit_kernels.set_inputs(s, log, a, s.low[base + last], s.high[base + last])
    edit_kernels.set_count(s, log, u, last)


@inner
def any_change(t: SearchData, s: SearchState, log: Log, v: int, rng: np.random.Generator) -> bool:
    """Make a random change of a node, which may exceed the memory; return False if nothing changed."""
    edit_kernels.begin(s, log)
    c, u = t.cell[v], t.unit[t.task[v]]
    kind, changed, moves = rng.random(), False, False
    if t.slots > 1 and kind < 0.3:
        changed = change_inputs(t, s, log, u, rng)
    elif kind < 0.6:
        k = other_device(t, u, s.device[c], rng)
        if k < 0:
            moves = True
        elif kind < 0.35:
            size = 2
            while size < LARGEST_GROUP and rng.random() < 0.6:
                size += 1
            changed = change_group(t, s, log, c, k, size, rng)
        else:
            old = s.device[c]
            changed = change_device(t, s, log, c, k)
            if changed and s.used[k] > t.capacity[k]:
                make_room(t, s, log, c, old, rng)
            moves = changed and kind < 0.5
    else:
        moves = True
    return (moves and reposition(t, s, log, v, rng)) or changed


@inner
def random_change(t: SearchData, s: SearchState, log: Log, v: int, rng: np.random.Generator) -> bool:
    """Make a random change of a node within the memory; return False if nothing changed."""
    if not any_change(t, s, log, v, rng):
        return False
    if not edit_kernels.fits(t, s, log):
        edit_kernels.undo(s, log)
        return False
    return True


@inner
def critical_chain(t: SearchData, s: SearchState, chain: np.ndarray) -> int:
    """Write the nodes of a critical chain into `chain`, from the last to finish back to time 0; return their number.

    Each node waits for the next one. A node that waits for a transfer under contention is followed by
    its producer.
    """
    sequence, finish, device, low, high = s.sequence, s.finish, s.device, s.low, s.high
    task, cell, unit, slots, at, counts = t.task, t.cell, t.unit, t.slots, s.position, s.count
    pred_ptr, pred, pred_edge, links = t.arrays.pred_ptr, t.arrays.pred, t.arrays.pred_edge, t.arrays.links
    v = sequence[0]
    for position in range(s.length[0]):
        if finish[sequence[position]] >= finish[v]:
            v = sequence[position]
    found, least = 0, 1e-12 * finish[v]
    while v >= 0:
        chain[found] = v
        found += 1
        i, c = task[v], cell[v]
        k = device[c]
        duration = batch_duration(t, i, k, high[c] - low[c])
        start = finish[v] - duration
        if start <= least:
            break
        waited, latest = -1, -1.0
        for x in range(pred_ptr[i], pred_ptr[i + 1]):
            p = pred[x]
            for slot in range(counts[unit[p]]):
                b = unit[p] * slots + slot
                count = overlap(low, high, b, c)
                if count > 0:
                    took = link_seconds(links, pred_edge[x], device[b], k, multiplier(links, count))
                    arrival = finish[p * slots + slot] + took
                    if arrival > latest:
                        waited, latest = p * slots + slot, arrival
        if latest < start - least and duration > 0.0:
            position = at[v] - 1
            while position >= 0:
                w = sequence[position]
                if device[cell[w]] == k and finish[w] <= start + least and finish[w] > latest:
                    if finish[w] >= start - least:
                        waited = w
                    break
                position -= 1
        v = waited
    return found
