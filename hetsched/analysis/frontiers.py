"""The sets of units that one device can run within a load, by dynamic programming along a linear order of the units.

A device that runs the units S of a graph computes them, receives each tensor that S reads from outside, and sends
each tensor of S that is read outside, once each. The program decides unit after unit whether it is in S. A state
holds what later units have to know of this: whether those units at the frontier are in S, the sources of tensors with
readers to come and the readers of tensors whose source comes, and whether a tensor with more than one of these ends has been
counted. Where this would be too many states, tensors are left out, those of the shortest transfers first, so loads are never
too large. Loads are rounded down to whole ticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hetsched.analysis.load_data import LoadData
from hetsched.arrays import BoolArray, FloatArray, IntArray, readonly

if TYPE_CHECKING:
    from hetsched.analysis.frontier_kernels import Steps

WIDEST = 14
"""The most bits of a state."""


class Tensor(NamedTuple):
    """A tensor; units are numbers in the linear order."""

    source: int
    readers: list[int]
    """Ascending."""
    enter: float
    leave: float
    """Seconds into the device and out of it."""


class Frontier(NamedTuple):
    """The transitions of the dynamic program in seconds, see `Steps`."""

    first: IntArray
    following: IntArray
    seconds: FloatArray
    """[S, 2]: what the transition adds to the load; inf if the device cannot do it."""

    def rounded(self, tick: float, loads: int) -> Steps:
        """Return the transitions with loads in whole ticks of some seconds; `loads` stands for all larger ones."""
        from hetsched.analysis.frontier_kernels import Steps

        ticks = np.minimum(np.floor(self.seconds / tick * (1 - 1e-12)), loads).astype(np.int64)
        return Steps(*map(readonly, (self.first, self.following, ticks)))


class Subsets:
    """The best sets of units of a device with loads below a limit.

    Parameters
    ----------
    frontier : Frontier
    tick : float
        Seconds.
    loads : int
        Loads are 0, ..., loads - 1 ticks.
    """

    def __init__(self, frontier: Frontier, tick: float, loads: int) -> None:
        from hetsched.analysis.frontier_kernels import new_sets

        self._steps = frontier.rounded(tick, loads)
        self._sets = new_sets(self._steps, loads)

    def best(self, prices: IntArray) -> IntArray:
        """Return the largest sum of prices [P], whole numbers of at least 0, of a set of at most each load, [loads]."""
        from hetsched.analysis.frontier_kernels import fill

        fill(self._steps, prices, self._sets)
        best: IntArray = np.maximum.accumulate(self._sets.best)
        return best

    def set_within(self, load: int) -> BoolArray:
        """Return whether each unit is in the best set of at most a load at the last prices, [P]."""
        from hetsched.analysis.frontier_kernels import trace

        chosen = np.empty(len(self._steps.first) - 2, np.int64)
        trace(self._steps, self._sets, int(self._sets.best[: load + 1].argmax()), chosen)
        return chosen.astype(bool)


def frontier(data: LoadData, order: IntArray, device: int, states: int) -> Frontier:
    """Return the transitions for one device under the objective ``"max-load"``.

    Parameters
    ----------
    data : LoadData
        Of that objective.
    order : array [U]
        The units in their linear order.
    device : int
    states : int
        About the most states.
    """
    tensors, live = _kept(list(_tensors(data, order, device)), len(order), states)
    cost = data.cost[order, device]
    touching: list[list[int]] = [[] for _ in order]
    for t, tensor in enumerate(tensors):
        for p in (tensor.source, *tensor.readers):
            touching[p].append(t)
    following, seconds = [], []
    before: list[int] = []
    for p, after in enumerate(live):
        states_ = np.arange(1 << len(before))
        bits = {key: (states_ >> place & 1).astype(bool) for place, key in enumerate(before)}
        rows = [_transition(p, x, [(~t, tensors[t]) for t in touching[p]], bits, after) for x in (False, True)]
        following.append(np.column_stack([row for row, _ in rows]))
        seconds.append(np.column_stack([rows[0][1], rows[1][1] + cost[p]]))
        before = after
    first = np.cumsum([0, 1, *(1 << len(after) for after in live)])
    return Frontier(first, np.concatenate(following), np.concatenate(seconds))


def _transition(
    p: int, inside: bool, tensors: list[tuple[int, Tensor]], bits: dict[int, BoolArray], after: list[int]
) -> tuple[IntArray, FloatArray]:
    """Return (state after, seconds) of each state before unit p if it is in the set or not.

    `bits` has, for each state, whether units (keys p) are in the set, and tensors (keys ~t) have been counted.
    """
    size = len(next(iter(bits.values()))) if bits else 1
    now = {**bits, p: np.full(size, inside)}
    seconds = np.zeros(size)
    for key, tensor in tensors:
        if p < tensor.source:
            continue
        seen = [reader for reader in tensor.readers if reader <= p] if p == tensor.source else [p]
        counted = now.get(key, np.zeros(size, bool))
        source = now[tensor.source]
        moved = np.zeros(size, bool)
        for reader in seen:
            moved |= now[reader] != source
        seconds += np.where(moved & ~counted, np.where(source, tensor.leave, tensor.enter), 0.0)
        now[key] = counted | moved
    state = np.zeros(size, np.int64)
    for place, key in enumerate(after):
        state |= now[key].astype(np.int64) << place
    return state, seconds


def _tensors(data: LoadData, order: IntArray, device: int) -> Iterator[Tensor]:
    """Yield the tensors whose transfers take time, those of the longest first."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    enter, leave = data.time[:, :, device].T
    for t in np.argsort(-(enter + leave), kind="stable").tolist():
        if enter[t] + leave[t] > 0:
            readers = np.sort(place[data.reader[data.reader_ptr[t] : data.reader_ptr[t + 1]]]).tolist()
            yield Tensor(int(place[data.source[t]]), readers, float(enter[t]), float(leave[t]))


def _kept(tensors: list[Tensor], size: int, states: int) -> tuple[list[Tensor], list[list[int]]]:
    """Return the tensors that the states have room for, and the bits of the states after each unit: units p, and ~t for tensors t."""
    width = np.zeros(size, np.int64)
    until = np.arange(size)  # the unit at which nothing needs to know any more whether a unit is in the set
    kept: list[Tensor] = []
    spans: list[tuple[int, int]] = []
    for tensor in tensors:
        source, readers = tensor.source, tensor.readers
        ends = {source: max(source, readers[-1]), **{reader: source for reader in readers if reader < source}}
        counted = (max(source, readers[0]), readers[-1])
        more = width.copy()
        for begin, end in [counted, *((until[unit], end) for unit, end in ends.items())]:
            more[begin:end] += 1
        if more.max() > WIDEST or (2.0**more).sum() > states:
            continue
        width = more
        for unit, end in ends.items():
            until[unit] = max(until[unit], end)
        kept.append(tensor)
        spans.append(counted)
    live: list[list[int]] = [[] for _ in range(size)]
    for bit, begin, end in [*((p, p, until[p]) for p in range(size)), *((~t, *span) for t, span in enumerate(spans))]:
        for p in range(begin, end):
            live[p].append(bit)
    return kept, live
