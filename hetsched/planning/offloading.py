"""Best placements of chains whose items may be offloaded: a search that a dynamic program guides.

Of two items of a kind, with the same bytes and the same more of time, it is no matter which is offloaded, so a stage has choices by
number of each kind. With the best choice of each stage, the dynamic program over intervals and used devices gives the least cost of a
prefix of the chain, as if each stage had the holders to itself. It bounds a search for the stages from the last one to the first, in the
order of the bound (A*), that keeps count of the bytes on the holders: the first complete placement that it reaches is the best. Where the
holders have room for all, the bound is exact, and the search goes straight to it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.planning import chain_kernels, offloading_kernels
from hetsched.planning.offloading_kernels import Aim, Moves, Spans
from hetsched.planning.tables import Tables

MOST_CHOICES = 2**28
"""The most choices of all stages, and steps of the dynamic program, that are searched: about a second."""
MOST_PARTS = 50_000
"""The most parts of placements that are noted for the least missing bytes, about a second; then the least bound is the answer."""
SECONDS, HELD = Aim(1.0, 0.0, 0.0, True), Aim(0.0, 0.0, 1.0, True)
MISSING, MISSING_OR_HELD = Aim(0.0, 1.0, 0.0, False), Aim(0.0, 1.0, 1.0, False)

Path: TypeAlias = "tuple[int, int, int, bytes, Path] | None"
"""A stage, by group, first item, end and choice, and the stages behind it."""


class _Part(NamedTuple):
    """The stages behind a prefix whose last stage is on a group: their cost, and the bytes of each holder that they need."""

    cost: float
    held: tuple[float, ...]
    used: int
    group: int
    end: int
    path: Path


class _Choice(NamedTuple):
    """A choice of a stage: its cost, the bytes of each holder that it needs, and the numbers of items."""

    cost: float
    held: tuple[float, ...]
    chosen: bytes


class Choices:
    """The choices of the stages of a problem that has something to offload."""

    def __init__(self, tables: Tables) -> None:
        problem = tables.problem
        assert problem.offloading is not None
        self.tables, offloading, n = tables, problem.offloading, problem.n_items
        self.holders = np.flatnonzero(offloading.holds)
        usual = problem.seconds[:, tables.first]
        able = np.isfinite(usual)
        extra = offloading.seconds[:, tables.first][:, :, self.holders] - np.where(able, usual, 0.0)[:, :, None]
        extra[~able] = np.inf
        movable = np.flatnonzero(np.isfinite(extra).any(axis=(1, 2)))
        rows = np.column_stack([offloading.weight_bytes, problem.workspace_bytes, extra.reshape(n, -1)])[movable]
        kinds, kind = np.unique(rows, axis=0, return_inverse=True)
        self.items = [movable[kind.ravel() == t] for t in range(len(kinds))]
        before = np.zeros((len(kinds), n + 1), np.int64)
        for t, items in enumerate(self.items):
            before[t, items + 1] = 1
        held = [int(np.flatnonzero(self.holders == k)[0]) if k in self.holders else -1 for k in tables.first]
        self.moves = Moves(
            kinds[:, 0].copy(),
            kinds[:, 1].copy(),
            np.ascontiguousarray(kinds[:, 2:].reshape(len(kinds), len(tables.first), len(self.holders)).transpose(1, 0, 2)),
            np.cumsum(before, axis=1),
            np.array(held, np.int64),
            problem.memory_bytes[tables.first],
            problem.memory_bytes[self.holders],
            offloading.only_first,
            bool((kinds[:, 2:] >= 0).all()),
        )
        self.chosen = np.zeros(len(kinds) * len(self.holders), np.int64)
        self._listed: dict[tuple[int, int, int, Aim], list[_Choice]] = {}

    @property
    def count(self) -> float:
        """About how many choices the stages of all groups have."""
        counts = self.moves.before[:, None, :] - self.moves.before[:, :, None]  # [kind, start, end]
        if self.moves.only_first:
            counts = counts[:, :1]
        of_kind = np.array([math.comb(count + len(self.holders), count) for count in range(self.tables.problem.n_items + 1)], float)
        return float(np.prod(of_kind[np.maximum(counts, 0)], axis=0).sum() * len(self.tables.first))

    @cached_property
    def alone(self) -> bool:
        """Whether one stage at most needs the holders, which have none, so that its best choice is that of the placement."""
        return bool(self.moves.only_first and np.isinf(self.spans.seconds[self.moves.holder >= 0]).all())

    @cached_property
    def spans(self) -> Spans:
        """What stages take without offloaded items."""
        problem, n = self.tables.problem, self.tables.problem.n_items
        weights, cache = (np.concatenate([[0.0], np.cumsum(each)]) for each in (problem.weight_bytes, problem.cache_bytes))
        workspace = np.zeros((n + 1, n + 1))
        for start in range(n):
            workspace[start, start + 1 :] = np.maximum.accumulate(problem.workspace_bytes[start:])
        shared = np.zeros((n + 1, n + 1))
        shared[0, n] = problem.shared_bytes
        own = weights[None, :] - weights[:, None] - shared
        return Spans(self.tables.stages, own, own + cache[None, :] - cache[:, None], workspace)

    def least(self, aim: Aim) -> FloatArray:
        """Return the least cost of each stage [group, start, end]."""
        cost = np.empty_like(self.spans.seconds)
        offloading_kernels.least_costs(self.moves, self.spans, aim, cost, self.chosen, np.empty(2 + len(self.holders)))
        return cost

    def listed(self, group: int, start: int, end: int, aim: Aim) -> list[_Choice]:
        """Return the choices of a stage of which no other is better in cost and in the bytes of each holder, or the best."""
        key = group, start, end, aim
        if key not in self._listed:
            self._listed[key] = list(self._best(group, start, end, aim))
        return self._listed[key]

    def _best(self, group: int, start: int, end: int, aim: Aim) -> Iterator[_Choice]:
        counts, n_holders = self.moves.before[:, end] - self.moves.before[:, start], len(self.holders)
        if self.moves.only_first and start > 0:
            counts = np.zeros_like(counts)
        size = math.prod(math.comb(int(count) + n_holders, n_holders) for count in counts)
        rows, choices = np.empty((size, 2 + n_holders)), np.empty((size, len(self.chosen)), np.int64)
        found = offloading_kernels.list_choices(self.moves, self.spans, group, start, end, self.chosen, rows, choices)
        rows, choices = rows[:found], choices[:found]
        held, room, own = rows[:, 2:].copy(), self.moves.room[group], int(self.moves.holder[group])
        missing = np.maximum(rows[:, 1] - room, 0.0)
        if own >= 0:
            held[:, own] += rows[:, 1]
            missing *= aim.strict
        cost = rows[:, 0] * aim.seconds + missing * aim.missing
        valid = (missing == 0) & (held <= self.moves.capacity).all(axis=1) if aim.strict else np.ones(found, bool)
        order = np.lexsort([*held.T[::-1], cost + np.maximum(held - self.moves.capacity, 0.0).sum(axis=1) if self.alone else cost])
        order = order[valid[order]]
        for r in order[:1] if self.alone else order[_less(held[order])]:
            yield _Choice(float(cost[r]), tuple(held[r].tolist()), choices[r].tobytes())


def _less(rows: FloatArray) -> list[int]:
    """Return the rows that are less in some column than each row before."""
    if rows.shape[1] == 1:
        before = np.minimum.accumulate(np.append(np.inf, rows[:-1, 0]))
        found: list[int] = np.flatnonzero(rows[:, 0] < before).tolist()
        return found
    kept: list[int] = []
    for r, row in enumerate(rows):
        if not (rows[kept] <= row).all(axis=1).any():
            kept.append(r)
    return kept


class _Prefixes(NamedTuple):
    """The least cost of each prefix [group, used, end] by an aim, that of each stage, and of the hops between groups."""

    best: FloatArray
    stages: FloatArray
    hop: FloatArray


def _prefixes(choices: Choices, aim: Aim, first: int, hop: FloatArray) -> _Prefixes:
    tables, stages = choices.tables, choices.least(aim)
    nothing = np.zeros_like(tables.rest)
    chain = chain_kernels.Chain(nothing, nothing[:, 0].copy(), nothing.astype(np.int64), hop, hop, tables.size, tables.stride)
    chain_kernels.shortest_of_any(chain, stages, first, tables.table, np.empty(tables.problem.n_items))
    best = np.where((tables.used.T > 0)[:, :, None], tables.table, np.inf)
    return _Prefixes(best, stages, hop)


def least_offloaded(problem: ChainProblem, *, missing: bool = False, count: int | None = None) -> tuple[float, Placement | None]:
    """Return the least latency of a problem with something to offload, or the least sum of missing bytes, and its placement.

    Parameters
    ----------
    problem : ChainProblem
        Its `offloading` is not None.
    missing : bool
        Whether the least sum of missing bytes is sought, over the placements of finite times; otherwise the latency of those that fit.
        After `MOST_PARTS` it is a bound from below, without a placement.
    count : int, optional
        The number of stages. Default: any.
    """
    choices = Choices(Tables(problem))
    tables = choices.tables
    hop, closing = tables.between(problem.hops), tables.between(problem.closing)
    if missing:
        hop, closing = (np.where(np.isfinite(pairs), 0.0, np.inf) for pairs in (hop, closing))
    found: list[tuple[float, Placement | None]] = [(math.inf, None)]
    for first, back in tables.first_groups(closing):
        found.append(_search(choices, missing, count, first, back, hop))
    return min(found, key=lambda one: one[0])


def _search(
    choices: Choices, missing: bool, count: int | None, first: int, back: FloatArray, hop: FloatArray
) -> tuple[float, Placement | None]:
    """Return the least value and its placement, of those whose first stage is on a group, if that is not -1."""
    tables, aim = choices.tables, MISSING if missing else SECONDS
    prefixes = _prefixes(choices, aim, first, hop)
    others = _prefixes(choices, MISSING_OR_HELD if missing else HELD, first, np.where(np.isfinite(hop), 0.0, np.inf)).best
    capacity = choices.moves.capacity.tolist()
    in_all = sum(capacity)
    number = itertools.count()
    heap: list[tuple[float, int, int, _Part, tuple[int, int] | None]] = []
    seen: dict[tuple[int, int, int], list[_Part]] = {}

    def push(part: _Part) -> None:
        """Note a part by its bound, unless no prefix leads to it with the holders' bytes."""
        done = part.end == 0
        ahead, more = (0.0, 0.0) if done else (float(each[part.group, part.used, part.end]) for each in (prefixes.best, others))
        bound = part.cost + ahead
        if missing and done:
            bound += sum(max(held - most, 0.0) for held, most in zip(part.held, capacity, strict=True))
        elif missing:
            bound = max(bound, part.cost + sum(part.held) + more - in_all)
        elif sum(part.held) + more > in_all or any(held > most for held, most in zip(part.held, capacity, strict=True)):
            return
        if bound < math.inf:
            heapq.heappush(heap, (bound, part.end, next(number), part, None))

    last = prefixes.best[:, :, -1].T + np.where(tables.n_stages[:, None] > 1, back, 0.0)
    nothing = (0.0,) * len(capacity)
    for used, g in np.argwhere(np.isfinite(last)).tolist():
        if count is None or tables.n_stages[used] == count:
            push(_Part(float(back[g]) if tables.n_stages[used] > 1 else 0.0, nothing, used, g, tables.problem.n_items, None))
    while heap:
        bound, _, _, part, stage = heapq.heappop(heap)
        if part.end == 0:
            return bound, _placement(choices, part.path)
        if missing and next(number) > MOST_PARTS:
            return bound, None
        rest = part.used - int(tables.stride[part.group])
        if stage is None:
            key = part.used, part.group, part.end
            if any(_no_worse(other, part) for other in seen.setdefault(key, [])):
                continue
            seen[key].append(part)
            for before, start, cost in _stages(tables, prefixes, part, rest, first):
                heapq.heappush(heap, (max(bound, part.cost + cost), start, next(number), part, (before, start)))
            continue
        before, start = stage
        between = float(hop[before, part.group]) if before >= 0 else 0.0
        for cost, held, chosen in choices.listed(part.group, start, part.end, aim):
            both = tuple(a + b for a, b in zip(part.held, held, strict=True))
            path = part.group, start, part.end, chosen, part.path
            push(_Part(part.cost + cost + between, both, rest, before, start, path))
    return math.inf, None


def _no_worse(one: _Part, other: _Part) -> bool:
    return one.cost <= other.cost and all(a <= b for a, b in zip(one.held, other.held, strict=True))


def _stages(tables: Tables, prefixes: _Prefixes, part: _Part, rest: int, first: int) -> Iterator[tuple[int, int, float]]:
    """Yield the last stages of a prefix: the group before, -1 for none, the first item, and the least cost of the whole prefix."""
    row = prefixes.stages[part.group, : part.end, part.end]
    if rest == 0:
        if first in (-1, part.group) and row[0] < math.inf:
            yield -1, 0, float(row[0])
        return
    for before in np.flatnonzero(tables.used[rest]).tolist():
        costs = prefixes.best[before, rest, : part.end] + prefixes.hop[before, part.group] + row
        for start in np.flatnonzero(np.isfinite(costs[1:])).tolist():
            yield before, start + 1, float(costs[start + 1])


def _placement(choices: Choices, path: Path) -> Placement:
    """Return the placement of a path; of the items of a kind the first of a stage are offloaded."""
    tables, stages, offloaded = choices.tables, [], []
    rows: list[tuple[int, int, int, IntArray]] = []
    while path is not None:
        group, start, end, chosen, path = path
        rows.append((group, start, end, np.frombuffer(chosen, np.int64).reshape(len(choices.items), len(choices.holders))))
    free = [iter(np.flatnonzero(tables.problem.groups == g).tolist()) for g in range(len(tables.size))]
    for group, start, end, counts in rows:
        stages.append((next(free[group]), start, end))
        for items, numbers in zip(choices.items, counts.tolist(), strict=True):
            own = iter(items[(items >= start) & (items < end)].tolist())
            for holder, many in zip(choices.holders.tolist(), numbers, strict=True):
                offloaded += [(item, holder) for item in itertools.islice(own, many)]
    return Placement(stages, offloaded)


def is_searchable(problem: ChainProblem) -> bool:
    """Return whether a problem has something to offload, and few enough choices."""
    assert problem.offloading is not None
    return bool(problem.offloading.holds.any()) and work(problem) <= MOST_CHOICES


def work(problem: ChainProblem) -> float:
    """Return about how many steps the search of a problem with something to offload takes."""
    tables = Tables(problem)
    return 2 * (Choices(tables).count + tables.n_states * len(tables.size) * float(problem.n_items) ** 2 / 2)
