"""Numba kernels for chains on many devices: least sums of sequences of devices, moves between them, and bounds by prices of items."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner, kernel

SWAP, MOVE, INSERT = 0.4, 0.7, 0.85
"""Cumulative shares of the moves of a climb: two places change their devices, a device moves, one more is used; else one fewer."""
WORSE = 0.02
"""Share by which a sum may be more than the one before, at the begin of a climb."""
PATIENCE = 12
"""Steps without a better bound before they are halved."""
ROUNDING = 1e-12
"""Share of the terms of a bound by which it is lowered, as they are rounded."""
FIRST, LAST, ENDS = 1, 2, 4
"""Whether a stage has the first item, and the last: the bits of a number less than `ENDS`."""


class Costs(NamedTuple):
    """Costs of stages on m devices, which are sums over their items, and of hops.

    Attributes
    ----------
    before : float64 [m, n + 1]
        Cost of the items before each end.
    lowest : int64 [m, n + 1]
        The first item with which a stage that ends there fits; `end` where none does. It never falls as the end rises.
    stage, enter, leave : float64 [m]
        Cost of a stage beside its items; the least hop to the device, and the least time from it back to the first one.
    hop, closing : float64 [m, m]
        Cost between stages, and from the last of several back to the first.
    nodes : int64 [m]
        Node of each device: stages of a node follow one another, as many on each; all alike if that is no rule.
    weight : float64 [m]
        What sums are divided by, by number of stages from 1; inf where no placement has as many.
    """

    before: FloatArray
    lowest: IntArray
    stage: FloatArray
    enter: FloatArray
    leave: FloatArray
    hop: FloatArray
    closing: FloatArray
    nodes: IntArray
    weight: FloatArray


class Scratch(NamedTuple):
    """Working memory: least costs [stage, end] and their starts, a queue of starts, and two orders of devices."""

    table: FloatArray
    begin: IntArray
    queue: IntArray
    saved: IntArray
    best: IntArray


@inner
def extend(c: Costs, k: int, s: int, more: float, work: Scratch) -> None:
    """Fill the least costs with a stage on device `k` behind those of row `s` of the table, and `more`."""
    head = tail = 0
    work.table[s + 1, 0] = np.inf
    for end in range(1, work.table.shape[1]):
        value = work.table[s, end - 1] - c.before[k, end - 1]
        while tail > head and work.table[s, work.queue[tail - 1]] - c.before[k, work.queue[tail - 1]] > value:
            tail -= 1
        work.queue[tail] = end - 1
        tail += 1
        while head < tail and work.queue[head] < c.lowest[k, end]:
            head += 1
        work.table[s + 1, end] = np.inf
        if head < tail:
            start = work.queue[head]
            work.begin[s + 1, end] = start
            work.table[s + 1, end] = work.table[s, start] - c.before[k, start] + c.before[k, end] + c.stage[k] + more


@kernel
def least_sum(c: Costs, order: IntArray, count: int, work: Scratch) -> tuple[int, float]:
    """Return how far the chain reaches in stages on the first `count` devices of an order, and the least sum, by filling the tables.

    The end is -1 where there is none.
    """
    end = work.table.shape[1] - 1
    for i in range(end + 1):
        work.table[0, i] = np.inf if i else 0.0
    for s in range(count):
        extend(c, order[s], s, c.hop[order[s - 1], order[s]] if s else 0.0, work)
    total = work.table[count, end] + (c.closing[order[count - 1], order[0]] if count > 1 else 0.0)
    if total < np.inf:
        return end, total
    end -= 1
    while end > 0 and work.table[count, end] == np.inf:
        end -= 1
    return (end, work.table[count, end]) if end > 0 else (-1, np.inf)


@inner
def keeps_to_nodes(c: Costs, order: IntArray, count: int) -> bool:
    """Return whether the stages of a node follow one another, as many on each."""
    each = 1
    while each < count and c.nodes[order[each]] == c.nodes[order[0]]:
        each += 1
    if count % each:
        return False
    for s in range(count):
        if c.nodes[order[s]] != c.nodes[order[s - s % each]]:
            return False
        for earlier in range(0, s - s % each, each):
            if c.nodes[order[earlier]] == c.nodes[order[s]]:
                return False
    return True


@inner
def moved(order: IntArray, source: int, target: int) -> None:
    """Move the device at a place of the order to another place."""
    device, step = order[source], 1 if source < target else -1
    for place in range(source, target, step):
        order[place] = order[place + step]
    order[target] = device


@inner
def changed(c: Costs, order: IntArray, count: int, draw: FloatArray, number: int) -> int:
    """Make the move of a row of random numbers from 0 to 1, and return how many devices are used; 0 if that many cannot be."""
    kind, m = draw[number, 0], len(order)
    source, target = int(draw[number, 1] * count), int(draw[number, 2] * m)
    if kind < SWAP:
        order[source], order[target] = order[target], order[source]
    elif kind < MOVE:
        moved(order, source, int(draw[number, 2] * count))
    elif kind < INSERT:
        if count == m or c.weight[count] == np.inf:
            return 0
        moved(order, count + int(draw[number, 1] * (m - count)), int(draw[number, 2] * (count + 1)))
        count += 1
    else:
        if count == 1 or c.weight[count - 2] == np.inf:
            return 0
        moved(order, source, m - 1)
        count -= 1
    return count


@inner
def copy(source: IntArray, target: IntArray) -> None:
    """Copy an order of devices."""
    for place in range(len(source)):
        target[place] = source[place]


@kernel
def climb(c: Costs, order: IntArray, count: int, draw: FloatArray, enough: float, work: Scratch) -> int:
    """Make random moves until a sum over its weight is less than `enough`; leave the best order, and return how many devices are used.

    The first ones of `order` are. It is farther first, then the less a sum, that is better. Sums that are a little more are taken too, by
    a share that falls to 0 (threshold accepting, Dueck and Scheuer 1990).
    """
    reach, total = least_sum(c, order, count, work)
    share, whole = total / c.weight[count - 1], work.table.shape[1] - 1
    best_reach, best_share, best_count = reach, share, count
    copy(order, work.best)
    for number in range(len(draw)):
        if best_reach == whole and best_share < enough:
            break
        copy(order, work.saved)
        used = changed(c, order, count, draw, number)
        end, value = -1, np.inf
        if used and keeps_to_nodes(c, order, used):
            end, value = least_sum(c, order, used, work)
            value /= c.weight[used - 1]
        if used and (end > reach or (end == reach and value <= share * (1.0 + WORSE * (1.0 - number / len(draw))))):
            count, reach, share = used, end, value
            if end > best_reach or (end == best_reach and value < best_share):
                best_reach, best_share, best_count = end, value, used
                copy(order, work.best)
        else:
            copy(work.saved, order)
    copy(work.best, order)
    return best_count


class Multipliers(NamedTuple):
    """Lagrange multipliers of a chain, and working memory.

    Attributes
    ----------
    price, best, step : float64 [n]
        Prices of the items, those with the best bound so far, and the direction in which the bound rises.
    least : float64 [m]
        What the best stage of each device costs beyond the prices of its items.
    first, end : int64 [m]
        Items of that stage.
    order : int64 [m]
        Devices by `least`.
    """

    price: FloatArray
    best: FloatArray
    step: FloatArray
    least: FloatArray
    first: IntArray
    end: IntArray
    order: IntArray


@inner
def price_stages(c: Costs, y: Multipliers, work: Scratch) -> None:
    """Find the stage of each device that costs least beyond the prices of its items, and sort the devices by it."""
    n = len(y.price)
    for k in range(len(y.least)):
        paid = 0.0
        for i in range(n + 1):
            work.table[0, i] = paid + (c.enter[k] if i else 0.0)
            paid += y.price[i] if i < n else 0.0
        extend(c, k, 0, 0.0, work)
        y.least[k], paid = np.inf, 0.0
        for end in range(1, n + 1):
            paid += y.price[end - 1]
            value, start = work.table[1, end] - paid, work.begin[1, end]
            if end == n:
                value += c.leave[k]
                alone = c.before[k, n] + c.stage[k] - paid
                if c.lowest[k, n] == 0 and alone <= value:
                    value, start = alone, 0
            if value < y.least[k]:
                y.least[k], y.first[k], y.end[k] = value, start, end
        place = k
        while place and y.least[y.order[place - 1]] > y.least[k]:
            y.order[place] = y.order[place - 1]
            place -= 1
        y.order[place] = k


@inner
def priced(c: Costs, y: Multipliers, work: Scratch) -> tuple[float, int]:
    """Return the bound of the prices over all numbers of stages, and the number of which it is."""
    price_stages(c, y, work)
    total = size = 0.0
    for i in range(len(y.price)):
        total += y.price[i]
        size += abs(y.price[i])
    bound, count = np.inf, 1
    for s in range(len(y.order)):
        total += y.least[y.order[s]]
        size += abs(y.least[y.order[s]])
        if c.weight[s] < np.inf and total < np.inf:
            value = (total - ROUNDING * size) / c.weight[s]
            if value < bound:
                bound, count = value, s + 1
    return bound, count


@kernel
def raise_prices(c: Costs, y: Multipliers, steps: int, target: float, work: Scratch) -> float:
    """Return the best bound on sums over their weights by the subgradient method, from the prices of `y.best`, which are kept.

    Each step aims at `target`; at a bound of at least that it ends.
    """
    best, length, failures = -np.inf, 1.0, 0
    for i in range(len(y.price)):
        y.price[i] = y.best[i]
    for _ in range(steps):
        bound, count = priced(c, y, work)
        if bound > best:
            best, failures = bound, 0
            for i in range(len(y.price)):
                y.best[i] = y.price[i]
        else:
            failures += 1
            if failures == PATIENCE:
                length, failures = length / 2, 0
        if not bound < target:
            break
        squared = 0.0
        for i in range(len(y.price)):
            y.step[i] = 1.0
        for s in range(count):
            for i in range(y.first[y.order[s]], y.end[y.order[s]]):
                y.step[i] -= 1.0
        for i in range(len(y.price)):
            squared += y.step[i] ** 2
        if squared == 0.0:  # the stages are a placement of the relaxed problem
            break
        for i in range(len(y.price)):
            y.price[i] += length * (target - bound) * c.weight[count - 1] * y.step[i] / squared
    return best


@inner
def price_lengths(c: Costs, y: Multipliers, k: int, work: Scratch) -> None:
    """Fill the last rows of the table with what stages on a device cost at least beyond their prices, by number of items.

    These rows are of stages with neither the first nor the last item, with the first, with the last, and with both. The first row of the
    table has the prices of the items before each end.
    """
    n, rows = len(y.price), len(work.table) - ENDS
    for row in range(rows, rows + ENDS):
        for length in range(n + 1):
            work.table[row, length] = np.inf
    for end in range(1, n + 1):
        for start in range(c.lowest[k, end], end):
            cost = c.before[k, end] - c.before[k, start] + c.stage[k] - work.table[0, end] + work.table[0, start]
            row = rows + (start == 0) * FIRST + (end == n) * LAST
            if start > 0:
                cost += c.enter[k] + (c.leave[k] if end == n else 0.0)
            work.table[row, end - start] = min(work.table[row, end - start], cost)


@inner
def add_device(sums: FloatArray, k: int, most: int, longest: int, work: Scratch) -> None:
    """Fill the sums with device `k` or without it, by those without, for up to `most` stages; stages have up to `longest` items.

    Numbers of items that stages cannot have, or leave too many for the others, are left out.
    """
    rows, n = len(work.table) - ENDS, sums.shape[3] - 1
    for row in range(ENDS):
        for s in range(most + 1):
            for whole in range(n + 1):
                sums[k + 1, row, s, whole] = sums[k, row, s, whole]
    for own in range(ENDS):
        for length in range(1, longest + 1):
            cost = work.table[rows + own, length]
            if cost == np.inf:
                continue
            for before in range(ENDS):
                if before & own:
                    continue
                for s in range(1, min(most, k + 1) + 1):
                    first, last = max(length + s - 1, n - (most - s) * longest), min(n, (s - 1) * longest + length)
                    for whole in range(first, last + 1):
                        value = sums[k, before, s - 1, whole - length] + cost
                        if value < sums[k + 1, before | own, s, whole]:
                            sums[k + 1, before | own, s, whole] = value


@inner
def sum_prices(y: Multipliers, work: Scratch) -> float:
    """Fill the first row of the table with the prices of the items before each end, and return the sum of their amounts."""
    size = work.table[0, 0] = 0.0
    for i in range(len(y.best)):
        work.table[0, i + 1] = work.table[0, i] + y.best[i]
        size += abs(y.best[i])
    return size


@kernel
def bound_by_lengths(c: Costs, y: Multipliers, sums: FloatArray, work: Scratch) -> float:
    """Return the bound by the prices of `y.best` where the numbers of items of the stages add up to all, and one has each end of the chain.

    `sums` [m + 1, ENDS, stages + 1, n + 1] are filled with the least sums of stages on the first devices, by ends, stages and items.
    """
    n, m, most, size = len(y.best), len(y.order), 0, sum_prices(y, work)
    for s in range(m):
        most = s + 1 if c.weight[s] < np.inf else most
    for row in range(ENDS):
        for s in range(sums.shape[2]):
            for whole in range(n + 1):
                sums[0, row, s, whole] = np.inf
    sums[0, 0, 0, 0] = 0.0
    longest = 0
    for k in range(m):
        for end in range(1, n + 1):
            longest = max(longest, end - c.lowest[k, end])
    for k in range(m):
        price_lengths(c, y, k, work)
        add_device(sums, k, most, longest, work)
    bound = np.inf
    for s in range(1, most + 1):
        if c.weight[s - 1] < np.inf:
            least = sums[m, FIRST + LAST, s, n]
            bound = min(bound, (work.table[0, n] + least - ROUNDING * (size + abs(least))) / c.weight[s - 1])
    return bound


@kernel
def order_by_lengths(c: Costs, y: Multipliers, sums: FloatArray, order: IntArray, work: Scratch) -> int:
    """Fill an order with the devices of the bound by lengths, and the rest behind them; return how many they are, 0 if there is none."""
    m, whole, ends, count = len(order), len(y.best), FIRST + LAST, 0
    sum_prices(y, work)
    for s in range(1, sums.shape[2]):
        least = (work.table[0, whole] + sums[m, ends, s, whole]) / c.weight[s - 1]
        if (
            c.weight[s - 1] < np.inf
            and least < np.inf
            and (count == 0 or least < (work.table[0, whole] + sums[m, ends, count, whole]) / c.weight[count - 1])
        ):
            count = s
    s, middle, rest = count, 1, count
    for k in range(m - 1, -1, -1):
        here, found = sums[k + 1, ends, s, whole], False
        if s > 0 and here < sums[k, ends, s, whole]:
            price_lengths(c, y, k, work)
            for own in range(ENDS):
                for length in range(1, whole + 1):
                    if own & ends == own and not found:
                        found = sums[k, ends ^ own, s - 1, whole - length] + work.table[len(work.table) - ENDS + own, length] == here
                        if found:
                            place = 0 if own & FIRST else count - 1 if own & LAST else middle
                            middle += own == 0
                            order[place] = k
                            s, whole, ends = s - 1, whole - length, ends ^ own
        if not found:
            order[rest] = k
            rest += 1
    return count
