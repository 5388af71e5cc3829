"""Numba kernels that select the best pair of a ready task and a device without a look at every ready task.

The value of a pair depends on its start, which is the arrival of the task's data or, if that is later, the time at which the
device becomes idle. Two structures of each device hold the ready tasks:

- *Awaited* tasks, whose data arrive after the device becomes idle, in a heap. Their values do not change.
- *Arrived* tasks, which all start when the device becomes idle, in a set of positions in an order that is known beforehand: the
  time is a common term of their values, so it does not change the order, but for rounding.

A device becomes idle later and later, so an awaited task becomes an arrived one, and never the reverse. Under the rules ``ETF``,
``DLS`` and ``MIN_MIN`` a value decreases with the start. The key of an awaited task is then an upper bound of its value, and that
of the top of the heap, if the task is still awaited, is exact: it is the best of all in the heap, and only the top needs to be
moved to the arrived ones. Under ``BIL`` a value increases with the start. The start is the maximum of two times, and so, as
floating-point addition is monotone, is the value the maximum of those for the two times: each task is in both structures.

Rounding: let s be `PairOrder.scale`, t the time at which the device becomes idle, and u = 2^-53. The value of an arrived task is
computed with at most three additions of terms whose absolute values sum to at most s + t, and so is its key plus or minus t; they
differ by at most 3 (s + t) u (1 + u). A task whose key is less than that of the first one by more than 8 (s + t) u thus has a lower
value, and is not examined. Tasks with the same terms have the same value: only the first of a run of them is examined.

A pair that is inadmissible, because its unit is on another device or memory is short, stays so, and is removed when it is met.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched import heap_kernels
from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner, kernel, nearly_linear
from hetsched.heuristics.list_scheduling.dynamic_kernels import (
    BIL,
    MORE,
    Choice,
    Choosing,
    Preferences,
    device_value,
    goes_before,
    prefer,
    put,
)
from hetsched.heuristics.list_scheduling.kernels import MEMORY_SLACK, NONE, ListProblem, arrivals

BITS, LOW = 5, 31
"""Each word of a set has 32 bits, so that a product with `SEQUENCE` is exact."""
SEQUENCE, SHIFT, WORD = 0x077CB531, 27, 0xFFFFFFFF
PLACES = np.array([0, 1, 28, 2, 29, 14, 24, 3, 30, 22, 20, 15, 25, 17, 4, 8, 31, 27, 13, 23, 21, 19, 16, 7, 26, 12, 18, 6, 11, 5, 10, 9])
"""The place of the only bit of a word, by bits 27 to 31 of its product with the de Bruijn sequence."""
ROUNDING = 1e-15
"""More than 8 times the unit roundoff."""


class PairOrder(NamedTuple):
    """The orders of arrived tasks, one row for devices that have the same order."""

    row: IntArray
    """[K]"""
    task: IntArray
    place: IntArray
    """[R, n]: the tasks in descending order, the lower first among equals, and the position of each task."""
    key: FloatArray
    """[R, n]: by position, the value of an arrived task without the time at which the device becomes idle."""
    end: IntArray
    """[R, n]: by position, the end of the run of tasks whose values are equal at any time."""
    rank: IntArray
    of_rank: IntArray
    """[n]: of tasks with equal values, that of lowest rank is selected; the task of each rank."""
    scale: float
    """An upper bound of the sum of the absolute values of the terms of a key."""
    waits: bool
    """Whether tasks of length zero wait for an idle device."""


class Pairs(NamedTuple):
    """The pairs of ready tasks and devices."""

    words: IntArray
    """[K, W]: the set of arrived tasks, by position; bit b of word w of a level is whether word 32 w + b below it has a member."""
    level: IntArray
    """The first word of each level of a set, and the number of words."""
    keys: FloatArray
    items: IntArray
    """[K, most]: a heap for each device: minus the values of awaited tasks, and their ranks."""
    length: IntArray
    """[K]"""
    position: IntArray
    """[n]: the position of each ready task in `Choosing.ready_tasks`."""
    devices: IntArray
    """[n]: the number of devices admissible for each ready task, until its unit is placed; 0 for a task that is not ready."""
    by_need: IntArray
    full: IntArray
    """[n], [K]: the tasks by descending claim of their unit, and the number of them for which a device has no room."""
    stuck: IntArray
    """[1]: -1 before the first step, then 1 if some ready task has no admissible device, else 0."""
    members: IntArray
    member_ptr: IntArray
    """[n], [n_units + 1]: the tasks of unit u are ``members[member_ptr[u]:member_ptr[u + 1]]``."""

    @classmethod
    def begin(cls, unit: IntArray, need: FloatArray, n_devices: int) -> Pairs:
        """Return no pairs; `unit` [n] and `need` [n_units] are those of `ListProblem`."""
        n, sizes = len(unit), [(len(unit) + LOW) >> BITS]
        while sizes[-1] > 1:
            sizes.append((sizes[-1] + LOW) >> BITS)
        level = np.cumsum([0, *sizes])
        most = 2 * n - len(need)  # `readmit` adds all members of a unit but one a second time
        return cls(
            np.zeros((n_devices, level[-1]), np.int64),
            level,
            np.empty((n_devices, most)),
            np.empty((n_devices, most), np.int64),
            np.zeros(n_devices, np.int64),
            np.empty(n, np.int64),
            np.zeros(n, np.int64),
            np.argsort(-need[unit]),
            np.zeros(n_devices, np.int64),
            np.full(1, -1),
            np.argsort(unit, kind="stable"),
            np.append(0, np.cumsum(np.bincount(unit, minlength=len(need)))),
        )


@inner
def _include(pairs: Pairs, k: int, place: int) -> None:
    """Add a position to the set of device k."""
    for level in range(len(pairs.level) - 1):
        word = pairs.level[level] + (place >> BITS)
        before = pairs.words[k, word]
        pairs.words[k, word] = before | (1 << (place & LOW))
        if before != 0:
            break
        place >>= BITS


@inner
def _exclude(pairs: Pairs, k: int, place: int) -> None:
    """Remove a position from the set of device k, if it is a member."""
    for level in range(len(pairs.level) - 1):
        word = pairs.level[level] + (place >> BITS)
        pairs.words[k, word] &= ~(1 << (place & LOW))
        if pairs.words[k, word] != 0:
            break
        place >>= BITS


@inner
def _lowest(word: int) -> int:
    """Return the lowest bit that is set."""
    return int(PLACES[(((word & -word) * SEQUENCE) & WORD) >> SHIFT])


@inner
def _next(pairs: Pairs, k: int, place: int) -> int:
    """Return the lowest position in the set of device k that is at least `place`, or -1."""
    level, found = 0, NONE
    while level < len(pairs.level) - 1:
        word = pairs.level[level] + (place >> BITS)
        if word >= pairs.level[level + 1]:
            return NONE
        rest = pairs.words[k, word] >> (place & LOW)
        if rest != 0:
            found = place + _lowest(rest)
            break
        place, level = (place >> BITS) + 1, level + 1
    while level > 0 and found >= 0:
        level -= 1
        found = (found << BITS) + _lowest(pairs.words[k, pairs.level[level] + found])
    return found


@inner
def admissible(p: ListProblem, s: Choosing, i: int, k: int) -> bool:
    """Return whether the unit of task i is on device k, or is not placed and has room there."""
    u = p.unit[i]
    return bool(s.unit_device[u] == k or (s.unit_device[u] < 0 and s.used[k] + p.need[u] <= p.capacity[k] * MEMORY_SLACK))


@inner
def _worth(choice: Choice, i: int, k: int, start: float, duration: float) -> float:
    """Return the value of a pair by which the task is selected; the highest is first."""
    return float(start + choice.level[i, k]) if choice.rule == BIL else device_value(choice, i, k, start, duration, 0.0)


@inner
def _add(p: ListProblem, choice: Choice, order: PairOrder, s: Choosing, pairs: Pairs, i: int, k: int) -> None:
    """Add a pair to the structures of its device."""
    ready, duration = s.ready[i, k], p.durations[i, p.column[k]]
    waits = duration > 0.0 or order.waits
    if waits and (choice.rule == BIL or ready <= s.available[k]):
        _include(pairs, k, order.place[order.row[k], i])
        if choice.rule != BIL:
            return
    key = -_worth(choice, i, k, ready, duration)
    pairs.length[k] = heap_kernels.push(pairs.keys[k], pairs.items[k], 0, pairs.length[k], key, order.rank[i])


@inner
def best_awaited(p: ListProblem, choice: Choice, order: PairOrder, s: Choosing, pairs: Pairs, k: int) -> tuple[float, int]:
    """Return the value and the rank of the best awaited task on device k, rank -1 for none; moves those that have arrived."""
    while pairs.length[k] > 0:
        rank = pairs.items[k, 0]
        i = order.of_rank[rank]
        alive = s.device[i] < 0 and admissible(p, s, i, k)
        arrived = choice.rule != BIL and s.ready[i, k] <= s.available[k] and (p.durations[i, p.column[k]] > 0.0 or order.waits)
        if alive and not arrived:
            return -pairs.keys[k, 0], rank
        pairs.length[k] = heap_kernels.pop(pairs.keys[k], pairs.items[k], 0, pairs.length[k])
        if alive:
            _include(pairs, k, order.place[order.row[k], i])
    return -np.inf, NONE


@inner
def best_arrived(p: ListProblem, choice: Choice, order: PairOrder, s: Choosing, pairs: Pairs, k: int) -> tuple[float, int]:
    """Return the value and the rank of the best arrived task on device k, rank -1 for none."""
    row, idle, best, chosen, least = order.row[k], s.available[k], -np.inf, NONE, -np.inf
    place = _next(pairs, k, 0)
    while place >= 0 and order.key[row, place] >= least:
        i = order.task[row, place]
        if not admissible(p, s, i, k):
            _exclude(pairs, k, place)
            place = _next(pairs, k, place + 1)
            continue
        found = _worth(choice, i, k, idle, p.durations[i, p.column[k]])
        if chosen < 0:
            least = order.key[row, place] - ROUNDING * (order.scale + idle)
        if found > best or (found == best and order.rank[i] < chosen):
            best, chosen = found, order.rank[i]
        place = _next(pairs, k, order.end[row, place])
    return best, chosen


@inner
def _best_pair(p: ListProblem, choice: Choice, order: PairOrder, s: Choosing, pairs: Pairs) -> tuple[int, int]:
    """Return the task and the device of highest value; ties go to the lowest rank, then to the lowest device."""
    best, chosen, device = -np.inf, NONE, NONE
    for k in range(len(s.used)):
        found, rank = best_awaited(p, choice, order, s, pairs, k)
        if rank >= 0 and (found > best or (found == best and rank < chosen)):
            best, chosen, device = found, rank, k
        found, rank = best_arrived(p, choice, order, s, pairs, k)
        if rank >= 0 and (found > best or (found == best and rank < chosen)):
            best, chosen, device = found, rank, k
    return (order.of_rank[chosen] if chosen >= 0 else NONE), device


@inner
def join(p: ListProblem, choice: Choice, order: PairOrder, s: Choosing, pairs: Pairs, i: int, position: int) -> None:
    """Put a task, whose data arrive at ``s.ready[i]``, at a position of the ready tasks, and add its admissible pairs."""
    s.ready_tasks[position], pairs.position[i] = i, position
    for k in range(len(s.used)):
        if p.durations[i, p.column[k]] < np.inf and s.ready[i, k] < np.inf and admissible(p, s, i, k):
            _add(p, choice, order, s, pairs, i, k)
            pairs.devices[i] += 1
    if pairs.devices[i] == 0:
        pairs.stuck[0] = 1


@inner
def join_children(p: ListProblem, choice: Choice, order: PairOrder, s: Choosing, pairs: Pairs, i: int, n_ready: int) -> int:
    """Add the children of task i whose parents are all placed, see `join`; return the number of ready tasks."""
    arrays = p.arrays
    for x in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
        j = arrays.succ[x]
        s.waiting[j] -= 1
        if s.waiting[j] == 0:
            arrivals(arrays, j, s.device, s.finish, s.ready[j])
            join(p, choice, order, s, pairs, j, n_ready)
            n_ready += 1
    return n_ready


@inner
def leave(order: PairOrder, s: Choosing, pairs: Pairs, i: int, n_ready: int) -> int:
    """Remove a task from the ready and the arrived tasks; return the number of ready tasks."""
    n_ready -= 1
    last = s.ready_tasks[n_ready]
    s.ready_tasks[pairs.position[i]], pairs.position[last] = last, pairs.position[i]
    for k in range(len(s.used)):
        _exclude(pairs, k, order.place[order.row[k], i])
    return n_ready


@inner
def readmit(p: ListProblem, choice: Choice, order: PairOrder, s: Choosing, pairs: Pairs, i: int, k: int) -> None:
    """Add the ready tasks of the unit of task i on device k, where the unit has been placed without room for it."""
    u = p.unit[i]
    for x in range(pairs.member_ptr[u], pairs.member_ptr[u + 1]):
        j = pairs.members[x]
        if s.waiting[j] == 0 and s.device[j] < 0 and p.durations[j, p.column[k]] < np.inf and s.ready[j, k] < np.inf:
            _add(p, choice, order, s, pairs, j, k)


@inner
def _fits(p: ListProblem, s: Choosing, i: int) -> bool:
    """Return whether a ready task has an admissible device."""
    fits = False
    for k in range(len(s.used)):
        fits = fits or (p.durations[i, p.column[k]] < np.inf and s.ready[i, k] < np.inf and admissible(p, s, i, k))
    return fits


@inner
def _fill(p: ListProblem, s: Choosing, pairs: Pairs, k: int) -> None:
    """Count, for each ready task, device k out if it has no room for it."""
    while pairs.full[k] < len(pairs.by_need):
        j = pairs.by_need[pairs.full[k]]
        if s.used[k] + p.need[p.unit[j]] <= p.capacity[k] * MEMORY_SLACK:
            break
        pairs.full[k] += 1
        if pairs.devices[j] > 0 and s.unit_device[p.unit[j]] < 0 and p.durations[j, p.column[k]] < np.inf and s.ready[j, k] < np.inf:
            pairs.devices[j] -= 1
            if pairs.devices[j] == 0:
                pairs.stuck[0] = 1


@inner
def _bind(p: ListProblem, s: Choosing, pairs: Pairs, u: int, k: int) -> None:
    """Check that the ready tasks of a unit can run on the device where it has been placed."""
    for x in range(pairs.member_ptr[u], pairs.member_ptr[u + 1]):
        j = pairs.members[x]
        if pairs.devices[j] > 0 and s.device[j] < 0 and (p.durations[j, p.column[k]] == np.inf or s.ready[j, k] == np.inf):
            pairs.stuck[0] = 1


@nearly_linear
@kernel
def by_pairs(p: ListProblem, choice: Choice, order: PairOrder, s: Choosing, preferences: Preferences, pairs: Pairs, most: int) -> int:
    """Go on where `dynamic_kernels.by_choice` returned ``WIDE``: run a slice of steps with the same choices.

    The slice ends after `most` looks at a device. Returns -1 if all tasks are placed, the task that fits nowhere, or ``MORE``;
    state and pairs are then those that the next slice needs. Preferences are those of ``BIL``.
    """
    at, size, n_ready = s.at, len(s.used), s.at[1]
    if pairs.stuck[0] < 0:
        pairs.stuck[0] = 0
        for k in range(size):
            _fill(p, s, pairs, k)
        for position in range(n_ready):
            join(p, choice, order, s, pairs, s.ready_tasks[position], position)
    looks = 0
    for step in range(at[0], len(s.device)):
        if looks > most:
            at[0], at[1] = step, n_ready
            return MORE
        looks += size
        if pairs.stuck[0] > 0:
            for position in range(n_ready):
                if not _fits(p, s, s.ready_tasks[position]):
                    return int(s.ready_tasks[position])
        few = choice.rule == BIL and n_ready < size
        i, k = (s.ready_tasks[0], NONE) if few else _best_pair(p, choice, order, s, pairs)
        if choice.rule == BIL:
            for position in range(n_ready if few else 1):
                j = s.ready_tasks[position] if few else i
                prefer(p, choice, s, preferences, j, n_ready)
                if goes_before(preferences, j, i):
                    i = j
            k = preferences.device[i]
        n_ready = leave(order, s, pairs, i, n_ready)
        if put(p, s, i, k, step, order.waits):
            _fill(p, s, pairs, k)
            _bind(p, s, pairs, p.unit[i], k)
        n_ready = join_children(p, choice, order, s, pairs, i, n_ready)
    return NONE
