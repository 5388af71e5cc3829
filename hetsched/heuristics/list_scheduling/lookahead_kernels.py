"""Numba kernel of lookahead HEFT: devices are compared by the finish times of the children."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched import heap_kernels
from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner, kernel, nearly_linear
from hetsched.heuristics.list_scheduling.gap_kernels import fill_gap, first_gap
from hetsched.heuristics.list_scheduling.kernels import MEMORY_SLACK, NONE, ListProblem, arrivals
from hetsched.heuristics.list_scheduling.static_kernels import ListState, admits, claim, clear, enqueue_after, enqueue_first, has_room
from hetsched.problem.link_kernels import link_seconds, multiplier


class Children(NamedTuple):
    """The children of each task that are placed tentatively."""

    child: IntArray
    edge: IntArray
    """[E]: as ``arrays.succ`` and ``arrays.succ_edge``, with the children of a task in descending priority."""
    most: int
    """Maximum number of children per task; the first ones are used."""


class Trial(NamedTuple):
    """Scratch: the tentative placements of the children of one task; C is their maximum number."""

    begin: FloatArray
    """[n]: starts of the tasks whose placement is final."""
    data: FloatArray
    """[C, K]: seconds at which the data of the children from parents already placed are on each device."""
    among_ptr: IntArray
    among: IntArray
    """[C + 1], [E]: indices into ``arrays.pred`` of the edges between children, grouped by target."""
    of_parent: IntArray
    device: IntArray
    finish: FloatArray
    """[n]: the parent for which each task was last placed tentatively, its device there, and its finish."""
    on: IntArray
    since: FloatArray
    until: FloatArray
    """[C + 1]: device, start and finish of the tentative placements, in the order of placement."""


def new_trial(n_tasks: int, n_devices: int, n_edges: int, most: int) -> Trial:
    """Return scratch for at most `most` children of a task."""
    return Trial(
        np.zeros(n_tasks),
        np.zeros((most, n_devices)),
        np.zeros(most + 1, np.int64),
        np.zeros(n_edges, np.int64),
        np.full(n_tasks, NONE),
        np.zeros(n_tasks, np.int64),
        np.zeros(n_tasks),
        np.zeros(most + 1, np.int64),
        np.zeros(most + 1),
        np.zeros(most + 1),
    )


@inner
def _start_beside(s: ListState, trial: Trial, k: int, ready: float, length: float, taken: int) -> float:
    """Return the earliest start on device k in a gap that does not overlap the first `taken` tentative placements."""
    start = ready
    clear_of_all = length == 0.0
    while not clear_of_all:
        gap = first_gap(s.gaps, k, start, length, np.inf)
        start = max(start, s.gaps.start[k, gap])
        end = start + length
        clear_of_all = True
        for x in range(taken):
            if trial.on[x] == k and trial.since[x] < end and trial.until[x] > start:
                start, clear_of_all = max(start, trial.until[x]), False
    return start


@inner
def _look_at_children(p: ListProblem, children: Children, s: ListState, trial: Trial, i: int) -> int:
    """Write the arrivals of the children's data from other parents than i, and the edges among them; return their number."""
    arrays, links, factor = p.arrays, p.arrays.links, multiplier(p.arrays.links, p.arrays.inputs)
    first = arrays.succ_ptr[i]
    count = min(arrays.succ_ptr[i + 1] - first, children.most)
    trial.among_ptr[0] = 0
    for c in range(count):
        for m in range(len(s.used)):
            trial.data[c, m] = 0.0
        j, edges = children.child[first + c], trial.among_ptr[c]
        for y in range(arrays.pred_ptr[j], arrays.pred_ptr[j + 1]):
            parent = arrays.pred[y]
            if trial.of_parent[parent] == i:
                trial.among[edges] = y
                edges += 1
            if s.device[parent] >= 0:
                for m in range(len(s.used)):
                    through = s.finish[parent] + link_seconds(links, arrays.pred_edge[y], s.device[parent], m, factor)
                    trial.data[c, m] = max(trial.data[c, m], through)
        trial.among_ptr[c + 1] = edges
        trial.of_parent[j] = i
    return int(count)


@inner
def _data_ready(p: ListProblem, trial: Trial, c: int, through: float, m: int) -> float:
    """Return the arrival of the last data of child c on device m; those of its parent arrive at `through`."""
    arrays, links, factor = p.arrays, p.arrays.links, multiplier(p.arrays.links, p.arrays.inputs)
    there = max(trial.data[c, m], through)
    for z in range(trial.among_ptr[c], trial.among_ptr[c + 1]):
        parent = arrays.pred[trial.among[z]]
        if trial.device[parent] >= 0:
            took = link_seconds(links, arrays.pred_edge[trial.among[z]], trial.device[parent], m, factor)
            there = max(there, trial.finish[parent] + took)
    return float(there)


@inner
def _latest_child(p: ListProblem, children: Children, s: ListState, trial: Trial, i: int, k: int, start: float, limit: float) -> float:
    """Return the latest finish of the children if task i starts at `start` on device k, or a time above `limit`."""
    links, u, own = p.arrays.links, p.unit[i], start + p.durations[i, p.column[k]]
    factor, first = multiplier(links, p.arrays.inputs), p.arrays.succ_ptr[i]
    trial.on[0], trial.since[0], trial.until[0] = k, start, own
    taken = 1 if p.durations[i, p.column[k]] > 0.0 else 0
    latest = own
    for c in range(min(p.arrays.succ_ptr[i + 1] - first, children.most)):
        j = children.child[first + c]
        v = p.unit[j]
        bound_to = k if v == u else s.unit_device[v]
        where, where_start, earliest = NONE, 0.0, np.inf
        for m in range(len(s.used)):
            if p.durations[j, p.column[m]] == np.inf or (bound_to >= 0 and bound_to != m):
                continue
            claimed = s.used[m] + (p.need[u] if m == k and s.unit_device[u] < 0 else 0.0)
            if bound_to < 0 and claimed + p.need[v] > p.capacity[m] * MEMORY_SLACK:
                continue
            there = _data_ready(p, trial, c, own + link_seconds(links, children.edge[first + c], k, m, factor), m)
            if there + p.durations[j, p.column[m]] >= earliest:
                continue
            at = _start_beside(s, trial, m, there, p.durations[j, p.column[m]], taken)
            if at + p.durations[j, p.column[m]] < earliest:
                where, where_start, earliest = m, at, at + p.durations[j, p.column[m]]
        trial.device[j], trial.finish[j] = where, earliest
        latest = max(latest, earliest)
        if latest > limit:
            break
        if earliest > where_start and where >= 0:
            trial.on[taken], trial.since[taken], trial.until[taken] = where, where_start, earliest
            taken += 1
    return float(latest)


@nearly_linear
@kernel
def lookahead(p: ListProblem, priority: FloatArray, children: Children, s: ListState, trial: Trial) -> int:
    """Place the ready task of highest priority [n] on the device that lets its children finish first, until all are placed.

    Returns the task that fits nowhere, or -1. The sequence is in the order of placement, not of starts.
    """
    clear(p, s, True)
    queued, placed = enqueue_first(p, s, priority), 0
    while queued > 0:
        i = s.items[0]
        queued = heap_kernels.pop(s.keys, s.items, 0, queued)
        arrivals(p.arrays, i, s.device, s.finish, s.ready)
        _look_at_children(p, children, s, trial, i)
        chosen, chosen_start, best, best_own = NONE, 0.0, np.inf, np.inf
        for k in range(len(s.used)):
            if not admits(p, s, i, k) or not has_room(p, s, i, k):
                continue
            start = _start_beside(s, trial, k, s.ready[k], p.durations[i, p.column[k]], 0)
            own = start + p.durations[i, p.column[k]]
            latest = _latest_child(p, children, s, trial, i, k, start, best)
            if chosen < 0 or latest < best or (latest == best and own < best_own):
                chosen, chosen_start, best, best_own = k, start, latest, own
        if chosen < 0:
            return int(i)
        k = chosen
        s.device[i], trial.begin[i], s.finish[i] = k, chosen_start, best_own
        s.sequence[placed] = i
        placed += 1
        claim(p, s, i, k)
        if p.durations[i, p.column[k]] > 0.0:
            gap = first_gap(s.gaps, k, s.ready[k], p.durations[i, p.column[k]], np.inf)
            fill_gap(s.gaps, k, gap, i, chosen_start, s.finish[i])
        queued = enqueue_after(p, s, priority, i, queued)
    return NONE
