"""Which devices are used, as states of dynamic programs over chains; all numbers of used devices in turn, in whole arrays.

A state counts the used devices of each group of alike ones: the digits of one number, that of group g with the weight ``stride[g]``. The
states with s used devices are level s, in order of their numbers, so that the devices left by the k-th state of level s from the front are
those used by the k-th state of level m - s from the back.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hetsched.arrays import IntArray


class Step(NamedTuple):
    """One more device of a group: states of a level, and those of the level before from which they come."""

    group: int
    before: IntArray
    after: IntArray


class UsedDevices:
    """The states of G groups, by level.

    Attributes
    ----------
    size, stride : int64 [G]
        Devices of each group, and the weight of its digit.
    counts : list of int
        States of each level, from 0 to m used devices.
    numbers : int64 [states]
        Numbers of the states, level by level.
    steps : list of list of Step
        The steps to each level, by group.
    """

    def __init__(self, size: Sequence[int]) -> None:
        self.size = np.array(size)
        self.stride = np.cumprod([1, *(self.size[:-1] + 1)])
        used = np.arange(int(np.prod(self.size + 1)))
        digits = [used // stride % (most + 1) for stride, most in zip(self.stride, self.size, strict=True)]
        level = np.sum(digits, axis=0)
        self.counts: list[int] = np.bincount(level).tolist()
        self.numbers = np.argsort(level, kind="stable")
        place = np.empty_like(self.numbers)
        place[self.numbers] = np.arange(len(place)) - np.repeat(np.cumsum([0, *self.counts[:-1]]), self.counts)
        self.steps: list[list[Step]] = [[] for _ in self.counts]
        for s, states in enumerate(np.split(self.numbers, np.cumsum(self.counts)[:-1])):
            for g, digit in enumerate(digits):
                after = np.flatnonzero(digit[states])
                if len(after):
                    self.steps[s].append(Step(g, place[states[after] - self.stride[g]], after))

    def farthest(self, reach: IntArray, idle: int = 0, most: int | None = None) -> Iterator[IntArray]:
        """Yield the end of the longest prefix of a chain that the used devices of each state can hold, by level.

        Parameters
        ----------
        reach : int64 [G, n + 1]
            The farthest end of a stage by its start, which is the start if there is none. It never falls as the start rises, so no
            shorter prefix leads farther.
        idle : int
            So many of the used devices hold nothing.
        most : int, optional
            The last level.
        """
        last = np.zeros(1, np.int64)
        for s, count in enumerate(self.counts[: None if most is None else most + 1]):
            ends = np.zeros(count, np.int64)
            for g, before, after in self.steps[s] if s > idle else ():
                ends[after] = np.maximum(ends[after], reach[g][last[before]])
            yield ends
            last = ends

    def left(self, levels: list[IntArray]) -> list[IntArray]:
        """Return numbers of the states of all levels by the devices that are left instead of those that are used."""
        return [level[::-1] for level in reversed(levels)]


@functools.lru_cache(maxsize=4)
def used_devices(size: tuple[int, ...]) -> UsedDevices:
    """Return the states of groups of these sizes."""
    return UsedDevices(size)
