"""Tasks and sets of tasks at which a graph falls into parts."""

from __future__ import annotations

import numpy as np

from hetsched.problem.graph import IntArray, TaskGraph


def series_cuts(graph: TaskGraph) -> IntArray:
    """Return the tasks that are ancestor or descendant of every other, in topological order.

    What comes before such a task ends before it starts, and the rest starts after it ends: the
    modules of DiviML's MILP-SPLIT with one channel lie between them.
    """
    n = graph.n_tasks
    order = graph.topological_order
    position = np.empty(n, np.int64)
    position[order] = np.arange(n)
    first_child, last_parent = np.full(n, n), np.full(n, -1)
    np.minimum.at(first_child, position[graph.source], position[graph.target])
    np.maximum.at(last_parent, position[graph.target], position[graph.source])
    # At position t: everybody before has a child by then, everybody after a parent from then on.
    # Then each leads to the task at t, resp. comes from it, since no path can pass it by.
    before = np.maximum.accumulate(np.concatenate([[-1], first_child[:-1]])) if n else first_child
    after = np.minimum.accumulate(np.concatenate([last_parent[1:], [n]])[::-1])[::-1] if n else last_parent
    places = np.arange(n)
    return np.asarray(order[(before <= places) & (after >= places)])
