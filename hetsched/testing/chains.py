"""Hypothesis strategies for chains and their placements, and the best placements of small chains by enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from hetsched.arguments import checked
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import UnsupportedFeature
from hetsched.testing.strategies import FLAGS, Given

Row = tuple[int, int, int]
"""Device, first item, end."""

_ITEMS = st.integers(1, 7)
_DEVICES = st.integers(1, 4)
_HALVES = st.sampled_from([twice / 2 for twice in range(13)])
_FEW_HALVES = st.sampled_from([twice / 2 for twice in range(7)])
_SELDOM_IMPOSSIBLE = st.sampled_from([*(twice / 2 for twice in range(19)), math.inf])
_MAYBE_IMPOSSIBLE = st.sampled_from([*(twice / 2 for twice in range(7)), math.inf, math.inf])
_SHARES = st.sampled_from([0.0, 0.5, 1.0])
_BYTES = st.integers(0, 6)
_OFTEN = st.sampled_from([False, True, True, True])


def _value(draw: DrawFn, given: Given[int]) -> int:
    return given if isinstance(given, int) else draw(given)


def _list(draw: DrawFn, strategy: st.SearchStrategy[float], count: int) -> list[float]:
    return draw(st.lists(strategy, min_size=count, max_size=count))


@st.composite
def chain_problems(
    draw: DrawFn,
    *,
    n_items: Given[int] = _ITEMS,
    n_devices: Given[int] = _DEVICES,
    alike: Given[bool] = FLAGS,
    tight: Given[bool] = _OFTEN,
    stage_seconds: Given[bool] = FLAGS,
    hops: Given[bool] = FLAGS,
    impossible: Given[bool] = FLAGS,
    unable: Given[bool] = False,
    closing: Given[bool] = FLAGS,
    workspace: Given[bool] = FLAGS,
    shared: Given[bool] = FLAGS,
    overlap: Given[bool] = FLAGS,
    limited: Given[bool] = FLAGS,
) -> ChainProblem:
    """Draw a chain of items i0, i1, ... and devices d0, d1, ...

    Every argument is a value or a strategy for it. Times are multiples of 1/2 and bytes whole numbers, so that sums are exact.

    Parameters
    ----------
    n_items, n_devices : int
    alike : bool
        Whether devices, if there are several, are equal: of fewer kinds than devices, with hops by kinds. Otherwise each is drawn.
    tight : bool
        Whether the devices have limited memory, often exactly what some stage needs, so there may be no placement. Otherwise it is
        unlimited.
    stage_seconds, hops, closing, workspace, shared : bool
        Whether the problem has such times and bytes.
    impossible : bool
        Whether hops may be inf.
    unable : bool
        Whether seconds of items may be inf.
    overlap : bool
        Whether parts of the times of items and hops overlap; multiples of 1/4.
    limited : bool
        Whether there is a limit on requests in progress.
    """
    n, m = _value(draw, n_items), _value(draw, n_devices)
    kind = st.integers(0, max(m - 2, 0))  # of two devices at least
    kinds = draw(st.lists(kind, min_size=m, max_size=m)) if _value(draw, alike) else list(range(m))
    size = max(kinds) + 1
    times = np.array(_list(draw, _SELDOM_IMPOSSIBLE if _value(draw, unable) else _HALVES, n * size)).reshape(n, size)
    weights, caches = _list(draw, _BYTES, n), _list(draw, _BYTES, n)
    workspaces = _list(draw, _BYTES, n) if _value(draw, workspace) else [0.0] * n
    common = draw(st.integers(0, int(min(weights[0], weights[-1])))) if n > 1 and _value(draw, shared) else 0
    memory = [math.inf] * size
    if _value(draw, tight):
        needs = [sum(weights[i:j]) + sum(caches[i:j]) + max(workspaces[i:j]) for i in range(n) for j in range(i + 1, n + 1)]
        needs[n - 1] -= common  # of all items
        memory = _list(draw, st.one_of(st.integers(0, int(max(needs))), st.sampled_from(needs), st.just(needs[n - 1])), size)
    own = _list(draw, _FEW_HALVES, size) if _value(draw, stage_seconds) else [0.0] * size
    tables = {}
    hop = _MAYBE_IMPOSSIBLE if _value(draw, impossible) else _FEW_HALVES
    for name, present, seconds in (("hops", hops, hop), ("closing", closing, _FEW_HALVES)):
        if _value(draw, present):
            tables[name] = np.array(_list(draw, seconds, size * size)).reshape(size, size)[np.ix_(kinds, kinds)]
    if _value(draw, overlap):
        shares = np.array(_list(draw, _SHARES, n * size)).reshape(n, size)
        tables["overlapped_seconds"] = (np.where(np.isfinite(times), times, 0.0) * shares)[:, kinds]
        if "hops" in tables:
            shares = np.array(_list(draw, _SHARES, size * size)).reshape(size, size)[np.ix_(kinds, kinds)]
            tables["overlapped_hops"] = np.where(np.isfinite(tables["hops"]), tables["hops"], 0.0) * shares
    return ChainProblem(
        [f"i{i}" for i in range(n)],
        [f"d{k}" for k in range(m)],
        times[:, kinds],
        weight_bytes=weights,
        cache_bytes=caches,
        workspace_bytes=workspaces,
        memory_bytes=[memory[k] for k in kinds],
        stage_seconds=[own[k] for k in kinds],
        shared_bytes=common,
        most_in_progress=draw(st.integers(1, 4)) if _value(draw, limited) else None,
        **tables,
    )


@checked
def placements(problem: ChainProblem, *, covering: bool = False) -> st.SearchStrategy[Placement]:
    """Return a strategy for placements of a problem.

    Parameters
    ----------
    problem : ChainProblem
    covering : bool
        Whether each covers the chain in order, with a device of its own for each stage: what ``evaluate`` takes. It may not fit, or
        need an impossible hop. Otherwise a third are such; others have one stage of any numbers too many or for another, or
        consist of such stages.
    """
    n, m = problem.n_items, problem.n_devices
    stage = st.tuples(st.integers(-1, m), st.integers(-1, n + 1), st.integers(-1, n + 1))

    @st.composite
    def whole(draw: DrawFn) -> list[Row]:
        devices = draw(st.lists(st.integers(0, m - 1), min_size=1, max_size=min(n, m), unique=True))
        cuts = draw(st.lists(st.integers(1, n - 1), min_size=len(devices) - 1, max_size=len(devices) - 1, unique=True)) if n > 1 else []
        return list(_rows([0, *sorted(cuts), n], devices))

    @st.composite
    def changed(draw: DrawFn) -> list[Row]:
        rows = draw(whole())
        place = draw(st.integers(0, len(rows)))
        return [*rows[:place], draw(stage), *rows[place + draw(FLAGS) :]]

    rows = whole() if covering else st.one_of(whole(), changed(), st.lists(stage, max_size=m + 1))
    return rows.map(Placement)


class BestPlacement(NamedTuple):
    """The least value of all valid placements, and one that has it."""

    value: float
    """Seconds or bytes; inf if no placement is valid."""
    placement: Placement | None
    """Of those with the least value one of the fewest stages."""


class BestPlacements(NamedTuple):
    """The best placements of a chain for each objective."""

    latency: BestPlacement
    """Least latency, in seconds."""
    latency_by_stages: tuple[BestPlacement, ...]
    """Least latency with exactly 1, 2, ... stages; as many as there may be."""
    period: BestPlacement
    """Least period, in seconds."""
    missing_bytes: BestPlacement
    """Least sum over the stages of the bytes that their devices lack. Memory is no rule here; times have to be finite all the same."""


@checked
def best_placements(problem: ChainProblem, *, limit: int = 100_000) -> BestPlacements:
    """Return the best placements by enumeration of all cuts and all choices of devices.

    A placement is valid if each stage fits its device and all times are finite. Values are exact where sums of floats are.

    Parameters
    ----------
    problem : ChainProblem
    limit : int
        The most placements to enumerate.

    Raises
    ------
    UnsupportedFeature
        The problem has more placements.
    """
    n, m = len(problem.items), len(problem.devices)
    counts = range(1, min(n, m) + 1)
    size = sum(math.comb(n - 1, count - 1) * math.perm(m, count) for count in counts)
    if size > limit:
        raise UnsupportedFeature(
            f"the chain has {size} placements, more than limit={limit}; take fewer items or devices, or raise the limit"
        )
    nothing = BestPlacement(math.inf, None)
    latencies = dict.fromkeys(counts, nothing)
    period = missing = nothing
    for rows in _placements(n, m):
        loads = _loads(problem, rows)
        latency = sum(loads) - _hidden(problem, rows)
        if latency == math.inf:
            continue
        lacking = sum(_missing(problem, *row) for row in rows)
        missing = _better(missing, lacking, rows)
        if lacking == 0:
            latencies[len(rows)] = _better(latencies[len(rows)], latency, rows)
            period = _better(period, max(*loads, latency / min(len(rows), problem.most_in_progress or len(rows))), rows)
    return BestPlacements(min(latencies.values(), key=lambda best: best.value), tuple(latencies.values()), period, missing)


def _placements(n: int, m: int) -> Iterator[list[Row]]:
    """Yield the stages of every placement that covers the chain, those of few stages first."""
    for count in range(1, min(n, m) + 1):
        for cuts in itertools.combinations(range(1, n), count - 1):
            for devices in itertools.permutations(range(m), count):
                yield list(_rows([0, *cuts, n], devices))


def _rows(ends: list[int], devices: list[int] | tuple[int, ...]) -> Iterator[Row]:
    return zip(devices, ends[:-1], ends[1:], strict=True)


def _better(best: BestPlacement, value: float, rows: list[Row]) -> BestPlacement:
    return BestPlacement(value, Placement(rows)) if value < best.value else best


def _loads(problem: ChainProblem, rows: list[Row]) -> list[float]:
    """Return the seconds of each stage, of each hop, and of the closing hop of two or more stages."""
    loads = [float(problem.stage_seconds[k]) + sum(float(problem.seconds[i, k]) for i in range(first, end)) for k, first, end in rows]
    devices = [k for k, _, _ in rows]
    loads += [float(problem.hops[a, b]) for a, b in itertools.pairwise(devices)]
    if len(rows) > 1:
        loads.append(float(problem.closing[devices[-1], devices[0]]))
    return loads


def _hidden(problem: ChainProblem, rows: list[Row]) -> float:
    """Return the overlapped seconds of all stages and hops but the largest."""
    overlapped = [sum(float(problem.overlapped_seconds[i, k]) for i in range(first, end)) for k, first, end in rows]
    overlapped += [float(problem.overlapped_hops[a, b]) for a, b in itertools.pairwise(k for k, _, _ in rows)]
    return sum(overlapped) - max(overlapped)


def _missing(problem: ChainProblem, device: int, first: int, end: int) -> float:
    """Return the bytes by which a stage needs more than its device has."""
    items = range(first, end)
    needed = sum(float(problem.weight_bytes[i] + problem.cache_bytes[i]) for i in items)
    needed += max(float(problem.workspace_bytes[i]) for i in items)
    if end - first == len(problem.items):
        needed -= problem.shared_bytes
    return max(needed - float(problem.memory_bytes[device]), 0.0)
