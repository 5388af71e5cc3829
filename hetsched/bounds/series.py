"""A bound for graphs that are series of modules: one bound per module and pair of end devices, joined."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from hetsched.analysis import levels
from hetsched.analysis.cuts import series_cuts
from hetsched.bounds.combinatorial import critical_path
from hetsched.bounds.destructive import destructive
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import FloatArray, IntArray, TaskGraph
from hetsched.problem.problem import Problem
from hetsched.solution import Bound

_MODULE_BOUNDS = 1000
_PRECISION = 1e-4


class _Module(NamedTuple):
    """The tasks between two neighbouring cuts; an end is None at the borders of the graph."""

    source: int | None
    inner: IntArray
    target: int | None


def series(problem: Problem, *, time_limit: float | None = None) -> Bound:
    """Return the best sum of module bounds along the series of modules.

    Between two cuts u and v (`series_cuts`) nothing else of the graph runs between the finish of an
    input on u and its finish on v. So ``finish(v, k) >= min over devices h of (finish(u, h) + the
    bound of the module with u on h and v on k)``, as in DiviML's MILP-SPLIT with bounds for optima.
    Module bounds come from `destructive`, for at most 1000 (module, device pair)s, largest modules
    first; the other modules count with their levels, as do all once the time is up. One input is
    followed, memory left aside.

    Parameters
    ----------
    time_limit : float, optional
        Seconds of wall time.
    """
    deadline = math.inf if time_limit is None else time.perf_counter() + time_limit
    proof = critical_path(problem)
    if math.isinf(proof.value):
        return Bound(proof.value, "series", proof.evidence)
    modules = _modules(problem)
    chosen = set(sorted(range(len(modules)), key=lambda x: -len(modules[x].inner))[: _MODULE_BOUNDS // problem.n_devices**2])
    least = levels.least_durations(problem)
    cluster = Cluster(
        [Device(name) for name in problem.cluster.names], bandwidth=problem.cluster.route_bandwidth,
        latency=np.where(problem.cluster.route_bandwidth > 0, problem.cluster.route_latency, 0.0),
    )  # fmt: skip
    release = np.zeros_like(least)
    last, count = 0.0, 0
    for x in sorted(chosen):
        if not len(modules[x].inner) or time.perf_counter() > deadline:
            continue
        source, _, target = modules[x]
        finish = levels.earliest_starts(problem, least, release) + least
        gaps = _gaps(problem, cluster, least, modules[x], deadline)
        arrival = gaps.min(axis=0) if source is None else (finish[source][:, None] + gaps).min(axis=0)
        count += 1
        if target is None:
            last = float(arrival.min())
        else:
            reached = np.isfinite(arrival)
            release[target] = np.where(reached, arrival - np.where(reached, least[target], 0.0), math.inf)
    through = levels.earliest_starts(problem, least, release) + least + levels.tails(problem, least)
    value = max(last, float(through.min(axis=1).max(initial=0.0)))
    if math.isinf(value):
        return Bound(value, "series", "whatever devices the ends of the modules take, some task between them is left without any")
    return Bound(value, "series", f"{count} of {len(modules)} modules in series, bounded one by one for each pair of end devices")


def _modules(problem: Problem) -> list[_Module]:
    order, cuts = problem.graph.topological_order, series_cuts(problem.graph)
    is_cut = np.zeros(problem.n_tasks, bool)
    is_cut[cuts] = True
    parts = np.split(order, np.flatnonzero(is_cut[order]))
    inner = [parts[0], *(part[1:] for part in parts[1:])]
    ends = [None, *cuts.tolist(), None]
    return [_Module(source, part, target) for source, part, target in zip(ends, inner, ends[1:], strict=False)]


def _gaps(problem: Problem, cluster: Cluster, least: FloatArray, module: _Module, deadline: float) -> FloatArray:
    """Return the bound from the finish of the source on h to the finish of the target on k.

    Shape [K, K]; with one row or column where there is no source or target; inf where impossible.
    """
    graph, size = problem.graph, problem.n_devices
    tasks = np.array([i for i in (module.source, *module.inner.tolist(), module.target) if i is not None], np.int64)
    place = np.full(problem.n_tasks, -1)
    place[tasks] = np.arange(len(tasks))
    edges = np.flatnonzero((place[graph.source] >= 0) & (place[graph.target] >= 0))
    part = TaskGraph(
        [graph.names[i] for i in tasks], place[graph.edges[edges]], edge_bytes=graph.edge_bytes[edges],
        colocation=[graph.colocation[i] for i in tasks],
    )  # fmt: skip
    transfers = None if problem.transfers is None else problem.transfers[edges]
    durations = np.where(np.isfinite(least[tasks]), least[tasks], np.nan)
    rows = range(1 if module.source is None else size)
    columns = range(1 if module.target is None else size)
    gaps = np.zeros((len(rows), len(columns)))
    for h in rows:
        for k in columns:
            pinned = durations.copy()
            if module.source is not None:
                pinned[0] = np.nan
                pinned[0, h] = 0.0 if np.isfinite(durations[0, h]) else np.nan
            if module.target is not None:
                pinned[-1, np.arange(size) != k] = np.nan
            gaps[h, k] = _module_bound(part, cluster, pinned, transfers, deadline)
    return gaps


def _module_bound(graph: TaskGraph, cluster: Cluster, durations: FloatArray, transfers: FloatArray | None, deadline: float) -> float:
    try:
        problem = Problem(graph, cluster, durations=durations, transfers=transfers)
    except InvalidProblem:  # that is what it says: no device for some task, given the ends
        return math.inf
    limit = None if math.isinf(deadline) else max(0.0, deadline - time.perf_counter())
    return destructive(problem, start=critical_path(problem), time_limit=limit, precision=_PRECISION).value
