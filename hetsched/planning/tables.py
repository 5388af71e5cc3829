"""What the dynamic programs read of a chain: groups of devices that may change places, and sums over its intervals."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import UnsupportedFeature
from hetsched.planning import chain_kernels as kernels

MOST_NUMBERS = 2**27
"""The most numbers of a table, which is a gigabyte: sixteen devices that all differ and eighty items have three quarters of it."""


class Tables:
    """What the dynamic programs read of a problem."""

    def __init__(self, problem: ChainProblem) -> None:
        self.problem = problem
        groups = problem.groups
        self.size = np.bincount(groups)
        self.first = np.array([int(np.argmax(groups == g)) for g in range(len(self.size))])
        self.last = np.array([int(np.flatnonzero(groups == g)[-1]) for g in range(len(self.size))])
        self.stride = np.cumprod([1, *(self.size[:-1] + 1)])
        self.n_states = int(np.prod(self.size + 1.0))
        numbers = self.n_states * len(self.size) * (problem.n_items + 1)
        if numbers > MOST_NUMBERS:
            raise UnsupportedFeature(
                f"{problem.n_devices} devices of which {len(self.size)} differ and {problem.n_items} items take a table of {numbers:,} "
                f"numbers; {MOST_NUMBERS:,} are possible: leave devices out, or give alike ones the same times, memory and links"
            )

    @functools.cached_property
    def table(self) -> FloatArray:
        """Return working memory of `chain_kernels.shortest`."""
        return np.empty((len(self.size), self.n_states, self.problem.n_items + 1))

    @functools.cached_property
    def used(self) -> IntArray:
        """Used devices of each group in each state [state, group]."""
        digits: IntArray = np.arange(self.n_states)[:, None] // self.stride % (self.size + 1)
        return digits

    @functools.cached_property
    def n_stages(self) -> IntArray:
        """Number of used devices in each state."""
        counts: IntArray = self.used.sum(axis=1)
        return counts

    def before(self, times: FloatArray) -> FloatArray:
        """Return the seconds of the items before each end [group, n + 1] by those of an item [n, m], without impossible ones."""
        seconds = times[:, self.first].T
        before = np.zeros((len(seconds), self.problem.n_items + 1))
        np.cumsum(np.where(np.isfinite(seconds), seconds, 0.0), axis=1, out=before[:, 1:])
        return before

    def intervals(self, times: FloatArray) -> FloatArray:
        """Return the seconds of an interval [group, start, end] by those of an item [n, m]; inf where the end is not behind the start."""
        before = self.before(times)
        seconds: FloatArray = before[:, None, :] - before[:, :, None]
        seconds[:, np.tri(self.problem.n_items + 1, dtype=bool)] = np.inf
        return seconds

    @functools.cached_property
    def rest(self) -> FloatArray:
        """Seconds of the items before each end [group, n + 1], without those that overlap."""
        return self.before(self.problem.seconds - self.problem.overlapped_seconds)

    @functools.cached_property
    def stages(self) -> FloatArray:
        """Seconds of a stage [group, start, end]; inf where there is none, or an item is impossible."""
        seconds = self.intervals(self.problem.seconds) + self.problem.stage_seconds[self.first, None, None]
        for g, i in np.argwhere(np.isinf(self.problem.seconds[:, self.first].T)):
            seconds[g, : i + 1, i + 1 :] = np.inf
        return seconds

    @functools.cached_property
    def overlapped(self) -> FloatArray:
        """Overlapped seconds of a stage [group, start, end]; inf where there is none."""
        return self.intervals(self.problem.overlapped_seconds)

    @functools.cached_property
    def needed(self) -> FloatArray:
        """Bytes of a stage [start, end]; inf where the end is not behind the start."""
        problem, n = self.problem, self.problem.n_items
        held = np.concatenate([[0.0], np.cumsum(problem.weight_bytes + problem.cache_bytes)])
        needed: FloatArray = held[None, :] - held[:, None]
        for start in range(n):
            needed[start, start + 1 :] += np.maximum.accumulate(problem.workspace_bytes[start:])
        needed[0, n] -= problem.shared_bytes
        needed[np.tri(n + 1, dtype=bool)] = np.inf
        return needed

    def between(self, pairs: FloatArray) -> FloatArray:
        """Return numbers of pairs of devices by pair of groups; of a group with itself, those of two of its devices, inf if it has one."""
        result: FloatArray = pairs[np.ix_(self.first, self.last)].copy()
        np.fill_diagonal(result, np.where(self.size > 1, pairs[self.first, self.last], np.inf))
        return result

    def lowest(self, cap: float, overlap: float) -> IntArray:
        """Return the first item of a stage by its group and end.

        The stage is possible, fits, and takes at most `cap` seconds, `overlap` of them overlapped.
        """
        low, row = np.empty((len(self.size), self.problem.n_items + 1), np.int64), np.empty(self.problem.n_items + 1, np.int64)
        for g, k in enumerate(self.first):
            kernels.lowest_starts(self.needed, self.problem.memory_bytes[k], low[g])
            for seconds, most in ((self.stages, min(cap, np.finfo(float).max)), (self.overlapped, overlap)):  # no impossible item
                kernels.lowest_starts(seconds[g], most, row)
                np.maximum(low[g], row, out=low[g])
        return low

    def largest_overlap(self, placement: Placement) -> float:
        """Return the largest overlapped seconds of a stage or hop, by the same sums as `lowest`."""
        problem, stages = self.problem, placement.stages
        hops = (problem.overlapped_hops[a.device, b.device] for a, b in itertools.pairwise(stages))
        return float(max(*hops, *(self.overlapped[problem.groups[k], first, end] for k, first, end in stages), 0.0))

    def placement(self, groups: IntArray, starts: IntArray) -> Placement:
        """Return the placement with the group and the first item of each stage; devices of a group are taken in order."""
        free = [iter(np.flatnonzero(self.problem.groups == g).tolist()) for g in range(len(self.size))]
        ends = [*starts[1:].tolist(), self.problem.n_items]
        return Placement((next(free[g]), start, end) for g, start, end in zip(groups.tolist(), starts.tolist(), ends, strict=True))

    def first_groups(self, closing: FloatArray) -> Iterator[tuple[int, FloatArray]]:
        """Yield groups of the first stage, -1 for any, with the time back to it from each; closing times that are all equal need one."""
        pairs = self.between(np.zeros_like(self.problem.closing)) == 0
        if (closing[pairs] == closing[pairs][:1]).all():
            yield -1, np.full(len(closing), closing[pairs].max(initial=0.0))
        else:
            yield from ((g, closing[:, g]) for g in range(len(closing)))

    def totals(self, back: FloatArray) -> FloatArray:
        """Return the value of all items in each state [state, group] of `table`, with the times back to the first stage."""
        return np.where(self.used > 0, self.table[:, :, -1].T, np.inf) + np.where(self.n_stages[:, None] > 1, back, 0.0)
