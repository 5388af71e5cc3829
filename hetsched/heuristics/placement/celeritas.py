"""Placement of graphs too large to search: Celeritas, Baechi, METIS, block and random partitions."""

from __future__ import annotations

import importlib.util
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from hetsched.analysis.levels import unit_sums
from hetsched.arrays import FloatArray, IntArray, row_starts
from hetsched.coarsening.coarse import Coarsening, mean_durations, mean_transfers
from hetsched.coarsening.sequential import operation_fusion, topological_order
from hetsched.errors import InvalidProblem, MissingDependency, OutOfTime, UnsupportedFeature
from hetsched.heuristics.list_scheduling.offers import descending, offer_in_order
from hetsched.heuristics.list_scheduling.static import ranks
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.modeling.expression import Expression
from hetsched.modeling.model import Model
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Auto, Kind, Monitor, Role, Supports, always, large, method, tasks_up_to
from hetsched.stopping import Deadline

CELERITAS = "Celeritas (Xu et al. 2022)"
BAECHI = "Baechi (Jeon et al., SoCC 2020)"
GRACE = 0.3
"""Seconds after the time limit at which METIS is ended."""
FAVOURITE = 0.1
"""A child is a favourite if the linear program makes less of the transfer to it than this."""
MOST_LP = 2000
"""Tasks beyond which the linear program of m-sct takes longer than a search."""

_METIS = """
import os, pickle, sys
sys.path[:] = {path!r}
answer = os.fdopen(os.dup(1), "wb")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
from pymetis import CSRAdjacency, part_graph
count, neighbours, options = pickle.load(sys.stdin.buffer)
with answer:
    pickle.dump(list(part_graph(count, CSRAdjacency(*neighbours), **options)[1]), answer)
"""


# ---------------------------------------------------------------------- what the methods share


def fused(problem: Problem, monitor: Monitor, **options: Any) -> Coarsening:
    """Return Celeritas' coarsening, or the problem as it is where its coarse problem would be none."""
    try:
        return operation_fusion(problem, **options)
    except InvalidProblem as refusal:  # clusters that no path joins
        monitor.note(f"the graph is taken as it is, for its coarse one is no problem: {refusal}")
        return Coarsening.through(problem, ())


def offer_lifted(monitor: Monitor, found: Coarsening, decide: Callable[[Problem, Monitor], None]) -> None:
    """Let a method decide on a coarse problem, and offer what it finds, within memory or over it, on the fine one."""
    inner = Monitor(found.coarse, seed=monitor.seed, parent=monitor, objective=monitor.objective)
    decide(found.coarse, inner)
    monitor.evaluated(inner.evaluations)
    solution = inner.solution(monitor.source)
    for message in solution.messages:
        monitor.note(message)
    schedule = solution.schedule if solution.best_effort is None else solution.best_effort.schedule
    if schedule is not None:
        monitor.offer(found.lift(schedule.decision))


def offer_devices(monitor: Monitor, device: IntArray) -> None:
    """Offer a device for each task, [n], as `listed` says; what is over the memory becomes a best effort."""
    _offer(monitor, listed(monitor.problem, device))


def _offer(monitor: Monitor, decision: Decision | None) -> bool:
    """Offer a decision if there is one; tell whether it is within memory."""
    if decision is None:
        monitor.note("some tasks were given to devices where no path leads from their parents")
    return decision is not None and math.isfinite(monitor.offer(decision))


def offer_bold_to_safe(monitor: Monitor, place: Callable[[FloatArray], Decision | None]) -> None:
    """Offer what ``place(need)`` makes of the bytes that units claim, those that peak memory may do with first."""
    for need in memory_needs(monitor.problem):
        if _offer(monitor, place(need)) or monitor.should_stop:
            return


def listed(problem: Problem, device: IntArray, priority: FloatArray | None = None) -> Decision | None:
    """Return the decision for a device for each task, [n]; None where no path leads to some from its parents.

    Tasks of a device run by descending `priority` [n], default the upward rank, each in the first gap. Memory is not looked at.
    """
    from hetsched.heuristics.list_scheduling import kernels as list_kernels

    if priority is None:
        priority, _ = ranks(problem)
    here = np.arange(problem.n_devices) == device[:, None]
    nowhere, nobody = np.empty((0, 0)), np.empty(0, np.int64)
    _, sequence, stuck = list_kernels.in_order(
        problem.arrays,
        np.where(here, problem.whole_durations, np.inf),
        priority,
        nowhere,
        nobody,
        problem.unit,
        np.zeros(problem.n_units),
        problem.cluster.memory_bytes,
        list_kernels.FINISH,
        True,
    )
    return None if stuck >= 0 else Decision.whole(problem, device, sequence)


def by_speed(problem: Problem) -> IntArray:
    """Return the devices, the fastest for the whole graph first; those that cannot run all of it by the share that they can."""
    seconds = problem.whole_durations
    able = np.isfinite(seconds)
    least = np.where(able, seconds, 0.0).sum(axis=0)
    return np.lexsort((least, -able.sum(axis=0)))


def shares(problem: Problem) -> FloatArray:
    """Return the share of the work that each device should have, in proportion to its speed, [K].

    Its speed is the work of the tasks that it can run, by their mean durations, over its seconds for them.
    """
    seconds, work = problem.whole_durations, mean_durations(problem)
    able = np.isfinite(seconds)
    own = np.where(able, seconds, 0.0).sum(axis=0)
    speed = np.where(own > 0, (able * work[:, None]).sum(axis=0) / np.where(own > 0, own, 1.0), 0.0)
    return np.asarray(speed / speed.sum() if speed.sum() > 0 else np.full(problem.n_devices, 1 / problem.n_devices))


# ---------------------------------------------------------------------- Celeritas


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
    """Clusters in CPD-TOPO order stay on the device of the one before unless they start earlier elsewhere by more than a transfer back.

    A cluster has at most `window` tasks and `memory` of the smallest device. If no device has room for one, it goes
    where most is left: a best effort.
    """
    offer_lifted(monitor, fused(problem, monitor, window=window, memory=memory), adjusting)


def adjusting(problem: Problem, monitor: Monitor) -> None:
    """Offer Adjusting Placement of a graph as it is (Celeritas, Algorithm 2): its back cost is the longest transfer to a successor."""
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
    """Clusters in CPD-TOPO order fill one device up to its memory, then the next."""
    offer_lifted(monitor, fused(problem, monitor, window=window, memory=memory), filling)


def filling(problem: Problem, monitor: Monitor) -> None:
    """Offer Order-Place of a graph as it is."""
    order = topological_order(problem)
    capacity = problem.cluster.memory_bytes
    offer_bold_to_safe(monitor, lambda need: listed(problem, _filled(problem, order, need, capacity), descending(order)))


def _filled(problem: Problem, order: IntArray, need: FloatArray, limit: FloatArray) -> IntArray:
    """Return the device of each task, [n], where devices are filled one after another, the fastest first."""
    from hetsched.heuristics.placement import kernels

    found = kernels.fill(order, problem.unit, need, limit, problem.whole_durations, by_speed(problem))
    return found[problem.unit]  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- Baechi


@method(
    "m-topo",
    summary="breadth-first order, one device after another filled to an equal share of the memory needed",
    source=BAECHI,
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=220,
)
def m_topo(problem: Problem, monitor: Monitor) -> None:
    """Each device takes at most the mean of what all need, and the largest need of one besides, as far as it has memory."""
    order = problem.graph.topological_order

    def place(need: FloatArray) -> Decision | None:
        share = need.sum() / problem.n_devices + need.max(initial=0.0)
        return listed(problem, _filled(problem, order, need, np.minimum(share, problem.cluster.memory_bytes)), descending(order))

    offer_bold_to_safe(monitor, place)


@method(
    "m-etf",
    summary="earliest start first, within memory; goes on where there is none left",
    source=BAECHI,
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: always},
    growth=2,
    supports=Supports(inputs="whole"),
    turn=240,
)
def m_etf(problem: Problem, monitor: Monitor, *, claims: Literal["all", "first"] = "all") -> None:
    """The (task, device) pair of earliest start, again and again; `claims` is as for m-sct."""
    _reserving(monitor, np.full(problem.n_tasks, -1), claims)


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
def m_sct(problem: Problem, monitor: Monitor, *, solver: str = "scip", claims: Literal["all", "first"] = "all") -> None:
    """As m-etf, but a device that has run a task is kept for its favourite child while that is to come.

    Besides it, the device takes only tasks that need not wait for data there. The linear program chooses at most one
    favourite child for a task, and at most one parent for a child.

    Parameters
    ----------
    solver : "scip" or "highs"
        What solves the linear program.
    claims : "all" or "first"
        The memory that a co-location label claims when its first task is placed: of all its tasks, or of this one alone, as in
        Baechi, which can end over the memory.
    """
    favourite = favourite_children(problem, monitor, solver)
    if favourite is not None:
        _reserving(monitor, favourite, claims)


def favourite_children(problem: Problem, monitor: Monitor, solver: str) -> IntArray | None:
    """Return the favourite child of each task, or -1, [n]; None if the linear program was not solved in time.

    x[e] is the part of the transfer of edge e that is paid: least makespan w with s_j >= s_i + t_i + x_ij c_ij, all but one of the
    children of a task paid, all but one of the parents of a child. Mean durations, mean transfers.
    """
    graph, model = problem.graph, Model(deadline=monitor.deadline)
    duration, transfer = mean_durations(problem), mean_transfers(problem)
    scale = 1.0 / max(float(duration.sum() + transfer.sum()), 1e-300)
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
    chosen = np.flatnonzero(paid.value(outcome.values) < FAVOURITE)
    favourite[i[chosen]] = j[chosen]
    return favourite


def _reserving(monitor: Monitor, favourite: IntArray, claims: str) -> None:
    from hetsched.heuristics.list_scheduling import kernels as list_kernels
    from hetsched.heuristics.placement import kernels

    problem = monitor.problem
    if claims not in ("all", "first"):
        raise UnsupportedFeature(f"claims is {claims!r}; choose 'all' or 'first'")
    first = np.unique(problem.unit, return_index=True)[1]
    alone = (problem.static_bytes @ [1.0, problem.inputs])[first]

    def place(need: FloatArray) -> Decision | None:
        last, claimed = np.full(problem.n_devices, -1), need if claims == "all" else alone

        def work(state: list_kernels.Choosing, most: int) -> int:
            stuck: int = kernels.small_communication(
                problem.arrays, problem.whole_durations, favourite, problem.unit, claimed, problem.cluster.memory_bytes, state, last, most
            )
            return stuck

        state = list_kernels.Choosing.begin(problem.n_tasks, problem.n_devices, problem.n_units)
        device, sequence, stuck = list_kernels.in_slices(work, state, monitor.deadline, "the choice among many ready tasks")
        return None if stuck >= 0 else Decision.whole(problem, device, sequence)

    offer_bold_to_safe(monitor, place)


# ---------------------------------------------------------------------- partitions


@method(
    "block",
    summary="topological order cut into one block a device, of work in proportion to its speed",
    source="Tavarageri et al. 2021, block partitioning",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=250,
)
def block(problem: Problem, monitor: Monitor) -> None:
    """Blocks of a breadth-first topological order, the fastest device first; memory is not looked at."""
    offer_devices(monitor, blocks(problem))


def blocks(problem: Problem) -> IntArray:
    """Return the device of each task in a block partition, [n]."""
    work = unit_sums(problem, mean_durations(problem))
    return _filled(problem, problem.graph.topological_order, work, work.sum() * shares(problem))


@method(
    "random-partition",
    summary="each task on a device drawn at random, in proportion to speed",
    source="Tavarageri et al. 2021, random partitioning",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=280,
)
def random_partition(problem: Problem, monitor: Monitor) -> None:
    """Offer one partition drawn at random; memory is not looked at."""
    first = np.unique(problem.unit, return_index=True)[1]
    weight = np.where(np.isfinite(problem.whole_durations[first]), np.maximum(shares(problem), 1e-12), 0.0)
    reach = weight.cumsum(axis=1)
    drawn = monitor.rng.random(problem.n_units) * reach[:, -1]
    offer_devices(monitor, (drawn[:, None] >= reach).sum(axis=1).clip(max=problem.n_devices - 1)[problem.unit])


@method(
    "metis",
    summary="k-way partition of least communication by METIS, loads in proportion to speed; needs pymetis",
    source="Karypis and Kumar 1998",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: always},
    needs="pymetis",
    supports=Supports(inputs="whole"),
    turn=260,
)
def metis(problem: Problem, monitor: Monitor) -> None:
    """Offer a partition of METIS: directions, pins and memory are not looked at, which may leave it without a schedule."""
    if importlib.util.find_spec("pymetis") is None:
        raise MissingDependency("pymetis", "metis")
    if problem.n_units <= problem.n_devices:
        monitor.note("METIS cuts only graphs of more tasks than devices; this one is cut into blocks")
        offer_devices(monitor, blocks(problem))
        return
    graph, unit = problem.graph, problem.unit
    work: FloatArray = unit_sums(problem, mean_durations(problem))
    ends = np.sort(unit[graph.edges], axis=1)
    apart = ends[:, 0] != ends[:, 1]
    pair, edge = np.unique(ends[apart, 0] * problem.n_units + ends[apart, 1], return_inverse=True)
    moved = np.bincount(edge, mean_transfers(problem)[apart], len(pair)).astype(np.float64)
    row = np.concatenate([pair // problem.n_units, pair % problem.n_units])
    order = np.argsort(row, kind="stable")
    column = np.concatenate([pair % problem.n_units, pair // problem.n_units])[order]
    ptr = row_starts(np.bincount(row, minlength=problem.n_units))
    share = np.maximum(shares(problem), 1e-6)
    part = _partition(
        monitor.deadline,
        problem.n_devices,
        (ptr.tolist(), column.tolist()),
        vweights=_whole_numbers(work),
        eweights=_whole_numbers(moved, order),
        tpwgts=(share / share.sum()).tolist(),
        recursive=False,
    )
    offer_devices(monitor, np.array(part, np.int64)[unit])


def _partition(deadline: Deadline, count: int, neighbours: tuple[list[int], list[int]], **options: Any) -> list[int]:
    """Return what METIS answers in a process of its own: it prints to the output of the process that it runs in."""
    words, said = [sys.executable, "-c", _METIS.format(path=sys.path)], pickle.dumps((count, neighbours, options))
    limit = None if deadline.limit is None else deadline.limit + GRACE
    try:
        done = subprocess.run(words, input=said, capture_output=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        raise OutOfTime("METIS was not done when the time limit was reached; allow more time") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise UnsupportedFeature(f"METIS ended with exit code {done.returncode}: {last or 'it said nothing'}; choose another method")
    return pickle.loads(done.stdout)  # type: ignore[no-any-return]


def _whole_numbers(values: FloatArray, order: IntArray | None = None) -> list[int]:
    """Return weights as METIS takes them, from 1 on; those of pairs twice, in the given order."""
    scaled = np.maximum(1, np.round(values / max(float(values.mean()) if len(values) else 1.0, 1e-300) * 100)).clip(max=10**6).astype(int)
    return (scaled if order is None else np.tile(scaled, 2)[order]).tolist()  # type: ignore[no-any-return]
