"""Hypothesis strategies for chains and their placements, and the best placements of small chains by enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from hetsched.arguments import checked
from hetsched.chain.offloading import Offloading
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import UnsupportedFeature
from hetsched.testing.strategies import FLAGS, Given

Row = tuple[int, int, int]
"""Device, first item, end."""

_ITEMS = st.integers(1, 7)
_DEVICES = st.integers(1, 4)
_FEW_ITEMS, _SOME_DEVICES = st.integers(1, 4), st.integers(2, 3)
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
    tables: dict[str, Any] = {}
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


@st.composite
def offloading_problems(draw: DrawFn, *, n_items: Given[int] = _FEW_ITEMS, n_devices: Given[int] = _SOME_DEVICES) -> ChainProblem:
    """Draw a chain whose items may be offloaded, of few kinds; one or two of the devices may hold weights, and may have stages or not.

    Times are multiples of 1/2, and a time may be less where the item is offloaded. Memory is limited, often so that a stage fits with some
    item offloaded alone.

    Parameters
    ----------
    n_items, n_devices : int
    """
    problem = draw(chain_problems(n_items=n_items, n_devices=n_devices, shared=False, overlap=False, unable=FLAGS))
    n, m = problem.n_items, problem.n_devices
    kinds = draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n))
    moved = np.minimum(np.array(_list(draw, _BYTES, n))[kinds], problem.weight_bytes)
    holds = draw(st.lists(st.integers(0, m - 1), min_size=1, max_size=2, unique=True))
    kept = np.array(_list(draw, _SELDOM_IMPOSSIBLE, n * m)).reshape(n, m)[kinds]
    held = np.array(_list(draw, _HALVES, n * m)).reshape(n, m)[kinds]
    held[:, [k for k in range(m) if k not in holds]] = np.inf
    links = np.array(_list(draw, _MAYBE_IMPOSSIBLE, m * m)).reshape(m, m) if draw(FLAGS) else np.zeros((m, m))
    memory = problem.memory_bytes
    if draw(FLAGS):
        memory = np.array(_list(draw, st.integers(0, int(problem.weight_bytes.sum() + problem.cache_bytes.sum()) + 2), m))
    offloading = Offloading(moved, kept, held, np.broadcast_to(links, (n, m, m)), only_first=draw(FLAGS))
    return problem.replace(memory_bytes=memory, offloading=offloading)


@checked
def placements(problem: ChainProblem, *, covering: bool = False) -> st.SearchStrategy[Placement]:
    """Return a strategy for placements of a problem.

    Parameters
    ----------
    problem : ChainProblem
    covering : bool
        Whether each covers the chain in order, with a device of its own for each stage: what ``evaluate`` takes. It may not fit, or
        need an impossible hop. Otherwise a third are such; others have one stage of any numbers too many or for another, or
        consist of such stages. If items may be offloaded some are, but not if it is covering.
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
    if covering or problem.offloading is None:
        return rows.map(Placement)
    return st.builds(Placement, rows, st.lists(st.tuples(st.integers(-1, n), st.integers(-1, m)), max_size=3))


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
    """Return the best placements by enumeration of all cuts, all choices of devices, and all of offloaded items.

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
    if problem.offloading is not None:
        size *= (1 + int(problem.offloading.holds.sum())) ** int((problem.offloading.weight_bytes > 0).sum())
    if size > limit:
        raise UnsupportedFeature(
            f"the chain has {size} placements, more than limit={limit}; take fewer items or devices, or raise the limit"
        )
    nothing = BestPlacement(math.inf, None)
    latencies = dict.fromkeys(counts, nothing)
    period = missing = nothing
    for rows in _placements(n, m):
        if not _by_node(problem, rows):
            continue
        for moved in _offloads(problem, rows):
            loads = _loads(problem, rows, moved)
            latency = sum(loads) - _hidden(problem, rows)
            if latency == math.inf:
                continue
            lacking = _missing(problem, rows, moved)
            missing = _better(missing, lacking, rows, moved)
            if lacking == 0:
                latencies[len(rows)] = _better(latencies[len(rows)], latency, rows, moved)
                period = _better(period, max(*loads, latency / min(len(rows), problem.most_in_progress or len(rows))), rows, moved)
    return BestPlacements(min(latencies.values(), key=lambda best: best.value), tuple(latencies.values()), period, missing)


def _offloads(problem: ChainProblem, rows: list[Row]) -> Iterator[dict[int, int]]:
    """Yield the holders of offloaded items in every way, by item; each stage keeps some weights."""
    offloading = problem.offloading
    if offloading is None:
        yield {}
        return
    items = np.flatnonzero(offloading.weight_bytes).tolist()
    for chosen in itertools.product([None, *np.flatnonzero(offloading.holds).tolist()], repeat=len(items)):
        moved = {i: holder for i, holder in zip(items, chosen, strict=True) if holder is not None}
        valid = True
        for k, first, end in rows:
            own = [i for i in moved if first <= i < end]
            away = sum(offloading.weight_bytes[i] for i in own)
            valid &= not own or (away < problem.weight_bytes[first:end].sum() and k not in [moved[i] for i in own])
            valid &= not own or first == 0 or not offloading.only_first
        if valid:
            yield moved


def _placements(n: int, m: int) -> Iterator[list[Row]]:
    """Yield the stages of every placement that covers the chain, those of few stages first."""
    for count in range(1, min(n, m) + 1):
        for cuts in itertools.combinations(range(1, n), count - 1):
            for devices in itertools.permutations(range(m), count):
                yield list(_rows([0, *cuts, n], devices))


def _by_node(problem: ChainProblem, rows: list[Row]) -> bool:
    """Return whether the stages of each node that has some are as many, and follow one another."""
    if problem.nodes is None:
        return True
    order = [int(problem.nodes[k]) for k, _, _ in rows]
    each = order.count(order[0])
    return len(order) % each == 0 and all(
        len(set(order[s : s + each])) == 1 and order.count(order[s]) == each for s in range(0, len(order), each)
    )


def _rows(ends: list[int], devices: list[int] | tuple[int, ...]) -> Iterator[Row]:
    return zip(devices, ends[:-1], ends[1:], strict=True)


def _better(best: BestPlacement, value: float, rows: list[Row], moved: dict[int, int]) -> BestPlacement:
    return BestPlacement(value, Placement(rows, moved.items())) if value < best.value else best


def _seconds(problem: ChainProblem, i: int, k: int, holder: int | None) -> float:
    """Return the seconds of an item, which may be offloaded; no item is possible then that is not otherwise."""
    if holder is None or problem.offloading is None or problem.seconds[i, k] == math.inf:
        return float(problem.seconds[i, k])
    moved = problem.offloading
    return float(moved.kept_seconds[i, k] + moved.held_seconds[i, holder] + moved.link_seconds[i, k, holder])


def _loads(problem: ChainProblem, rows: list[Row], moved: dict[int, int]) -> list[float]:
    """Return the seconds of each stage, of each hop, and of the closing hop of two or more stages."""
    loads = []
    for k, first, end in rows:
        loads.append(float(problem.stage_seconds[k]) + sum(_seconds(problem, i, k, moved.get(i)) for i in range(first, end)))
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


def _missing(problem: ChainProblem, rows: list[Row], moved: dict[int, int]) -> float:
    """Return the bytes that devices need for their stages, and for what they hold for others, and do not have."""
    needed = [0.0] * len(problem.devices)
    for k, first, end in rows:
        items = range(first, end)
        away = {i: float(problem.offloading.weight_bytes[i]) if i in moved and problem.offloading is not None else 0.0 for i in items}
        needed[k] += sum(float(problem.weight_bytes[i] + problem.cache_bytes[i]) - away[i] for i in items)
        needed[k] += max(float(problem.workspace_bytes[i]) + away[i] for i in items)
        if end - first == len(problem.items):
            needed[k] -= problem.shared_bytes
        for i in items:
            if i in moved:
                needed[moved[i]] += away[i]
    return sum(max(amount - float(free), 0.0) for amount, free in zip(needed, problem.memory_bytes, strict=True))
