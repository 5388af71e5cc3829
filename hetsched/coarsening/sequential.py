"""Celeritas: topological orders of a graph, and clusters that are intervals of such an order."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from hetsched.arguments import check_count, checked
from hetsched.arrays import FloatArray, IntArray, row_starts
from hetsched.coarsening.coarse import Coarsening, contract, mean_durations, mean_transfers, memory_share, settled
from hetsched.errors import UnsupportedFeature
from hetsched.problem.problem import Problem

Order = Literal["m-topo", "dfs-topo", "cpd-topo"]
_MOST_BITS = 62


@checked(UnsupportedFeature)
def topological_order(problem: Problem, order: Order = "cpd-topo") -> IntArray:
    """Return all tasks in one of Celeritas' topological orders, [n].

    ``"m-topo"`` is breadth-first, ``"dfs-topo"`` continues with ready children, the last listed first, and
    ``"cpd-topo"`` selects the source or ready child with the longest path through it, by mean durations and mean
    transfers, (2) and (3).

    References
    ----------
    H. Xu, Y. Liao, H. Xie, P. Zhou, "Celeritas: Fast Optimizer for Large Dataflow Graphs", 2022, section 5.1.
    """
    if order not in get_args(Order):
        raise UnsupportedFeature(f"order is {order!r}; choose one of {', '.join(get_args(Order))}")
    from hetsched.coarsening import kernels

    graph = problem.graph
    if order == "m-topo":
        return graph.topological_order
    through = through_levels(problem) if order == "cpd-topo" else np.zeros(problem.n_tasks)
    waiting = np.diff(graph.pred_ptr)
    parent = np.repeat(np.arange(problem.n_tasks), np.diff(graph.succ_ptr))
    listed = np.lexsort((through[graph.succ], parent))  # stable: ties in the order of edges
    sources = np.flatnonzero(waiting == 0)[::-1]
    sources = sources[np.argsort(through[sources], kind="stable")]
    return kernels.depth_first(graph.succ_ptr, graph.succ[listed], waiting, sources)


def through_levels(problem: Problem) -> FloatArray:
    """Return the length of the longest path through each task, [n] seconds, by mean durations and mean transfers."""
    from hetsched.analysis import ranking_kernels

    weight, transfer, order = mean_durations(problem), mean_transfers(problem), problem.graph.topological_order
    levels: FloatArray = ranking_kernels.upward(problem.arrays, order, weight, transfer) + ranking_kernels.downward(
        problem.arrays, order, weight, transfer
    )
    return levels


@checked(UnsupportedFeature)
def operation_fusion(problem: Problem, *, order: Order = "cpd-topo", window: int = 200, memory: float = 0.25) -> Coarsening:
    """Merge intervals of a topological order with the least mean transfers between them: optimal operation fusion.

    Intervals of a topological order make no cycle. Kernighan's dynamic program finds the optimal break points in time
    proportional to edges + tasks x window. They are optimal without co-location labels: clusters that labels bind together are
    divided further where they would have no device or need too much memory (`settled`). The methods ``celeritas`` and
    ``order-place`` fuse the graph without its labels instead.

    Parameters
    ----------
    order : "m-topo", "dfs-topo" or "cpd-topo"
    window : int
        The most tasks of a cluster.
    memory : float
        The most static memory of a cluster, as a share of the smallest device's; a single task may need more.

    References
    ----------
    Celeritas (Xu et al. 2022), section 5.1.3, (4) to (6); B. W. Kernighan, "Optimal sequential partitions of graphs", 1971.
    """
    window = check_count(window, "window", error=UnsupportedFeature)
    if not memory > 0:
        raise UnsupportedFeature(f"memory is {memory!r}; it must be a share of a device's memory, above 0")
    from hetsched.coarsening import kernels

    graph, sequence = problem.graph, topological_order(problem, order)
    position = np.empty(problem.n_tasks, np.int64)
    position[sequence] = np.arange(problem.n_tasks)
    cost = mean_transfers(problem)
    by_target = np.argsort(position[graph.target], kind="stable")
    ptr = row_starts(np.diff(graph.pred_ptr)[sequence])
    out = np.bincount(graph.source, cost, problem.n_tasks).astype(np.float64)  # whole numbers where there is no edge
    claim = problem.static_bytes @ [1.0, problem.inputs]
    most = memory_share(problem, memory)
    breaks = kernels.break_points(
        position[graph.source[by_target]],
        ptr,
        cost[by_target],
        out[sequence],
        claim[sequence],
        device_bits(problem)[sequence],
        window,
        most,
    )
    return contract(problem, settled(problem, breaks[position], most))


def device_bits(problem: Problem) -> IntArray:
    """Return the devices that each task can run on as bits, [n]; all ones if there are too many devices."""
    if problem.n_devices > _MOST_BITS:
        return np.full(problem.n_tasks, -1)
    return np.asarray(problem.eligible @ (1 << np.arange(problem.n_devices)))
