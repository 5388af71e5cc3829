"""A minimum partition of a task graph into chains; its size is the width of the graph."""

from __future__ import annotations

import numpy as np

from hetsched.analysis.closure import ancestors
from hetsched.arguments import checked
from hetsched.arrays import IntArray
from hetsched.problem.graph import TaskGraph


@checked
def chains(graph: TaskGraph) -> IntArray:
    """Return the chain of each task, numbered from 0, in a partition into the minimum number of chains.

    Any two tasks of a chain are joined by a path. The number of chains is the width of the graph, the
    size of a largest set of tasks no two of which are joined by a path (Dilworth 1950). It is computed by
    a maximum matching of tasks with descendants. The transitive closure takes n^2 bytes.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    n = graph.n_tasks
    chain = np.full(n, -1)
    if not n:
        return chain
    next_one = maximum_bipartite_matching(csr_array(ancestors(graph).T), perm_type="column")
    first = np.ones(n, bool)
    first[next_one[next_one >= 0]] = False
    for number, start in enumerate(np.flatnonzero(first).tolist()):
        i = start
        while i >= 0:
            chain[i] = number
            i = int(next_one[i])
    return chain
