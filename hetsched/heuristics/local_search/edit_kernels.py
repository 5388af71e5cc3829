"""Numba kernels of reversible changes of a search state.

Each primitive writes its inverse into a log; `undo` applies the inverses, last first. `release` and
`claim`, called before and after a change of a unit's slots, update the bytes claimed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState

_DEVICE, _SHIFT, _INSERT, _REMOVE, _LOW, _HIGH, _COUNT = range(7)


class Log(NamedTuple):
    """The changes since the last `begin`."""

    entries: IntArray
    """[capacity, 3]: kind and two numbers."""
    size: IntArray
    """[3]: number of entries, first and last position changed."""
    used: FloatArray
    """[K]: bytes claimed at the last `begin`."""


def new_log(t: SearchData) -> Log:
    """Return a log with capacity for any change of a few units."""
    longest = int(np.diff(t.member_ptr).max(initial=1))
    return Log(np.empty((256 + 8 * t.slots * (4 + longest), 3), np.int64), np.zeros(3, np.int64), np.zeros(len(t.capacity)))


@inner
def begin(s: SearchState, log: Log) -> None:
    """Begin a change."""
    log.size[0], log.size[1], log.size[2] = 0, s.length[0], -1
    for k in range(len(s.used)):
        log.used[k] = s.used[k]


@inner
def _write(log: Log, kind: int, a: int, b: int) -> None:
    x = log.size[0]
    log.entries[x, 0], log.entries[x, 1], log.entries[x, 2] = kind, a, b
    log.size[0] = x + 1


@inner
def touch(log: Log, position: int) -> None:
    """Include a position in the range that changes; -1, of a node that is not in the sequence, is ignored."""
    if position >= 0:
        log.size[1] = min(log.size[1], position)
        log.size[2] = max(log.size[2], position)


@inner
def touch_unit(t: SearchData, s: SearchState, log: Log, u: int) -> None:
    """Include all nodes of a unit in the range that changes."""
    for x in range(t.member_ptr[u], t.member_ptr[u + 1]):
        for slot in range(s.count[u]):
            touch(log, s.position[t.members[x] * t.slots + slot])


@inner
def release(t: SearchData, s: SearchState, u: int) -> None:
    """Subtract the bytes of a unit's slots from `s.used`."""
    _claim(t, s, u, -1.0)


@inner
def claim(t: SearchData, s: SearchState, u: int) -> None:
    """Add the bytes of a unit's slots to `s.used`."""
    _claim(t, s, u, 1.0)


@inner
def _claim(t: SearchData, s: SearchState, u: int, sign: float) -> None:
    for c in range(u * t.slots, u * t.slots + s.count[u]):
        k = s.device[c]
        again = False
        for b in range(u * t.slots, c):
            again = again or s.device[b] == k
        s.used[k] += sign * (t.activation[u] * (s.high[c] - s.low[c]) + (0.0 if again else t.weight[u]))


@inner
def fits(t: SearchData, s: SearchState, log: Log) -> bool:
    """Return whether the claims of each device are within its capacity, or at most those before the change."""
    for k in range(len(s.used)):
        if s.used[k] > t.capacity[k] and s.used[k] > log.used[k]:
            return False
    return True


@inner
def excess(t: SearchData, s: SearchState) -> float:
    """Return the bytes claimed over capacity, summed over devices."""
    total = 0.0
    for k in range(len(s.used)):
        total += max(0.0, s.used[k] - t.capacity[k])
    return total


@inner
def set_device(t: SearchData, s: SearchState, log: Log, c: int, k: int) -> None:
    """Put a cell on a device."""
    _write(log, _DEVICE, c, s.device[c])
    s.device[c] = k
    u, slot = c // t.slots, c % t.slots
    for x in range(t.member_ptr[u], t.member_ptr[u + 1]):
        touch(log, s.position[t.members[x] * t.slots + slot])


@inner
def set_inputs(s: SearchState, log: Log, c: int, low: int, high: int) -> None:
    """Set the interval of inputs of a cell; the caller has to touch its unit."""
    _write(log, _LOW, c, s.low[c])
    _write(log, _HIGH, c, s.high[c])
    s.low[c], s.high[c] = low, high


@inner
def set_count(s: SearchState, log: Log, u: int, count: int) -> None:
    """Set the number of a unit's slots."""
    _write(log, _COUNT, u, s.count[u])
    s.count[u] = count


@inner
def move(s: SearchState, log: Log, source: int, target: int) -> None:
    """Move the node at a position to another."""
    _write(log, _SHIFT, source, target)
    touch(log, source)
    touch(log, target)
    _shift(s, source, target)


@inner
def insert(s: SearchState, log: Log, v: int, position: int) -> None:
    """Insert a node into the sequence before the node at a position."""
    _write(log, _INSERT, v, position)
    touch(log, position)
    touch(log, len(s.sequence))  # the positions of all nodes after it change
    _insert(s, v, position)


@inner
def remove(s: SearchState, log: Log, position: int) -> None:
    """Remove the node at a position from the sequence."""
    _write(log, _REMOVE, s.sequence[position], position)
    touch(log, position)
    touch(log, len(s.sequence))
    _remove(s, position)


@inner
def undo(s: SearchState, log: Log) -> None:
    """Undo all changes since `begin`."""
    for x in range(log.size[0] - 1, -1, -1):
        kind, a, b = log.entries[x, 0], log.entries[x, 1], log.entries[x, 2]
        if kind == _DEVICE:
            s.device[a] = b
        elif kind == _SHIFT:
            _shift(s, b, a)
        elif kind == _INSERT:
            _remove(s, b)
        elif kind == _REMOVE:
            _insert(s, a, b)
        elif kind == _LOW:
            s.low[a] = b
        elif kind == _HIGH:
            s.high[a] = b
        else:
            s.count[a] = b
    for k in range(len(s.used)):
        s.used[k] = log.used[k]


@inner
def _shift(s: SearchState, source: int, target: int) -> None:
    v = s.sequence[source]
    step = 1 if target > source else -1
    for position in range(source, target, step):
        w = s.sequence[position + step]
        s.sequence[position] = w
        s.position[w] = position
    s.sequence[target] = v
    s.position[v] = target


@inner
def _insert(s: SearchState, v: int, position: int) -> None:
    s.sequence[s.length[0]] = v
    s.position[v] = s.length[0]
    s.length[0] += 1
    _shift(s, s.length[0] - 1, position)


@inner
def _remove(s: SearchState, position: int) -> None:
    _shift(s, position, s.length[0] - 1)
    s.length[0] -= 1
    s.position[s.sequence[s.length[0]]] = -1
