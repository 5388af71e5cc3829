"""Decoding: the decision for values of a formulation's columns."""

from __future__ import annotations

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.problem.problem import Problem
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
    transfers : two float arrays [E], optional
        Start and finish of the transfer of each edge, for one input, which order the transfers.
    """
    if times is None:
        order = problem.graph.topological_order
        place, device = np.nonzero(np.any(x, axis=2)[order])
        return _listed(x, order[place], device)
    decision = _by_times(problem, x, *times)
    return decision if transfers is None else _with_transfers(problem, decision, *transfers)


def _listed(x: BoolArray, task: IntArray, device: IntArray) -> Decision:
    """Return the decision with one batch for each pair of `task` and `device`, in that order."""
    items = [np.flatnonzero(x[i, u]) for i, u in zip(task.tolist(), device.tolist(), strict=True)]
    pointers = np.cumsum([0, *(len(group) for group in items)])
    return Decision(task, device, pointers, np.concatenate([np.zeros(0, np.int64), *items]))


def _by_times(problem: Problem, x: BoolArray, start: FloatArray, finish: FloatArray) -> Decision:
    task, device = np.nonzero(x.any(axis=2))
    begin = start[task] if start.ndim == 1 else start[task, device]
    end = finish[task] if finish.ndim == 1 else finish[task, device]
    graph = problem.graph
    rank = graph.rank
    batch = np.full((problem.n_tasks, problem.n_devices), -1)
    batch[task, device] = np.arange(len(task))
    of_item = np.where(x, batch[:, :, None], -1).max(axis=1)
    begin, end = begin.copy(), end.copy()
    for j in graph.topological_order.tolist():
        for i in graph.pred[graph.pred_ptr[j] : graph.pred_ptr[j + 1]].tolist():
            for moment in (begin, end):
                np.maximum.at(moment, of_item[j], moment[of_item[i]])
    order = np.lexsort((rank[task], end, begin))
    return _listed(x, task[order], device[order])


def _with_transfers(problem: Problem, decision: Decision, leave: FloatArray, arrive: FloatArray) -> Decision:
    """Return the decision with its transfers ordered by their times and by precedence."""
    graph = problem.graph
    batch = np.empty(problem.n_tasks, np.int64)
    batch[decision.task] = np.arange(decision.n_batches)
    source, target = batch[graph.source], batch[graph.target]
    apart = np.flatnonzero(decision.device[source] != decision.device[target])
    leave, arrive = leave.copy(), arrive.copy()
    into, out = _edges_by(graph.target, problem.n_tasks), _edges_by(graph.source, problem.n_tasks)
    for i in graph.topological_order.tolist():
        if len(into[i]) and len(out[i]):
            for moment in (leave, arrive):
                moment[out[i]] = np.maximum(moment[out[i]], moment[into[i]].max())
    rank = graph.rank[graph.source]
    order = apart[np.lexsort((rank[apart], arrive[apart], leave[apart]))]
    transfer_order = np.column_stack([order, source[order], target[order]])
    return Decision(decision.task, decision.device, decision.item_ptr, decision.items, transfer_order=transfer_order)


def _edges_by(end: IntArray, n: int) -> list[IntArray]:
    """Return the edges of each task, those whose `end` it is."""
    order = np.argsort(end, kind="stable")
    return np.split(order, np.searchsorted(end[order], np.arange(1, n)))
