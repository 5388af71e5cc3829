"""Numba kernels of searches over strings of devices, decoded in one fixed topological order.

A string holds the number of inputs of each co-location unit on each device: ``counts[unit, device]``.
A unit's inputs are divided into consecutive intervals in the order of the devices, one batch each; with
one input a row is a device. A string has `positions` per unit, of equally many inputs each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import builder, inner, kernel
from hetsched.heuristics.local_search import state_kernels
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState


@builder
def unit_costs(t: SearchData, sizes: IntArray) -> FloatArray:
    """Return the seconds of one batch of all members of a unit, [units, K, sizes]; inf where it cannot run."""
    cost = np.zeros((len(t.member_ptr) - 1, t.durations.shape[1], len(sizes)))
    for i in range(len(t.unit)):
        for k in range(cost.shape[1]):
            for s in range(len(sizes)):
                cost[t.unit[i], k, s] += state_kernels.batch_duration(t, i, k, sizes[s])
    return cost


@builder
def fastest(cost: FloatArray, sizes: IntArray, inputs: int, most: int) -> IntArray:
    """Return the counts of least total cost of each unit, [units, K]; -1 if none has at most `most` batches.

    Ties go to fewer batches, then to lower devices.
    """
    n_units, size, _ = cost.shape
    counts = np.zeros((n_units, size), np.int64)
    total, number = np.empty((size + 1, inputs + 1)), np.empty((size + 1, inputs + 1), np.int64)
    taken = np.empty((size + 1, inputs + 1), np.int64)
    for u in range(n_units):
        total[0], number[0] = np.inf, 0
        total[0, 0] = 0.0
        for k in range(size):
            total[k + 1], number[k + 1], taken[k + 1] = total[k], number[k], 0
            for s in range(len(sizes)):
                if cost[u, k, s] == np.inf:
                    continue
                for q in range(sizes[s], inputs + 1):
                    through, parts = total[k, q - sizes[s]] + cost[u, k, s], number[k, q - sizes[s]] + 1
                    if parts > most:
                        continue
                    if through < total[k + 1, q] or (through == total[k + 1, q] and parts < number[k + 1, q]):
                        total[k + 1, q], number[k + 1, q], taken[k + 1, q] = through, parts, sizes[s]
        q = inputs
        if total[size, q] == np.inf:
            counts[u] = -1
            continue
        for k in range(size - 1, -1, -1):
            counts[u, k] = taken[k + 1, q]
            q -= taken[k + 1, q]
    return counts


@inner
def _write_unit(t: SearchData, s: SearchState, counts: IntArray, u: int) -> None:
    """Write the slots of a unit."""
    slot, low = 0, 0
    for k in range(counts.shape[1]):
        if counts[u, k] > 0:
            c = u * t.slots + slot
            s.device[c], s.low[c], s.high[c] = k, low, low + counts[u, k]
            slot, low = slot + 1, low + counts[u, k]
    s.count[u] = slot


@inner
def _lay_out(t: SearchData, s: SearchState, order: IntArray, rank: int) -> None:
    """Rewrite the sequence from the task at position `rank` of the topological order on."""
    position = s.position[order[rank] * t.slots] if rank > 0 else 0
    for place in range(rank, len(order)):
        i = order[place]
        for slot in range(t.slots):
            v = i * t.slots + slot
            s.position[v] = -1
            if slot < s.count[t.unit[i]]:
                s.sequence[position], s.position[v] = v, position
                position += 1
    s.length[0] = position


@inner
def _claim(t: SearchData, s: SearchState, counts: IntArray, u: int, sign: float) -> None:
    for k in range(counts.shape[1]):
        if counts[u, k] > 0:
            s.used[k] += sign * (t.weight[u] + t.activation[u] * counts[u, k])


@inner
def _fits(t: SearchData, s: SearchState) -> bool:
    """Return whether the claims on every device are within its capacity."""
    for k in range(len(s.used)):
        if not s.used[k] <= t.capacity[k]:
            return False
    return True


@kernel
def decode(t: SearchData, s: SearchState, counts: IntArray, order: IntArray) -> float:
    """Load a string into `s`, evaluate and commit it; return the makespan, inf if it cannot run or does not fit the memory."""
    for k in range(len(s.used)):
        s.used[k] = 0.0
    for u in range(len(counts)):
        _write_unit(t, s, counts, u)
        _claim(t, s, counts, u, 1.0)
    for v in range(len(s.position)):
        s.position[v] = -1
    _lay_out(t, s, order, 0)
    makespan, _ = state_kernels.evaluate(t, s, 0, np.inf)
    state_kernels.commit(t, s, 0)
    return makespan if _fits(t, s) else np.inf


@builder
def redraw(t: SearchData, counts: IntArray, cost: FloatArray, sizes: IntArray, rng: np.random.Generator, u: int, item: int) -> bool:
    """Move input `item` of unit u to another device it may run on, drawn uniformly; return whether that was possible.

    The fewest inputs move with it that leave a supported batch size, or 0, on the old device and make a
    supported one on the new device.
    """
    first, choices = t.choice_ptr[u], t.choice_ptr[u + 1] - t.choice_ptr[u]
    if choices < 2:
        return False
    h, until = 0, counts[u, 0]
    while until <= item:
        h += 1
        until += counts[u, h]
    x = first + rng.integers(0, choices - 1)
    k = t.choices[x] if t.choices[x] < h else t.choices[x + 1]
    batches = 0
    for x in range(counts.shape[1]):
        if counts[u, x] > 0:
            batches += 1
    for s in range(len(sizes) - 1, -2, -1):
        left = sizes[s] if s >= 0 else 0
        moved = counts[u, h] - left
        if moved <= 0 or (s >= 0 and cost[u, h, s] == np.inf) or (s >= 0 and counts[u, k] == 0 and batches == t.slots):
            continue
        place = t.size_of[counts[u, k] + moved]
        if place >= 0 and cost[u, k, place] < np.inf:
            counts[u, h], counts[u, k] = left, counts[u, k] + moved
            return True
    return False


class StringData(NamedTuple):
    """Constants of a search over strings."""

    cost: FloatArray
    sizes: IntArray
    """[units, K, sizes], [sizes]: see `unit_costs`."""
    order: IntArray
    """[n]: the topological order of decoding."""
    rank: IntArray
    """[units]: the least position in `order` of a member of each unit."""
    positions: int
    """Positions of a string per unit."""


class Course(NamedTuple):
    """Settings and state of one call of `search`."""

    mutate: bool
    """Whether each position is redrawn with probability 1 / number of positions; else one random position is."""
    runs: int
    hot: float
    cold: float
    """Initial and final temperature in seconds, with a geometric decrease; 0 without annealing."""
    stop_at_better: bool
    """Whether to return at the first string below `least`."""
    current: float
    least: float
    """Makespans of the current and the best string, in seconds."""


class Redrawn(NamedTuple):
    """Scratch: the units that a change redraws, and their previous counts and claims."""

    changed: IntArray
    is_changed: BoolArray
    """[units]"""
    counts: IntArray
    """[units, K]"""
    used: FloatArray
    """[K]"""


def new_redrawn(n_units: int, n_devices: int) -> Redrawn:
    """Return uninitialised scratch for a change."""
    return Redrawn(np.zeros(n_units, np.int64), np.zeros(n_units, np.bool_), np.zeros((n_units, n_devices), np.int64), np.zeros(n_devices))


@builder
def _redraw_some(t: SearchData, d: StringData, counts: IntArray, w: Redrawn, rng: np.random.Generator, mutate: bool) -> int:
    """Redraw positions of the string; return the number of units changed."""
    length, each, number = len(counts) * d.positions, t.arrays.inputs // d.positions, 0
    skip = -1.0 / np.log1p(-1.0 / length) if length > 1 else 0.0
    at = int(-np.log(1.0 - rng.random()) * skip) if mutate else int(rng.integers(0, length))
    while at < length:
        u = at // d.positions
        if not w.is_changed[u]:
            for k in range(counts.shape[1]):
                w.counts[u, k] = counts[u, k]
        if redraw(t, counts, d.cost, d.sizes, rng, u, at % d.positions * each) and not w.is_changed[u]:
            w.is_changed[u], w.changed[number] = True, u
            number += 1
        if not mutate:
            break
        at += 1 + int(-np.log(1.0 - rng.random()) * skip)
    return number


@inner
def _claim_anew(t: SearchData, s: SearchState, d: StringData, counts: IntArray, w: Redrawn, number: int) -> int:
    """Update the claims of the changed units; return the first position of their members in the order."""
    first_rank = len(d.order)
    for k in range(len(s.used)):
        w.used[k] = s.used[k]
    for x in range(number):
        u = w.changed[x]
        first_rank = min(first_rank, d.rank[u])
        _claim(t, s, w.counts, u, -1.0)
        _claim(t, s, counts, u, 1.0)
        w.is_changed[u] = False
    return first_rank


@inner
def _write_changed(t: SearchData, s: SearchState, d: StringData, counts: IntArray, w: Redrawn, number: int, first_rank: int) -> None:
    """Write the slots of the changed units, and the sequence where numbers of slots changed."""
    same_slots = True
    for x in range(number):
        before = s.count[w.changed[x]]
        _write_unit(t, s, counts, w.changed[x])
        same_slots = same_slots and s.count[w.changed[x]] == before
    if not same_slots:
        _lay_out(t, s, d.order, first_rank)


@builder
def search(
    t: SearchData, s: SearchState, best: SearchState, d: StringData, counts: IntArray, w: Redrawn, rng: np.random.Generator, course: Course
) -> tuple[int, float, float]:
    """Change the string `counts` [units, K], whose state `s` is committed; keep changes that are no worse, or accepted by annealing.

    States below the least makespan are copied to `best`. Returns the number of runs, and the makespans of the current and the
    best string.
    """
    current, least, temperature = course.current, course.least, course.hot
    factor = (course.cold / course.hot) ** (1.0 / course.runs) if course.hot > 0.0 else 1.0
    for run in range(course.runs):
        temperature *= factor
        number = _redraw_some(t, d, counts, w, rng, course.mutate)
        if number == 0:
            continue
        first_rank = _claim_anew(t, s, d, counts, w, number)
        makespan, limit, first, end = np.inf, current, 0, -1
        if _fits(t, s):
            _write_changed(t, s, d, counts, w, number, first_rank)
            if temperature > 0.0:
                limit = current - temperature * np.log(1.0 - rng.random())
            first = s.position[d.order[first_rank] * t.slots]
            makespan, end = state_kernels.evaluate(t, s, first, limit)
        if makespan <= limit and makespan < np.inf:
            state_kernels.commit(t, s, first)
            current = makespan
            if current < least:
                least = current
                state_kernels.copy(s, best)
                if course.stop_at_better:
                    return run + 1, current, least
            continue
        if end >= 0:
            state_kernels.rollback(t, s, first, end)
        for x in range(number):
            for k in range(counts.shape[1]):
                counts[w.changed[x], k] = w.counts[w.changed[x], k]
        if end >= 0:
            _write_changed(t, s, d, counts, w, number, first_rank)
        for k in range(len(s.used)):
            s.used[k] = w.used[k]
    return course.runs, current, least
