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
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.chain.offloading import Offloading
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.compiled import NotCompiled, kernels_in_time
from hetsched.errors import OutOfTime
from hetsched.planning import offloading_kernels
from hetsched.planning.incumbent import Incumbent
from hetsched.planning.offloading_kernels import Aim, Moves, Spans
from hetsched.planning.paths import Links, Prices, any_stages
from hetsched.planning.tables import Tables
from hetsched.stopping import NEVER, Deadline

MOST_CHOICES = 2**28
"""The most choices of all stages, and steps of the dynamic program, that are searched: about a second."""
MOST_PARTS = 50_000
"""The most parts of placements that are noted for the least missing bytes, about a second; then the least bound is the answer."""
SECONDS, HELD = Aim(1.0, 0.0, 0.0, True), Aim(0.0, 0.0, 1.0, True)
MISSING, MISSING_OR_HELD = Aim(0.0, 1.0, 0.0, False), Aim(0.0, 1.0, 1.0, False)
SOURCE = "search with offloaded items"

Path: TypeAlias = "tuple[int, int, int, bytes, Path] | None"
"""A stage, by group, first item, end and choice, and the stages behind it."""


class _Part(NamedTuple):
    """The stages behind a prefix whose last stage is on a group: their cost, and the bytes of each holder that they need.

    `prefixes` is the number of the costs of that prefix, and `used` that of its devices.
    """

    cost: float
    held: tuple[float, ...]
    prefixes: int
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
        shared = np.zeros((n + 1, n + 1))
        shared[0, n] = problem.shared_bytes
        own = weights[None, :] - weights[:, None] - shared
        return Spans(self.tables.stages, own, own + cache[None, :] - cache[:, None], self.tables.workspace)

    def least(self, aim: Aim, check: Callable[[], object]) -> FloatArray:
        """Return the least cost of each stage [group, start, end]; `check` is called before each group."""
        cost = np.empty_like(self.spans.seconds)
        for g, own in enumerate(cost):
            check()
            offloading_kernels.least_costs(self.moves, self.spans, aim, g, own, self.chosen, np.empty(2 + len(self.holders)))
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
    """Least costs of prefixes [group of the last stage, number of the used devices, end] that begin on a group, or any if that is -1.

    `back` [G] are times from the last stage of several back to the first.
    """

    first: int
    back: FloatArray
    best: FloatArray


def find_offloaded(problem: ChainProblem, incumbent: Incumbent, part: int) -> None:
    """Find a placement of least latency of a problem with something to offload, if it is better than what is known, and prove it."""
    value, placement = _searched(problem, incumbent, part=part)
    if placement is not None:
        incumbent.offer(value, placement, SOURCE)
    incumbent.raise_bound(part, value, SOURCE)


def least_offloaded(
    problem: ChainProblem, *, missing: bool = False, count: int | None = None, deadline: Deadline = NEVER
) -> tuple[float, Placement | None]:
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
    deadline : Deadline, optional
        When to give up, with `OutOfTime`.
    """
    return _searched(problem, Incumbent(deadline=deadline), missing=missing, count=count)


def _searched(
    problem: ChainProblem, known: Incumbent, *, missing: bool = False, count: int | None = None, part: int = 0
) -> tuple[float, Placement | None]:
    """Return what `_Search.run` does, without compiling kernels when there is no time for it."""
    try:
        with kernels_in_time(known.deadline.left):
            return _Search(problem, known, missing=missing).run(count, part)
    except NotCompiled:
        raise OutOfTime("the search with offloaded items has no time to be compiled; allow more time, or run `hetsched prepare`") from None


class _Search:
    """The search for the least latency or the least sum of missing bytes, of those that are better than what is known."""

    def __init__(self, problem: ChainProblem, known: Incumbent, *, missing: bool = False) -> None:
        self.choices, self.known, self.missing = Choices(Tables(problem)), known, missing
        self.tables = tables = self.choices.tables
        tables.check_size(len(tables.size))
        self.used = np.arange(tables.n_states)[:, None] // tables.states.stride % (tables.size + 1)
        self.n_stages = self.used.sum(axis=1)
        hop, closing = tables.between(problem.hops), tables.between(problem.closing)
        if missing:
            hop, closing = (np.where(np.isfinite(pairs), 0.0, np.inf) for pairs in (hop, closing))
        links = Links.of(hop, closing, tables.pairs, apart=True)
        free = links._replace(hop=np.where(np.isfinite(links.hop), 0.0, np.inf))
        self.aim, hold = (MISSING, MISSING_OR_HELD) if missing else (SECONDS, HELD)
        self.hop, self.stages = links.hop, self.choices.least(self.aim, known.check)
        self.prefixes = [_Prefixes(first, links.closing[:, first], self._least(links, first, self.stages)) for first in links.firsts]
        self.held = self._least(free, -1, self.choices.least(hold, known.check))
        self.capacity = self.choices.moves.capacity.tolist()
        self.number = itertools.count()
        self.heap: list[tuple[float, int, int, _Part, tuple[int, int] | None]] = []

    def _least(self, links: Links, first: int, stages: FloatArray) -> FloatArray:
        """Return the least costs of prefixes by those of stages [group, start, end]."""
        tables, states = self.tables, self.tables.states
        paths = links.shortest(
            states,
            [np.ones(count, np.bool_) for count in states.counts],
            tables.problem.n_items,
            first,
            any_stages(stages),
            check=self.known.check,
            prices=Prices.none(tables.problem.n_items, len(tables.size)),
            most=math.inf,
        )
        best = np.empty((len(tables.size), tables.n_states, tables.problem.n_items + 1))
        best[:, states.numbers] = np.concatenate(paths.tables, axis=1)
        return best

    def run(self, count: int | None = None, part: int = 0) -> tuple[float, Placement | None]:
        """Return the least value and its placement, with a number of stages if that is not None; inf and None if none is better.

        The bound of a part of the search for what is known is raised on the way.
        """
        self._begin(count)
        seen: dict[tuple[int, int, int, int], list[_Part]] = {}
        while self.heap:
            bound, _, _, one, stage = heapq.heappop(self.heap)
            if self.known.settles(bound):
                break
            if one.end == 0:
                return bound, _placement(self.choices, one.path)
            if self.missing and next(self.number) > MOST_PARTS:
                return bound, None
            self.known.raise_bound(part, bound, SOURCE)
            self.known.check()
            if stage is not None:
                self._chosen(one, *stage)
                continue
            others = seen.setdefault((one.prefixes, one.used, one.group, one.end), [])
            if not any(_no_worse(other, one) for other in others):
                others.append(one)
                for before, start, cost in self._stages(one):
                    heapq.heappush(self.heap, (max(bound, one.cost + cost), start, next(self.number), one, (before, start)))
        return math.inf, None

    def _begin(self, count: int | None) -> None:
        """Note the end of the chain as a part, for each group that may be the first one and the last one."""
        nothing, n = (0.0,) * len(self.capacity), self.tables.problem.n_items
        for k, prefixes in enumerate(self.prefixes):
            back = np.where(self.n_stages[:, None] > 1, prefixes.back, 0.0)
            for used, g in np.argwhere(np.isfinite(prefixes.best[:, :, -1].T + back)).tolist():
                if count is None or self.n_stages[used] == count:
                    self._push(_Part(float(back[used, g]), nothing, k, used, g, n, None))

    def _push(self, part: _Part) -> None:
        """Note a part by its bound, unless no prefix leads to it with the holders' bytes."""
        done, place = part.end == 0, (part.group, part.used, part.end)
        ahead, more = (0.0, 0.0) if done else (float(each[place]) for each in (self.prefixes[part.prefixes].best, self.held))
        bound, all_held = part.cost + ahead, sum(part.held) + more - sum(self.capacity)
        over = [held - most for held, most in zip(part.held, self.capacity, strict=True) if held > most]
        if self.missing:
            bound = bound + sum(over) if done else max(bound, part.cost + all_held)
        elif over or all_held > 0:
            return
        if bound < math.inf:
            heapq.heappush(self.heap, (bound, part.end, next(self.number), part, None))

    def _stages(self, part: _Part) -> Iterator[tuple[int, int, float]]:
        """Yield the last stages of a prefix: the group before, -1 for none, the first item, and the least cost of the whole prefix."""
        row, prefixes, rest = self.stages[part.group, : part.end, part.end], self.prefixes[part.prefixes], self._rest(part)
        if rest == 0:
            if prefixes.first in (-1, part.group) and row[0] < math.inf:
                yield -1, 0, float(row[0])
            return
        for before in np.flatnonzero(self.used[rest]).tolist():
            costs = prefixes.best[before, rest, : part.end] + self.hop[before, part.group] + row
            for start in np.flatnonzero(np.isfinite(costs[1:])).tolist():
                yield before, start + 1, float(costs[start + 1])

    def _chosen(self, part: _Part, before: int, start: int) -> None:
        """Note a part with one stage more, for each choice of it."""
        between = float(self.hop[before, part.group]) if before >= 0 else 0.0
        for cost, held, chosen in self.choices.listed(part.group, start, part.end, self.aim):
            both = tuple(a + b for a, b in zip(part.held, held, strict=True))
            path = part.group, start, part.end, chosen, part.path
            self._push(_Part(part.cost + cost + between, both, part.prefixes, self._rest(part), before, start, path))

    def _rest(self, part: _Part) -> int:
        return part.used - int(self.tables.states.stride[part.group])


def _no_worse(one: _Part, other: _Part) -> bool:
    return one.cost <= other.cost and all(a <= b for a, b in zip(one.held, other.held, strict=True))


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


def prepare() -> None:
    """Compile the kernels."""
    offloading = Offloading([1.0, 0.0], np.ones((2, 2)), np.ones((2, 2)))
    problem = ChainProblem(["a", "b"], ["x", "y"], np.ones((2, 2)), weight_bytes=[1, 1], memory_bytes=[1, 1], offloading=offloading)
    least_offloaded(problem)
