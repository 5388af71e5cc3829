"""Numba kernels that refute a makespan for a few tasks: heads, tails, loads and orders, and branching where these do not suffice.

A *node* of the search holds constraints on all schedules of its subtree: on which devices a task may
run (`least` is inf on the others), from when (`release`), how long before the end (`delivery`), and
which tasks end before others start (`before`). The model has one input and no contention of
transfers. Tasks are numbered in topological order.
"""

from __future__ import annotations

import numpy as np

from hetsched.analysis.price_kernels import cheapest, even, first_prices, reprice, windows
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import inner, kernel

_SAFE = 1.0 - 1e-11  # more than the rounding of a sum of 10,000 terms
_ROUNDS = 6
_RISE = 1.0 + 1e-6  # factor by which a level has to rise for another round
NOTHING, DEVICE, ORDER = 0, 1, 2  # kinds of branching
_NO_NEWS, _NEWS, _CONTRADICTION = 0, 1, 2  # results of propagating orders

# Arguments are flat here, and scratch is passed as rows of few arrays: `contradicts` takes microseconds; with its 18 arrays in
# named tuples it took 8, 19 and 73 us for 4, 8 and 20 tasks instead of 4, 11 and 60, `choose` 2.5 us instead of 1.3.


@inner
def _together(far: FloatArray, near: FloatArray, time: FloatArray, count: int, level: float) -> float:
    """Return a lower bound of the start of a task on a device, at least `level`, by its parents, which are sorted in place.

    A parent's data arrives from other devices at `far` or later; on the device itself it runs for `time`, from `near` or later. Of
    those with a later `far` than the start all run on the device, one after another.
    """
    needed = 0
    for x in range(count):  # those that the level leaves on the device come first
        if far[x] > level:
            far[x], far[needed] = far[needed], far[x]
            near[x], near[needed] = near[needed], near[x]
            time[x], time[needed] = time[needed], time[x]
            needed += 1
    if needed < 2:
        return level
    for x in range(1, needed):  # by ascending `near`
        for y in range(x, 0, -1):
            if near[y - 1] <= near[y]:
                break
            far[y], far[y - 1] = far[y - 1], far[y]
            near[y], near[y - 1] = near[y - 1], near[y]
            time[y], time[y - 1] = time[y - 1], time[y]
    while True:  # leave the one whose data can be there first to other devices, if those on the device take longer
        end, x = 0.0, -1
        for y in range(needed):
            if far[y] > level:
                end = max(end, near[y]) + time[y]
                if x < 0 or far[y] < far[x]:
                    x = y
        if end <= level or x < 0:
            return level
        if end <= far[x]:
            return end
        level = far[x]


@kernel
def levels(
    pointer: IntArray,
    arcs: IntArray,
    lag: FloatArray,
    least: FloatArray,
    given: FloatArray,
    level: FloatArray,
    scratch: FloatArray,
    ahead: bool,
) -> None:
    """Write into `level` [m, K] the earliest start of each task on each device, inf = never; unless `ahead`, the least time after its end.

    Arc y of task j, ``pointer[j] <= y < pointer[j + 1]``, is edge ``arcs[0, y]``, from task ``arcs[1, y]``; ``lag[e, h, k]`` are the
    seconds from device h to k. Unless `ahead`, arcs and lags are reversed. `given` [m, K] is the least, `scratch` [3, m].
    """
    m, size = least.shape
    far, near, time = scratch[0], scratch[1], scratch[2]
    for x in range(m):
        j = x if ahead else m - 1 - x
        for k in range(size):
            if least[j, k] == np.inf:
                level[j, k] = np.inf
                continue
            value, count = given[j, k], 0
            for y in range(pointer[j], pointer[j + 1]):
                e, p, arrival = arcs[0, y], arcs[1, y], np.inf
                for h in range(size):
                    if h != k:
                        arrival = min(arrival, level[p, h] + least[p, h] + lag[e, h, k])
                far[count], near[count], time[count] = arrival, level[p, k], least[p, k]
                value = max(value, min(arrival, level[p, k] + least[p, k] + lag[e, k, k]))
                count += 1
            level[j, k] = _together(far, near, time, count, value) if count > 1 and value < np.inf else value


@inner
def _narrow(
    pointer: IntArray,
    arcs: IntArray,
    lag: FloatArray,
    unit: IntArray,
    least: FloatArray,
    release: FloatArray,
    delivery: FloatArray,
    latest: float,
    start: FloatArray,
    tail: FloatArray,
    scratch: FloatArray,
) -> bool:
    """Remove every (task, device) that exceeds the horizon, until nothing changes; return False if some task has no device left."""
    m, size = least.shape
    while True:
        levels(pointer[0], arcs[0], lag[0], least, release, start, scratch, True)
        levels(pointer[1], arcs[1], lag[1], least, delivery, tail, scratch, False)
        changed = False
        for i in range(m):
            possible = False
            for k in range(size):
                if least[i, k] == np.inf:
                    continue
                through = start[i, k] + least[i, k] + tail[i, k]
                if through <= latest and through < np.inf:  # inf: without a path, for any horizon
                    possible = True
                    continue
                changed = True
                for j in range(m):  # the device is removed from all tasks of the co-location unit
                    if unit[j] == unit[i]:
                        least[j, k] = np.inf
            if not possible:
                return False
        if not changed:
            return True


@inner
def _sort(level: FloatArray, order: IntArray) -> None:
    """Sort `order`, a permutation of the tasks, by descending level; fast if it is nearly sorted."""
    for x in range(1, len(order)):
        i, y = order[x], x
        while y > 0 and level[order[y - 1]] < level[i]:
            order[y] = order[y - 1]
            y -= 1
        order[y] = i


@inner
def _tighten_by_load(
    before: BoolArray,
    ahead: bool,
    head: FloatArray,
    start: FloatArray,
    least: FloatArray,
    release: FloatArray,
    divisor: float,
    iterations: int,
    by_head: IntArray,
    chain: IntArray,
    ints: IntArray,
    devices: FloatArray,
) -> bool:
    """Raise releases by the load of the tasks before each task (or, unless `ahead`, deliveries by the load of those after it).

    A task cannot start before ``a`` + the load of those before it with head >= a, for any a, where a device works from the least
    `start` of these on it; with a positive `divisor` of all times, not before the next multiple of it.
    """
    m, size = least.shape
    mine, chosen, place = ints[0], ints[1], ints[2]
    load, prices, initial, begin, shared = devices[0], devices[1], devices[2], devices[3], devices[4]
    _sort(head, by_head)
    risen = False
    for j in range(m):
        count = 0
        for i in by_head:
            if before[i, j] if ahead else before[j, i]:
                mine[count] = i
                count += 1
        if count < 2:
            continue
        best = 0.0
        for k in range(size):
            load[k] = 0.0
        for x in range(count):  # work that can run on one device only
            k = place[mine[x]]
            if k >= 0:
                load[k] += least[mine[x], k]
                best = max(best, head[mine[x]] + load[k])
        for iteration in range(iterations):
            if not reprice(prices, load, iteration, initial):
                break
            total, value, cut = 0.0, 0.0, 0
            devices[3:] = np.inf
            for x in range(count):
                i = mine[x]
                chosen[x] = cheapest(least, prices, i)
                total += least[i, chosen[x]] * prices[chosen[x]]
                windows(start, least, i, chain, begin, shared)
                alone, grouped = total, total
                for k in range(size):  # j starts at head[j] or later: no window is negative
                    alone += prices[k] * max(head[i], min(begin[k], head[j]))
                    grouped += prices[k] * max(head[i], min(shared[k], head[j]))
                end = max(alone, grouped) if iteration >= 0 else alone
                if end > value:
                    value, cut = end, x + 1
            best = max(best, value)
            load[:] = 0.0
            devices[3:] = np.inf
            for x in range(cut):
                load[chosen[x]] += least[mine[x], chosen[x]]
                windows(start, least, mine[x], chain, begin, shared)
            for k in range(size):
                load[k] += min(begin[k], head[j])
            even(load, chain)
        best *= _SAFE
        if divisor > 0.0:
            best = np.ceil(best / divisor) * divisor
        for k in range(size):
            if least[j, k] < np.inf and best > release[j, k]:
                risen = risen or best > release[j, k] * _RISE
                release[j, k] = best
    return risen


@inner
def _overloads(
    bounds: FloatArray,
    least: FloatArray,
    horizon: float,
    iterations: int,
    chain: IntArray,
    ints: IntArray,
    tasks: FloatArray,
    devices: FloatArray,
) -> tuple[bool, float, float]:
    """Return whether the tasks between some head and some tail exceed the horizon, and these two.

    A device works for them from the least start of one on it to the least tail. Arguments as in `contradicts`.
    """
    m, size = least.shape
    start, tail, head, end = bounds[0], bounds[1], tasks[0], tasks[1]
    chosen, place, by_end = ints[1], ints[2], ints[4]
    load, prices, initial, begin, rest, starts, ends = devices[0], devices[1], devices[2], devices[3], devices[4], devices[5], devices[6]
    if horizon == np.inf:
        return False, 0.0, 0.0
    _sort(end, by_end)
    for y in range(m):  # work that can run on one device only
        for k in range(size):
            load[k] = 0.0
        for i in by_end:
            k = place[i]
            if k >= 0 and head[i] >= head[y] and least[i, k] > 0.0:
                load[k] += least[i, k]
                if (head[y] + load[k] + end[i]) * _SAFE > horizon:
                    for h in range(size):
                        prices[h] = 1.0 if h == k else 0.0
                    return True, head[y], end[i]
    for iteration in range(iterations):
        if not reprice(prices, load, iteration, initial):
            break
        best, after, until = 0.0, 0.0, 0.0
        for i in range(m):
            chosen[i] = cheapest(least, prices, i)
        for y in range(m):
            total = 0.0
            devices[3:] = np.inf
            for i in by_end:
                if head[i] >= head[y]:
                    total += least[i, chosen[i]] * prices[chosen[i]]
                    windows(start, least, i, chain, begin, starts)
                    windows(tail, least, i, chain, rest, ends)
                    alone, grouped = 0.0, 0.0
                    for k in range(size):  # no window is negative
                        alone += prices[k] * min(begin[k] + rest[k], horizon)
                        grouped += prices[k] * min(starts[k] + ends[k], horizon)
                    value = total + (max(alone, grouped) if iteration >= 0 else alone)
                    if total > 0.0 and value > best:
                        best, after, until = value, head[y], end[i]
        if best * _SAFE > horizon:
            return True, after, until
        load[:] = 0.0
        devices[3:] = np.inf
        for i in range(m):
            if head[i] >= after and end[i] >= until:
                load[chosen[i]] += least[i, chosen[i]]
                windows(start, least, i, chain, begin, starts)
                windows(tail, least, i, chain, rest, ends)
        for k in range(size):
            load[k] += min(begin[k] + rest[k], horizon) if begin[k] < np.inf else after + until
        even(load, chain)
    return False, 0.0, 0.0


@kernel
def overload(
    bounds: FloatArray,
    least: FloatArray,
    horizon: float,
    iterations: int,
    chain: IntArray,
    ints: IntArray,
    tasks: FloatArray,
    devices: FloatArray,
) -> tuple[bool, float, float]:
    """Return whether the tasks between some head and some tail exceed the horizon, and these two; row 1 of `devices` has the prices.

    Arguments as in `contradicts`, but for rows 0 and 1 of `tasks`, which have the heads and tails, and row 2 of `ints`.
    """
    first_prices(least, bounds[0], bounds[1], chain, devices[2])
    return _overloads(bounds, least, horizon, iterations, chain, ints, tasks, devices)


@inner
def _put_in_order(
    before: BoolArray,
    place: IntArray,
    least: FloatArray,
    release: FloatArray,
    delivery: FloatArray,
    start: FloatArray,
    tail: FloatArray,
    latest: float,
) -> int:
    """Add orders of two tasks of one device that are implied; return whether orders are new, or contradict one another.

    `place` [m] is the only device left of a task, -1 if there are several.
    """
    m, news = len(place), _NO_NEWS
    for i in range(m):
        k = place[i]
        if k < 0 or least[i, k] == 0.0:
            continue
        for j in range(m):
            if j == i or place[j] != k or least[j, k] == 0.0 or before[j, i]:
                continue
            if not before[i, j]:
                if start[j, k] + least[j, k] + least[i, k] + tail[i, k] <= latest:
                    continue
                if start[i, k] + least[i, k] + least[j, k] + tail[j, k] > latest:
                    return _CONTRADICTION
                before[i, j] = True
                news = _NEWS
            ready, left = start[i, k] + least[i, k], least[j, k] + tail[j, k]
            if ready > release[j, k]:
                news = _NEWS if ready > start[j, k] * _RISE else news
                release[j, k] = ready
            if left > delivery[i, k]:
                news = _NEWS if left > tail[i, k] * _RISE else news
                delivery[i, k] = left
    return news


@inner
def _least_levels(least: FloatArray, start: FloatArray, tail: FloatArray, head: FloatArray, end: FloatArray, place: IntArray) -> None:
    """Write the least start and the least tail of each task, [m] each, and its only device left, -1 if there are several."""
    m, size = least.shape
    for i in range(m):
        left = 0
        head[i], end[i] = np.inf, np.inf
        for k in range(size):
            if least[i, k] < np.inf:
                place[i] = k
                left += 1
            head[i], end[i] = min(head[i], start[i, k]), min(end[i], tail[i, k])
        if left > 1:
            place[i] = -1


@kernel
def contradicts(
    pointer: IntArray,
    arcs: IntArray,
    lag: FloatArray,
    unit: IntArray,
    node: FloatArray,
    before: BoolArray,
    horizon: float,
    divisor: float,
    iterations: int,
    bounds: FloatArray,
    chain: IntArray,
    ints: IntArray,
    tasks: FloatArray,
    devices: FloatArray,
) -> bool:
    """Propagate the constraints of a node and a horizon; return whether they contradict one another.

    Parameters
    ----------
    pointer, arcs, lag : [2, m + 1], [2, 2, E], [2, E, K, K]
        As in `levels`, ahead and reversed.
    unit : [m]
        Tasks of one number have to be on one device.
    node : [3, m, K]
        Least, release and delivery; tightened in place.
    before : [m, m]
        Whether a task precedes another; implied pairs are added.
    horizon : float
        Seconds.
    divisor : float
        All times of schedules of which one is shortest are multiples of it; 0 if that is unknown.
    iterations : int
        Number of iterations that improve prices.
    bounds : [2, m, K]
        Written: earliest starts and tails.
    ints : [5, m]
        Row 2 is written: the only device left of a task, -1 if there are several. Rows 3 and 4 hold permutations of the tasks.
    chain : [2, K]
        Written: the next device of a group of exchangeable devices, or -1, and the first of the group.
    tasks, devices : [5, m], [7, K]
        Scratch.
    """
    least, release, delivery = node[0], node[1], node[2]
    start, tail = bounds[0], bounds[1]
    head, end = tasks[0], tasks[1]
    place = ints[2]
    m = len(least)
    latest = horizon * (1.0 + 8.0 * m * 2.2e-16)  # rounding along a path must not remove a device
    for _ in range(_ROUNDS):
        if not _narrow(pointer, arcs, lag, unit, least, release, delivery, latest, start, tail, tasks[2:]):
            return True
        _least_levels(least, start, tail, head, end, place)
        first_prices(least, start, tail, chain, devices[2])
        news = _put_in_order(before, place, least, release, delivery, start, tail, latest)
        if news == _CONTRADICTION:
            return True
        for side in range(2):
            if _tighten_by_load(
                before,
                side == 0,
                tasks[side],
                bounds[side],
                least,
                node[1 + side],
                divisor,
                iterations,
                ints[3 + side],
                chain,
                ints,
                devices,
            ):
                news = _NEWS
        if news == _NO_NEWS:
            break
    return _overloads(bounds, least, horizon, iterations, chain, ints, tasks, devices)[0]


@inner
def _undecided(least: FloatArray, place: IntArray, start: FloatArray, tail: FloatArray, weight: FloatArray) -> tuple[int, int]:
    """Return the longest task with several devices left, and the best of these; (-1, -1) if there is none."""
    m, size = least.shape
    task, device, most = -1, -1, -1.0
    for i in range(m):
        if place[i] >= 0:
            continue
        best, shortest, at = np.inf, np.inf, -1
        for k in range(size):
            if least[i, k] < np.inf:
                shortest = min(shortest, least[i, k])
                if start[i, k] + least[i, k] + tail[i, k] < best:
                    best, at = start[i, k] + least[i, k] + tail[i, k], k
        if shortest + weight[i] + 1e-3 * best > most:
            task, device, most = i, at, shortest + weight[i] + 1e-3 * best
    return task, device


@inner
def _unordered(before: BoolArray, least: FloatArray, place: IntArray, start: FloatArray, tail: FloatArray) -> tuple[int, int]:
    """Return the two unordered tasks of one device with the least slack, the better order first; (-1, -1) if there are none."""
    m = len(place)
    first, second, room = -1, -1, np.inf
    for i in range(m):
        k = place[i]
        if least[i, k] == 0.0:
            continue
        for j in range(i):
            if place[j] != k or least[j, k] == 0.0 or before[i, j] or before[j, i]:
                continue
            one, other = start[i, k] + tail[j, k], start[j, k] + tail[i, k]
            if -(one + other) - 2.0 * (least[i, k] + least[j, k]) < room:
                room = -(one + other) - 2.0 * (least[i, k] + least[j, k])
                first, second = (i, j) if one <= other else (j, i)
    return first, second


@kernel
def choose(
    before: BoolArray, least: FloatArray, place: IntArray, start: FloatArray, tail: FloatArray, weight: FloatArray
) -> tuple[int, int, int]:
    """Return the branching: (DEVICE, task, device to try first), (ORDER, task to try first, other task) or (NOTHING, 0, 0)."""
    task, other = _undecided(least, place, start, tail, weight)
    if task >= 0:
        return DEVICE, task, other
    task, other = _unordered(before, least, place, start, tail)
    if task >= 0:
        return ORDER, task, other
    return NOTHING, 0, 0
