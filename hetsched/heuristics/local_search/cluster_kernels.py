"""Numba kernels of a search over devices: clusters of units move, and the tasks are scheduled by ranks.

The schedule of a placement: an idle device runs its ready task of the highest rank; of the transfers whose resources are idle the one to
the task of the highest rank is sent. Each task is one batch of all inputs. Ranks stay as they are, so that moves matter from the first
finish of a producer of a task that has moved: the schedule is restored just before that, and computed anew from there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched import heap_kernels
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import inner, kernel
from hetsched.heuristics.local_search.move_kernels import below, other_device, runs
from hetsched.heuristics.local_search.state_kernels import SearchData, batch_duration
from hetsched.problem.link_kernels import link_seconds, multiplier

SMALLEST, LARGEST = 0.0003, 0.03
"""The limits of the work of a cluster that moves, as shares of the graph's."""
ENOUGH = 0.95
"""The share of a cluster's limit at which it is complete."""
ALIKE = 0.7
"""The probability that all units of the device that are alike to those of the cluster move with it, as in the other layers of a network."""
BESIDE = 0.8
"""The probability that a cluster moves to the device of a unit joined to its first one."""
ROOM, DRAWS = 20, 64
"""The most clusters that leave a device to make room for another; the most draws of a unit there."""
_ROUNDING = 1.0 - 1e-9
"""The factor that makes a sum of seconds a lower bound."""


class ClusterData(NamedTuple):
    """Constants of a search."""

    search: SearchData
    near_ptr: IntArray
    near: IntArray
    heavy: FloatArray
    """The units joined to each unit by edges, and the seconds of the transfers of these."""
    work: FloatArray
    """[units] seconds, the mean over devices."""
    need: FloatArray
    """[units] bytes for all inputs."""
    kind: IntArray
    """[units]: equal for units that are alike."""
    alike_ptr: IntArray
    alike: IntArray
    """The units of each kind."""
    largest: float
    """The most work of a cluster that moves, in seconds."""


class Times(NamedTuple):
    """The schedule of a placement, in seconds."""

    start: FloatArray
    finish: FloatArray
    """[n]"""
    sent: FloatArray
    arrived: FloatArray
    """[E]; within a device both are the producer's finish."""


class ClusterState(NamedTuple):
    """Devices of units, the schedule, and room to compute another; changed in place."""

    device: IntArray
    """[units]"""
    used: FloatArray
    """[K] bytes"""
    rank: FloatArray
    """[n]: tasks, and transfers to them, of higher ranks come first."""
    times: Times
    trial: Times
    waiting: IntArray
    """[n]: number of edges of which the data have not arrived."""
    ready_ptr: IntArray
    ready_size: IntArray
    ready_keys: FloatArray
    ready_items: IntArray
    """A heap of ready tasks for each device."""
    link_ptr: IntArray
    link_size: IntArray
    link_keys: FloatArray
    link_items: IntArray
    """A heap of waiting transfers for each ordered pair of devices."""
    event_keys: FloatArray
    event_items: IntArray
    """A heap of running tasks and transfers by finish; transfers are numbered from n on."""
    rest: FloatArray
    """[K] seconds of the tasks that have not started."""
    busy: BoolArray
    in_use: BoolArray
    """[K], [n_resources]"""
    events: IntArray
    """[2]: the number of events, and of tasks that have finished."""
    changed: IntArray
    """[units, 2]: the units that have moved, and the devices they have come from."""
    moves: IntArray
    """[1]: their number."""
    grow_keys: FloatArray
    grow_items: IntArray
    """A heap of units beside a cluster."""


@inner
def _event(s: ClusterState, time: float, item: int) -> None:
    s.events[0] = heap_kernels.push(s.event_keys, s.event_items, 0, s.events[0], time, item)


@inner
def _ready(s: ClusterState, i: int, k: int) -> None:
    s.ready_size[k] = heap_kernels.push(s.ready_keys, s.ready_items, s.ready_ptr[k], s.ready_size[k], -s.rank[i], i)


@inner
def _await(s: ClusterState, pair: int, edge: int, target: int) -> None:
    s.link_size[pair] = heap_kernels.push(s.link_keys, s.link_items, s.link_ptr[pair], s.link_size[pair], -s.rank[target], edge)


@inner
def _make_heaps(t: ClusterData, s: ClusterState) -> None:
    """Empty all heaps, with room for what the devices can have, and count the edges to each task."""
    d, arrays, K = t.search, t.search.arrays, len(s.busy)
    for k in range(K + 1):
        s.ready_ptr[k] = 0
    for pair in range(K * K + 1):
        s.link_ptr[pair] = 0
    for i in range(len(d.unit)):
        s.waiting[i] = arrays.pred_ptr[i + 1] - arrays.pred_ptr[i]
        s.ready_ptr[s.device[d.unit[i]] + 1] += 1
    if arrays.links.contended:
        for e in range(len(arrays.source)):
            s.link_ptr[s.device[d.unit[arrays.source[e]]] * K + s.device[d.unit[arrays.target[e]]] + 1] += 1
    for k in range(K):
        s.ready_ptr[k + 1] += s.ready_ptr[k]
        s.ready_size[k], s.busy[k], s.rest[k] = 0, False, 0.0
    for pair in range(K * K):
        s.link_ptr[pair + 1] += s.link_ptr[pair]
        s.link_size[pair] = 0
    for r in range(len(s.in_use)):
        s.in_use[r] = False
    s.events[0] = s.events[1] = 0


@inner
def _resume(t: ClusterData, s: ClusterState, since: float) -> float:
    """Restore what the schedule is just before the events at a time; return the last finish so far."""
    d, arrays, K, last = t.search, t.search.arrays, len(s.busy), 0.0
    for i in range(len(d.unit)):
        if s.times.start[i] >= since:
            continue
        k, done = s.device[d.unit[i]], s.times.finish[i]
        s.trial.start[i], s.trial.finish[i] = s.times.start[i], done
        if done >= since:
            s.busy[k] = True
            _event(s, done, i)
            continue
        last = max(last, done)
        s.events[1] += 1
        for y in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
            e, j = arrays.succ_edge[y], arrays.succ[y]
            pair = k * K + s.device[d.unit[j]]
            if s.times.sent[e] >= since:
                _await(s, pair, e, j)
                continue
            s.trial.sent[e], s.trial.arrived[e] = s.times.sent[e], s.times.arrived[e]
            if s.times.arrived[e] < since:
                s.waiting[j] -= 1
                continue
            _event(s, s.times.arrived[e], len(d.unit) + e)
            _hold(t, s, pair, True)
    for i in range(len(d.unit)):
        if s.times.start[i] >= since:
            k = s.device[d.unit[i]]
            s.rest[k] += batch_duration(d, i, k, arrays.inputs)
            if s.waiting[i] == 0:
                _ready(s, i, k)
    return last


@inner
def _hold(t: ClusterData, s: ClusterState, pair: int, held: bool) -> None:
    resource, K = t.search.arrays.links.resource, len(s.busy)
    h, k = pair // K, pair % K
    if resource[h, k, 0] >= 0 and t.search.arrays.links.contended:
        s.in_use[resource[h, k, 0]], s.in_use[resource[h, k, 1]] = held, held


@inner
def _arrive(t: ClusterData, s: ClusterState, e: int, now: float) -> None:
    j = t.search.arrays.target[e]
    s.trial.arrived[e] = now
    s.waiting[j] -= 1
    if s.waiting[j] == 0:
        _ready(s, j, s.device[t.search.unit[j]])


@inner
def _finish(t: ClusterData, s: ClusterState, i: int, now: float) -> bool:
    """Finish a task, and send what does not wait; return whether there are transfers that wait."""
    d, arrays, K = t.search, t.search.arrays, len(s.busy)
    links, h, waits = arrays.links, s.device[d.unit[i]], False
    factor = multiplier(links, arrays.inputs)
    s.events[1] += 1
    if s.trial.start[i] < now:
        s.busy[h] = False
    for y in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
        e, j = arrays.succ_edge[y], arrays.succ[y]
        k = s.device[d.unit[j]]
        if h == k:
            s.trial.sent[e] = now
            _arrive(t, s, e, now)
        elif links.contended and links.resource[h, k, 0] >= 0:
            _await(s, h * K + k, e, j)
            waits = True
        else:
            s.trial.sent[e] = now
            _event(s, now + link_seconds(links, e, h, k, factor), len(d.unit) + e)
    return waits


@inner
def _send(t: ClusterData, s: ClusterState, now: float) -> None:
    """Start waiting transfers by rank until the resources of all that wait are in use."""
    links, K = t.search.arrays.links, len(s.busy)
    factor = multiplier(links, t.search.arrays.inputs)
    while True:
        best = -1
        for pair in range(K * K):
            if s.link_size[pair] == 0:
                continue
            one, other = links.resource[pair // K, pair % K, 0], links.resource[pair // K, pair % K, 1]
            if s.in_use[one] or s.in_use[other]:
                continue
            if best < 0 or s.link_keys[s.link_ptr[pair]] < s.link_keys[s.link_ptr[best]]:
                best = pair
        if best < 0:
            return
        e = s.link_items[s.link_ptr[best]]
        s.link_size[best] = heap_kernels.pop(s.link_keys, s.link_items, s.link_ptr[best], s.link_size[best])
        seconds = link_seconds(links, e, best // K, best % K, factor)
        if seconds > 0.0:
            _hold(t, s, best, True)
        s.trial.sent[e] = now
        _event(s, now + seconds, len(t.search.unit) + e)


@inner
def _start(t: ClusterData, s: ClusterState, k: int, now: float) -> float:
    """Start ready tasks on an idle device, one that takes time at most; return a lower bound on the makespan after them."""
    d, bound = t.search, 0.0
    while s.ready_size[k] > 0 and not s.busy[k]:
        i = s.ready_items[s.ready_ptr[k]]
        s.ready_size[k] = heap_kernels.pop(s.ready_keys, s.ready_items, s.ready_ptr[k], s.ready_size[k])
        duration = batch_duration(d, i, k, d.arrays.inputs)
        bound, finish = max(bound, now + s.rest[k] * _ROUNDING), now + duration
        s.rest[k] -= duration
        s.trial.start[i], s.trial.finish[i] = now, finish
        s.busy[k] = finish > now
        _event(s, finish, i)
        bound = max(bound, finish + d.tail[i, k])
    return bound


@kernel
def decode(t: ClusterData, s: ClusterState, since: float, limit: float) -> float:
    """Schedule the tasks, from a time on, into `trial`; return the makespan, inf if it exceeds a limit or there is none."""
    arrays, n = t.search.arrays, len(t.search.unit)
    _make_heaps(t, s)
    last, now, waits = _resume(t, s, since), since, True
    while True:
        for k in range(len(s.busy)):
            if not _start(t, s, k, now) <= limit:
                return np.inf
        if waits:
            _send(t, s, now)
        if s.events[0] == 0:
            return last if s.events[1] == n else np.inf
        now, waits = s.event_keys[0], False
        if not now < np.inf:
            return np.inf
        while s.events[0] > 0 and s.event_keys[0] == now:
            v = s.event_items[0]
            s.events[0] = heap_kernels.pop(s.event_keys, s.event_items, 0, s.events[0])
            if v < n:
                waits = _finish(t, s, v, now) or waits
                last = now
            else:
                e = v - n
                h, k = s.device[t.search.unit[arrays.source[e]]], s.device[t.search.unit[arrays.target[e]]]
                if s.trial.sent[e] < now:
                    _hold(t, s, h * len(s.busy) + k, False)
                waits = True
                _arrive(t, s, e, now)


@kernel
def commit(s: ClusterState) -> None:
    """Make the schedule just computed that of the state."""
    for i in range(len(s.waiting)):
        s.times.start[i], s.times.finish[i] = s.trial.start[i], s.trial.finish[i]
    for e in range(len(s.times.sent)):
        s.times.sent[e], s.times.arrived[e] = s.trial.sent[e], s.trial.arrived[e]


@inner
def _put(t: ClusterData, s: ClusterState, u: int, k: int) -> None:
    s.used[s.device[u]] -= t.need[u]
    s.used[k] += t.need[u]
    s.device[u] = k


@inner
def _move(t: ClusterData, s: ClusterState, u: int, k: int) -> None:
    s.changed[s.moves[0], 0], s.changed[s.moves[0], 1] = u, s.device[u]
    s.moves[0] += 1
    _put(t, s, u, k)


@inner
def _undo(t: ClusterData, s: ClusterState) -> None:
    while s.moves[0] > 0:
        s.moves[0] -= 1
        _put(t, s, s.changed[s.moves[0], 0], s.changed[s.moves[0], 1])


@inner
def _grow(t: ClusterData, s: ClusterState, seed: int, k: int, most: float, rng: np.random.Generator) -> None:
    """Put a unit and units joined to it, along heavy edges within its device, on device k, up to an amount of work."""
    h, done, before = s.device[seed], 0.0, s.moves[0]
    size = heap_kernels.push(s.grow_keys, s.grow_items, 0, 0, -np.inf, seed)
    while size > 0 and done < ENOUGH * most:
        u = s.grow_items[0]
        size = heap_kernels.pop(s.grow_keys, s.grow_items, 0, size)
        if s.device[u] != h or (s.moves[0] > before and done + t.work[u] > most) or not runs(t.search, u, k, t.search.arrays.inputs):
            continue
        _move(t, s, u, k)
        done += t.work[u]
        for y in range(t.near_ptr[u], t.near_ptr[u + 1]):
            if s.device[t.near[y]] == h:
                size = heap_kernels.push(s.grow_keys, s.grow_items, 0, size, -t.heavy[y] * rng.random(), t.near[y])


@inner
def _shift(t: ClusterData, s: ClusterState, u: int, k: int, most: float, alike: bool, rng: np.random.Generator) -> None:
    """Put a cluster, or a smaller one and all units of its device that are `alike` to its own, on device k."""
    h, before = s.device[u], s.moves[0]
    if not alike:
        _grow(t, s, u, k, most, rng)
        return
    count, kind = 0, t.kind[u]
    for x in range(t.alike_ptr[kind], t.alike_ptr[kind + 1]):
        count += s.device[t.alike[x]] == h
    _grow(t, s, u, k, most / count, rng)
    for y in range(before, s.moves[0]):
        kind = t.kind[s.changed[y, 0]]
        for x in range(t.alike_ptr[kind], t.alike_ptr[kind + 1]):
            v = t.alike[x]
            if s.device[v] == h and runs(t.search, v, k, t.search.arrays.inputs):
                _move(t, s, v, k)


@inner
def _drawn(t: ClusterData, s: ClusterState, rng: np.random.Generator) -> tuple[int, int]:
    """Return a random unit, and another device: that of a unit joined to it, or any; -1 if there is none."""
    d = t.search
    for _ in range(DRAWS if rng.random() < BESIDE else 0):
        u = d.unit[below(rng, len(d.unit))]
        degree = t.near_ptr[u + 1] - t.near_ptr[u]
        if degree > 0:
            k = s.device[t.near[t.near_ptr[u] + below(rng, degree)]]
            if k != s.device[u]:
                return u, k
    u = d.unit[below(rng, len(d.unit))]
    return u, other_device(d, u, s.device[u], rng)


@inner
def _change(t: ClusterData, s: ClusterState, rng: np.random.Generator) -> bool:
    """Move a random cluster to another device, and others from there while they are too many bytes; return whether all fit."""
    d, K = t.search, len(s.used)
    u, k = _drawn(t, s, rng)
    if k < 0:
        return False
    most = t.largest * SMALLEST / LARGEST * np.exp(rng.random() * np.log(LARGEST / SMALLEST))
    alike = rng.random() < ALIKE
    _shift(t, s, u, k, most, alike, rng)
    own = s.moves[0]
    for _ in range(ROOM):
        if s.used[k] <= d.capacity[k]:
            break
        v = u
        for _ in range(DRAWS):
            v = d.unit[below(rng, len(d.unit))]
            if s.device[v] == k:
                break
        h = other_device(d, v, k, rng)
        if s.device[v] == k and h >= 0:
            _shift(t, s, v, h, most * rng.random() * 2, alike, rng)
    for k in range(K):
        if s.used[k] > d.capacity[k]:
            return False
    return bool(own > 0)


@inner
def _since(t: ClusterData, s: ClusterState) -> float:
    """Return the time in seconds from which the moves matter."""
    d, arrays, since = t.search, t.search.arrays, np.inf
    for x in range(s.moves[0]):
        u = s.changed[x, 0]
        for y in range(d.member_ptr[u], d.member_ptr[u + 1]):
            i = d.members[y]
            if arrays.pred_ptr[i] == arrays.pred_ptr[i + 1]:
                return 0.0
            for z in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
                since = min(since, s.times.finish[arrays.pred[z]])
    return since


class Course(NamedTuple):
    """Settings and state of one call of `anneal`."""

    steps: int
    temperature: float
    current: float
    least: float
    """Seconds: the makespans of the current and of the best placement."""


@kernel
def anneal(t: ClusterData, s: ClusterState, best: IntArray, rng: np.random.Generator, course: Course) -> tuple[float, float]:
    """Move random clusters; write the devices of better placements into `best`; return the makespans of `s` and of `best`."""
    current, least = course.current, course.least
    for _ in range(course.steps):
        s.moves[0] = 0
        makespan = np.inf
        if _change(t, s, rng):
            makespan = decode(t, s, _since(t, s), current - course.temperature * np.log(1.0 - rng.random()))
        if makespan == np.inf:
            _undo(t, s)
            continue
        commit(s)
        current = makespan
        if current < least:
            least = current
            for u in range(len(best)):
                best[u] = s.device[u]
    return current, least
