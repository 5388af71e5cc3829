"""The numba kernel of randomised list scheduling: many placements, each measured."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import builder
from hetsched.heuristics.list_scheduling.kernels import FINISH, in_order
from hetsched.heuristics.local_search import state_kernels
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState
from hetsched.problem.link_kernels import link_seconds, multiplier
from hetsched.problem.links import LinkTable
from hetsched.problem.problem import ProblemArrays


@builder
def by_start(arrays: ProblemArrays, durations: FloatArray, device: IntArray, sequence: IntArray) -> IntArray:
    """Return all tasks by their start, producers before consumers, when each device keeps to its order in `sequence`.

    Whole batches and no contention.
    """
    n = len(sequence)
    following, last = np.full(n, -1), np.full(durations.shape[1], -1)
    waiting = arrays.pred_ptr[1:] - arrays.pred_ptr[:-1]
    for i in sequence:
        k = device[i]
        if durations[i, k] > 0.0:
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
        h, finish = device[i], start[i] + durations[i, device[i]]
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
    """Make a state that of one batch of all inputs per task, on `device` [n], in an order [n]."""
    for i in range(len(order)):
        u = t.unit[i]
        s.count[u], s.device[u * t.slots], s.low[u * t.slots], s.high[u * t.slots] = 1, device[i], 0, t.arrays.inputs
    for position in range(len(order)):
        s.sequence[position] = order[position] * t.slots
        s.position[s.sequence[position]] = position
    s.length[0] = len(order)


@builder
def longer_transfers(arrays: ProblemArrays, factor: float) -> ProblemArrays:
    """Return the columns with all transfers taking `factor` times as long."""
    links = arrays.links
    return ProblemArrays(
        arrays.inputs,
        LinkTable(
            links.per_input,
            links.given,
            links.contended,
            links.edge_bytes * factor,
            links.latency * factor,
            links.bandwidth,
            links.transfers * factor,
            links.resource,
            links.n_resources,
        ),
        arrays.source,
        arrays.target,
        arrays.pred_ptr,
        arrays.pred,
        arrays.pred_edge,
        arrays.succ_ptr,
        arrays.succ,
        arrays.succ_edge,
        arrays.sizes,
        arrays.durations,
    )


@builder
def restart(
    t: SearchData,
    s: SearchState,
    durations: FloatArray,
    rank: FloatArray,
    need: FloatArray,
    capacity: FloatArray,
    rng: np.random.Generator,
    rank_noise: float,
    finish_noise: float,
    transfer_noise: float,
    runs: int,
    limit: float,
) -> tuple[int, float]:
    """Place all tasks anew up to `runs` times, until a makespan is below `limit`.

    Returns the runs made and the makespan of the last, which is in `s`; inf if none was below.
    """
    n, size = durations.shape
    priority, bias = np.empty(n), np.zeros((n, size))
    nobody = np.empty(0, np.int64)
    for run in range(runs):
        of_rank, of_finish = rank_noise * rng.random(), finish_noise * rng.random()
        # In place of contention, transfers are planned to take longer.
        longer = (1.0 + transfer_noise) ** rng.random() if t.arrays.links.contended else 1.0
        planned = longer_transfers(t.arrays, longer)
        for i in range(n):
            priority[i] = rank[i] * (1.0 + of_rank * (2.0 * rng.random() - 1.0))
            for k in range(size):
                noise = of_finish * rng.random()
                if durations[i, k] < np.inf:
                    bias[i, k] = noise * durations[i, k]
        device, sequence, stuck = in_order(planned, durations, priority, bias, nobody, t.unit, need, capacity, FINISH, True)
        if stuck >= 0:
            continue
        place_whole(t, s, device, by_start(t.arrays, durations, device, sequence))
        makespan, _, _ = state_kernels.evaluate(t, s, 0, limit)
        if makespan < limit:
            return run + 1, makespan
    return runs, np.inf
