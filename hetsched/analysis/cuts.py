"""Tasks and sets of tasks at which a graph falls into parts."""

from __future__ import annotations

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import IntArray
from hetsched.problem.graph import TaskGraph


@checked
def series_cuts(graph: TaskGraph) -> IntArray:
    """Return the tasks that are ancestor or descendant of every other, in topological order.

    What comes before such a task ends before it starts, and the rest starts after it ends. An edge
    may still pass over it (u -> v -> w beside u -> w): then its transfer need not wait for the task,
    nor for anything known at it. So a sum of optima over the parts between these tasks bounds the
    whole from below; it is the optimum where no edge passes, at the `clean_cuts`.
    """
    n = graph.n_tasks
    order, rank = graph.topological_order, graph.rank
    first_child, last_parent = np.full(n, n), np.full(n, -1)
    np.minimum.at(first_child, rank[graph.source], rank[graph.target])
    np.maximum.at(last_parent, rank[graph.target], rank[graph.source])
    # At rank t: everybody before has a child by then, everybody after a parent from then on.
    # Then each leads to the task at t, resp. comes from it, since no path can pass it by.
    before = np.maximum.accumulate(np.concatenate([[-1], first_child[:-1]])) if n else first_child
    after = np.minimum.accumulate(np.concatenate([last_parent[1:], [n]])[::-1])[::-1] if n else last_parent
    places = np.arange(n)
    return np.asarray(order[(before <= places) & (after >= places)])


@checked
def clean_cuts(graph: TaskGraph) -> IntArray:
    """Return the series cuts that no edge passes over, in topological order.

    Every edge, and with it every tensor, either ends at or before such a task or begins at or after
    it. So what lies before it touches what lies after it in nothing but the device and the finish of
    this one task: the modules of DiviML's MILP-SPLIT with one channel lie between them, and splitting
    there is exact (for one input, where neither memory nor a co-location label couples the parts).

    They are the paper's cuts, read off the directed graph: of a bridge that every path from the
    sources to the sinks goes through both ends are clean cuts, and so is an articulation point of that
    kind, which the paper doubles by a dummy edge tied to one device to make a bridge of it. Bridges
    and articulation points that only part off a dangling end are none: what hangs there runs beside
    the rest.
    """
    cuts, rank = series_cuts(graph), graph.rank
    passing = np.zeros(graph.n_tasks + 1, np.int64)
    source, target = rank[graph.source], rank[graph.target]
    np.add.at(passing, source + 1, 1)
    np.add.at(passing, target, -1)
    return np.asarray(cuts[np.cumsum(passing)[rank[cuts]] == 0])
