"""Numba kernels that cut a window out of a schedule."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import inner, kernel
from hetsched.problem.link_kernels import link_seconds, multiplier
from hetsched.problem.problem import ProblemArrays

BEFORE, AFTER, FREE, KEPT = 0, 1, 2, 3
"""Where a batch of the schedule is: before or after the window, or in it, with other decisions or those that it has."""


class ScheduleRows(NamedTuple):
    """The batches of a schedule in the order of their starts."""

    task: IntArray
    device: IntArray
    start: FloatArray
    finish: FloatArray
    tail: FloatArray
    """[B]: the least seconds from the start of a batch to the end of the schedule."""
    inputs: BoolArray
    """[B, L]: whether a batch has an input."""
    pointer: IntArray
    """[n + 1]: where the batches of each task begin in `members`."""
    members: IntArray
    where: IntArray
    """[B]: written by `classify`."""
    first: IntArray
    """[n]: scratch, -1 between calls."""


class WindowRows(NamedTuple):
    """The batches of a window by the topological order of their tasks."""

    task: IntArray
    inputs: BoolArray
    place: IntArray
    """[B]: which of them a batch of the schedule is, if it is one."""


class Limits(NamedTuple):
    """What the rest of a schedule and the batches of a window demand of its batches; written by `connect`."""

    release: FloatArray
    delivery: FloatArray
    source: IntArray
    target: IntArray
    lag: FloatArray
    """[arcs, K, K]"""
    order: IntArray
    """[o, 2]: rows that keep their device and follow one another there."""
    last: IntArray
    """[K]: scratch."""


def new_limits(m: int, arcs: int, size: int) -> Limits:
    """Return the limits of `m` rows with room for a number of arcs, on `size` devices."""
    (release, delivery), (source, target) = np.empty((2, m, size)), np.empty((2, arcs), np.int64)
    return Limits(release, delivery, source, target, np.empty((arcs, size, size)), np.empty((m, 2), np.int64), np.empty(size, np.int64))


@kernel
def classify(r: ScheduleRows, free: BoolArray) -> int:
    """Write where the batches of a schedule are if some are free, [B]; return the number of those in the window.

    A batch that takes no time is before or after the free ones only if that is clear by its start.
    """
    low, high, count = np.inf, 0.0, 0
    for b in range(len(free)):
        if free[b]:
            low, high = min(low, r.start[b]), max(high, r.finish[b])
    for b in range(len(free)):
        if free[b]:
            r.where[b] = FREE
        elif r.finish[b] <= low and r.start[b] < low:
            r.where[b] = BEFORE
        elif r.start[b] >= high and r.finish[b] > high:
            r.where[b] = AFTER
        else:
            r.where[b] = KEPT
        count += r.where[b] >= FREE
    return count


@inner
def _common(one: BoolArray, other: BoolArray, x: int, y: int) -> int:
    """Return the number of inputs that row x of one has in common with row y of another."""
    count = 0
    for u in range(one.shape[1]):
        count += one[x, u] and other[y, u]
    return count


@inner
def _latest(r: ScheduleRows, release: FloatArray, delivery: FloatArray) -> None:
    """Write when each device is free of the batches before the window, and how long before the end it has to be for those after it."""
    release[:], delivery[:] = 0.0, 0.0
    if len(release) == 0:
        return
    for b in range(len(r.task)):
        k = r.device[b]
        if r.finish[b] > r.start[b]:
            if r.where[b] == BEFORE:
                release[0, k] = max(release[0, k], r.finish[b])
            elif r.where[b] == AFTER:
                delivery[0, k] = max(delivery[0, k], r.tail[b])
    for y in range(1, len(release)):
        for k in range(release.shape[1]):
            release[y, k], delivery[y, k] = release[0, k], delivery[0, k]


@inner
def _await(p: ProblemArrays, r: ScheduleRows, w: WindowRows, limits: Limits, y: int) -> None:
    """Raise the release and the delivery of row y by its transfers from batches before the window, and to those after it."""
    links, i = p.links, w.task[y]
    for z in range(p.pred_ptr[i], p.pred_ptr[i + 1]):
        for x in range(r.pointer[p.pred[z]], r.pointer[p.pred[z] + 1]):
            b = r.members[x]
            count = _common(r.inputs, w.inputs, b, y) if r.where[b] == BEFORE else 0
            for k in range(len(p.column) if count else 0):
                seconds = link_seconds(links, p.pred_edge[z], r.device[b], k, multiplier(links, count))
                limits.release[y, k] = max(limits.release[y, k], r.finish[b] + seconds)
    for z in range(p.succ_ptr[i], p.succ_ptr[i + 1]):
        for x in range(r.pointer[p.succ[z]], r.pointer[p.succ[z] + 1]):
            b = r.members[x]
            count = _common(r.inputs, w.inputs, b, y) if r.where[b] == AFTER else 0
            for k in range(len(p.column) if count else 0):
                seconds = link_seconds(links, p.succ_edge[z], k, r.device[b], multiplier(links, count))
                limits.delivery[y, k] = max(limits.delivery[y, k], r.tail[b] + seconds)


@inner
def _arcs(p: ProblemArrays, first: IntArray, w: WindowRows, limits: Limits, y: int, arcs: int) -> int:
    """Write the arcs to row y from other rows, as far as there is room, after `arcs` others; return their new number."""
    links, i = p.links, w.task[y]
    for z in range(p.pred_ptr[i], p.pred_ptr[i + 1]):
        source, e = p.pred[z], p.pred_edge[z]
        x = first[source]
        while 0 <= x < len(w.task) and w.task[x] == source:
            count = _common(w.inputs, w.inputs, x, y)
            if count and arcs < len(limits.source):
                limits.source[arcs], limits.target[arcs] = x, y
                for h in range(len(p.column)):
                    for k in range(len(p.column)):
                        limits.lag[arcs, h, k] = link_seconds(links, e, h, k, multiplier(links, count))
            arcs += count > 0
            x += 1
    return arcs


@kernel
def connect(p: ProblemArrays, r: ScheduleRows, w: WindowRows, limits: Limits) -> tuple[int, int]:
    """Write the limits of the rows of a window, after `classify`; return how many arcs it has, with room or not, and how many orders."""
    m, arcs, orders = len(w.task), 0, 0
    _latest(r, limits.release, limits.delivery)
    for y in range(m - 1, -1, -1):
        r.first[w.task[y]] = y
    for y in range(m):
        _await(p, r, w, limits, y)
        arcs = _arcs(p, r.first, w, limits, y, arcs)
    for y in range(m):
        r.first[w.task[y]] = -1
    limits.last[:] = -1
    for b in range(len(r.task)):
        if r.where[b] == KEPT and r.finish[b] > r.start[b]:
            k = r.device[b]
            if limits.last[k] >= 0:
                limits.order[orders, 0], limits.order[orders, 1] = limits.last[k], w.place[b]
                orders += 1
            limits.last[k] = w.place[b]
    return arcs, orders
