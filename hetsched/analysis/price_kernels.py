"""Prices of devices, and from when until when devices work for a set of tasks: numba functions that load bounds are made of.

A bound at prices adds, over the tasks, what each costs where it is cheapest, and over the devices, what each is idle for. Devices of a
*group* are those on which tasks are as long and as early, so far as they may run on both: their prices stay equal, and the first tasks that
they run, being distinct, begin no earlier in total than as many of the least starts (Carlier 1987, for machines that are all alike).
"""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner


@inner
def _group(least: FloatArray, start: FloatArray, tail: FloatArray, chain: IntArray) -> None:
    """Write into `chain` [2, K] the next device of the group of each, or -1, and the first: tasks of both have the same numbers there."""
    m, size = least.shape
    for k in range(size):
        chain[0, k], chain[1, k] = -1, k
        for h in range(k):
            if chain[1, h] != h:
                continue
            common, same = 0, 0
            for i in range(m):
                if least[i, h] < np.inf and least[i, k] < np.inf:
                    common += 1
                    same += least[i, h] == least[i, k] and start[i, h] == start[i, k] and tail[i, h] == tail[i, k]
                    if same < common:
                        break
            if same == common > 0:
                chain[1, k] = h
                while chain[0, h] >= 0:
                    h = chain[0, h]
                chain[0, h] = k
                break


@inner
def even(load: FloatArray, chain: IntArray) -> None:
    """Spread the load of each group evenly over its devices, so that their prices stay equal."""
    for first in range(len(load)):
        if chain[1, first] != first:
            continue
        total, count, k = 0.0, 0, first
        while k >= 0:
            total += load[k]
            count += 1
            k = chain[0, k]
        k = first
        while k >= 0:
            load[k] = total / count
            k = chain[0, k]


@inner
def first_prices(least: FloatArray, start: FloatArray, tail: FloatArray, chain: IntArray, initial: FloatArray) -> None:
    """Write the groups, and prices inversely proportional to the mean finite duration on each device, summing to 1.

    They are equal where durations are, whatever tasks may run there, and in groups.
    """
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
    _group(least, least, least, chain)
    even(initial, chain)
    _group(least, start, tail, chain)
    even(initial, chain)


@inner
def cheapest(least: FloatArray, prices: FloatArray, i: int) -> int:
    """Return the device on which a task costs least."""
    best, device = np.inf, 0
    for k in range(len(prices)):
        if least[i, k] < np.inf and least[i, k] * prices[k] < best:
            best, device = least[i, k] * prices[k], k
    return device


@inner
def reprice(prices: FloatArray, load: FloatArray, iteration: int, initial: FloatArray) -> bool:
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
def windows(level: FloatArray, least: FloatArray, i: int, chain: IntArray, own: FloatArray, shared: FloatArray) -> None:
    """Extend the windows of the devices to a task of positive length: `own` by its level on each, `shared` by its least in each group.

    `shared` ascends along the chain of a group. Of the devices that work, the first tasks are distinct: in ascending order, the j-th starts
    no earlier than the j-th least of the levels. Equal prices are needed to add them up.
    """
    for first in range(len(own)):
        if chain[1, first] != first:
            continue
        if chain[0, first] < 0:
            if 0.0 < least[i, first] < np.inf:
                own[first] = shared[first] = min(own[first], level[i, first])
            continue
        value, k = np.inf, first
        while k >= 0:
            if 0.0 < least[i, k] < np.inf:
                own[k], value = min(own[k], level[i, k]), min(value, level[i, k])
            k = chain[0, k]
        k = first
        while k >= 0 and value < np.inf:
            if value < shared[k]:
                value, shared[k] = shared[k], value
            k = chain[0, k]
