"""DiviML's search heuristics over strings of devices: biased (1+1) EA and simulated annealing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import UnsupportedFeature
from hetsched.heuristics.list_scheduling.batched import place_in_batches, upward_ranks
from hetsched.heuristics.memory_accounts import memory_claims
from hetsched.heuristics.pacing import bursts, progress
from hetsched.heuristics.repair import packed
from hetsched.problem.problem import Problem
from hetsched.search import Monitor, Supports, method

if TYPE_CHECKING:
    from hetsched.heuristics.local_search.state_kernels import SearchState
    from hetsched.heuristics.local_search.states import States

_SUPPORTS = Supports(besides="tasks that cannot process all inputs with one batch on each device")


@method(
    "ea",
    summary="biased (1+1) evolutionary algorithm over devices, in breadth-first topological order",
    source="DiviML (Ghannane and Abdelfattah), section V; (1+1) EA: Droste, Jansen and Wegener 2002",
    supports=_SUPPORTS,
    turn=350,
)
def ea(problem: Problem, monitor: Monitor) -> None:
    """Search from the fastest devices, redrawing each position of the string with probability 1 / length; keep improvements and ties.

    The string has a device for each task (co-located tasks share one). For several inputs it has one for
    each equal part of the inputs of a task; the size of a part is the greatest common divisor of the batch
    sizes. A redrawn position gets another eligible device. The parts of a task on one device form one
    batch; if its size is not supported, as few parts as possible move with the redrawn one until all sizes
    are. Devices get consecutive inputs of a task in index order. The cost of a string is the makespan of
    appending tasks, and transfers under contention, to their devices in breadth-first topological order.
    If the tasks do not fit on their fastest devices, the search starts with the devices of batched HEFT,
    or, if that finds none for some task, of `packing`. Without a limit it runs for 10 seconds.
    """
    _search(problem, monitor, mutate=True, hot=0.0, cold=0.0)


@method(
    "sa",
    summary="simulated annealing over devices, in breadth-first topological order",
    source="DiviML (Ghannane and Abdelfattah), section V; Kirkpatrick, Gelatt and Vecchi 1983",
    supports=_SUPPORTS,
    turn=340,
)
def sa(problem: Problem, monitor: Monitor, *, hot: float = 0.003, cold: float = 1e-5) -> None:
    """Redraw one position of the string at a time, with geometric cooling.

    String, cost and start are those of `ea`. The temperature falls from `hot` to `cold`, as shares of the
    makespan at the start, over the evaluations if they are limited, else over the time (10 seconds without a limit).
    """
    if not 0 < cold <= hot:
        raise UnsupportedFeature(f"hot is {hot} and cold {cold}; both must be above 0, and cold at most hot")
    _search(problem, monitor, mutate=False, hot=float(hot), cold=float(cold))


@dataclass
class _Start:
    """A string, its state and its makespan."""

    states: States
    state: SearchState
    counts: IntArray
    cost: FloatArray
    sizes: IntArray
    makespan: float


def _search(problem: Problem, monitor: Monitor, *, mutate: bool, hot: float, cold: float) -> None:
    from hetsched.heuristics import diviml_kernels as kernels

    begin = _start(problem, monitor)
    if begin is None or monitor.should_stop:
        return
    states, state, current = begin.states, begin.state, begin.makespan
    best, counts = states.empty(), begin.counts
    positions = problem.inputs // int(np.gcd.reduce(begin.sizes))
    data = kernels.StringData(begin.cost, begin.sizes, problem.graph.topological_order, _least_rank(problem), positions)
    redrawn = kernels.new_redrawn(*counts.shape)
    started, before, scale = monitor.elapsed, monitor.evaluations, current
    shortest = current if monitor.best is None else min(current, monitor.best.makespan)
    # A state that may not fit must be offered before the search continues from it.
    unsure = problem.memory == "peak"
    if not len(counts):
        return
    for runs in bursts(monitor, weight=states.tables.slots * (3.0 if problem.links.contended else 1.0)):
        share = progress(monitor, started, before)
        planned = 0 if monitor.budget.evaluations is None else runs
        ahead = min(1.0, share + planned / max(1, (monitor.budget.evaluations or 0) - before))
        warm, cool = (scale * hot * (cold / hot) ** x if hot else 0.0 for x in (share, ahead))
        course = kernels.Course(mutate, runs, warm, cool, unsure, current, shortest)
        made, current, reached = kernels.search(states.tables, state, best, data, counts, redrawn, monitor.rng, course)
        better = reached < shortest
        monitor.evaluated(made - better)
        if better and math.isfinite(monitor.offer(states.decision(best))):
            shortest = reached


def _start(problem: Problem, monitor: Monitor) -> _Start | None:
    """Offer the initial string and return it; return None, with a note, if there is none."""
    from hetsched.heuristics import diviml_kernels as kernels
    from hetsched.heuristics.local_search.states import States

    for conservative in (True, False) if problem.memory == "peak" else (False,):
        states = States(problem, held=float(conservative))
        tables = states.tables
        sizes = np.flatnonzero(tables.size_of >= 0)
        cost = kernels.unit_costs(tables, sizes)
        state = states.empty()
        fastest = kernels.fastest(cost, sizes, problem.inputs, tables.slots)
        _check_strings(problem, fastest)
        for counts in _starts(problem, fastest, conservative):
            makespan = kernels.decode(tables, state, counts, problem.graph.topological_order)
            if math.isfinite(makespan) and math.isfinite(monitor.offer(states.decision(state))):
                return _Start(states, state, counts, cost, sizes, float(makespan))
            if monitor.should_stop and monitor.best is not None:
                return None
    monitor.note("no initial string of devices: neither the fastest devices nor those of batched HEFT or packing fit the memory")
    return None


def _check_strings(problem: Problem, counts: IntArray) -> None:
    stuck = np.flatnonzero((counts < 0).any(axis=1))
    if len(stuck):
        name = problem.graph.names[int(np.flatnonzero(problem.unit == stuck[0])[0])]
        raise UnsupportedFeature(
            f"strings of devices have one batch of a task on each device, but task {name!r} cannot process all {problem.inputs} inputs "
            "in that way; use annealing"
        )


def _starts(problem: Problem, fastest: IntArray, conservative: bool) -> Iterator[IntArray]:
    """Yield initial strings as numbers of inputs, [units, K]: the fastest devices, then those of batched HEFT, or else of packing."""
    yield fastest
    claims = list(memory_claims(problem))
    task, device, low, high, _, stuck = place_in_batches(problem, claims[-1 if conservative else 0], upward_ranks(problem), once=True)
    if stuck >= 0:
        decision = packed(problem)
        if decision is None:
            return
        task, device, low, high = decision.task, decision.device, 0, problem.inputs
    counts = np.zeros((problem.n_units, problem.n_devices), np.int64)
    counts[problem.unit[task], device] = high - low
    yield counts


def _least_rank(problem: Problem) -> IntArray:
    """Return the first position in the topological order of a member of each unit, [units]."""
    first = np.full(problem.n_units, problem.n_tasks)
    np.minimum.at(first, problem.unit, problem.graph.rank)
    return first
