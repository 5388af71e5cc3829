"""Parts of a problem: subproblems of some tasks, and the join of their decisions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray, row_starts
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem, stated
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule


class PartialDecision(NamedTuple):
    """The decision of a part of a problem, from a schedule of the part."""

    decision: Decision
    transfers: IntArray
    """Edges between devices, in the order in which their transfers start."""

    @classmethod
    def of(cls, schedule: Schedule) -> PartialDecision:
        """Return the decision of a schedule."""
        return cls(schedule.decision, schedule.transfers.edge[np.argsort(schedule.transfers.start, kind="stable")])


def subproblem(problem: Problem, tasks: IntArray, *, edges: IntArray | None = None, durations: FloatArray | None = None) -> Problem:
    """Return the problem of some tasks, a relaxation of `problem` for these.

    Its tasks are in the order of `tasks`. Tasks have only the devices that they have in `problem`. Peak
    memory is ignored, for it depends on the other tasks.

    Parameters
    ----------
    problem : Problem
    tasks : int array [m]
    edges : int array, optional
        The edges between the tasks, ascending; default: computed.
    durations : array [m, K, B], optional
        Seconds in place of those of `problem`; NaN where a task cannot run.

    Raises
    ------
    InvalidProblem
        A task has no device with the given durations.
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
        durations=stated(problem.usable_durations[tasks]) if durations is None else durations,
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


def join(problem: Problem, pieces: Iterable[tuple[PartialDecision, IntArray, IntArray]]) -> Decision:
    """Return the joint decision of parts, each after the part before.

    Parameters
    ----------
    problem : Problem
        The complete problem.
    pieces : iterable of (PartialDecision, int array, int array)
        Decisions of parts, each with the numbers of its tasks in the problem, -1 for tasks of another
        part, and likewise those of its edges.
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
    if problem.links.contended and problem.inputs == 1:  # several inputs may be in different batches before and after
        batch = np.argsort(every)
        moved = np.concatenate(edges)
        order = np.column_stack([moved, batch[problem.graph.source[moved]], batch[problem.graph.target[moved]]])
    return Decision(every, np.concatenate(device), row_starts(np.concatenate(counts)), np.concatenate(items), transfer_order=order)
