"""Numba kernels of the search for a least load: an assignment of units to devices, and moves that update its loads.

Moves are compared by the *excess*: the sum of the squares of the loads over a target, as shares of the target, and of
the memory over capacity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.analysis.load_data import LoadData
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import inner, kernel

_MEMORY_WEIGHT = 1.0
_MOST = 64  # maximum number of units in a group
_LEAST_ROOM = 1e-300
_FITS = 1 + 1e-12
ANY_NEIGHBOUR, READERS, READ = 0, 1, 2
"""The neighbours of a unit that join its group: all, those that read its tensors, those whose tensors it reads."""
SWAPS, GROUPS, KINDS = 2, 5, 8
"""Kinds of moves: below `SWAPS` swaps, from `SWAPS` to below `GROUPS` moves of groups, up to `KINDS` moves of single units."""


class LoadProblem(NamedTuple):
    """Constants of a search."""

    data: LoadData
    """Impossible values are replaced by large finite ones."""
    need: FloatArray
    """[U] bytes"""
    capacity: FloatArray
    """[K] bytes"""
    allowed: BoolArray
    """[U, K]: whether a unit can run on a device."""


class LoadState(NamedTuple):
    """An assignment, its loads and memory, and scratch."""

    device: IntArray
    """[U]"""
    load: FloatArray
    """[K + R] seconds: loads of devices, then of the resources of links."""
    held: FloatArray
    """[K]: bytes on each device."""
    readers: IntArray
    """[H, K]: number of readers of each tensor on each device, if tensors pass through the host; else [0, K]."""
    remote: IntArray
    """[H]: number of devices, other than that of its source, that read a tensor."""
    excess: FloatArray
    """[1]"""
    random: npt.NDArray[np.uint64]
    """[1]: state of the random number generator."""
    temperature: FloatArray
    """[1]"""
    group: IntArray
    """Scratch: [64] units."""
    chosen: BoolArray
    """Scratch: [U], False between calls."""


def new_state(problem: LoadProblem, random: int) -> LoadState:
    """Return the state of an assignment yet to be written, with a random number generator of state `random`, which is not 0."""
    data, (units, size) = problem.data, problem.data.cost.shape
    return LoadState(
        device=np.zeros(units, np.int64),
        load=np.zeros(size + len(data.user)),
        held=np.zeros(size),
        readers=np.zeros((len(data.source) if data.host else 0, size), np.int64),
        remote=np.zeros(len(data.source), np.int64),
        excess=np.zeros(1),
        random=np.array([random], np.uint64),
        temperature=np.zeros(1),
        group=np.zeros(_MOST, np.int64),
        chosen=np.zeros(units, np.bool_),
    )


@inner
def _next(s: LoadState) -> np.uint64:
    """Return the next random number (xorshift64*)."""
    x = s.random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    s.random[0] = x
    return x * np.uint64(2685821657736338717)  # type: ignore[no-any-return]


@inner
def _below(s: LoadState, count: int) -> int:
    """Return a random number from 0 to count - 1."""
    return np.int64((_next(s) >> np.uint64(33)) % np.uint64(count))  # type: ignore[return-value]


@inner
def _unit_interval(s: LoadState) -> float:
    return np.float64(_next(s) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inner
def _add(s: LoadState, r: int, amount: float, target: float) -> None:
    """Add to a load and update the excess."""
    over = s.load[r] / target - 1.0
    if over > 0.0:
        s.excess[0] -= over * over
    s.load[r] += amount
    over = s.load[r] / target - 1.0
    if over > 0.0:
        s.excess[0] += over * over


@inner
def _hold(s: LoadState, capacity: FloatArray, k: int, amount: float) -> None:
    """Add to the bytes on a device and update the excess."""
    if amount == 0.0 or capacity[k] == np.inf:
        return
    room = max(capacity[k], _LEAST_ROOM)
    over = s.held[k] / room - 1.0
    if over > 0.0:
        s.excess[0] -= _MEMORY_WEIGHT * over * over
    s.held[k] += amount
    over = s.held[k] / room - 1.0
    if over > 0.0:
        s.excess[0] += _MEMORY_WEIGHT * over * over


@inner
def _move(p: LoadProblem, s: LoadState, u: int, k: int, target: float) -> None:
    """Move unit u to device k."""
    h = s.device[u]
    if h == k:
        return
    _add(s, h, -p.data.cost[u, h], target)
    _add(s, k, p.data.cost[u, k], target)
    _hold(s, p.capacity, h, -p.need[u])
    _hold(s, p.capacity, k, p.need[u])
    if p.data.host:
        _move_tensors_by_host(p.data, s, u, h, k, target)
    else:
        _move_tensors(p.data, s, u, h, k, target)
    s.device[u] = k


@inner
def _move_tensors_by_host(data: LoadData, s: LoadState, u: int, h: int, k: int, target: float) -> None:
    """Update the loads by tensors into and out of devices for a move of unit u from device h to k."""
    time, readers, remote = data.time, s.readers, s.remote
    for a in range(data.out_ptr[u], data.out_ptr[u + 1]):
        t = data.out[a]
        if remote[t] > 0:
            _add(s, h, -time[t, 1, h], target)
        if readers[t, h] > 0:  # they read it on the device of its source
            _add(s, h, time[t, 0, h], target)
            remote[t] += 1
        if readers[t, k] > 0:
            _add(s, k, -time[t, 0, k], target)
            remote[t] -= 1
        if remote[t] > 0:
            _add(s, k, time[t, 1, k], target)
    for a in range(data.read_ptr[u], data.read_ptr[u + 1]):
        t = data.read[a]
        home = s.device[data.source[t]]
        readers[t, h] -= 1
        if readers[t, h] == 0 and h != home:
            _add(s, h, -time[t, 0, h], target)
            remote[t] -= 1
            if remote[t] == 0:
                _add(s, home, -time[t, 1, home], target)
        readers[t, k] += 1
        if readers[t, k] == 1 and k != home:
            _add(s, k, time[t, 0, k], target)
            remote[t] += 1
            if remote[t] == 1:
                _add(s, home, time[t, 1, home], target)


@inner
def _move_tensors(data: LoadData, s: LoadState, u: int, h: int, k: int, target: float) -> None:
    """Update the loads of the resources of links for a move of unit u from device h to k."""
    for a in range(data.out_ptr[u], data.out_ptr[u + 1]):
        t = data.out[a]
        d = s.device[data.reader[t]]  # each tensor has one reader here
        if h != d:
            _transfer(data, s, h, d, -data.time[t, h, d], target)
        if k != d:
            _transfer(data, s, k, d, data.time[t, k, d], target)
    for a in range(data.read_ptr[u], data.read_ptr[u + 1]):
        t = data.read[a]
        d = s.device[data.source[t]]
        if h != d:
            _transfer(data, s, d, h, -data.time[t, d, h], target)
        if k != d:
            _transfer(data, s, d, k, data.time[t, d, k], target)


@inner
def _transfer(data: LoadData, s: LoadState, i: int, j: int, seconds: float, target: float) -> None:
    """Add a transfer from device i to j to the resources that it holds."""
    one, other, n_devices = data.resource[i, j, 0], data.resource[i, j, 1], data.cost.shape[1]
    if one >= 0:
        _add(s, n_devices + one, seconds, target)
    if other != one:
        _add(s, n_devices + other, seconds, target)


@kernel
def recompute(p: LoadProblem, s: LoadState, target: float) -> None:
    """Recompute all loads of an assignment, so that rounding errors do not accumulate."""
    for r in range(len(s.load)):
        s.load[r] = 0.0
    for k in range(len(s.held)):
        s.held[k] = 0.0
    for u in range(len(s.device)):
        s.load[s.device[u]] += p.data.cost[u, s.device[u]]
        s.held[s.device[u]] += p.need[u]
    _recompute_tensors(p.data, s)
    s.excess[0] = 0.0
    for r in range(len(s.load)):
        over = s.load[r] / target - 1.0
        if over > 0.0:
            s.excess[0] += over * over
    for k in range(len(s.held)):
        if p.capacity[k] != np.inf:
            over = s.held[k] / max(p.capacity[k], _LEAST_ROOM) - 1.0
            if over > 0.0:
                s.excess[0] += _MEMORY_WEIGHT * over * over


@inner
def _recompute_tensors(data: LoadData, s: LoadState) -> None:
    """Add the loads of all tensors, and count their readers."""
    time, readers, remote, load, n_devices = data.time, s.readers, s.remote, s.load, data.cost.shape[1]
    for t in range(len(data.source)):
        remote[t] = 0
        for k in range(n_devices if data.host else 0):
            readers[t, k] = 0
        home = s.device[data.source[t]]
        for a in range(data.reader_ptr[t], data.reader_ptr[t + 1]):
            d = s.device[data.reader[a]]
            if data.host:
                readers[t, d] += 1
                if readers[t, d] == 1 and d != home:
                    remote[t] += 1
                    load[d] += time[t, 0, d]
            elif d != home:
                one, other = data.resource[home, d, 0], data.resource[home, d, 1]
                if one >= 0:
                    load[n_devices + one] += time[t, home, d]
                if other != one:
                    load[n_devices + other] += time[t, home, d]
        if data.host and remote[t] > 0:
            load[home] += time[t, 1, home]


@kernel
def largest_load(p: LoadProblem, s: LoadState) -> float:
    """Return the largest load, inf if the memory of some device is exceeded."""
    largest = 0.0
    for k in range(len(s.held)):
        if not s.held[k] <= p.capacity[k] * _FITS:
            return np.inf
    for r in range(len(s.load)):
        largest = max(largest, s.load[r])
    return largest


@inner
def _grow(p: LoadProblem, s: LoadState, u: int, size: int, way: int) -> int:
    """Write up to `size` connected units of u's device, joined by `way`, into `group`; return their number."""
    data, group, chosen, device = p.data, s.group, s.chosen, s.device
    count, done = 1, 0
    group[0] = u
    chosen[u] = True
    while done < count and count < size:
        x = group[done]
        done += 1
        if way != READ:
            for a in range(data.out_ptr[x], data.out_ptr[x + 1]):
                for b in range(data.reader_ptr[data.out[a]], data.reader_ptr[data.out[a] + 1]):
                    y = data.reader[b]
                    if count < size and not chosen[y] and device[y] == device[u] and (way == READERS or _below(s, 4) > 0):
                        group[count] = y
                        chosen[y] = True
                        count += 1
        if way != READERS:
            for a in range(data.read_ptr[x], data.read_ptr[x + 1]):
                y = data.source[data.read[a]]
                if count < size and not chosen[y] and device[y] == device[u] and (way == READ or _below(s, 4) > 0):
                    group[count] = y
                    chosen[y] = True
                    count += 1
    for a in range(count):
        chosen[group[a]] = False
    return count


@inner
def _neighbours_device(p: LoadProblem, s: LoadState, u: int) -> int:
    """Return the device of a random neighbour of u, or that of u if it has none."""
    data = p.data
    n_out, n_read = data.out_ptr[u + 1] - data.out_ptr[u], data.read_ptr[u + 1] - data.read_ptr[u]
    if n_out + n_read == 0:
        return int(s.device[u])
    pick = _below(s, n_out + n_read)
    if pick >= n_out:
        return int(s.device[data.source[data.read[data.read_ptr[u] + pick - n_out]]])
    t = data.out[data.out_ptr[u] + pick]
    return int(s.device[data.reader[data.reader_ptr[t] + _below(s, data.reader_ptr[t + 1] - data.reader_ptr[t])]])


@inner
def _unit_to_move(p: LoadProblem, s: LoadState) -> int:
    """Return a random unit, with probability 1/2 preferably one of the device that causes the largest load."""
    n_units, n_devices = p.data.cost.shape
    u = _below(s, n_units)
    if _below(s, 2) == 0:
        worst = 0
        for r in range(1, len(s.load)):
            if s.load[r] > s.load[worst]:
                worst = r
        if worst >= n_devices:
            worst = p.data.user[worst - n_devices]
        for _ in range(8):
            if s.device[u] == worst:
                break
            u = _below(s, n_units)
    return u


@inner
def _swapped(p: LoadProblem, s: LoadState, h: int, k: int) -> int:
    """Return a random unit of device k that can move to h in exchange, -1 if none is drawn."""
    for _ in range(8):
        v = _below(s, len(s.device))
        if s.device[v] == k:
            return v if p.allowed[v, h] else -1
    return -1


@inner
def _group_to_move(p: LoadProblem, s: LoadState, u: int, k: int) -> int:
    """Write connected units to be moved to device k into `group`; return their number, 0 if one of them cannot run there."""
    n_units, n_devices = p.data.cost.shape
    size = 2 + _below(s, min(_MOST - 1, max(2, 2 * n_units // n_devices)))
    if _below(s, 2) == 0:
        size = min(size, 2 + _below(s, 4))
    count = _grow(p, s, u, size, _below(s, 3))
    for a in range(count):
        if not p.allowed[s.group[a], k]:
            return 0
    return count


@kernel
def anneal(moves: int, p: LoadProblem, s: LoadState, cooling: float, target: float, incumbent: float, best: IntArray) -> float:
    """Try `moves` moves; write the best assignment below `incumbent` into `best` and return its value.

    Moves are accepted by the change of the excess over `target` seconds and the temperature, which is multiplied by `cooling`
    after each move.
    """
    n_devices = p.data.cost.shape[1]
    recompute(p, s, target)
    value = incumbent
    for _ in range(moves):
        s.temperature[0] *= cooling
        u = _unit_to_move(p, s)
        h = s.device[u]
        k = _neighbours_device(p, s, u) if _below(s, 2) == 0 else _below(s, n_devices)
        if k == h:
            k = (h + 1 + _below(s, n_devices - 1)) % n_devices
        if not p.allowed[u, k]:
            continue
        before = s.excess[0]
        kind = _below(s, KINDS)
        count, back = 1, -1
        s.group[0] = u
        if kind < SWAPS:
            back = _swapped(p, s, h, k)
        elif kind < GROUPS:
            count = _group_to_move(p, s, u, k)
        for a in range(count):
            _move(p, s, s.group[a], k, target)
        if back >= 0:
            _move(p, s, back, h, target)
        if s.excess[0] <= before or _unit_interval(s) < np.exp((before - s.excess[0]) / s.temperature[0]):
            largest = largest_load(p, s)
            if largest < value:
                value = largest
                for v in range(len(best)):
                    best[v] = s.device[v]
        else:
            if back >= 0:
                _move(p, s, back, k, target)
            for a in range(count):
                _move(p, s, s.group[a], h, target)
    return value
