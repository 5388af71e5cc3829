"""Numba kernels of searches over strings of devices, decoded in one fixed topological order.

A string says how many inputs of each co-location unit go to each device: ``counts[unit, device]``.
They are laid out as consecutive stretches in the order of the devices, one batch each; with one input
a row is a device. A string has `positions` per unit, each standing for as many inputs.
"""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder
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
    """Return for each unit the counts of least total cost, [units, K]; -1 where there are none of at most `most` batches.

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


@builder
def _write_unit(t: SearchData, s: SearchState, counts: IntArray, u: int) -> None:
    """Write the slots of a unit."""
    slot, low = 0, 0
    for k in range(counts.shape[1]):
        if counts[u, k] > 0:
            c = u * t.slots + slot
            s.device[c], s.low[c], s.high[c] = k, low, low + counts[u, k]
            slot, low = slot + 1, low + counts[u, k]
    s.count[u] = slot


@builder
def _lay_out(t: SearchData, s: SearchState, order: IntArray, rank: int) -> None:
    """Write the sequence anew from the task at place `rank` of the topological order on."""
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


@builder
def _claim(t: SearchData, s: SearchState, counts: IntArray, u: int, sign: float) -> None:
    for k in range(counts.shape[1]):
        if counts[u, k] > 0:
            s.used[k] += sign * (t.weight[u] + t.activation[u] * counts[u, k])


@builder
def decode(t: SearchData, s: SearchState, counts: IntArray, order: IntArray) -> float:
    """Make `s` the state of a string, evaluate and commit it; inf where it cannot run or does not fit."""
    s.used[:] = 0.0
    for u in range(len(counts)):
        _write_unit(t, s, counts, u)
        _claim(t, s, counts, u, 1.0)
    s.position[:] = -1
    _lay_out(t, s, order, 0)
    makespan, _, _ = state_kernels.evaluate(t, s, 0, np.inf)
    state_kernels.commit(t, s, 0)
    return makespan if (s.used <= t.capacity).all() else np.inf


@builder
def redraw(t: SearchData, counts: IntArray, cost: FloatArray, sizes: IntArray, rng: np.random.Generator, u: int, item: int) -> bool:
    """Move input `item` of unit u to another device it may run on, each with the same chance; tell if that was possible.

    As few inputs go with it as leave a supported batch, or none, behind and make a supported batch on
    the other device.
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


@builder
def search(
    t: SearchData,
    s: SearchState,
    best: SearchState,
    counts: IntArray,
    order: IntArray,
    rank: IntArray,
    cost: FloatArray,
    sizes: IntArray,
    positions: int,
    rng: np.random.Generator,
    mutate: bool,
    runs: int,
    hot: float,
    cold: float,
    stop_at_better: bool,
    current: float,
    least: float,
) -> tuple[int, float, float]:
    """Change the string at random `runs` times, keeping a change that is no worse or passes for annealing.

    Parameters
    ----------
    s, counts : SearchState, int64 array [units, K]
        The current string, and its state, committed.
    best : SearchState
        The best below `least` is copied there.
    order, rank : int64 arrays [n], [units]
        The topological order to decode in; the least place there of a member of each unit.
    cost, sizes : float64 array [units, K, sizes], int64 array [sizes]
        See `unit_costs`.
    mutate : bool
        Redraw each position with probability 1 / number of positions; else one position at random.
    hot, cold : float
        The temperature falls geometrically from one to the other, in seconds; 0 for none.
    stop_at_better : bool
        Return as soon as one is below `least`.

    Returns
    -------
    runs made, makespan of the current string, of the best
    """
    n_units, size = counts.shape
    inputs = t.arrays.inputs
    length = n_units * positions
    each = inputs // positions
    saved, changed = np.empty((n_units, size), np.int64), np.empty(n_units, np.int64)
    is_changed = np.zeros(n_units, np.bool_)
    saved_used = np.empty(size)
    skip = -1.0 / np.log1p(-1.0 / length) if length > 1 else 0.0
    temperature = hot
    factor = (cold / hot) ** (1.0 / runs) if hot > 0.0 else 1.0
    for run in range(runs):
        temperature *= factor
        number = 0
        saved_used[:] = s.used
        at = int(-np.log(1.0 - rng.random()) * skip) if mutate else rng.integers(0, length)
        while at < length:
            u = at // positions
            if not is_changed[u]:
                saved[u] = counts[u]
            if redraw(t, counts, cost, sizes, rng, u, at % positions * each) and not is_changed[u]:
                is_changed[u], changed[number] = True, u
                number += 1
            if not mutate:
                break
            at += 1 + int(-np.log(1.0 - rng.random()) * skip)
        if number == 0:
            continue
        first_rank, same_slots = len(order), True
        for x in range(number):
            u = changed[x]
            first_rank = min(first_rank, rank[u])
            _claim(t, s, saved, u, -1.0)
            _claim(t, s, counts, u, 1.0)
            is_changed[u] = False
        makespan, limit, first, end = np.inf, current, 0, -1
        if (s.used <= t.capacity).all():
            for x in range(number):
                before = s.count[changed[x]]
                _write_unit(t, s, counts, changed[x])
                same_slots = same_slots and s.count[changed[x]] == before
            if not same_slots:
                _lay_out(t, s, order, first_rank)
            if temperature > 0.0:
                limit = current - temperature * np.log(1.0 - rng.random())
            first = s.position[order[first_rank] * t.slots]
            makespan, end, _ = state_kernels.evaluate(t, s, first, limit)
        if makespan <= limit and makespan < np.inf:
            state_kernels.commit(t, s, first)
            current = makespan
            if current < least:
                least = current
                state_kernels.copy(s, best)
                if stop_at_better:
                    return run + 1, current, least
            continue
        if end >= 0:
            state_kernels.rollback(t, s, first, end)
        for x in range(number):
            counts[changed[x]] = saved[changed[x]]
            if end >= 0:
                _write_unit(t, s, counts, changed[x])
        if end >= 0 and not same_slots:
            _lay_out(t, s, order, first_rank)
        s.used[:] = saved_used
    return runs, current, least
