"""List schedulers with static priorities: HEFT, CPOP, PEFT, HLFET, MCP."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.errors import UnsupportedFeature
from hetsched.heuristics.list_scheduling.offers import descending, list_problem, offer, offer_in_order
from hetsched.problem.problem import Problem
from hetsched.search import ALL, Auto, Kind, Monitor, Role, Supports, always, method


def mean_code(name: str) -> int:
    """Return the code of an averaging rule by its name."""
    from hetsched.analysis.ranking_kernels import MEAN_COMMUNICATION

    if name not in MEAN_COMMUNICATION:
        raise UnsupportedFeature(f"mean_communication is {name!r}; choose one of {', '.join(map(repr, MEAN_COMMUNICATION))}")
    return MEAN_COMMUNICATION[name]


def ranks(problem: Problem, mean_communication: str = "paper") -> tuple[FloatArray, FloatArray]:
    """Return HEFT's upward and downward ranks, [n] each, in seconds.

    `mean_communication` is ``"paper"`` (mean latency + bytes / mean bandwidth over pairs of different
    devices; Topcuoglu et al. 2002), ``"times"`` (the mean of the transfer times over them) or
    ``"saga"`` (which averages over each device's free link to itself too).
    """
    from hetsched.analysis import ranking_kernels

    arrays, order = problem.arrays, problem.graph.topological_order
    weight = ranking_kernels.mean_durations(problem.whole_durations)
    transfer = ranking_kernels.mean_transfers(arrays, mean_code(mean_communication))
    return ranking_kernels.upward(arrays, order, weight, transfer), ranking_kernels.downward(arrays, order, weight, transfer)


def place_heft(problem: Problem, need: FloatArray, mean_communication: str = "paper") -> Any:
    """Return HEFT's placement alone: (device per task, sequence of tasks, task without a place or -1)."""
    from hetsched.heuristics.list_scheduling import kernels

    return kernels.heft(list_problem(problem, need), problem.graph.topological_order, mean_code(mean_communication))


@method(
    "heft",
    summary="heterogeneous earliest finish time: by upward rank, with insertion",
    source="Topcuoglu, Hariri and Wu 2002",
    kind=Kind.CONSTRUCTIVE,
    objectives=ALL,
    roles={Role.START: always, Role.UPPER: always, Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=20,
    auto=Auto(),
)
def heft(problem: Problem, monitor: Monitor, *, mean_communication: str = "paper") -> None:
    """Tasks by descending upward rank, each in the earliest gap that finishes it first."""
    offer(monitor, lambda need: place_heft(problem, need, mean_communication))


@method(
    "cpop",
    summary="critical path on a processor: the critical path on one device, the rest by earliest finish",
    source="Topcuoglu, Hariri and Wu 2002",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=50,
    auto=Auto(),
)
def cpop(problem: Problem, monitor: Monitor, *, mean_communication: str = "paper") -> None:
    """Ready tasks by upward + downward rank; those of the critical path on its fastest device.

    A critical task that cannot run there goes where it finishes first, like the others.
    """
    from hetsched.analysis import ranking_kernels

    upward, downward = ranks(problem, mean_communication)
    priority = upward + downward
    only = ranking_kernels.critical_device(problem.arrays, problem.whole_durations, priority)
    offer_in_order(monitor, priority, criterion="finish", insertion=True, only=only)


@method(
    "peft",
    summary="predict earliest finish time: looks ahead through an optimistic cost table, with insertion",
    source="Arabnejad and Barbosa 2014",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.UPPER: always},
    supports=Supports(inputs="whole"),
    turn=40,
    auto=Auto(),
)
def peft(problem: Problem, monitor: Monitor, *, mean_communication: str = "paper") -> None:
    """Ready tasks by mean optimistic cost, each where finish + optimistic cost is least."""
    from hetsched.analysis import ranking_kernels

    transfer = ranking_kernels.mean_transfers(problem.arrays, mean_code(mean_communication))
    costs = ranking_kernels.optimistic_costs(problem.arrays, problem.graph.topological_order, problem.whole_durations, transfer)
    offer_in_order(monitor, costs.mean(axis=1), criterion="finish", insertion=True, bias=costs)


@method(
    "lookahead",
    summary="HEFT that looks ahead: each task where its children, placed for a try, finish first",
    source="Bittencourt, Sakellariou and Madeira 2010",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=30,
    auto=Auto(),
)
def lookahead(problem: Problem, monitor: Monitor, *, mean_communication: str = "paper", most_children: int = 64) -> None:
    """Tasks by descending upward rank; on every device its children are placed for a try, as HEFT would.

    The device is taken on which the latest of them finishes first; a task without children goes where
    it finishes first itself. Of children, at most the `most_children` of highest rank are tried.
    """
    from hetsched.heuristics.list_scheduling import kernels, lookahead_kernels

    if most_children < 0:
        raise UnsupportedFeature(f"most_children is {most_children}; it must be 0 or more")
    rank, _ = ranks(problem, mean_communication)
    graph = problem.graph
    parent = np.repeat(np.arange(problem.n_tasks), np.diff(graph.succ_ptr))
    order = np.lexsort((graph.succ, -rank[graph.succ], parent))
    most = min(most_children, int(np.diff(graph.succ_ptr).max(initial=0)))
    children = lookahead_kernels.Children(graph.succ[order], graph.succ_edge[order], most)

    def place(need: FloatArray) -> kernels.Placed:
        state = kernels.new_state(problem.n_tasks, problem.n_devices, len(need))
        trial = lookahead_kernels.new_trial(problem.n_tasks, problem.n_devices, graph.n_edges, most)
        stuck = lookahead_kernels.lookahead(list_problem(problem, need), rank, children, state, trial)
        if stuck < 0:
            state.sequence[:] = state.sequence[np.argsort(trial.begin[state.sequence], kind="stable")]
        return state.device, state.sequence, stuck

    offer(monitor, place)


@method(
    "hlfet",
    summary="highest level first with estimated times: by static level, earliest start, no insertion",
    source="Adam, Chandy and Dickson 1974",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=100,
    auto=Auto(),
)
def hlfet(problem: Problem, monitor: Monitor) -> None:
    """Ready tasks by static level (mean durations, no communication), each where it starts first."""
    offer_in_order(monitor, static_level(problem), criterion="start", insertion=False)


@method(
    "mcp",
    summary="modified critical path: by latest start, earliest start with insertion",
    source="Wu and Gajski 1990",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=90,
    auto=Auto(),
)
def mcp(problem: Problem, monitor: Monitor, *, mean_communication: str = "paper") -> None:
    """Ready tasks by ascending latest start, each where it starts first.

    The paper compares lists of the latest starts of a task and all its descendants; of these the
    first two entries are compared here (its own, and the least among its children).
    """
    from hetsched.analysis import ranking_kernels

    upward, _ = ranks(problem, mean_communication)
    latest = upward.max(initial=0.0) - upward
    order = np.lexsort((ranking_kernels.second_latest_start(problem.arrays, latest), latest))
    offer_in_order(monitor, descending(order), criterion="start", insertion=True)


def static_level(problem: Problem, weight: FloatArray | None = None) -> FloatArray:
    """Return the longest path of durations from each task to the end, without communication, [n].

    `weight` [n] defaults to the mean durations.
    """
    from hetsched.analysis import ranking_kernels

    if weight is None:
        weight = ranking_kernels.mean_durations(problem.whole_durations)
    level: FloatArray = ranking_kernels.upward(problem.arrays, problem.graph.topological_order, weight, np.zeros(problem.graph.n_edges))
    return level
