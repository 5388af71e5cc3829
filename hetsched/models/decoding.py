"""Decoding: the decision for values of a formulation's columns."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.problem.problem import Problem
from hetsched.schedule.arcs import arcs_of
from hetsched.schedule.decision import Decision

Times = tuple[FloatArray, FloatArray]
"""Starts and finishes, in any unit."""


def decode(problem: Problem, x: BoolArray, times: Times | None = None, transfers: Times | None = None) -> Decision:
    """Return the decision of an assignment, in the order of its times if given, else in topological order.

    Parameters
    ----------
    problem : Problem
    x : bool array [n, K, L]
        Whether a device runs a task on an input.
    times : two float arrays, [n] or [n, K], optional
        Start and finish of tasks. The order respects precedence even if these times, within a solver's tolerance,
        do not.
    transfers : two float arrays, [E] or [E, K, K], optional
        Start and finish of the transfer of each edge, or from each device to each, which order the transfers.
    """
    if times is None:
        order = problem.graph.topological_order
        place, device = np.nonzero(np.any(x, axis=2)[order])
        return _listed(x, order[place], device)
    return _by_times(problem, x, times, transfers)


def _listed(x: BoolArray, task: IntArray, device: IntArray, transfer_order: IntArray | None = None) -> Decision:
    """Return the decision with one batch for each pair of `task` and `device`, in that order."""
    items = [np.flatnonzero(x[i, u]) for i, u in zip(task.tolist(), device.tolist(), strict=True)]
    pointers = np.cumsum([0, *(len(group) for group in items)])
    return Decision(task, device, pointers, np.concatenate([np.zeros(0, np.int64), *items]), transfer_order=transfer_order)


def _by_times(problem: Problem, x: BoolArray, times: Times, transfers: Times | None) -> Decision:
    """Return the decision in the order of times: one order of batches and transfers, so that it has no cycle."""
    decision = _listed(x, *np.nonzero(x.any(axis=2)))
    task, device = decision.task, decision.device
    batch = np.full((problem.n_tasks, problem.n_devices), -1)
    batch[task, device] = np.arange(len(task))
    arcs = arcs_of(problem, decision, np.where(x, batch[:, :, None], -1).max(axis=1))
    moments = [moment[task] if moment.ndim == 1 else moment[task, device] for moment in times]
    moved = [np.full(len(arcs.edge), -np.inf) for _ in times]
    for along, given in zip(moved, transfers or (), strict=False):
        every = given if given.ndim == 1 else given[arcs.edge, device[arcs.source], device[arcs.target]]
        along[:] = np.where(arcs.moving, every, -np.inf)
    rank = problem.graph.rank[task]
    forward = np.argsort(rank[arcs.source], kind="stable").tolist()
    source, target = arcs.source.tolist(), arcs.target.tolist()
    for moment, along in zip(moments, moved, strict=True):
        for a in forward:
            along[a] = max(along[a], moment[source[a]])
            moment[target[a]] = max(moment[target[a]], along[a])
    order = np.lexsort((rank, *moments[::-1]))
    if transfers is None:
        return _listed(x, task[order], device[order])
    number = np.empty(len(task), np.int64)
    number[order] = np.arange(len(task))
    moving = np.flatnonzero(arcs.moving)
    moving = moving[np.lexsort((rank[arcs.source[moving]], *(moment[moving] for moment in moved[::-1])))]
    rows = arcs.edge[moving], number[arcs.source[moving]], number[arcs.target[moving]]
    return _listed(x, task[order], device[order], np.column_stack(rows))
