"""Numba kernel of randomised list scheduling: many placements, each evaluated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder, inner
from hetsched.heuristics.list_scheduling.kernels import ListProblem
from hetsched.heuristics.list_scheduling.static_kernels import FINISH, ListState, Rule, in_order, in_planned_order, new_state
from hetsched.heuristics.list_scheduling.transfer_kernels import Transfers, clear_transfers
from hetsched.heuristics.local_search import state_kernels
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState
from hetsched.problem.link_kernels import link_seconds, multiplier
from hetsched.problem.links import LinkTable
from hetsched.problem.problem import Problem, ProblemArrays


@builder
def by_start(arrays: ProblemArrays, durations: FloatArray, column: IntArray, device: IntArray, sequence: IntArray) -> IntArray:
    """Return all tasks in order of start, producers before consumers, if each device runs its tasks in the order of `sequence`.

    Each task is one batch of all inputs, without contention. `column` [K] is the place of each device in `durations` [n, C].
    """
    n = len(sequence)
    following, last = np.full(n, -1), np.full(len(column), -1)
    waiting = arrays.pred_ptr[1:] - arrays.pred_ptr[:-1]
    for i in sequence:
        k = device[i]
        if durations[i, column[k]] > 0.0:
            if last[k] >= 0:
                following[last[k]] = i
                waiting[i] += 1
            last[k] = i
    factor = multiplier(arrays.links, arrays.inputs)
    start = np.zeros(n)
    order, known = np.empty(n, np.int64), 0
    for i in range(n):
        if waiting[i] == 0:
            order[known] = i
            known += 1
    done = 0
    while done < known:
        i = order[done]
        done += 1
        h, finish = device[i], start[i] + durations[i, column[device[i]]]
        for x in range(arrays.succ_ptr[i] - 1, arrays.succ_ptr[i + 1]):
            after_device = x < arrays.succ_ptr[i]
            j = following[i] if after_device else arrays.succ[x]
            if j < 0:
                continue
            there = finish if after_device else finish + link_seconds(arrays.links, arrays.succ_edge[x], h, device[j], factor)
            start[j] = max(start[j], there)
            waiting[j] -= 1
            if waiting[j] == 0:
                order[known] = j
                known += 1
    return order[np.argsort(start[order], kind="mergesort")]


@builder
def place_whole(t: SearchData, s: SearchState, device: IntArray, order: IntArray) -> None:
    """Load one batch of all inputs per task, on `device` [n], in the given order [n], into a state."""
    for i in range(len(order)):
        u = t.unit[i]
        s.count[u], s.device[u * t.slots], s.low[u * t.slots], s.high[u * t.slots] = 1, device[i], 0, t.arrays.inputs
    for position in range(len(order)):
        s.sequence[position] = order[position] * t.slots
        s.position[s.sequence[position]] = position
    s.length[0] = len(order)


class Stretched(NamedTuple):
    """The arrays of a `LinkTable` that `_stretch` writes; the table has read-only views of them."""

    edge_bytes: FloatArray
    latency: FloatArray
    transfers: FloatArray


class Restarts(NamedTuple):
    """Priorities of HEFT, and the amplitudes of their noise, see `random_heft`."""

    rank: FloatArray
    """[n]: the upward rank."""
    rank_noise: float
    finish_noise: float
    transfer_noise: float


def stretched(problem: Problem) -> tuple[ProblemArrays, Stretched]:
    """Return the columns of a problem, and the writable arrays of its links."""
    links = problem.links
    own = Stretched(links.edge_bytes.copy(), links.latency.copy(), links.transfers.copy())
    views = Stretched(*(column.view() for column in own))
    for column in views:
        column.setflags(write=False)
    return problem.arrays._replace(links=links._replace(**views._asdict())), own


@inner
def _stretch(own: Stretched, links: LinkTable, factor: float) -> None:
    """Multiply all transfer times of `links` by `factor`, and write the result into `own`."""
    for e in range(len(links.edge_bytes)):
        own.edge_bytes[e] = links.edge_bytes[e] * factor
    for h in range(links.latency.shape[0]):
        for k in range(links.latency.shape[1]):
            own.latency[h, k] = links.latency[h, k] * factor
    for e in range(links.transfers.shape[0]):
        for h in range(links.transfers.shape[1]):
            for k in range(links.transfers.shape[2]):
                own.transfers[e, h, k] = links.transfers[e, h, k] * factor


@builder
def _draw(p: ListProblem, rule: Rule, restarts: Restarts, of_rank: float, of_finish: float, rng: np.random.Generator) -> None:
    """Write priorities and finishes with noise of the given amplitudes into `rule`."""
    for i in range(len(p.durations)):
        rule.priority[i] = restarts.rank[i] * (1.0 + of_rank * (2.0 * rng.random() - 1.0))
        for k in range(len(p.column)):
            drawn = of_finish * rng.random()
            if p.durations[i, p.column[k]] < np.inf:
                rule.bias[i, k] = drawn * p.durations[i, p.column[k]]


@builder
def restart_planned(
    p: ListProblem, s: ListState, transfers: Transfers, restarts: Restarts, rng: np.random.Generator, runs: int, limit: float
) -> tuple[int, float]:
    """Place all tasks again with planned transfers up to `runs` times, until a makespan is below `limit`.

    Returns the number of runs and the makespan of the last one, which is in `s` and `transfers`; inf if none was below the limit.
    """
    n, size = len(p.durations), len(p.column)
    rule = Rule(FINISH, True, np.empty(n), np.zeros((n, size)), np.empty(0, np.int64))
    for run in range(runs):
        of_rank, of_finish = restarts.rank_noise * rng.random(), restarts.finish_noise * rng.random()
        _draw(p, rule, restarts, of_rank, of_finish, rng)
        clear_transfers(transfers)
        if in_planned_order(p, rule, s, transfers) >= 0:
            continue
        makespan = 0.0
        for i in range(n):
            makespan = max(makespan, s.finish[i])
        if makespan < limit:
            return run + 1, makespan
    return runs, np.inf


@builder
def restart(
    t: SearchData, s: SearchState, p: ListProblem, own: Stretched, restarts: Restarts, rng: np.random.Generator, runs: int, limit: float
) -> tuple[int, float]:
    """Place all tasks again up to `runs` times, until a makespan is below `limit`.

    The links of `p` are stretched through `own`. Returns the number of runs and the makespan of the last one, which is in `s`;
    inf if none was below the limit.
    """
    n, size = len(p.durations), len(p.column)
    placement = new_state(n, size, len(p.need))
    rule = Rule(FINISH, True, np.empty(n), np.zeros((n, size)), np.empty(0, np.int64))
    for run in range(runs):
        of_rank, of_finish = restarts.rank_noise * rng.random(), restarts.finish_noise * rng.random()
        # Longer transfers stand for contention.
        _stretch(own, t.arrays.links, (1.0 + restarts.transfer_noise) ** rng.random() if t.arrays.links.contended else 1.0)
        _draw(p, rule, restarts, of_rank, of_finish, rng)
        if in_order(p, rule, placement) >= 0:
            continue
        place_whole(t, s, placement.device, by_start(t.arrays, p.durations, p.column, placement.device, placement.sequence))
        makespan, _ = state_kernels.evaluate(t, s, 0, limit)
        if makespan < limit:
            return run + 1, makespan
    return runs, np.inf
