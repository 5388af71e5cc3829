"""Numba kernels for the priorities of list schedulers."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder, linear, nearly_linear
from hetsched.problem.link_kernels import link_seconds, multiplier
from hetsched.problem.problem import ProblemArrays

# The definitions of mean communication; see `mean_transfers`.
PAPER, TIMES, SAGA = 0, 1, 2
MEAN_COMMUNICATION = {"paper": PAPER, "times": TIMES, "saga": SAGA}


@linear
@builder
def mean_transfers(arrays: ProblemArrays, mean: int) -> FloatArray:
    """Return the mean transfer time of each edge, [E], for all inputs at once.

    ``PAPER``: mean latency + bytes / mean bandwidth over ordered pairs of different devices
    (Topcuoglu et al. 2002, section 2). ``TIMES``: the mean of the transfer times over these pairs.
    ``SAGA``: the mean of the transfer times over unordered pairs, including each device with itself
    at cost 0 (anrg-saga). Pairs without a path are excluded. Explicit transfer times have no
    bandwidth, so ``PAPER`` equals ``TIMES`` for them.
    """
    links, size = arrays.links, len(arrays.links.latency)
    mean_time = np.zeros(len(arrays.source))
    factor = multiplier(links, arrays.inputs)
    pairs, latency, bandwidth, slowness = 0, 0.0, 0.0, 0.0
    for h in range(size):
        for k in range(size):
            if h != k and links.latency[h, k] < np.inf:
                pairs += 1
                latency += links.latency[h, k]
                bandwidth += links.bandwidth[h, k]
                slowness += 1.0 / links.bandwidth[h, k]
    if links.given:
        for e in range(len(mean_time)):
            total, pairs = 0.0, 0
            for h in range(size):
                for k in range(size):
                    if h != k and links.transfers[e, h, k] < np.inf:
                        total += links.transfers[e, h, k] * factor
                        pairs += 1
            if mean == SAGA:
                mean_time[e] = total / (pairs + 2 * size)
            elif pairs > 0:
                mean_time[e] = total / pairs
        return mean_time
    if pairs == 0:
        return mean_time
    if mean == PAPER:
        latency, slowness = latency / pairs, pairs / bandwidth
    else:
        divisor = pairs + 2 * size if mean == SAGA else pairs
        latency, slowness = latency / divisor, slowness / divisor
    for e in range(len(mean_time)):
        mean_time[e] = latency + links.edge_bytes[e] * factor * slowness
    return mean_time


@linear
@builder
def mean_durations(durations: FloatArray, column: IntArray) -> FloatArray:
    """Return the mean over the devices that can run each task, [n]; `column` [K] is the place of each device in `durations` [n, C]."""
    mean = np.empty(len(durations))
    for i in range(len(durations)):
        total, count = 0.0, 0
        for c in column:
            if durations[i, c] < np.inf:
                total += durations[i, c]
                count += 1
        mean[i] = total / count
    return mean


@linear
@builder
def upward(arrays: ProblemArrays, order: IntArray, weight: FloatArray, transfer: FloatArray) -> FloatArray:
    """Return the longest path from the start of each task to the end of the graph, [n].

    A path's length is the sum of `weight` [n] over its tasks and `transfer` [E] over its edges. With
    mean durations and mean transfers this is HEFT's upward rank, without transfers the static level.
    """
    rank = np.empty(len(weight))
    for position in range(len(order) - 1, -1, -1):
        i = order[position]
        longest = 0.0
        for x in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
            length = transfer[arrays.succ_edge[x]] + rank[arrays.succ[x]]
            if length > longest:
                longest = length
        rank[i] = weight[i] + longest
    return rank


@linear
@builder
def downward(arrays: ProblemArrays, order: IntArray, weight: FloatArray, transfer: FloatArray) -> FloatArray:
    """Return the longest path from the start of the graph to the start of each task, [n]."""
    rank = np.zeros(len(weight))
    for i in order:
        for x in range(arrays.pred_ptr[i], arrays.pred_ptr[i + 1]):
            j = arrays.pred[x]
            length = rank[j] + weight[j] + transfer[arrays.pred_edge[x]]
            if length > rank[i]:
                rank[i] = length
    return rank


@nearly_linear
@builder
def optimistic_costs(arrays: ProblemArrays, order: IntArray, durations: FloatArray, transfer: FloatArray) -> FloatArray:
    """Return PEFT's optimistic cost table, [n, K] (Arabnejad and Barbosa 2014).

    An entry is the maximum over the children of the least remaining time after a task on a device, if all devices are idle.
    """
    n, size = durations.shape
    table = np.zeros((n, size))
    for position in range(n - 1, -1, -1):
        i = order[position]
        for x in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
            j, move = arrays.succ[x], transfer[arrays.succ_edge[x]]
            anywhere = np.inf
            for k in range(size):
                anywhere = min(anywhere, table[j, k] + durations[j, k])
            for h in range(size):
                # the transfer costs nothing only on the same device
                table[i, h] = max(table[i, h], min(anywhere + move, table[j, h] + durations[j, h]))
    return table


@nearly_linear
@builder
def imaginary_levels(arrays: ProblemArrays, order: IntArray, durations: FloatArray) -> FloatArray:
    """Return the basic imaginary level of each task on each device, [n, K] (Oh and Ha 1996)."""
    n, size = durations.shape
    factor = multiplier(arrays.links, arrays.inputs)
    level = np.empty((n, size))
    for position in range(n - 1, -1, -1):
        i = order[position]
        for h in range(size):
            longest = 0.0
            for x in range(arrays.succ_ptr[i], arrays.succ_ptr[i + 1]):
                j = arrays.succ[x]
                least = np.inf
                for k in range(size):
                    least = min(least, level[j, k] + link_seconds(arrays.links, arrays.succ_edge[x], h, k, factor))
                longest = max(longest, least)
            level[i, h] = durations[i, h] + longest
    return level


@linear
@builder
def second_latest_start(arrays: ProblemArrays, latest_start: FloatArray) -> FloatArray:
    """Return the least latest start of the children of each task, [n]; inf without children."""
    least = np.full(len(latest_start), np.inf)
    for e in range(len(arrays.source)):
        least[arrays.source[e]] = min(least[arrays.source[e]], latest_start[arrays.target[e]])
    return least


@linear
@builder
def critical_device(arrays: ProblemArrays, durations: FloatArray, priority: FloatArray) -> IntArray:
    """Return the device of CPOP's critical path for the tasks on it, -1 for the others, [n].

    The path starts at the first source of highest `priority` (upward + downward rank) and follows
    children of equal priority, the lowest first. Its device is the one of least total duration, among
    those on which the fewest tasks of the path cannot run.
    """
    n, size = durations.shape
    only = np.full(n, -1)
    if n == 0:
        return only
    least = priority.max() * (1 - 1e-9)
    at = -1
    for i in range(n):
        if at < 0 and priority[i] >= least and arrays.pred_ptr[i] == arrays.pred_ptr[i + 1]:
            at = i
    total, unable = np.zeros(size), np.zeros(size)
    while at >= 0:
        only[at] = 0
        after = n
        for k in range(size):
            if durations[at, k] < np.inf:
                total[k] += durations[at, k]
            else:
                unable[k] += 1
        for x in range(arrays.succ_ptr[at], arrays.succ_ptr[at + 1]):
            j = arrays.succ[x]
            if priority[j] >= least and j < after:
                after = j
        at = after if after < n else -1
    best = 0
    for k in range(1, size):
        if unable[k] < unable[best] or (unable[k] == unable[best] and total[k] < total[best]):
            best = k
    for i in range(n):
        if only[i] == 0:
            only[i] = best
    return only
