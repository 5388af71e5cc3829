"""Baechi: m-topo, m-ETF and m-SCT, which reserves devices for favourite children chosen by a linear program."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np

from hetsched.arrays import FloatArray, IntArray, readonly
from hetsched.coarsening.coarse import mean_durations, mean_transfers
from hetsched.errors import UnsupportedFeature
from hetsched.heuristics.list_scheduling.dynamic import MANY, one_order
from hetsched.heuristics.list_scheduling.offers import decision_of, descending, in_slices, list_problem, plans
from hetsched.heuristics.placement.offers import filled, listed, offer_by_claims
from hetsched.modeling.backends import preferred
from hetsched.modeling.expression import Expression
from hetsched.modeling.model import Model
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Kind, Monitor, Role, Supports, always, method, tasks_up_to

BAECHI = "Baechi (Jeon et al., SoCC 2020)"
MOST_LP = 2000
"""Number of tasks above which the linear program of m-sct takes longer than a search."""
SOLVERS = ("highs", "scip")
"""Solvers of the linear program, the faster first: of a training step of 14,855 tasks HiGHS solves it in seconds."""
FAVOURITE = 0.1
"""A child is a favourite if its transfer's variable in the linear program is less than this."""


@method(
    "m-topo",
    summary="breadth-first order, one device after another filled to an equal share of the memory needed",
    source=BAECHI,
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=220,
)
def m_topo(problem: Problem, monitor: Monitor, *, claims: Literal["all", "first"] = "all") -> None:
    """Fill devices in turn, each to the mean memory need per device plus the largest need of a unit, within its capacity.

    If no device has room, the one with the most memory left is taken: a best effort. The option is as for m-sct.
    """
    order = problem.graph.topological_order

    def place(need: FloatArray) -> Decision | None:
        claimed = _claimed(problem, need, claims)
        share = claimed.sum() / problem.n_devices + claimed.max(initial=0.0)
        limit = np.minimum(share, problem.cluster.memory_bytes)
        return listed(problem, filled(problem, order, claimed, limit), descending(order))

    offer_by_claims(monitor, place)


@method(
    "m-etf",
    summary="earliest start first, within memory; goes on where there is none left",
    source=BAECHI,
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=240,
)
def m_etf(problem: Problem, monitor: Monitor, *, claims: Literal["all", "first"] = "all", contention: bool | None = None) -> None:
    """Place the (task, device) pair of earliest start at each step, within memory; the options are as for m-sct."""
    _reserving(monitor, np.full(problem.n_tasks, -1), claims, contention)


@method(
    "m-sct",
    summary="small communication times: earliest start first, devices kept for favourite children, found by a linear program",
    source=f"{BAECHI}; C. Hanen, A. Munier 1995",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: tasks_up_to(MOST_LP)},
    growth=2,
    supports=Supports(inputs="whole"),
    turn=270,
)
def m_sct(
    problem: Problem,
    monitor: Monitor,
    *,
    solver: str | None = None,
    claims: Literal["all", "first"] = "all",
    contention: bool | None = None,
) -> None:
    """Schedule as m-etf, but reserve the device of a task for its favourite child until that child is placed.

    Until then the device runs only other tasks that wait for no data there. The linear program chooses at most one favourite
    child of a task, and a task is the favourite child of at most one parent.

    Parameters
    ----------
    solver : "highs" or "scip", optional
        The solver of the linear program; default HiGHS if it is installed, else SCIP, which takes many times as long.
    claims : "all" or "first"
        The memory claimed by a co-location label when its first task is placed: that of all its tasks, or of the first alone, as
        in Baechi, which can exceed the capacity.
    contention : bool, optional
        Whether transfers are planned, see `plans`.
    """
    favourite = favourite_children(problem, monitor, preferred(SOLVERS) if solver is None else solver)
    if favourite is not None:
        _reserving(monitor, favourite, claims, contention)


def favourite_children(problem: Problem, monitor: Monitor, solver: str) -> IntArray | None:
    """Return the favourite child of each task, or -1, [n]; None if the linear program was not solved in time.

    Minimises the makespan w subject to s_j >= s_i + t_i + x_ij c_ij, where x_ij in [0, 1] is the part of the transfer of edge
    (i, j) that is paid; the parts sum to at least the number of children - 1 for a task, and of parents - 1 for a child. t and c
    are mean durations and mean transfers.
    """
    graph, model = problem.graph, Model(deadline=monitor.deadline)
    duration, transfer = mean_durations(problem), mean_transfers(problem)
    scale = problem.n_tasks / max(float(duration.sum() + transfer.sum()), 1e-300)  # solvers' tolerances are absolute
    start, paid, end = model.continuous("s", problem.n_tasks), model.continuous("x", graph.n_edges, upper=1.0), model.continuous("w")
    i, j = graph.source, graph.target
    model.add(start[j] >= start[i] + duration[i] * scale + paid * (transfer * scale), tag="precedence")
    model.add(start + duration * scale <= end, tag="makespan")
    for ptr, edges in ((graph.succ_ptr, graph.succ_edge), (graph.pred_ptr, graph.pred_edge)):
        total = Expression((problem.n_tasks,), ptr, paid.column[edges], np.ones(graph.n_edges), np.zeros(problem.n_tasks))
        model.add(total >= np.diff(ptr) - 1.0, tag="favourite")
    model.minimise(end)
    outcome = model.solve(solver, deadline=monitor.deadline, seed=monitor.seed, stop=lambda: monitor.should_stop).raise_for_failure()
    if outcome.values is None:
        monitor.note(f"the linear program for the favourite children has no solution: {outcome.detail or outcome.stopped}")
        return None
    favourite = np.full(problem.n_tasks, -1)
    edges = np.flatnonzero(paid.value(outcome.values) < FAVOURITE)
    favourite[i[edges]] = j[edges]
    return favourite


def _claimed(problem: Problem, need: FloatArray, claims: str) -> FloatArray:
    """Return the bytes that units claim, [n_units]: all that they need, or what their first tasks do."""
    if claims not in ("all", "first"):
        raise UnsupportedFeature(f"claims is {claims!r}; choose 'all' or 'first'")
    if claims == "all":
        return need
    first = np.unique(problem.unit, return_index=True)[1]
    return readonly((problem.static_bytes @ [1.0, problem.inputs])[first])


def _reserving(monitor: Monitor, favourite: IntArray, claims: str, contention: bool | None) -> None:
    from hetsched.heuristics.list_scheduling import dynamic_kernels, pair_kernels
    from hetsched.heuristics.list_scheduling.transfer_kernels import new_transfers
    from hetsched.heuristics.placement import kernels

    problem = monitor.problem
    choice = dynamic_kernels.Choice(dynamic_kernels.ETF, np.empty((0, 0)), np.empty(0))
    order = one_order(np.zeros(problem.n_tasks), problem.n_devices, waits=True)

    def place(planned: bool, need: FloatArray) -> Decision | None:
        claimed = _claimed(problem, need, claims)
        data, transfers = list_problem(problem, claimed), new_transfers(problem.arrays, True) if planned else None
        reservations = kernels.Reservations(favourite, np.full(problem.n_devices, -1))
        pairs = pair_kernels.Pairs.begin(problem.unit, claimed, problem.n_devices)

        def work(state: dynamic_kernels.Choosing, most: int) -> int:
            if transfers is None:
                return kernels.small_communication(data, choice, order, state, pairs, reservations, most)
            return kernels.small_planned_communication(data, state, reservations, transfers, most)

        state = dynamic_kernels.Choosing.begin(problem.n_tasks, problem.n_devices, problem.n_units)
        placed = in_slices(work, state, monitor.deadline, MANY)
        return None if placed[2] >= 0 else decision_of(problem, placed, transfers)

    offer_by_claims(monitor, *(partial(place, planned) for planned in plans(problem, contention)))
