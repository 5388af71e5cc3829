"""Numba kernels that refute a makespan for a few tasks: heads, tails, loads and orders, and branching where these do not suffice.

A *node* of the search holds constraints on all schedules of its subtree: on which devices a task may
run (`least` is inf on the others), from when (`release`), how long before the end (`delivery`), and
which tasks end before others start (`before`). The model has one input and no contention of
transfers. Tasks are numbered in topological order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.analysis.price_kernels import cheapest, even, first_prices, reprice, windows
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import inner, kernel

_SAFE = 1.0 - 1e-11  # more than the rounding of a sum of 10,000 terms
_ROUNDS = 6
_RISE = 1.0 + 1e-6  # factor by which a level has to rise for another round
NOTHING, DEVICE, ORDER = 0, 1, 2  # kinds of branching
_NO_NEWS, _NEWS, _CONTRADICTION = 0, 1, 2  # results of propagating orders


class Subset(NamedTuple):
    """Tasks that are searched."""

    pointer: IntArray
    """[2, m + 1]: where the arcs of each task begin, as in `levels`, ahead and reversed."""
    arcs: IntArray
    """[2, 2, E]"""
    ways: FloatArray
    """[2, E, K, K]: seconds of the transfers."""
    unit: IntArray
    """[m]: tasks of one number have to be on one device."""
    weight: FloatArray
    """[m]: added to the duration of a task where the next one to branch on is chosen."""
    alike: IntArray
    """[K]: one number for devices whose exchange changes no duration, transfer time or capacity."""
    bytes: FloatArray
    """[m]: bytes of a task in the memory of its device."""
    room: FloatArray
    """[K]: bytes of each device; inf where they do not matter."""


class Scratch(NamedTuple):
    """What `contradicts` writes."""

    bounds: FloatArray
    """[2, m, K]: earliest starts and tails."""
    chain: IntArray
    """[2, K]: the next device of a group of exchangeable devices, or -1, and the first of the group."""
    ints: IntArray
    """[5, m]: row 2 is the only device left of a task, -1 if there are several; rows 3 and 4 hold permutations of the tasks."""
    tasks: FloatArray
    """[5, m]: the first two rows are the least starts and the least tails."""
    devices: FloatArray
    """[7, K]"""


class Stack(NamedTuple):
    """Nodes that wait for their turn, the next one last."""

    nodes: FloatArray
    """[S, 3, m, K]: durations, releases and deliveries."""
    before: BoolArray
    """[S, m, m]"""
    log: IntArray
    """[N, 4]: of every node what `choose` returned, (NOTHING, 0, 0) if it was refuted, and the only device of the task, or -1."""


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
def _narrow(s: Subset, w: Scratch, node: FloatArray, latest: float) -> bool:
    """Remove every (task, device) that exceeds the horizon, until nothing changes; return False if some task has no device left."""
    least, start, tail, unit = node[0], w.bounds[0], w.bounds[1], s.unit
    m, size = least.shape
    while True:
        levels(s.pointer[0], s.arcs[0], s.ways[0], least, node[1], start, w.tasks[2:], True)
        levels(s.pointer[1], s.arcs[1], s.ways[1], least, node[2], tail, w.tasks[2:], False)
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
def _tighten_by_load(w: Scratch, node: FloatArray, before: BoolArray, ahead: bool, divisor: float, iterations: int) -> bool:
    """Raise releases by the load of the tasks before each task (or, unless `ahead`, deliveries by the load of those after it).

    A task cannot start before ``a`` + the load of those before it with head >= a, for any a, where a device works from the least
    start of these on it; with a positive `divisor` of all times, not before the next multiple of it.
    """
    side = 0 if ahead else 1
    head, start, by_head, least, release = w.tasks[side], w.bounds[side], w.ints[3 + side], node[0], node[1 + side]
    m, size = least.shape
    mine, chosen, place = w.ints[0], w.ints[1], w.ints[2]
    chain, devices = w.chain, w.devices
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
def _overloads(w: Scratch, least: FloatArray, horizon: float, iterations: int) -> tuple[bool, float, float]:
    """Return whether the tasks between some head and some tail exceed the horizon, and these two.

    A device works for them from the least start of one on it to the least tail.
    """
    m, size = least.shape
    start, tail, head, end = w.bounds[0], w.bounds[1], w.tasks[0], w.tasks[1]
    chosen, place, by_end = w.ints[1], w.ints[2], w.ints[4]
    chain, devices = w.chain, w.devices
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
def overload(w: Scratch, least: FloatArray, horizon: float, iterations: int) -> tuple[bool, float, float]:
    """Return whether the tasks between some head and some tail exceed the horizon, and these two.

    Starts and tails, and row 2 of the whole numbers, are as `contradicts` writes them; row 1 of what devices have becomes the prices.
    """
    first_prices(least, w.bounds[0], w.bounds[1], w.chain, w.devices[2])
    return _overloads(w, least, horizon, iterations)


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
def contradicts(s: Subset, w: Scratch, node: FloatArray, before: BoolArray, horizon: float, divisor: float, iterations: int) -> bool:
    """Propagate the constraints of a node and a horizon; return whether they contradict one another.

    Parameters
    ----------
    s, w : Subset, Scratch
        Starts, tails and the only devices left are written into the latter.
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
    """
    least, release, delivery = node[0], node[1], node[2]
    start, tail, place = w.bounds[0], w.bounds[1], w.ints[2]
    latest = horizon * (1.0 + 8.0 * len(least) * 2.2e-16)  # rounding along a path must not remove a device
    for _ in range(_ROUNDS):
        if not _narrow(s, w, node, latest):
            return True
        _least_levels(least, start, tail, w.tasks[0], w.tasks[1], place)
        first_prices(least, start, tail, w.chain, w.devices[2])
        news = _put_in_order(before, place, least, release, delivery, start, tail, latest)
        if news == _CONTRADICTION:
            return True
        for side in range(2):
            if _tighten_by_load(w, node, before, side == 0, divisor, iterations):
                news = _NEWS
        if news == _NO_NEWS:
            break
    return _overloads(w, least, horizon, iterations)[0] or _overfills(s, place, w.devices[0])


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


@kernel
def connect(source: IntArray, target: IntArray, pointer: IntArray, arcs: IntArray, before: BoolArray) -> None:
    """Write the arcs of edges [E] between tasks, by ascending targets, ahead and reversed, and which tasks precede others.

    Shapes as in `Subset`; `before` is [m, m].
    """
    m = len(before)
    pointer[:], before[:] = 0, False
    for e in range(len(source)):
        pointer[0, target[e] + 1] += 1
        pointer[1, source[e] + 1] += 1
    for j in range(m):
        pointer[0, j + 1] += pointer[0, j]
        pointer[1, j + 1] += pointer[1, j]
    for e in range(len(source)):
        i, j = source[e], target[e]
        arcs[0, 0, e], arcs[0, 1, e] = e, i
        arcs[1, 0, pointer[1, i]], arcs[1, 1, pointer[1, i]] = e, j
        pointer[1, i] += 1  # for now to where the next arc of the task goes
        for x in range(i):
            before[x, j] = before[x, j] or before[x, i]
        before[i, j] = True
    for j in range(m, 0, -1):
        pointer[1, j] = pointer[1, j - 1]
    pointer[1, 0] = 0


@kernel
def exchangeable(least: FloatArray, lag: FloatArray, room: FloatArray, alike: IntArray) -> None:
    """Write into `alike` [K] the first device that may be exchanged for each, without a change of durations, transfer times or capacity.

    `least` [m, K], `lag` [E, K, K] and `room` [K] are these. What may be exchanged for one device may be so for each other.
    """
    for k in range(len(room)):
        alike[k] = k
        for h in range(k):
            if alike[h] == h and room[h] == room[k] and _same_times(least, lag, h, k):
                alike[k] = h
                break


@inner
def _same_times(least: FloatArray, lag: FloatArray, h: int, k: int) -> bool:
    for i in range(len(least)):
        if least[i, h] != least[i, k]:
            return False
    for e in range(len(lag)):
        for x in range(lag.shape[1]):
            y = h + k - x if x in (h, k) else x
            if lag[e, h, y] != lag[e, k, x] or lag[e, y, h] != lag[e, x, k]:
                return False
    return True


@inner
def _overfills(s: Subset, place: IntArray, needed: FloatArray) -> bool:
    """Return whether the tasks with only one device exceed its memory; `needed` [K] is scratch."""
    needed[:] = 0.0
    for i in range(len(place)):
        if place[i] >= 0:
            needed[place[i]] += s.bytes[i]
    for k in range(len(needed)):
        if needed[k] > s.room[k]:
            return True
    return False


@inner
def _twins(s: Subset, node: FloatArray, h: int, k: int) -> bool:
    """Return whether the exchange of two devices maps the schedules of a node one to one."""
    if s.alike[h] != s.alike[k]:
        return False
    for i in range(node.shape[1]):
        if node[0, i, h] == np.inf and node[0, i, k] == np.inf:
            continue
        for row in range(3):
            if node[row, i, h] != node[row, i, k]:
                return False
    return True


@inner
def _branch(s: Subset, choice: tuple[int, int, int], node: FloatArray, before: BoolArray, first: FloatArray, ahead: BoolArray) -> None:
    """Divide a propagated node: `first` and `ahead` become the more promising branch, `node` and `before` the other one."""
    kind, task, other = choice
    m, size = node.shape[1:]
    for i in range(m):
        for row in range(3):
            for k in range(size):
                first[row, i, k] = node[row, i, k]
        for j in range(m):
            ahead[i, j] = before[i, j]
    if kind == ORDER:
        ahead[task, other] = True
        before[other, task] = True
        return
    for k in range(size):
        twins = k != other and _twins(s, first, other, k)
        for i in range(m):
            if s.unit[i] != s.unit[task]:
                continue
            if k == other or twins:
                node[0, i, k] = np.inf
            if k != other:
                first[0, i, k] = np.inf


@inner
def _length(least: FloatArray, start: FloatArray, tail: FloatArray) -> float:
    """Return the longest of the shortest paths through each task."""
    length = 0.0
    for i in range(len(least)):
        shortest = np.inf
        for k in range(least.shape[1]):
            shortest = min(shortest, start[i, k] + least[i, k] + tail[i, k])
        length = max(length, shortest)
    return length


@kernel
def search(
    s: Subset, w: Scratch, stack: Stack, depth: int, most: int, horizon: float, divisor: float, iterations: int
) -> tuple[int, int, float]:
    """Search the first `depth` nodes of a stack for a schedule of at most `horizon` seconds, for at most `most` nodes.

    Returns the number of nodes then in the stack, the number of nodes searched, and the length of the schedule found in seconds, whose
    devices and starts are in the scratch; -1 if there is none. It returns early if the stack is full.
    """
    start, tail, place = w.bounds[0], w.bounds[1], w.ints[2]
    done = 0
    while 0 < depth < len(stack.nodes) and done < most:
        top = depth - 1
        node, before = stack.nodes[top], stack.before[top]
        refuted = contradicts(s, w, node, before, horizon, divisor, iterations)
        choice = (NOTHING, 0, 0) if refuted else choose(before, node[0], place, start, tail, s.weight)
        stack.log[done, 0], stack.log[done, 1], stack.log[done, 2] = choice
        stack.log[done, 3] = place[choice[1]] if len(place) else -1
        done += 1
        if refuted:
            depth -= 1
        elif choice[0] == NOTHING:
            return depth, done, _length(node[0], start, tail)
        else:
            _branch(s, choice, node, before, stack.nodes[depth], stack.before[depth])
            depth += 1
    return depth, done, -1.0
