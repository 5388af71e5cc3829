"""Parts of a problem: some of its tasks as a problem of their own, and the way back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray, row_starts
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule


class PartialDecision(NamedTuple):
    """What a part of a problem does in a schedule of its own."""

    decision: Decision
    transfers: IntArray
    """Edges between devices, in the order in which their transfers start."""

    @classmethod
    def of(cls, schedule: Schedule) -> PartialDecision:
        """Return what a schedule does."""
        return cls(schedule.decision, schedule.transfers.edge[np.argsort(schedule.transfers.start, kind="stable")])


def subproblem(problem: Problem, tasks: IntArray, *, edges: IntArray | None = None, durations: FloatArray | None = None) -> Problem:
    """Return the problem of some tasks alone: what any schedule of the whole has to do with them.

    Its tasks are in the order of `tasks`. Where the whole says that a task cannot run, neither can it
    here. Peak memory is left aside: what a schedule holds at a time is not known without the rest.

    Parameters
    ----------
    problem : Problem
    tasks : int array [m]
    edges : int array, optional
        The edges between them, ascending, if that is known.
    durations : array [m, K, B], optional
        Seconds instead of those of the whole; NaN where a task cannot run.

    Raises
    ------
    InvalidProblem
        By the durations given some task has no device.
    """
    graph, cluster = problem.graph, problem.cluster
    edges = within(graph, tasks) if edges is None else edges
    order = np.argsort(tasks)
    ends = order[np.searchsorted(tasks[order], graph.edges[edges])]
    if problem.memory == "peak":
        cluster = Cluster(
            [Device(device.name, kind=device.kind, node=device.node) for device in cluster.devices],
            bandwidth=cluster.bandwidth,
            latency=cluster.latency,
        )
    alone = TaskGraph(
        [graph.names[i] for i in tasks],
        ends,
        edge_bytes=graph.edge_bytes[edges],
        op=[graph.op[i] for i in tasks],
        weight_bytes=graph.weight_bytes[tasks],
        input_bytes=graph.input_bytes[tasks],
        output_bytes=graph.output_bytes[tasks],
        colocation=[graph.colocation[i] for i in tasks],
    )
    return Problem(
        alone,
        cluster,
        durations=usable_durations(problem, tasks) if durations is None else durations,
        batch_sizes=problem.batch_sizes.tolist(),
        inputs=problem.inputs,
        batching=problem.batching,
        communication=problem.communication,
        transfers=None if problem.transfers is None else problem.transfers[edges],
    )


def within(graph: TaskGraph, tasks: IntArray) -> IntArray:
    """Return the edges between some tasks, ascending."""
    chosen = np.zeros(graph.n_tasks, bool)
    chosen[tasks] = True
    return np.flatnonzero(chosen[graph.source] & chosen[graph.target])


def usable_durations(problem: Problem, tasks: IntArray) -> FloatArray:
    """Return the durations of some tasks [m, K, B], NaN also where pins and the like keep a task from running."""
    found = problem.arrays.durations[tasks]
    return np.where(np.isfinite(found), found, np.nan)


def join(problem: Problem, pieces: Iterable[tuple[PartialDecision, IntArray, IntArray]]) -> Decision:
    """Return what pieces choose together, those of one part after those of the part before.

    Parameters
    ----------
    problem : Problem
        The whole.
    pieces : iterable of (PartialDecision, int array, int array)
        Each with the tasks that those of its part are in the whole, -1 for one that another part
        brings in, and likewise its edges.
    """
    task, device, counts, items, edges = [], [], [], [], []
    for (decision, transfers), tasks, its_edges in pieces:
        kept = np.flatnonzero(tasks[decision.task] >= 0)
        size = np.diff(decision.item_ptr)
        task.append(tasks[decision.task[kept]])
        device.append(decision.device[kept])
        counts.append(size[kept])
        items.append(decision.items[np.isin(np.repeat(np.arange(decision.n_batches), size), kept)])
        edges.append(its_edges[transfers])
    every = np.concatenate(task)
    order = None
    if problem.links.contended and problem.inputs == 1:  # several inputs may be in other batches before and after
        batch = np.argsort(every)
        moved = np.concatenate(edges)
        order = np.column_stack([moved, batch[problem.graph.source[moved]], batch[problem.graph.target[moved]]])
    return Decision(every, np.concatenate(device), row_starts(np.concatenate(counts)), np.concatenate(items), transfer_order=order)
