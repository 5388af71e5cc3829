"""Numba kernels of tabu search along critical chains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner, kernel
from hetsched.heuristics.local_search import disjunctive_kernels, edit_kernels, excess_kernels, move_kernels, state_kernels
from hetsched.heuristics.local_search.disjunctive_kernels import Candidates, DisjunctiveGraph
from hetsched.heuristics.local_search.edit_kernels import Log
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState, batch_duration

PRESS = 1.03
"""Factor by which the penalty of memory rises after an iteration that ends over the capacities, and falls after any other."""


class TabuState(NamedTuple):
    """Data of a tabu search besides its search state."""

    graph: DisjunctiveGraph
    candidates: Candidates
    """The best places for nodes of a critical chain."""
    log: Log
    expiry: IntArray
    """[M, K]: the last iteration in which a node must not move to a device, except to a new lowest makespan."""
    counts: IntArray
    """[2]: number of iterations; number of iterations since the lowest makespan."""
    lowest: FloatArray
    """[1]: the lowest makespan within the memory, in seconds; inf if there was none."""
    pressure: FloatArray
    """[1]: penalty in seconds per byte over the ``peak`` memory."""


class Settings(NamedTuple):
    """Settings of a tabu search."""

    width: int
    """Maximum number of nodes of the chain removed in each iteration."""
    groups: int
    """Number of groups tried in each iteration."""
    tenure: int
    """Minimum number of iterations in which a node may not return to a device; the maximum is twice that."""
    patience: int
    """Number of iterations without a lower makespan after which the search returns."""


@kernel
def find_moves(t: SearchData, s: SearchState, w: TabuState, width: int, passes: int, rng: np.random.Generator) -> int:
    """Write the best places for up to `width` nodes of a critical chain into the candidates; return the number of nodes removed.

    At most `passes` nodes are removed. Under ``peak`` memory every other one is any node.
    """
    net, candidates, chain = w.graph, w.candidates, s.chain
    links = disjunctive_kernels.critical_chain(net, s.length[0], chain, rng)
    candidates.size[0] = 0
    taken = 0
    for x in range(min(width, links, passes)):
        y = x + move_kernels.below(rng, links - x)
        chain[x], chain[y] = chain[y], chain[x]
        out, taken = chain[x], taken + 1
        if t.timed and rng.random() < 0.5:
            out = move_kernels.below(rng, s.length[0])
        v = s.sequence[out]
        chain[x] = v
        left = disjunctive_kernels.take_out(t, net, s.length[0], out, disjunctive_kernels.worst(candidates))
        if left == np.inf:
            continue
        i, c = t.task[v], t.cell[v]
        for z in range(t.choice_ptr[t.unit[i]], t.choice_ptr[t.unit[i] + 1]):
            k = t.choices[z]
            if k != s.device[c] and not may_run(t, s, c, k):
                continue
            duration = batch_duration(t, i, k, s.high[c] - s.low[c])
            limit = np.inf if w.expiry[v, k] <= w.counts[0] else -np.inf if t.timed else w.lowest[0]
            disjunctive_kernels.find_places(net, disjunctive_kernels.Removed(v, out, left), k, duration, limit, candidates, rng)
    return taken


@inner
def may_run(t: SearchData, s: SearchState, c: int, k: int) -> bool:
    """Return whether a cell can move to device k without moving another one."""
    u = c // t.slots
    need = t.activation[u] * (s.high[c] - s.low[c])
    there = False
    for b in range(u * t.slots, u * t.slots + s.count[u]):
        there = there or s.device[b] == k
    if there and t.once:
        return False
    need += 0.0 if there else t.weight[u]
    if need > 0.0 and s.used[k] + need > t.capacity[k]:
        return False
    return move_kernels.runs(t, u, k, s.high[c] - s.low[c])


@inner
def make(t: SearchData, s: SearchState, net: DisjunctiveGraph, log: Log, v: int, k: int, behind: int) -> tuple[int, int, int]:
    """Move node v, and its cell, to device k before the node at position `behind`; `net` must be the graph of the state.

    Returns the first position that changed, and the part of the sequence for `restore`; all -1 if the move is impossible.
    """
    edit_kernels.begin(s, log)
    c = t.cell[v]
    if k != s.device[c] and not move_kernels.change_device(t, s, log, c, k):
        return -1, -1, -1
    first, last = disjunctive_kernels.reorder(t, s, net, v, k, behind)
    if first < 0:
        edit_kernels.undo(s, log)
        return -1, -1, -1
    return min(first, log.size[1]), first, last


@kernel
def try_place(t: SearchData, s: SearchState, w: TabuState, candidate: int, limit: float) -> float:
    """Return the cost after the move of a candidate if the makespan is at most `limit`, else inf; the state does not change."""
    net, log, place = w.graph, w.log, w.candidates.places[candidate]
    first, low, high = make(t, s, net, log, place[0], place[1], place[2])
    if first < 0:
        return np.inf
    makespan, end = state_kernels.evaluate(t, s, first, limit)
    cost = excess_kernels.cost(t, s, makespan, w.pressure[0])
    state_kernels.rollback(t, s, first, end)
    disjunctive_kernels.restore(s, net, low, high)
    edit_kernels.undo(s, log)
    return cost


@inner
def try_group(t: SearchData, s: SearchState, w: TabuState, v: int, limit: float, rng: np.random.Generator) -> float:
    """Move a random group of cells around a node to another device if the cost becomes less than `limit`.

    Returns the cost, inf if nothing changed.
    """
    log = w.log
    c, u = t.cell[v], t.unit[t.task[v]]
    k = move_kernels.other_device(t, u, s.device[c], rng)
    if k < 0:
        return np.inf
    size = 2 + move_kernels.below(rng, move_kernels.LARGEST_GROUP - 1)
    edit_kernels.begin(s, log)
    if not move_kernels.change_group(t, s, log, c, k, size, rng):
        return np.inf
    if edit_kernels.fits(t, s, log):
        first = log.size[1]
        makespan, end = state_kernels.evaluate(t, s, first, limit)
        cost = excess_kernels.cost(t, s, makespan, w.pressure[0])
        if cost < limit:
            state_kernels.commit(t, s, first)
            return cost
        state_kernels.rollback(t, s, first, end)
    edit_kernels.undo(s, log)
    return np.inf


@inner
def _best_candidate(t: SearchData, s: SearchState, w: TabuState) -> int:
    """Return the candidate of lowest cost, by evaluation of all."""
    candidates = w.candidates
    chosen, lowest = 0, np.inf
    for x in range(candidates.size[0]):
        cost = try_place(t, s, w, x, lowest)
        if cost < lowest:
            chosen, lowest = x, cost
    return chosen


@kernel
def search(
    t: SearchData,
    s: SearchState,
    best: SearchState,
    w: TabuState,
    settings: Settings,
    rng: np.random.Generator,
    budget: int,
    current: float,
) -> tuple[float, int]:
    """Move `s`, whose makespan is `current`, to the best neighbour that is not tabu in each iteration, for `budget` evaluations.

    The removal of one node, with all its places, counts as one evaluation. States below the lowest makespan are copied to
    `best`. Returns the makespan of `s` and the number of evaluations.
    """
    candidates, exact, pressure = w.candidates, not (t.arrays.links.contended or t.timed), w.pressure
    spent = 0
    reserve = 2 + settings.groups + (0 if exact else len(candidates.value))
    while spent + reserve <= budget and w.counts[1] < settings.patience:
        w.counts[0] += 1
        w.counts[1] += 1
        disjunctive_kernels.build(t, s, w.graph)
        taken = find_moves(t, s, w, settings.width, budget - spent - reserve + 1, rng)
        spent += taken
        if candidates.size[0] == 0:
            current = shake(t, s, w.log, rng, 1, current)
            spent += 1
            continue
        chosen = 0
        if not exact:
            chosen = _best_candidate(t, s, w)
            spent += candidates.size[0]
        v, k, behind = candidates.places[chosen, 0], candidates.places[chosen, 1], candidates.places[chosen, 2]
        old = s.device[t.cell[v]]
        first, _, _ = make(t, s, w.graph, w.log, v, k, behind)
        if first < 0:
            continue
        current = settle(t, s, first)
        spent += 1
        over = excess_kernels.excess(t, s) if t.timed else 0.0
        w.expiry[v, old] = w.counts[0] + settings.tenure + move_kernels.below(rng, settings.tenure + 1)
        for _ in range(settings.groups):
            v = s.chain[move_kernels.below(rng, max(1, taken))]
            spent += 1
            value = try_group(t, s, w, v, current + pressure[0] * over, rng)
            if value < np.inf:
                over = excess_kernels.excess(t, s) if t.timed else 0.0
                current = s.makespan[0]
        pressure[0] *= PRESS if over > 0.0 else 1.0 / PRESS
        if current < w.lowest[0] and over == 0.0:
            w.lowest[0], w.counts[1] = current, 0
            state_kernels.copy(s, best)
    return current, spent


@inner
def settle(t: SearchData, s: SearchState, first: int) -> float:
    """Evaluate and commit a state from position `first` on; return its makespan."""
    makespan, _ = state_kernels.evaluate(t, s, first, np.inf)
    state_kernels.commit(t, s, first)
    return makespan


@kernel
def shake(t: SearchData, s: SearchState, log: Log, rng: np.random.Generator, changes: int, current: float) -> float:
    """Make `changes` random changes, except those that cannot run, whatever their makespan; return the last makespan."""
    for _ in range(changes):
        v = s.sequence[move_kernels.below(rng, s.length[0])]
        if not move_kernels.random_change(t, s, log, v, rng):
            continue
        first = log.size[1]
        makespan, end = state_kernels.evaluate(t, s, first, np.inf)
        if makespan < np.inf:
            state_kernels.commit(t, s, first)
            current = makespan
        else:
            state_kernels.rollback(t, s, first, end)
            edit_kernels.undo(s, log)
    return current
