"""Numba kernels over the arcs of a directed graph in compressed form."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hetsched.compiled import builder

IntArray = npt.NDArray[np.int64]


@builder
def breadth_first_order(succ_ptr: IntArray, succ: IntArray, indegree: IntArray) -> IntArray:
    """Return Kahn's topological order with a first-in first-out queue.

    Sources enter in index order. The result is shorter than the number of tasks iff there is a
    cycle; then it holds the tasks that no cycle precedes.
    """
    n = len(indegree)
    waiting = indegree.copy()
    order = np.empty(n, np.int64)
    tail = 0
    for i in range(n):
        if waiting[i] == 0:
            order[tail] = i
            tail += 1
    head = 0
    while head < tail:
        i = order[head]
        head += 1
        for position in range(succ_ptr[i], succ_ptr[i + 1]):
            j = succ[position]
            waiting[j] -= 1
            if waiting[j] == 0:
                order[tail] = j
                tail += 1
    return order[:tail]
