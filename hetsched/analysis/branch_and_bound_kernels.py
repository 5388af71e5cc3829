"""Numba kernels that refute a makespan for a few tasks: heads, tails, loads and orders, and branching where these do not suffice.

A *node* of the search holds constraints on all schedules of its subtree: on which devices a task may
run (`least` is inf on the others), from when (`release`), how long before the end (`delivery`), and
which tasks end before others start (`before`). The model has one input and no contention of
transfers. Tasks are numbered in topological order.
"""

from __future__ import annotations

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import inner, kernel

_SAFE = 1.0 - 1e-11  # more than the rounding of a sum of 10,000 terms
_ROUNDS = 6
_RISE = 1.0 + 1e-6  # factor by which a level has to rise for another round
NOTHING, DEVICE, ORDER = 0, 1, 2  # kinds of branching
_NO_NEWS, _NEWS, _CONTRADICTION = 0, 1, 2  # results of propagating orders

# Arguments are flat here, and scratch is passed as rows of few arrays: `contradicts` takes microseconds; with its 18 arrays in
# named tuples it took 8, 19 and 73 us for 4, 8 and 20 tasks instead of 4, 11 and 60, `choose` 2.5 us instead of 1.3.


@kernel
def forward(pointer: IntArray, pred: IntArray, lag: FloatArray, least: FloatArray, release: FloatArray, start: FloatArray) -> None:
    """Write into `start` [m, K] the earliest start of each task on each device; inf = never.

    Edge y of task j, ``pointer[j] <= y < pointer[j + 1]``, comes from task ``pred[y]``; ``lag[y, h, k]`` are the
    seconds from device h to k.
    """
    m, size = least.shape
    for j in range(m):
        for k in range(size):
            start[j, k] = release[j, k] if least[j, k] < np.inf else np.inf
        for y in range(pointer[j], pointer[j + 1]):
            p = pred[y]
            for k in range(size):
                if start[j, k] < np.inf:
                    arrival = np.inf
                    for h in range(size):
                        arrival = min(arrival, start[p, h] + least[p, h] + lag[y, h, k])
                    start[j, k] = max(start[j, k], arrival)


@kernel
def backward(pointer: IntArray, pred: IntArray, lag: FloatArray, least: FloatArray, delivery: FloatArray, tail: FloatArray) -> None:
    """Write into `tail` [m, K] the least time from a task's finish on a device to the makespan; the mirror image of `forward`."""
    m, size = least.shape
    for j in range(m):
        for k in range(size):
            tail[j, k] = delivery[j, k] if least[j, k] < np.inf else np.inf
    for j in range(m - 1, -1, -1):
        for y in range(pointer[j], pointer[j + 1]):
            p = pred[y]
            for h in range(size):
                if tail[p, h] < np.inf:
                    remaining = np.inf
                    for k in range(size):
                        remaining = min(remaining, lag[y, h, k] + least[j, k] + tail[j, k])
                    tail[p, h] = max(tail[p, h], remaining)


@inner
def _narrow(
    pointer: IntArray,
    pred: IntArray,
    lag: FloatArray,
    unit: IntArray,
    least: FloatArray,
    release: FloatArray,
    delivery: FloatArray,
    latest: float,
    start: FloatArray,
    tail: FloatArray,
) -> bool:
    """Remove every (task, device) that exceeds the horizon, until nothing changes; return False if some task has no device left."""
    m, size = least.shape
    while True:
        forward(pointer, pred, lag, least, release, start)
        backward(pointer, pred, lag, least, delivery, tail)
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
def _first_prices(least: FloatArray, initial: FloatArray) -> None:
    """Write prices inversely proportional to the mean finite duration on each device, summing to 1."""
    m, size = least.shape
    whole = 0.0
    for k in range(size):
        total, count = 0.0, 0
        for i in range(m):
            if least[i, k] < np.inf:
                total += least[i, k]
                count += 1
        initial[k] = count / total if total > 0.0 else 0.0
        whole += initial[k]
    for k in range(size):
        initial[k] = initial[k] / whole if whole > 0.0 else 1.0 / size


@inner
def _cheapest(least: FloatArray, prices: FloatArray, i: int) -> int:
    best, device = np.inf, 0
    for k in range(len(prices)):
        if least[i, k] < np.inf and least[i, k] * prices[k] < best:
            best, device = least[i, k] * prices[k], k
    return device


@inner
def _reprice(prices: FloatArray, load: FloatArray, iteration: int, initial: FloatArray) -> bool:
    """Set the prices of an iteration, counted from -K; return False if all loads are equal.

    The first K iterations price one device alone, for work that can run nowhere else; then, from
    `initial`, the prices of loaded devices rise (multiplicative weights).
    """
    size = len(prices)
    if iteration < 0:
        for k in range(size):
            prices[k] = 1.0 if k == iteration + size else 0.0
        return True
    if iteration == 0:
        for k in range(size):
            prices[k] = initial[k]
        return True
    mean, spread, total = 0.0, 0.0, 0.0
    for k in range(size):
        mean += prices[k] * load[k]
    for k in range(size):
        spread = max(spread, abs(load[k] - mean))
    if spread <= 1e-9 * mean:
        return False
    step = 1.0 / iteration**0.7
    for k in range(size):
        prices[k] *= np.exp(step * (load[k] - mean) / spread)
        total += prices[k]
    for k in range(size):
        prices[k] /= total
    return True


@inner
def _tighten_by_load(
    before: BoolArray,
    ahead: bool,
    head: FloatArray,
    least: FloatArray,
    release: FloatArray,
    iterations: int,
    by_head: IntArray,
    ints: IntArray,
    devices: FloatArray,
) -> bool:
    """Raise releases by the load of the tasks before each task (or, unless `ahead`, deliveries by the load of those after it).

    A task cannot start before ``a`` + the load of those before it with head >= a, for any a.
    """
    m, size = least.shape
    mine, chosen = ints[0], ints[1]
    load, prices, initial = devices[0], devices[1], devices[2]
    _sort(head, by_head)
    _first_prices(least, initial)
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
        for iteration in range(-size, iterations):
            if not _reprice(prices, load, iteration, initial):
                break
            total, value, cut = 0.0, 0.0, 0
            for x in range(count):
                i = mine[x]
                chosen[x] = _cheapest(least, prices, i)
                total += least[i, chosen[x]] * prices[chosen[x]]
                if head[i] + total > value:
                    value, cut = head[i] + total, x + 1
            best = max(best, value)
            for k in range(size):
                load[k] = 0.0
            for x in range(cut):
                load[chosen[x]] += least[mine[x], chosen[x]]
        best *= _SAFE
        for k in range(size):
            if least[j, k] < np.inf and best > release[j, k]:
                risen = risen or best > release[j, k] * _RISE
                release[j, k] = best
    return risen


@inner
def _overloads(
    head: FloatArray,
    end: FloatArray,
    least: FloatArray,
    horizon: float,
    iterations: int,
    by_end: IntArray,
    ints: IntArray,
    devices: FloatArray,
) -> bool:
    """Return whether the load of the tasks between some head and some tail exceeds the horizon."""
    m, size = least.shape
    chosen = ints[1]
    load, prices, initial = devices[0], devices[1], devices[2]
    _sort(end, by_end)
    _first_prices(least, initial)
    for iteration in range(-size, iterations):
        if not _reprice(prices, load, iteration, initial):
            break
        best, after, until = 0.0, 0.0, 0.0
        for i in range(m):
            chosen[i] = _cheapest(least, prices, i)
        for y in range(m):
            total = 0.0
            for i in by_end:
                if head[i] >= head[y]:
                    total += least[i, chosen[i]] * prices[chosen[i]]
                    value = head[y] + total + end[i]
                    if total > 0.0 and value > best:
                        best, after, until = value, head[y], end[i]
        if best * _SAFE > horizon:
            return True
        for k in range(size):
            load[k] = 0.0
        for i in range(m):
            if head[i] >= after and end[i] >= until:
                load[chosen[i]] += least[i, chosen[i]]
    return False


@kernel
def overload_prices(
    head: FloatArray, end: FloatArray, least: FloatArray, horizon: float, iterations: int, ints: IntArray, devices: FloatArray
) -> bool:
    """Return whether the load of the tasks between some head [m] and some tail [m] exceeds the horizon, as `contradicts` sees it.

    If so, row 1 of `devices` [3, K] has the prices that prove it. Row 4 of `ints` [5, m] has a permutation of the tasks.
    """
    return _overloads(head, end, least, horizon, iterations, ints[4], ints, devices)


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


@kernel
def contradicts(
    pointer: IntArray,
    pred: IntArray,
    lag: FloatArray,
    unit: IntArray,
    node: FloatArray,
    before: BoolArray,
    horizon: float,
    iterations: int,
    levels: FloatArray,
    ints: IntArray,
    tasks: FloatArray,
    devices: FloatArray,
) -> bool:
    """Propagate the constraints of a node and a horizon; return whether they contradict one another.

    Parameters
    ----------
    pointer, pred, lag
        As in `forward`.
    unit : [m]
        Tasks of one number have to be on one device.
    node : [3, m, K]
        Least, release and delivery; tightened in place.
    before : [m, m]
        Whether a task precedes another; implied pairs are added.
    horizon : float
        Seconds.
    iterations : int
        Number of iterations that improve prices.
    levels : [2, m, K]
        Written: earliest starts and tails.
    ints : [5, m]
        Row 2 is written: the only device left of a task, -1 if there are several. Rows 3 and 4 hold permutations of the tasks.
    tasks, devices : [2, m], [3, K]
        Scratch.
    """
    least, release, delivery = node[0], node[1], node[2]
    start, tail = levels[0], levels[1]
    head, end = tasks[0], tasks[1]
    place = ints[2]
    m, size = least.shape
    latest = horizon * (1.0 + 8.0 * m * 2.2e-16)  # rounding along a path must not remove a device
    for _ in range(_ROUNDS):
        if not _narrow(pointer, pred, lag, unit, least, release, delivery, latest, start, tail):
            return True
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
        news = _put_in_order(before, place, least, release, delivery, start, tail, latest)
        if news == _CONTRADICTION:
            return True
        for side in range(2):
            if _tighten_by_load(before, side == 0, tasks[side], least, node[1 + side], iterations, ints[3 + side], ints, devices):
                news = _NEWS
        if news == _NO_NEWS:
            break
    return _overloads(head, end, least, horizon, iterations, ints[4], ints, devices)


@inner
def _undecided(least: FloatArray, place: IntArray, start: FloatArray, tail: FloatArray) -> tuple[int, int]:
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
        if shortest + 1e-3 * best > most:
            task, device, most = i, at, shortest + 1e-3 * best
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
def choose(before: BoolArray, least: FloatArray, place: IntArray, start: FloatArray, tail: FloatArray) -> tuple[int, int, int]:
    """Return the branching: (DEVICE, task, device to try first), (ORDER, task to try first, other task) or (NOTHING, 0, 0)."""
    task, other = _undecided(least, place, start, tail)
    if task >= 0:
        return DEVICE, task, other
    task, other = _unordered(before, least, place, start, tail)
    if task >= 0:
        return ORDER, task, other
    return NOTHING, 0, 0
