"""Numba kernels that raise heads and tails by the load of ancestors and descendants.

Any prices give a valid bound, so the search for prices may stop at any iteration.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import builder, kernel

_SAFE = 1.0 - 1e-11  # more than the rounding of a sum of 10,000 terms


@builder
def first_prices(cost: FloatArray) -> FloatArray:
    """Return prices inversely proportional to the mean finite cost of each device, [K]; 0 where it is 0."""
    n, size = cost.shape
    prices, whole = np.empty(size), 0.0
    for k in range(size):
        total, count = 0.0, 0
        for i in range(n):
            if cost[i, k] < np.inf:
                total += cost[i, k]
                count += 1
        prices[k] = count / total if total > 0.0 else 0.0
        whole += prices[k]
    for k in range(size):
        prices[k] = prices[k] / whole if whole > 0.0 else 1.0 / size
    return prices


@builder
def _cheapest(cost: FloatArray, prices: FloatArray, i: int) -> int:
    best, device = np.inf, 0
    for k in range(len(prices)):
        if cost[i, k] < np.inf and cost[i, k] * prices[k] < best:
            best, device = cost[i, k] * prices[k], k
    return device


@builder
def _alone(prices: FloatArray, iteration: int) -> None:
    for k in range(len(prices)):
        prices[k] = 0.0
    prices[iteration] = 1.0


@builder
def _reprice(prices: FloatArray, load: FloatArray, iteration: int, initial: FloatArray) -> bool:
    """Raise the prices of loaded devices (multiplicative weights); return False if all loads are equal.

    Iterations count from -K. The first K price one device alone, for work that can run nowhere else;
    the others search from `initial`.
    """
    if iteration < 0:
        for k in range(len(prices)):
            prices[k] = initial[k]
        if iteration < -1:
            _alone(prices, iteration + 1)
        return True
    mean, spread, total = 0.0, 0.0, 0.0
    for k in range(len(prices)):
        mean += prices[k] * load[k]
    for k in range(len(prices)):
        spread = max(spread, abs(load[k] - mean))
    if spread <= 1e-9 * mean:
        return False
    step = 1.0 / (1.0 + iteration) ** 0.7
    for k in range(len(prices)):
        prices[k] *= math.exp(step * (load[k] - mean) / spread)
        total += prices[k]
    for k in range(len(prices)):
        prices[k] /= total
    return True


@builder
def tighten_releases(
    order: IntArray, ancestors: BoolArray, head: FloatArray, least: FloatArray, release: FloatArray, iterations: int
) -> bool:
    """Raise `release` [n, K] by the load of each task's ancestors; return whether any rose.

    A task cannot start before ``a`` + the load of {its ancestors with head >= a}, for any a. One
    input is followed, so `least` [n, K] is the shortest batch. Called on the reversed order with
    descendants and tails, it raises deliveries.
    """
    n, size = least.shape
    latest_first = np.argsort(-head)
    mine, load = np.empty(n, np.int64), np.empty(size)
    chosen = np.empty(n, np.int64)
    initial, prices = first_prices(least), np.empty(size)
    risen = False
    for j in order:
        count = 0
        for i in latest_first:
            if ancestors[j, i]:
                mine[count] = i
                count += 1
        if count < 2:
            continue
        _alone(prices, -size)
        best = 0.0
        for iteration in range(-size, iterations):
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
            if not _reprice(prices, load, iteration, initial):
                break
        best *= _SAFE
        for k in range(size):
            if best > release[j, k]:
                risen = risen or best > release[j, k] * (1.0 + 1e-6)
                release[j, k] = best
    return risen


class SharedWork(NamedTuple):
    """What tasks need at least: of the busiest device, and of one device where they are co-located."""

    least: FloatArray
    """[n, K]: seconds of the shortest batch of a task on a device; inf where it cannot run."""
    priced: FloatArray
    """[n]: seconds of the busiest device, by prices of devices."""
    unit: IntArray
    """[n]"""


class Reached(NamedTuple):
    """Scratch of `raise_by_reached`: zeros, and again at its end."""

    seen: BoolArray
    """[n]"""
    queue: IntArray
    """[n]"""
    busy: FloatArray
    """[n_units, K]: seconds of each unit's tasks on each device."""


@kernel
def raise_by_reached(
    tasks: IntArray,
    ptr: IntArray,
    near: IntArray,
    latest_first: IntArray,
    head: FloatArray,
    work: SharedWork,
    s: Reached,
    release: FloatArray,
) -> None:
    """Raise `release` [n, K] of `tasks` by what the tasks before them need of devices; `near` has the parents of each task, from `ptr` on.

    `latest_first` has the tasks by descending `head`. Called with children and tails, it raises deliveries.
    """
    size = release.shape[1]
    for i in tasks:
        count, done, v = 0, 0, i
        while v >= 0:
            for x in range(ptr[v], ptr[v + 1]):
                if not s.seen[near[x]]:
                    s.seen[near[x]] = True
                    s.queue[count] = near[x]
                    count += 1
            v = s.queue[done] if done < count else -1
            done += 1
        total, best, left = 0.0, 0.0, count
        for j in latest_first:
            if left == 0:
                break
            if not s.seen[j]:
                continue
            left -= 1
            u, alone = work.unit[j], np.inf
            for k in range(size):
                s.busy[u, k] += work.least[j, k]
                alone = min(alone, s.busy[u, k])
            total += work.priced[j]
            best = max(best, head[j] + max(total, alone))
        for x in range(count):
            j = s.queue[x]
            s.seen[j] = False
            for k in range(size):
                s.busy[work.unit[j], k] = 0.0
        best *= 1.0 - 2e-15 * count  # the rounding of the sums
        for k in range(size):
            release[i, k] = max(release[i, k], best)
