"""Iterative repartitioning of a directed graph, load balance first."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from hetsched.analysis.levels import unit_sums
from hetsched.arguments import check_count
from hetsched.arrays import BoolArray, FloatArray, IntArray, row_starts
from hetsched.coarsening.coarse import mean_durations, mean_transfers
from hetsched.errors import UnsupportedFeature
from hetsched.heuristics.placement.offers import offer_devices, speeds
from hetsched.heuristics.placement.partitions import blocks_of, drawn
from hetsched.problem.problem import Problem
from hetsched.search import Auto, Kind, Monitor, Role, Supports, always, large, method


@method(
    "repartition",
    summary="a block partition, then tasks moved where more of what they read is, or where less is to do",
    source="Tavarageri, Sridharan, Kaul 2019",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=210,
    auto=Auto(when=large),
)
def repartition(
    problem: Problem,
    monitor: Monitor,
    *,
    start: Literal["block", "random"] = "block",
    expensive: float = 0.95,
    slack: float = 0.1,
    passes: int = 10,
) -> None:
    """Move expensive tasks while their incoming communication from other devices decreases, within a threshold of balance.

    A pass goes through them by their least communication D; edges weigh their bytes, and a task its seconds on either device. The
    other tasks follow the devices with which they exchange most. The partition after each pass is offered; because only incoming
    edges are considered, it may be worse than the previous one.

    Parameters
    ----------
    start : "block" or "random"
        The first partition, in proportion to speed.
    expensive : float
        The share of the work that the expensive tasks have, above 0, at most 1. Tasks with a co-location label, which share state,
        are not among them, unless there are no others.
    slack : float
        The paper's threshold: the permitted deviation of a load from the ideal (the work divided by all speeds), as a share of it.
    passes : int
        Maximum number of passes over all expensive tasks.
    """
    if start not in ("block", "random"):
        raise UnsupportedFeature(f"start is {start!r}; choose 'block' or 'random'")
    if not 0 < expensive <= 1:
        raise UnsupportedFeature(f"expensive is {expensive!r}; it must be a share of the work, above 0, at most 1")
    if not 0 <= slack < math.inf:
        raise UnsupportedFeature(f"slack is {slack!r}; it must be a share of the ideal load, at least 0")
    passes = check_count(passes, "passes", 0, error=UnsupportedFeature)
    from hetsched.heuristics.placement import kernels

    graph, unit = problem.graph, problem.unit
    members = kernels.Members(unit, row_starts(np.bincount(unit, minlength=problem.n_units)), np.argsort(unit, kind="stable"))
    work, cost = unit_sums(problem, mean_durations(problem)), unit_sums(problem, problem.whole_durations)
    chosen = _expensive(work, np.diff(members.ptr) == 1, expensive)
    sequence = unit[graph.topological_order]
    others = sequence[np.sort(np.unique(sequence, return_index=True)[1])]
    others = others[~np.isin(others, chosen)]
    weight = graph.edge_bytes if graph.edge_bytes.any() else mean_transfers(problem)

    counted = np.zeros(problem.n_units)
    counted[chosen] = work[chosen]
    device = blocks_of(problem, counted)[np.unique(unit, return_index=True)[1]] if start == "block" else drawn(problem, monitor.rng)
    partition = kernels.partition(device, cost, chosen)
    ideal = float(counted.sum() / max(speeds(problem).sum(), 1e-300))
    balance = kernels.Balance(cost, ideal, slack * ideal)

    def offer() -> None:
        partition.device[others] = -1
        kernels.follow(problem.arrays, others, members, weight, cost, partition._replace(load=partition.load.copy()))
        offer_devices(monitor, partition.device[unit])

    offer()
    for _ in range(passes):
        order = chosen[np.argsort(_least_communication(problem, partition.device, weight)[chosen], kind="stable")]
        moved = kernels.repartition(problem.arrays, order, members, weight, balance, partition)
        if not moved or monitor.should_stop:
            return
        offer()


def _expensive(work: FloatArray, alone: BoolArray, share: float) -> IntArray:
    """Return the fewest units that have the given share of the work of all that are one task, [m], ascending."""
    able = np.flatnonzero(alone) if alone.any() else np.arange(len(work))
    able = able[np.argsort(-work[able], kind="stable")]
    reached = work[able].cumsum()
    count = 1 + int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12))) if len(able) else 0
    return np.sort(able[:count])


def _least_communication(problem: Problem, device: IntArray, weight: FloatArray) -> FloatArray:
    """Return the least communication cost D, external minus internal, of each unit on any device, [n_units]."""
    ends = problem.unit[problem.graph.edges]
    apart = np.flatnonzero(ends[:, 0] != ends[:, 1])
    incoming = np.zeros((problem.n_units, problem.n_devices))
    np.add.at(incoming, (ends[apart, 1], device[ends[apart, 0]]), weight[apart])
    return np.asarray(incoming.sum(axis=1) - 2 * incoming.max(axis=1))
