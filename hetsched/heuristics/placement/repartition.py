"""Iterative repartitioning of a directed graph, load balance first."""

from __future__ import annotations

import math

import numpy as np

from hetsched.analysis.levels import unit_sums
from hetsched.arguments import check_count
from hetsched.arrays import row_starts
from hetsched.coarsening.coarse import mean_durations, mean_transfers
from hetsched.errors import UnsupportedFeature
from hetsched.heuristics.placement.offers import offer_devices, shares
from hetsched.heuristics.placement.partitions import blocks
from hetsched.problem.problem import Problem
from hetsched.search import Auto, Kind, Monitor, Role, Supports, always, large, method


@method(
    "repartition",
    summary="a block partition, then tasks moved where more of what they read is, or where less is to do",
    source="Tavarageri, Sridharan, Kaul 2021",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=210,
    auto=Auto(when=large),
)
def repartition(problem: Problem, monitor: Monitor, *, slack: float = 0.1, passes: int = 10) -> None:
    """Move tasks while their incoming communication from other devices decreases, within a threshold of balance.

    The partition after each pass is offered; because only incoming edges are considered, it may be worse than the previous one.

    Parameters
    ----------
    slack : float
        The paper's threshold: the permitted deviation of a load from the ideal (the work divided in proportion to speed), as a
        share of the mean load.
    passes : int
        Maximum number of passes over all tasks.
    """
    if not 0 <= slack < math.inf:
        raise UnsupportedFeature(f"slack is {slack!r}; it must be a share of the mean load, at least 0")
    passes = check_count(passes, "passes", 0, error=UnsupportedFeature)
    from hetsched.heuristics.placement import kernels

    unit = problem.unit
    first = np.unique(unit, return_index=True)[1]
    work, transfer = unit_sums(problem, mean_durations(problem)), mean_transfers(problem)
    partition = kernels.partition(blocks(problem)[first], work, problem.n_devices)
    offer_devices(monitor, partition.device[unit])
    ptr = row_starts(np.bincount(unit, minlength=problem.n_units))
    members = kernels.Members(unit, ptr, np.argsort(unit, kind="stable"))
    balance = kernels.Balance(work, work.sum() * shares(problem), float(slack * work.sum() / problem.n_devices))
    order = problem.graph.topological_order
    for _ in range(passes):
        moved = kernels.repartition(problem.arrays, order, members, transfer, problem.whole_durations, balance, partition)
        if not moved or monitor.should_stop:
            return
        offer_devices(monitor, partition.device[unit])
