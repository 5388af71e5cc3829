"""Numba kernels of the dynamic program over sets of units, see `hetsched.analysis.frontiers`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.arrays import IntArray
from hetsched.compiled import kernel

NEVER = -1
"""The value of a state that no set reaches."""


class Steps(NamedTuple):
    """The transitions of the dynamic program: for each of P units in turn, of each state, without the unit and with it."""

    first: IntArray
    """[P + 2]: the number of states before each unit, added up: those before unit p have the numbers from ``first[p]`` on."""
    following: IntArray
    """[S, 2]: the state after the unit, counted from the first one there."""
    load: IntArray
    """[S, 2]: what the transition adds to the load, in whole ticks; above every load if the device cannot do it."""


class Sets(NamedTuple):
    """The largest sums of prices, and the sets that have them."""

    value: IntArray
    """[2, states, loads]: scratch, for the states before and after a unit."""
    span: IntArray
    """[2, states, 2]: scratch, the least load of a state and the largest one plus 1; equal where no set reaches it."""
    best: IntArray
    """[loads]: the largest sum of prices of a set with each load; `NEVER` if no set has it."""
    choice: npt.NDArray[np.uint16]
    """[S, loads]: twice the state before the unit, plus 1 with the unit; of the states from the second unit on."""


def new_sets(steps: Steps, loads: int) -> Sets:
    """Return uninitialised arrays for loads of 0, ..., loads - 1 ticks."""
    states = int(np.diff(steps.first).max(initial=1))
    shape = (int(steps.first[-1]), loads)
    return Sets(
        np.empty((2, states, loads), np.int64), np.empty((2, states, 2), np.int64), np.empty(loads, np.int64), np.empty(shape, np.uint16)
    )


@kernel
def fill(steps: Steps, prices: IntArray, sets: Sets) -> None:
    """Write the largest sums of prices of sets with each load; the prices are those of the units in their order."""
    loads = len(sets.best)
    for b in range(loads):
        sets.value[0, 0, b] = NEVER
    sets.value[0, 0, 0], sets.span[0, 0, 0], sets.span[0, 0, 1] = 0, 0, 1
    for p in range(len(prices)):
        here, there = p % 2, (p + 1) % 2
        start, end = steps.first[p], steps.first[p + 1]
        for t in range(steps.first[p + 2] - end):
            sets.span[there, t, 0], sets.span[there, t, 1] = loads, 0
            for b in range(loads):
                sets.value[there, t, b] = NEVER
        for s in range(end - start):
            for x in range(2):
                more, t, gain = steps.load[start + s, x], steps.following[start + s, x], x * prices[p]
                low, high = sets.span[here, s, 0], min(sets.span[here, s, 1], loads - more)
                if low < high:
                    sets.span[there, t, 0] = min(sets.span[there, t, 0], low + more)
                    sets.span[there, t, 1] = max(sets.span[there, t, 1], high + more)
                for b in range(low, high):
                    value = sets.value[here, s, b] + gain
                    if value > sets.value[there, t, b + more] and sets.value[here, s, b] > NEVER:
                        sets.value[there, t, b + more] = value
                        sets.choice[end + t, b + more] = 2 * s + x
    for b in range(loads):
        sets.best[b] = sets.value[len(prices) % 2, 0, b]


@kernel
def trace(steps: Steps, sets: Sets, load: int, chosen: IntArray) -> None:
    """Write whether each unit is in the best set of a load, 0 or 1 [P]."""
    state = np.int64(0)
    for p in range(len(chosen) - 1, -1, -1):
        choice = np.int64(sets.choice[steps.first[p + 1] + state, load])
        state, chosen[p] = choice // 2, choice % 2
        load -= int(steps.load[steps.first[p] + state, chosen[p]])
