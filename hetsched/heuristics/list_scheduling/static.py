"""List schedulers with static priorities: HEFT, CPOP, PEFT, HLFET, MCP. The option `contention` is that of `plans`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.errors import UnsupportedFeature
from hetsched.heuristics.list_scheduling.offers import descending, list_problem, offer, offer_in_order, place_in_order
from hetsched.problem.problem import Problem
from hetsched.search import ALL, Auto, Kind, Monitor, Role, Supports, always, method

if TYPE_CHECKING:
    from hetsched.heuristics.list_scheduling.kernels import Placed
    from hetsched.heuristics.list_scheduling.transfer_kernels import Transfers


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
    ``"saga"`` (whose mean includes each device's free link to itself).
    """
    from hetsched.analysis import ranking_kernels

    arrays, order = problem.arrays, problem.graph.topological_order
    weight = ranking_kernels.mean_durations(problem.class_whole_durations, problem.device_class)
    transfer = ranking_kernels.mean_transfers(arrays, mean_code(mean_communication))
    return ranking_kernels.upward(arrays, order, weight, transfer), ranking_kernels.downward(arrays, order, weight, transfer)


def place_heft(problem: Problem, need: FloatArray, mean_communication: str = "paper", transfers: Transfers | None = None) -> Any:
    """Return the placement of HEFT: (device per task, sequence of tasks, task that fits nowhere or -1); `transfers` are changed."""
    from hetsched.heuristics.list_scheduling import static_kernels

    data = list_problem(problem, need)
    if transfers is None:
        return static_kernels.heft(data, problem.graph.topological_order, mean_code(mean_communication))
    rank, _ = ranks(problem, mean_communication)
    rule = static_kernels.Rule(static_kernels.FINISH, True, rank, np.empty((0, 0)), np.empty(0, np.int64))
    return place_in_order(data, rule, transfers)


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
def heft(problem: Problem, monitor: Monitor, *, mean_communication: str = "paper", contention: bool | None = None) -> None:
    """Insert tasks by descending upward rank, each into the gap of its earliest finish.

    Where transfers contend, `contention` says whether they are planned, each in the earliest slot in which its resources are idle;
    with None both placements are offered.
    """
    offer(monitor, lambda need, transfers: place_heft(problem, need, mean_communication, transfers), contention)


@method(
    "cpop",
    summary="critical path on a processor: the critical path on one device, the rest by earliest finish",
    source="Topcuoglu, Hariri and Wu 2002",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=50,
    auto=Auto(),
)
def cpop(problem: Problem, monitor: Monitor, *, mean_communication: str = "paper", contention: bool | None = None) -> None:
    """Place ready tasks by upward + downward rank; those of the critical path on the device that is fastest for the path.

    A critical task that cannot run there is placed at its earliest finish, like the others.
    """
    from hetsched.analysis import ranking_kernels

    upward, downward = ranks(problem, mean_communication)
    priority = upward + downward
    only = ranking_kernels.critical_device(problem.arrays, problem.whole_durations, priority)
    offer_in_order(monitor, priority, criterion="finish", insertion=True, only=only, contention=contention)


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
def peft(problem: Problem, monitor: Monitor, *, mean_communication: str = "paper", contention: bool | None = None) -> None:
    """Place ready tasks by descending mean optimistic cost, each on the device of least finish + optimistic cost."""
    from hetsched.analysis import ranking_kernels

    transfer = ranking_kernels.mean_transfers(problem.arrays, mean_code(mean_communication))
    costs = ranking_kernels.optimistic_costs(problem.arrays, problem.graph.topological_order, problem.whole_durations, transfer)
    offer_in_order(monitor, costs.mean(axis=1), criterion="finish", insertion=True, bias=costs, contention=contention)


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
    """Place tasks by descending upward rank, each on the device that lets its children finish first.

    For each device, the children are placed tentatively as in HEFT, and the device of the earliest
    last finish is used; a task without children is placed at its own earliest finish. At most the
    `most_children` children of highest rank are tried.
    """
    from hetsched.heuristics.list_scheduling import lookahead_kernels, static_kernels

    if most_children < 0:
        raise UnsupportedFeature(f"most_children is {most_children}; it must be 0 or more")
    rank, _ = ranks(problem, mean_communication)
    graph = problem.graph
    parent = np.repeat(np.arange(problem.n_tasks), np.diff(graph.succ_ptr))
    order = np.lexsort((graph.succ, -rank[graph.succ], parent))
    most = min(most_children, int(np.diff(graph.succ_ptr).max(initial=0)))
    children = lookahead_kernels.Children(graph.succ[order], graph.succ_edge[order], most)

    def place(need: FloatArray, _transfers: Transfers | None) -> Placed:
        state = static_kernels.new_state(problem.n_tasks, problem.n_devices, len(need))
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
def hlfet(problem: Problem, monitor: Monitor, *, contention: bool | None = None) -> None:
    """Append ready tasks by descending static level (mean durations, no communication), each at its earliest start."""
    offer_in_order(monitor, static_level(problem), criterion="start", insertion=False, contention=contention)


@method(
    "mcp",
    summary="modified critical path: by latest start, earliest start with insertion",
    source="Wu and Gajski 1990",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=90,
    auto=Auto(),
)
def mcp(problem: Problem, monitor: Monitor, *, mean_communication: str = "paper", contention: bool | None = None) -> None:
    """Insert ready tasks by ascending latest start, each at its earliest start.

    The paper compares the sorted latest starts of a task and all its descendants. This implementation
    compares the first two entries: the task's own, and the least of its children.
    """
    from hetsched.analysis import ranking_kernels

    upward, _ = ranks(problem, mean_communication)
    latest = upward.max(initial=0.0) - upward
    order = np.lexsort((ranking_kernels.second_latest_start(problem.arrays, latest), latest))
    offer_in_order(monitor, descending(order), criterion="start", insertion=True, contention=contention)


def static_level(problem: Problem, weight: FloatArray | None = None) -> FloatArray:
    """Return the longest path of durations from each task to the end, without communication, [n].

    `weight` [n] defaults to the mean durations.
    """
    from hetsched.analysis import ranking_kernels

    if weight is None:
        weight = ranking_kernels.mean_durations(problem.class_whole_durations, problem.device_class)
    level: FloatArray = ranking_kernels.upward(problem.arrays, problem.graph.topological_order, weight, np.zeros(problem.graph.n_edges))
    return level
