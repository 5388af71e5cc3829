"""Best placements of chains by dynamic programs over intervals of items and used devices.

Devices that may change places are one group, and a state counts how many of each group are used, so all orders of the devices are
tried: exactly, in time n G prod(m_g + 1) for n items and G groups of m_g devices where hops are alike, else at most G times that. Only
states that can be reached and completed are looked at: the longest prefix that devices can hold, and the longest rest, say which.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import BoolArray, FloatArray, Frozen, IntArray
from hetsched.chain.evaluation import evaluate
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import UnsupportedFeature
from hetsched.planning.incumbent import Incumbent
from hetsched.planning.paths import Links, Prices, any_stages
from hetsched.planning.tables import Tables
from hetsched.problem.graph import plural
from hetsched.stopping import NEVER, Deadline

CLOSE = 1e-12
"""Relative difference of latencies below which one is not better than another, as sums are rounded."""
NEAR = (1e-4, 3e-3)
"""Relative distances from the bound by prices at which the least sum is sought first, as few states lead there."""
SHRINK = 0.8
"""Factor by which the first caps on overlapped times shrink: of 0.5 to 0.85 the one with the least evaluations for 80 blocks."""


@dataclass(frozen=True, eq=False)
class LeastLatencies(Frozen):
    """The least latency of a chain by number of stages.

    Attributes
    ----------
    latency : float64 [m]
        Seconds with 1 to m stages; inf where none fits.
    placements : tuple
        A placement of each, or None.
    """

    latency: FloatArray
    placements: tuple[Placement | None, ...]

    @property
    def best(self) -> Placement | None:
        """A placement of least latency, of the fewest stages among equals; None if none fits."""
        return self.placements[int(np.argmin(self.latency))]


@checked
def least_latency(problem: ChainProblem, *, cap: float = math.inf, each: bool = True) -> LeastLatencies:
    """Return the least latency by number of stages, over all placements that fit.

    Parameters
    ----------
    problem : ChainProblem
    cap : float
        Most seconds of a stage and of a hop.
    each : bool
        Whether each number of stages is answered. Otherwise only the least of all is, which is faster where times overlap; the latency
        with another number of stages is that of some placement, or inf.

    Raises
    ------
    UnsupportedFeature
        The devices differ so much that the table would be too large, or items may be offloaded and there is a cap.
    """
    if problem.offloading is None:
        return _least(Tables(problem), cap, range(1, problem.n_devices + 1), Incumbent(), None if each else np.ones(problem.n_devices))
    if cap < math.inf:
        raise UnsupportedFeature(f"cap is {cap} and items may be offloaded; give no cap, or a problem with offloading=None")
    from hetsched.planning.offloading import least_offloaded  # with kernels

    if each:
        found = [least_offloaded(problem, count=count) for count in range(1, problem.n_devices + 1)]
    else:
        value, placement = least_offloaded(problem)
        found = [(math.inf, None)] * problem.n_devices
        if placement is not None:
            found[len(placement) - 1] = value, placement
    return LeastLatencies(np.array([value for value, _ in found]), tuple(placement for _, placement in found))


def find_latency(problems: Sequence[ChainProblem], incumbent: Incumbent) -> None:
    """Find a placement of least latency among those of several problems, and prove it; those without offloaded items are tried first."""
    tables = [Tables(problem) for problem in problems]
    incumbent.begin(len(tables), functools.cache(lambda part: _quick_latency(tables[part])))
    for part, own in enumerate(tables):
        counts = range(1, own.problem.n_devices + 1)
        if own.problem.nodes is None and math.isinf(incumbent.value) and (simple := _Reach(own, counts[-1]).placement()) is not None:
            incumbent.offer(evaluate(own.problem, simple).latency, simple, "farthest prefixes")
        offer = functools.partial(incumbent.offer, source="dynamic program")
        found = _least(own, math.inf, counts, incumbent, np.ones(len(counts)), offer)
        if own.problem.offloading is None:
            incumbent.raise_bound(part, float(found.latency.min()), "dynamic program")
    for part, problem in enumerate(problems):
        if problem.offloading is not None:
            from hetsched.planning.offloading import find_offloaded  # with kernels

            find_offloaded(problem, incumbent, part)


def _quick_latency(tables: Tables) -> float:
    """Return a lower bound on the latency, by prices of items; as if those that may be offloaded took no memory, each at its best."""
    problem = tables.problem
    if problem.offloading is not None:
        seconds = np.minimum(problem.seconds, problem.offloading.seconds.min(axis=2))
        tables = Tables(problem.replace(seconds=seconds, memory_bytes=None, offloading=None))
    overlapped = float(tables.problem.overlapped_seconds.min(axis=1).max())
    return tables.capped(math.inf, math.inf)[2].bound + overlapped


def _least(
    tables: Tables,
    cap: float,
    counts: Sequence[int],
    incumbent: Incumbent,
    weight: FloatArray | None = None,
    offer: Callable[[float, Placement], object] | None = None,
) -> LeastLatencies:
    """Return the least latencies with these numbers of stages, whose loads are at most `cap`.

    With a weight [m] by number of stages only the latency of least quotient is sought, if that is at most the value of the incumbent.
    `offer` is told better placements.

    With S(C) the least sum of all times but the overlapped ones, where these are at most C, a placement under C has less latency than U
    only if its largest overlapped time is less than U - S(C): that is the next cap. S never falls when C shrinks, so caps that shrink
    fast, which make U small, come first, and then those between two of them.
    """
    latency = np.full(tables.problem.n_devices, np.inf)
    placements: list[Placement | None] = [None] * tables.problem.n_devices
    overlaps = tables.problem.overlapped_seconds.any() or tables.problem.overlapped_hops.any()
    one = None if overlaps else weight

    def look(overlap: float) -> tuple[FloatArray, float]:
        """Return the least sums under a cap, and the largest overlapped time of their placements."""
        most = np.full(len(latency), np.inf) if weight is None else min(incumbent.value, (latency / weight).min()) * weight * (1 + CLOSE)
        sums, largest = _least_sums(tables, cap, overlap, counts, incumbent, most, one), 0.0
        for s, placement in enumerate(sums.placements):
            if placement is not None:
                own = tables.largest_overlap(placement)
                largest = max(largest, own)
                if sums.latency[s] + own < latency[s]:
                    latency[s], placements[s] = sums.latency[s] + own, placement
                    if offer is not None:
                        offer(float(latency[s]), placement)
        return sums.latency, largest

    def following(least: FloatArray) -> float:
        """Return the cap after one with these least sums; 0 if there is none."""
        wanted, found = latency if weight is None else (latency / weight).min() * weight, np.isfinite(least)
        return float((wanted[found] * (1 - CLOSE) - least[found]).max(initial=0.0))

    looks: list[tuple[float, FloatArray]] = []
    overlap = math.inf
    while overlap > 0:
        least, largest = look(overlap)
        looks.append((overlap, least))
        overlap = min(SHRINK * largest, following(least))
    for (_, sums), (lower, _) in itertools.pairwise([*looks, (0.0, least)]):
        least = sums
        while (overlap := following(least)) > lower:
            least, _ = look(overlap)
    return LeastLatencies(latency, tuple(placements))


def _least_sums(
    tables: Tables, cap: float, overlap: float, counts: Sequence[int], incumbent: Incumbent, most: FloatArray, one: FloatArray | None
) -> LeastLatencies:
    """Return the least sums of all times but the overlapped ones; loads are at most `cap`, and of them `overlap` overlapped.

    Sums above `most` [m], by number of stages, may be left out; with weights `one` [m] all but that of least quotient.
    """
    m, n = tables.problem.n_devices, tables.problem.n_items
    reach = _Reach(tables, counts[-1], cap, overlap)
    if reach.fewest is None:
        return LeastLatencies(np.full(m, np.inf), (None,) * m)
    stages, links, prices = tables.capped(cap, overlap)
    tables.check_size(len(links.hop))
    reached = reach.kept()

    def up_to(limit: float) -> LeastLatencies:
        """Return the least sums of which those above a limit may be left out."""
        least = np.full(m, np.inf)
        placements: list[Placement | None] = [None] * m
        for (own, allowed), first in itertools.product(tables.by_node(counts), links.firsts) if prices.bound <= limit else ():
            kept = [some & others for some, others in zip(reached, allowed, strict=False)]
            paths = links.shortest(tables.states, kept, n, first, stages.extend, check=incumbent.check, prices=prices, most=limit)
            totals = {s: paths.tables[s][:, :, n] + (links.closing[:, first, None] if s > 1 else 0.0) for s in own}
            better = [s for s in own if totals[s].min(initial=np.inf) < least[s - 1]]
            if one is not None:
                better = sorted(better, key=lambda s: totals[s].min() / one[s - 1])[:1]
            for s in better:
                h, state = divmod(int(np.argmin(totals[s])), totals[s].shape[1])
                placements[s - 1] = tables.placement(*stages.trace(links, paths, s, (h, state), first))
                least[s - 1] = totals[s][h, state]
        return LeastLatencies(least, tuple(placements))

    limits = most[counts[0] - 1 : counts[-1]]
    if one is not None and len(set(one[counts[0] - 1 : counts[-1]])) == 1:  # the least of all is sought: first near the bound
        for near in NEAR:
            limit = prices.bound * (1 + near)
            if limit < limits.max() and (sums := up_to(limit)).latency.min() <= limit:
                return sums
    return up_to(float(limits.max()))


class _Reach:
    """How far devices can hold a chain from its begin in up to `most` stages, whatever the hops.

    Attributes
    ----------
    lowest : int64 [G, n + 1]
        What `Tables.lowest` returns for the caps.
    farthest : int64 [G, n + 1]
        The farthest end of a stage by its group and start; its start if there is none.
    """

    def __init__(self, tables: Tables, most: int, cap: float = math.inf, overlap: float = math.inf) -> None:
        self.tables, self.most, self.n = tables, most, tables.problem.n_items
        self.lowest = tables.lowest(cap, overlap)
        starts = np.arange(self.n + 1)
        self.farthest = np.stack([np.searchsorted(row, starts, side="right") - 1 for row in self.lowest])

    @functools.cached_property
    def fewest(self) -> int | None:
        """The fewest stages with which devices can hold the whole chain; None if none can."""
        longest = np.repeat((np.arange(self.n + 1) - self.lowest).max(axis=1), self.tables.size)
        if np.sort(longest)[-self.most :].sum() < self.n:
            return None
        levels = enumerate(self.tables.states.farthest(self.farthest, most=self.most))
        return next((s for s, ends in levels if (ends == self.n).any()), None)

    @functools.cached_property
    def ends(self) -> list[IntArray]:
        """The end of the longest prefix that the used devices of each state can hold, by level."""
        return list(self.tables.states.farthest(self.farthest, most=self.most))

    def kept(self) -> list[BoolArray]:
        """Return the states of each level of which the devices that are left can hold the rest of the chain."""
        states = self.tables.states
        idle = self.tables.problem.n_devices - self.most
        rests = states.left(list(states.farthest(self.n - self.lowest[:, ::-1], idle)))
        return [end + rest >= self.n for end, rest in zip(self.ends, rests, strict=False)]

    def placement(self) -> Placement | None:
        """Return a placement of all items in the fewest stages, each as long as possible; None if there is none."""
        if self.fewest is None:
            return None
        last = self.fewest
        state, end = int(np.argmax(self.ends[last])), self.n
        groups, starts = list[int](), list[int]()
        for s in range(last, 0, -1):
            for g, before, after in self.tables.states.steps[s]:
                own = before[after == state]
                if len(own) and self.farthest[g, self.ends[s - 1][own[0]]] == end:
                    state, end = int(own[0]), int(self.ends[s - 1][own[0]])
                    groups.append(g)
                    starts.append(end)
                    break
        return self.tables.placement(groups[::-1], starts[::-1])


@dataclass(frozen=True)
class LeastPeriod:
    """A placement of least period, and its period in seconds; None and inf if none fits."""

    placement: Placement | None
    period: float


@checked
def least_period(problem: ChainProblem | Sequence[ChainProblem]) -> LeastPeriod:
    """Return a placement of least period, where as many requests are in progress as there are stages, or as many as there may be.

    Parameters
    ----------
    problem : ChainProblem, or sequence of ChainProblem
        The problem, or if it depends on the number of stages that for 1, 2, ... of them: with K requests in progress each may have a
        K-th of the sequences. The last one is that of more stages too.

    Raises
    ------
    UnsupportedFeature
        The devices differ so much that the table would be too large, or items may be offloaded.

    Notes
    -----
    With k requests in progress, loads of at most B and the least latency S(B) under that cap, the period is ``max(B, S(B) / k)``. S never
    rises with B, so the least is at the smallest load B with ``S(B) / k <= B``, least over the numbers of stages, or at the load before.
    It is not below the smallest load under which devices can hold all items, which is found first: how far a set of devices reaches under
    a cap is one number, as a longer prefix is never worse.
    """
    incumbent = Incumbent()
    find_period([problem] if isinstance(problem, ChainProblem) else problem, incumbent)
    return LeastPeriod(incumbent.placement, incumbent.value)


def find_period(problems: Sequence[ChainProblem], incumbent: Incumbent) -> None:
    """Find a placement of least period, each with the problem of its number of stages, and prove it."""
    if any(problem.offloading is not None for problem in problems):
        raise UnsupportedFeature("items may be offloaded, which is searched for the latency alone; give a problem with offloading=None")
    parts = []
    for count, problem in enumerate(problems, 1):
        most = problem.n_devices if count == len(problems) else min(count, problem.n_devices)
        parts += [_Period(Tables(problem), range(count, most + 1))] if count <= most else []
    incumbent.begin(len(parts), lambda part: parts[part].quick)
    for number in reversed(range(len(parts))):  # more stages tend to be better
        parts[number].find(incumbent, number)


class _Period:
    """The search for the least period with some numbers of stages."""

    def __init__(self, tables: Tables, counts: range) -> None:
        self.tables, self.counts = tables, counts
        self.in_progress = np.array([tables.problem.in_progress(count) for count in range(1, tables.problem.n_devices + 1)], float)
        self.name = plural(counts[0], "stage") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} stages"

    @functools.cached_property
    def quick(self) -> float:
        """A lower bound on the period, by the largest item and by prices of items."""
        largest = float(self.tables.problem.seconds.min(axis=1).max())
        return max(largest, _quick_latency(self.tables) / float(self.in_progress[self.counts[-1] - 1])) * (1 - CLOSE)

    def find(self, incumbent: Incumbent, part: int) -> None:
        """Offer a placement of least period, if it is at most what is known, and raise the bound of a part of the search."""
        if self._reach(incumbent.value).fewest is not None and self.quick <= incumbent.value:
            loads = self._loads(incumbent.value)
            # No period is the load at `low` or less; devices hold all items within that at `high`.
            low, high = int(np.searchsorted(loads, self.quick)) - 1, len(loads) - 1
            while high - low > 1:
                incumbent.check()
                middle = (low + high) // 2
                if self._reach(loads[middle]).fewest is not None:
                    high = middle
                else:
                    low = middle
                    incumbent.raise_bound(part, float(loads[middle + 1]), self.name)
            self._cross(loads, high, incumbent)
        incumbent.raise_bound(part, math.inf, self.name)

    def _reach(self, cap: float) -> _Reach:
        return _Reach(self.tables, self.counts[-1], cap)

    def _loads(self, most: float) -> FloatArray:
        """Return the loads that a stage or a link may have, up to the `most`, in order."""
        pairs = [self.tables.between(each).ravel() for each in (self.tables.problem.hops, self.tables.problem.closing)]
        loads = np.concatenate([self.tables.stages.ravel(), *pairs])
        return np.unique(loads[loads <= min(most, np.finfo(float).max)])

    def _cross(self, loads: FloatArray, first: int, incumbent: Incumbent) -> None:
        """Offer the placements under the caps at the crossing, the load at `first` or a later one, and before it.

        The load before may be below all periods, and be the largest of the best placement nonetheless, whose period is S(B) / k.

        Where S(B) / k is above the cap B, it is so up to the last load below it, or the crossing is between; that load is tried next, as
        it often ends the search. Loads from the value of the incumbent on are left out.
        """
        shares: dict[int, float] = {}
        low, high = first - 1, len(loads)  # the period is above the load at `low`, and at most that at `high`

        def look(at: int) -> bool:
            """Find the least S(B) / k under the cap B of `loads`, and offer its placement; return whether it is above B."""
            nonlocal low, high
            found = _least(self.tables, loads[at], self.counts, incumbent, self.in_progress)
            each = found.latency / self.in_progress
            placement = found.placements[int(np.argmin(each))]
            if placement is not None:
                incumbent.offer(evaluate(self.tables.problem, placement).period, placement, self.name)
            shares[at] = share = float(each.min())
            above = share > float(loads[at])
            low, high = (at, min(high, int(np.searchsorted(loads, share)))) if above else (low, at)
            return above

        above = look(first)
        while high - low > 1:
            above = look(high - 1 if above else (low + high) // 2)
        for at in sorted({low, high} & set(range(len(loads))) - set(shares)):
            if loads[at] < incumbent.value:
                look(at)


@checked
def least_missing(problem: ChainProblem, *, deadline: Deadline = NEVER) -> float:
    """Return the least sum over the stages of the bytes that they need beyond their devices' memory; 0 if a placement fits.

    The times of the placement are finite; inf if those of no placement are. What devices hold for others counts too; if there is much
    that may be offloaded, on many devices, it is a bound from below.

    Parameters
    ----------
    problem : ChainProblem
    deadline : Deadline, optional
        When to give up, with `OutOfTime`.
    """
    if problem.offloading is not None:
        from hetsched.planning.offloading import least_offloaded  # with kernels

        return least_offloaded(problem, missing=True, deadline=deadline)[0]
    tables, n = Tables(problem), problem.n_items
    memory = np.minimum(problem.memory_bytes, np.finfo(float).max)  # finite, so that inf is left where there is no stage
    missing = np.maximum(tables.needed - memory[tables.first, None, None], 0.0)
    missing[np.isinf(tables.stages)] = np.inf
    hop, closing = (np.where(np.isfinite(pairs), 0.0, np.inf) for pairs in map(tables.between, (problem.hops, problem.closing)))
    links = Links.of(hop, closing, tables.pairs)
    tables.check_size(len(links.hop))
    extend = any_stages(missing)

    def check() -> None:
        deadline.check("the search for the least missing bytes")

    found, counts = math.inf, range(1, problem.n_devices + 1)
    for (own, kept), first in itertools.product(tables.by_node(counts), links.firsts):
        paths = links.shortest(tables.states, kept, n, first, extend, check=check, prices=Prices.none(n, len(tables.size)), most=math.inf)
        for count in own:
            total = paths.tables[count][:, :, n] + (links.closing[:, first, None] if count > 1 else 0.0)
            found = min(found, float(total.min(initial=np.inf)))
    return found


@checked
def fewest_stages(problem: ChainProblem) -> int | None:
    """Return the fewest stages of a placement that fits and takes finite times; None if there is none.

    Where no hop is impossible, nothing may be offloaded and nodes do not matter, the longest prefix that a set of devices can hold is
    enough to know, in time G prod(m_g + 1).
    """
    tables = Tables(problem)
    possible = all(np.isfinite(tables.between(each)[tables.pairs]).all() for each in (problem.hops, problem.closing))
    if problem.offloading is not None or problem.nodes is not None or not possible:
        found = np.isfinite(least_latency(problem.without_times()).latency)
        return int(np.argmax(found)) + 1 if found.any() else None
    return _Reach(tables, problem.n_devices).fewest
