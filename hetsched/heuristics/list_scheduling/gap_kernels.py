"""Numba kernels for the idle gaps of devices, into which list schedulers insert tasks and batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder, inner, linear
from hetsched.heuristics.list_scheduling.kernels import NONE


class Gaps(NamedTuple):
    """The idle gaps of each device, in order of time; the last one is open-ended, and the only one without insertion."""

    start: FloatArray
    end: FloatArray
    after: IntArray
    """[K, most]: seconds, and the task before each gap, -1 for none."""
    number: IntArray
    """[K]: number of gaps of each device."""
    least: FloatArray
    """[K]: shorter gaps fit no task and are dropped."""


@linear
@builder
def new_gaps(n_devices: int, most: int) -> Gaps:
    """Return the gaps of idle devices, with a capacity of `most` gaps for each device."""
    gaps = Gaps(
        np.empty((n_devices, most)),
        np.empty((n_devices, most)),
        np.empty((n_devices, most), np.int64),
        np.ones(n_devices, np.int64),
        np.full(n_devices, np.inf),
    )
    for k in range(n_devices):  # what lies behind takes memory only when it is written
        gaps.start[k, 0], gaps.end[k, 0], gaps.after[k, 0] = 0.0, np.inf, NONE
    return gaps


@inner
def first_gap(gaps: Gaps, k: int, ready: float, duration: float, limit: float) -> int:
    """Return the earliest gap of device k in which a task fits.

    If the task would start there at `limit` or later, the first such gap is returned, in which it may not fit.
    """
    low, high = 0, gaps.number[k] - 1  # the first gap that ends after `ready`
    while low < high:
        middle = (low + high) // 2
        if gaps.end[k, middle] > ready:
            high = middle
        else:
            low = middle + 1
    while low < gaps.number[k] - 1:
        start = max(ready, gaps.start[k, low])
        if start + duration <= gaps.end[k, low] or start >= limit:
            break
        low += 1
    return low


@inner
def fill_gap(gaps: Gaps, k: int, gap: int, i: int, start: float, finish: float) -> None:
    """Put task i into a gap of device k; the remainders before and after it become gaps unless they are too short."""
    count, end = gaps.number[k], gaps.end[k, gap]
    keep_left = gaps.start[k, gap] + gaps.least[k] <= start
    keep_right = finish + gaps.least[k] <= end
    if keep_left and keep_right:
        for x in range(count, gap + 1, -1):
            gaps.start[k, x], gaps.end[k, x], gaps.after[k, x] = gaps.start[k, x - 1], gaps.end[k, x - 1], gaps.after[k, x - 1]
        gaps.end[k, gap] = start
        gaps.start[k, gap + 1], gaps.end[k, gap + 1], gaps.after[k, gap + 1] = finish, end, i
        gaps.number[k] = count + 1
    elif keep_left:
        gaps.end[k, gap] = start
    elif keep_right:
        gaps.start[k, gap], gaps.after[k, gap] = finish, i
    else:
        for x in range(gap, count - 1):
            gaps.start[k, x], gaps.end[k, x], gaps.after[k, x] = gaps.start[k, x + 1], gaps.end[k, x + 1], gaps.after[k, x + 1]
        gaps.number[k] = count - 1
