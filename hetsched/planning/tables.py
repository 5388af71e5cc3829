"""What the dynamic programs read of a chain: groups of alike devices, and times and bytes of intervals of its items."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import UnsupportedFeature
from hetsched.planning.paths import Links, Prices, Stages
from hetsched.planning.used_devices import UsedDevices, used_devices

MOST_NUMBERS = 2**27
"""The most numbers of a table, which is a gigabyte: twenty devices that all differ and eighty items have two thirds of it."""


class Tables:
    """What the dynamic programs read of a problem."""

    def __init__(self, problem: ChainProblem) -> None:
        self.problem = problem
        groups = problem.groups
        self.size = np.bincount(groups)
        self.first = np.unique(groups, return_index=True)[1]
        self.last = len(groups) - 1 - np.unique(groups[::-1], return_index=True)[1]
        self.n_states = int(np.prod(self.size + 1.0))

    def check_size(self, n_classes: int) -> None:
        """Raise `UnsupportedFeature` if the table of the states, with this many classes of last devices, is too large."""
        numbers = self.n_states * n_classes * (self.problem.n_items + 1)
        if numbers > MOST_NUMBERS:
            raise UnsupportedFeature(
                f"{self.problem.n_devices} devices of which {len(self.size)} differ and {self.problem.n_items} items take a table of "
                f"{numbers:,} numbers; {MOST_NUMBERS:,} are possible: leave devices out, or give alike ones the same times, memory and "
                "links"
            )

    def has_room(self) -> bool:
        """Return whether the table of the states, with the classes of last devices that the problem has, is not too large."""
        n_classes = len(Links.of(self.between(self.problem.hops), self.between(self.problem.closing), self.pairs).hop)
        return self.n_states * n_classes * (self.problem.n_items + 1) <= MOST_NUMBERS

    @property
    def lacking(self) -> float:
        """By how much all weights and the cache are more than the memory of the devices that can run some item."""
        problem, able = self.problem, np.isfinite(self.problem.seconds).any(axis=0)
        needed = (problem.weight_bytes + problem.cache_bytes).sum() - problem.shared_bytes
        return max(float(needed - problem.memory_bytes[able].sum()), 0.0)

    @functools.cached_property
    def states(self) -> UsedDevices:
        """The states of the devices, after a check that they are not too many."""
        self.check_size(1)
        return used_devices(tuple(self.size.tolist()))

    def by_node(self, counts: Sequence[int]) -> Iterator[tuple[Sequence[int], list[BoolArray]]]:
        """Yield numbers of stages, and the states of each level with which nodes are used as `ChainProblem.nodes` says.

        That is for each number of stages on a node: of at most one node fewer devices are used than that, and of none more, so that the
        next stage is on that node, if there is one.
        """
        states, nodes = self.states, self.problem.nodes
        if nodes is None:
            yield counts, [np.ones(count, np.bool_) for count in states.counts]
            return
        own = nodes[self.first]
        digits = states.numbers[:, None] // states.stride % (states.size + 1)
        used = np.stack([digits[:, own == node].sum(axis=1) for node in np.unique(own)], axis=1)
        for each in range(1, int(np.bincount(nodes).max()) + 1):
            kept = (used <= each).all(axis=1) & (((used > 0) & (used < each)).sum(axis=1) <= 1)
            yield [count for count in counts if count % each == 0], np.split(kept, np.cumsum(states.counts)[:-1])

    def before(self, times: FloatArray) -> FloatArray:
        """Return the seconds of the items before each end [group, n + 1] by those of an item [n, m], without impossible ones."""
        seconds = times[:, self.first].T
        before = np.zeros((len(seconds), self.problem.n_items + 1))
        np.cumsum(np.where(np.isfinite(seconds), seconds, 0.0), axis=1, out=before[:, 1:])
        return before

    @functools.cached_property
    def _whole(self) -> FloatArray:
        return self.before(self.problem.seconds)

    @functools.cached_property
    def _overlapped(self) -> FloatArray:
        return self.before(self.problem.overlapped_seconds)

    @functools.cached_property
    def rest(self) -> FloatArray:
        """Seconds of the items before each end [group, n + 1], without those that overlap."""
        return self.before(self.problem.seconds - self.problem.overlapped_seconds)

    @functools.cached_property
    def _uncapped(self) -> tuple[Stages, Links, Prices]:
        return self._capped(math.inf, math.inf)

    def capped(self, cap: float, overlap: float) -> tuple[Stages, Links, Prices]:
        """Return the costs of stages and hops that take at most `cap` seconds, `overlap` of them overlapped, and prices of items."""
        return self._uncapped if cap == overlap == math.inf else self._capped(cap, overlap)

    def _capped(self, cap: float, overlap: float) -> tuple[Stages, Links, Prices]:
        stages = Stages(self.rest, self.problem.stage_seconds[self.first], self.lowest(cap, overlap))
        links = self._links(cap, overlap)
        return stages, links, stages.prices(self.size, links)

    def _links(self, cap: float, overlap: float) -> Links:
        """Return the times between groups without those that overlap, see `capped`."""
        problem = self.problem
        whole, overlapped, closing = map(self.between, (problem.hops, problem.overlapped_hops, problem.closing))
        hop = self.between(problem.hops - problem.overlapped_hops)
        hop[(whole > cap) | (overlapped > overlap)] = np.inf
        closing[closing > cap] = np.inf
        return Links.of(hop, closing, self.pairs)

    @functools.cached_property
    def stages(self) -> FloatArray:
        """Seconds of a stage [group, start, end]; inf where there is none, or an item is impossible."""
        before, behind = self._whole, np.where(np.tri(self.problem.n_items + 1, dtype=bool), np.inf, 0.0)
        seconds: FloatArray = before[:, None, :] - before[:, :, None] + self.problem.stage_seconds[self.first, None, None] + behind
        for g, i in np.argwhere(np.isinf(self.problem.seconds[:, self.first].T)):
            seconds[g, : i + 1, i + 1 :] = np.inf
        return seconds

    @functools.cached_property
    def workspace(self) -> FloatArray:
        """Bytes of the largest workspace of a stage [start, end]; 0 where the end is not behind the start."""
        own, n = self.problem.workspace_bytes, self.problem.n_items
        largest = np.zeros((n + 1, n + 1))
        np.maximum.accumulate(np.triu(np.broadcast_to(own, (n, n))), axis=1, out=largest[:n, 1:])
        return largest

    @functools.cached_property
    def needed(self) -> FloatArray:
        """Bytes of a stage [start, end]; inf where the end is not behind the start."""
        problem, n = self.problem, self.problem.n_items
        held = np.concatenate([[0.0], np.cumsum(problem.weight_bytes + problem.cache_bytes)])
        needed: FloatArray = held[None, :] - held[:, None] + self.workspace
        needed[0, n] -= problem.shared_bytes
        needed[np.tri(n + 1, dtype=bool)] = np.inf
        return needed

    def between(self, pairs: FloatArray) -> FloatArray:
        """Return numbers of pairs of devices by pair of groups; of a group with itself, those of two of its devices, inf if it has one."""
        result: FloatArray = pairs[np.ix_(self.first, self.last)].copy()
        np.fill_diagonal(result, np.where(self.size > 1, pairs[self.first, self.last], np.inf))
        return result

    @functools.cached_property
    def pairs(self) -> BoolArray:
        """Whether there are two devices of a pair of groups."""
        known: BoolArray = self.between(np.zeros_like(self.problem.hops)) == 0
        return known

    @functools.cached_property
    def fitting(self) -> IntArray:
        """The first item of a stage that is possible and fits, by its group and end."""
        problem, ends = self.problem, np.arange(self.problem.n_items + 1)
        possible = np.zeros((len(self.size), len(ends)), np.int64)
        np.maximum.accumulate(np.where(np.isinf(problem.seconds[:, self.first].T), ends[1:], 0), axis=1, out=possible[:, 1:])
        possible[np.isinf(problem.stage_seconds[self.first])] = ends
        return lowest_starts(lambda starts: self.needed[starts, ends], problem.memory_bytes[self.first, None], possible)

    def _within(self, before: FloatArray, beside: FloatArray | float, most: float, low: IntArray) -> IntArray:
        """Return the first item, from `low` on, of a stage of at most so many seconds, by those before each item and beside all."""
        rows = np.arange(len(before))[:, None]
        return lowest_starts(lambda starts: before - before[rows, starts] + beside, most, low)

    def lowest(self, cap: float, overlap: float) -> IntArray:
        """Return the first item of a stage by its group and end; `end` if there is none.

        The stage is possible, fits, and takes at most `cap` seconds, `overlap` of them overlapped. The item never falls as the end rises.
        """
        low = self.fitting
        if cap < np.inf:
            low = self._within(self._whole, self.problem.stage_seconds[self.first, None], cap, low)
        if overlap < np.inf:
            low = self._within(self._overlapped, 0.0, overlap, low)
        return low

    def largest_overlap(self, placement: Placement) -> float:
        """Return the largest overlapped seconds of a stage or hop, by the same sums as `lowest`."""
        problem, stages = self.problem, placement.stages
        hops = (problem.overlapped_hops[a.device, b.device] for a, b in itertools.pairwise(stages))
        own = ((problem.groups[k], first, end) for k, first, end in stages)
        before = self._overlapped
        return float(max(*hops, *(before[g, end] - before[g, first] for g, first, end in own), 0.0))

    def placement(self, groups: Sequence[int], starts: Sequence[int]) -> Placement:
        """Return the placement with the group and the first item of each stage; devices of a group are taken in order."""
        free = [iter(np.flatnonzero(self.problem.groups == g).tolist()) for g in range(len(self.size))]
        ends = [*starts[1:], self.problem.n_items]
        return Placement((next(free[g]), start, end) for g, start, end in zip(groups, starts, ends, strict=True))


def lowest_starts(needed: Callable[[IntArray], FloatArray], room: FloatArray | float, low: IntArray) -> IntArray:
    """Return the first item, from `low` [group, end] on, with which a stage that ends there needs at most `room`; `end` if there is none.

    `needed` returns what stages need by their starts [group, end], which never falls as the end rises or the start falls.
    """
    high = np.broadcast_to(np.arange(low.shape[1]), low.shape)
    for _ in range(low.shape[1].bit_length()):
        middle = (low + high) // 2
        fits = (needed(middle) <= room) | (middle == high)
        low, high = np.where(fits, low, middle + 1), np.where(fits, middle, high)
    return low
