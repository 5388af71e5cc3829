"""Best placements of chains by dynamic programs over intervals of items and used devices.

Devices that may change places are one group, and a state counts how many of each group are used, so all orders of the devices are
tried: exactly, in time n G^2 prod(m_g + 1) for n items and G groups of m_g devices.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray, Frozen
from hetsched.chain.evaluation import evaluate
from hetsched.chain.offloading import Offloading
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import UnsupportedFeature
from hetsched.planning import chain_kernels as kernels
from hetsched.planning.offloading import least_offloaded
from hetsched.planning.tables import Tables

CLOSE = 1e-12
"""Relative difference of latencies below which one is not better than another, as sums are rounded."""
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
        return _least(Tables(problem), cap, range(1, problem.n_devices + 1), None if each else np.ones(problem.n_devices))
    if cap < math.inf:
        raise UnsupportedFeature(f"cap is {cap} and items may be offloaded; give no cap, or a problem with offloading=None")
    if each:
        found = [least_offloaded(problem, count=count) for count in range(1, problem.n_devices + 1)]
    else:
        value, placement = least_offloaded(problem)
        found = [(math.inf, None)] * problem.n_devices
        if placement is not None:
            found[len(placement) - 1] = value, placement
    return LeastLatencies(np.array([value for value, _ in found]), tuple(placement for _, placement in found))


def _least(tables: Tables, cap: float, counts: Sequence[int], weight: FloatArray | None = None) -> LeastLatencies:
    """Return the least latencies with these numbers of stages, whose loads are at most `cap`.

    With a weight [m] by number of stages only the latency of least quotient is sought.

    With S(C) the least sum of all times but the overlapped ones, where these are at most C, a placement under C has less latency than U
    only if its largest overlapped time is less than U - S(C): that is the next cap. S never falls when C shrinks, so caps that shrink
    fast, which make U small, come first, and then those between two of them.
    """
    latency = np.full(tables.problem.n_devices, np.inf)
    placements: list[Placement | None] = [None] * tables.problem.n_devices

    def look(overlap: float) -> tuple[FloatArray, float]:
        """Return the least sums under a cap, and the largest overlapped time of their placements."""
        sums, largest = _least_sums(tables, cap, overlap, counts), 0.0
        for s, placement in enumerate(sums.placements):
            if placement is not None:
                own = tables.largest_overlap(placement)
                largest = max(largest, own)
                if sums.latency[s] + own < latency[s]:
                    latency[s], placements[s] = sums.latency[s] + own, placement
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


def _least_sums(tables: Tables, cap: float, overlap: float, counts: Sequence[int]) -> LeastLatencies:
    """Return the least sums of all times but the overlapped ones; loads are at most `cap`, and of them `overlap` overlapped."""
    problem = tables.problem
    hop, closing = tables.between(problem.hops - problem.overlapped_hops), tables.between(problem.closing)
    hop[(tables.between(problem.hops) > cap) | (tables.between(problem.overlapped_hops) > overlap)] = np.inf
    closing[closing > cap] = np.inf
    chain = kernels.Chain(
        tables.rest, problem.stage_seconds[tables.first], tables.lowest(cap, overlap), hop, closing, tables.size, tables.stride
    )
    arrive, queue = np.empty(problem.n_items), np.empty(problem.n_items, np.int64)
    least = np.full(problem.n_devices, np.inf)
    placements: list[Placement | None] = [None] * problem.n_devices
    for first, back in tables.first_groups(closing):
        kernels.shortest(chain, first, tables.table, arrive, queue)
        total = tables.totals(back)
        for count in counts:
            own = np.flatnonzero(tables.n_stages == count)
            at = int(np.argmin(total[own]))
            used, g = int(own[at // len(hop)]), at % len(hop)
            if total[used, g] < least[count - 1]:
                groups, starts = np.empty(count, np.int64), np.empty(count, np.int64)
                kernels.trace(chain, first, tables.table, used, g, arrive, groups, starts)
                placements[count - 1] = tables.placement(groups[::-1], starts[::-1])
                least[count - 1] = total[used, g]
    return LeastLatencies(least, tuple(placements))


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
    """
    problems = [problem] if isinstance(problem, ChainProblem) else problem
    if any(own.offloading is not None for own in problems):
        raise UnsupportedFeature("items may be offloaded, which is searched for the latency alone; give a problem with offloading=None")
    found = LeastPeriod(None, math.inf)
    for count, own in enumerate(problems, 1):
        most = own.n_devices if count == len(problems) else min(count, own.n_devices)
        found = _period_below(found, Tables(own), range(count, most + 1))
    return found


def _period_below(known: LeastPeriod, tables: Tables, counts: Sequence[int]) -> LeastPeriod:
    """Return a placement of least period, with one of these numbers of stages, if that is less than a known one."""
    pairs = [tables.between(each) for each in (tables.problem.hops, tables.problem.closing)]
    loads = np.unique(np.concatenate([each.ravel() for each in (tables.stages, *pairs)]))
    loads = loads[loads < known.period]
    in_progress = np.array([tables.problem.in_progress(count) for count in range(1, tables.problem.n_devices + 1)], float)

    @functools.cache
    def least(at: int) -> tuple[float, Placement | None]:
        """Return the least S(B) / k under the cap B of `loads`, and its placement."""
        found = _least(tables, loads[at], counts, in_progress)
        shares = found.latency / in_progress
        return float(shares.min()), found.placements[int(np.argmin(shares))]

    low, high = -1, len(loads)  # the period is above the load at `low`, and at most that at `high`
    if not len(loads) or least(high - 1)[0] >= known.period:
        return known
    while high - low > 1:
        middle = (low + high) // 2
        if least(middle)[0] <= loads[middle]:
            high = middle
        else:
            low = middle
    placements = [least(at)[1] for at in (low, high) if 0 <= at < len(loads)]
    made = [LeastPeriod(placement, evaluate(tables.problem, placement).period) for placement in placements if placement is not None]
    return min([known, *made], key=lambda one: one.period)


@checked
def least_missing(problem: ChainProblem) -> float:
    """Return the least sum over the stages of the bytes that they need beyond their devices' memory; 0 if a placement fits.

    The times of the placement are finite; inf if those of no placement are. What devices hold for others counts
    too; if there is much that may be offloaded, on many devices, it is a bound from below.
    """
    if problem.offloading is not None:
        return least_offloaded(problem, missing=True)[0]
    tables = Tables(problem)
    memory = np.minimum(problem.memory_bytes, np.finfo(float).max)  # finite, so that inf is left where there is no stage
    missing = np.maximum(tables.needed - memory[tables.first, None, None], 0.0)
    missing[np.isinf(tables.stages)] = np.inf
    hop, closing = (np.where(np.isfinite(pairs), 0.0, np.inf) for pairs in map(tables.between, (problem.hops, problem.closing)))
    nothing = np.zeros_like(tables.rest)
    chain = kernels.Chain(nothing, nothing[:, 0].copy(), nothing.astype(np.int64), hop, closing, tables.size, tables.stride)
    least = math.inf
    for first, back in tables.first_groups(closing):
        kernels.shortest_of_any(chain, missing, first, tables.table, np.empty(problem.n_items))
        least = min(least, float(tables.totals(back).min()))
    return least


@checked
def fewest_stages(problem: ChainProblem) -> int | None:
    """Return the fewest stages of a placement that fits and takes finite times; None if there is none.

    Where no hop is impossible, and nothing may be offloaded, the longest prefix that a set of devices can hold is enough to know, in time
    G prod(m_g + 1).
    """
    tables = Tables(problem)
    pairs = tables.between(np.zeros_like(problem.hops)) == 0
    if problem.offloading is not None or not all(
        np.isfinite(tables.between(each)[pairs]).all() for each in (problem.hops, problem.closing)
    ):
        found = np.isfinite(least_latency(problem.without_times()).latency)
        return int(np.argmax(found)) + 1 if found.any() else None
    lowest, starts = tables.lowest(math.inf, math.inf), np.arange(problem.n_items + 1)
    reach = np.stack([np.searchsorted(row, starts, side="right") - 1 for row in lowest])
    ends = np.zeros(tables.n_states, np.int64)
    kernels.farthest(reach, tables.size, tables.stride, ends)
    counts = tables.n_stages[ends == problem.n_items]
    return int(counts.min()) if len(counts) else None


def prepare() -> None:
    """Compile the kernels."""
    problem = ChainProblem(["a", "b"], ["x", "y"], [[1.0, 2.0], [2.0, 1.0]])
    least_latency(problem)
    least_period(problem)
    least_missing(problem)
    fewest_stages(problem)
    moved = Offloading([1.0, 0.0], np.ones((2, 2)), np.ones((2, 2)))
    least_offloaded(problem.replace(weight_bytes=[1.0, 1.0], memory_bytes=[1.0, 1.0], offloading=moved))
