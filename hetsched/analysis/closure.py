"""The transitive closure of a task graph."""

from __future__ import annotations

import numpy as np

from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import BoolArray


def ancestors(graph: TaskGraph) -> BoolArray:
    """Return the [n, n] matrix whose entry (j, i) tells whether a path leads from task i to task j.

    It takes n^2 bytes; its transpose tells descendants.
    """
    result = np.zeros((graph.n_tasks, graph.n_tasks), bool)
    pointer, pred = graph.pred_ptr.tolist(), graph.pred
    for j in graph.topological_order.tolist():
        parents = pred[pointer[j] : pointer[j + 1]]
        if len(parents):
            np.logical_or.reduce(result[parents], axis=0, out=result[j])
            result[j, parents] = True
    return result
