"""Celeritas: placement of a graph fused to clusters."""

from __future__ import annotations

import numpy as np

from hetsched.coarsening.coarse import mean_transfers
from hetsched.coarsening.sequential import topological_order
from hetsched.heuristics.list_scheduling.offers import descending, offer_in_order
from hetsched.heuristics.placement.offers import filled, fused, listed, offer_by_claims, offer_lifted
from hetsched.problem.problem import Problem
from hetsched.search import Auto, Kind, Monitor, Role, Supports, always, large, method

CELERITAS = "Celeritas (Xu et al. 2022)"


@method(
    "celeritas",
    summary="optimal operation fusion, then Adjusting Placement of the coarse graph: made for 50,000 operators in a second",
    source=CELERITAS,
    kind=Kind.CONSTRUCTIVE,
    roles={Role.PACKING: always, Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=190,
    auto=Auto(when=large),
)
def celeritas(problem: Problem, monitor: Monitor, *, window: int = 200, memory: float = 0.25) -> None:
    """Place clusters in CPD-TOPO order, each on the device of the previous one or, if it starts earlier enough, on another.

    A cluster changes the device if its start is earlier by more than a transfer back. It has at most `window` tasks and the
    share `memory` of the smallest device's memory. If it fits no device, it is placed on the one with the most memory left: a best
    effort.
    """
    offer_lifted(monitor, fused(problem, monitor, window=window, memory=memory), adjusting)


def adjusting(problem: Problem, monitor: Monitor) -> None:
    """Offer Adjusting Placement of a graph (Celeritas, Algorithm 2); the back cost of a task is its longest transfer to a successor."""
    back = np.zeros(problem.n_tasks)
    np.maximum.at(back, problem.graph.source, mean_transfers(problem))
    order = descending(topological_order(problem))
    offer_in_order(monitor, order, criterion="adjust", insertion=True, bias=back[:, None])


@method(
    "order-place",
    summary="optimal operation fusion, then one device after another filled to its memory, the fastest first",
    source=CELERITAS,
    kind=Kind.CONSTRUCTIVE,
    roles={Role.PACKING: always, Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=200,
    auto=Auto(when=large),
)
def order_place(problem: Problem, monitor: Monitor, *, window: int = 200, memory: float = 0.25) -> None:
    """Fill one device after another up to its memory with clusters in CPD-TOPO order."""
    offer_lifted(monitor, fused(problem, monitor, window=window, memory=memory), filling)


def filling(problem: Problem, monitor: Monitor) -> None:
    """Offer Order-Place of a graph."""
    order = topological_order(problem)
    capacity = problem.cluster.memory_bytes
    offer_by_claims(monitor, lambda need: listed(problem, filled(problem, order, need, capacity), descending(order)))
