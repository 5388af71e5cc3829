"""Heads and tails raised by what is before and after a task: the load of devices, and of the one device of co-located tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetsched.analysis.levels import Levels, unit_sums
from hetsched.analysis.load import best_thresholds, least_load, priced, thresholds
from hetsched.arguments import checked
from hetsched.arrays import IntArray, readonly
from hetsched.problem.problem import Problem
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline

if TYPE_CHECKING:
    from hetsched.analysis.level_kernels import HeadsAndTails

_WORK = 5e7
"""The most edges and tasks that are visited in one pass in one direction: some tenths of a second."""
_AT_ONCE = 2e6
"""The most between two looks at the clock."""
_PASSES, _GAIN = 4, 1e-4
"""The most passes; the least relative gain by which another one follows."""
_ITERATIONS = 30


@checked
def load_around(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the longest time that all that is before a task, the task, and all that is after it take, one after another.

    Take one input, and a task i. Its ancestors end before i begins. Let A be those of them with heads of at least a, where a head is a
    lower bound of the start of a task. Their batches with the input run between a and the start of i. So i does not begin before

    - a + the load of A, which is what the busiest device has to do for these batches: whatever the devices' prices (at least 0,
      1 in all), at least the sum over A of the least priced duration;
    - a + the least over devices of the durations there of the tasks of A that are of one co-location unit, for they all run on
      one device, one after another.

    The largest of these for any a is a head of i, and its descendants have heads at least as large in turn, by paths. The same
    holds for tails, with descendants. After some passes the bound is the longest head, duration and tail of a task; or, with a set of
    tasks of heads of at least a and tails of at least b, a + the load of the set for all inputs + b. Every valid head may be
    left as it is, so in large graphs only some tasks are considered: those with the most edges, and others evenly in topological order.
    """
    levels, members = (Levels(problem) if levels is None else levels).merged
    problem, least = levels.problem, levels.least
    shares = least / members
    of_units = unit_sums(problem, shares)
    if not problem.n_tasks or not np.isfinite(of_units.min(axis=1)).all():
        return Bound(levels.critical_path.length, "load around", "as the critical path")
    from hetsched.analysis import level_kernels, load_kernels

    arrays, order = problem.arrays, problem.graph.topological_order
    prices = least_load(of_units).prices
    able = np.isfinite(shares)
    cheapest = np.where(able, np.where(able, shares, 0.0) * prices, np.inf).min(axis=1)
    work = load_kernels.SharedWork(np.array(least, order="C"), cheapest / max(1.0, float(prices.sum())), problem.unit)
    scratch = load_kernels.Reached(
        np.zeros(problem.n_tasks, np.bool_), np.zeros(problem.n_tasks, np.int64), np.zeros((problem.n_units, least.shape[1]))
    )
    w, value, through = level_kernels.heads_and_tails(least), 0.0, 0
    parts = np.array_split(_chosen(problem), 1 + int(_WORK / _AT_ONCE))
    for number in range(_PASSES + 1):
        level_kernels.earliest_starts(arrays, order, problem.unit, w)
        level_kernels.tails(arrays, order, problem.unit, w)
        length = (w.start + least + w.tail).min(axis=1)
        before, through = value, int(length.argmax())
        value = float(length[through])
        if number == _PASSES or value <= before * (1 + _GAIN):
            break
        for ptr, near, level, known in (
            (arrays.pred_ptr, arrays.pred, w.start, w.release),
            (arrays.succ_ptr, arrays.succ, w.tail, w.delivery),
        ):
            key = level.min(axis=1)
            latest_first = readonly(np.argsort(-key, kind="stable"))
            for tasks in parts:
                if deadline.over:
                    return Bound(value, "load around", _reason(problem, w, through))
                load_kernels.raise_by_reached(readonly(tasks), ptr, near, latest_first, key, work, scratch, known)
    head, tail, cost = w.start.min(axis=1), w.tail.min(axis=1), levels.work / members
    _, a, b, set_prices = best_thresholds(head, tail, cost, thresholds(head), thresholds(tail), _ITERATIONS)
    chosen = (head >= a) & (tail >= b)
    between = priced(cost[chosen], set_prices)
    if a + between + b > value:
        reason = f"{int(chosen.sum())} tasks keep a device busy for {between:.6g} s, after {a:.6g} s and {b:.6g} s before the end"
        return Bound(a + between + b, "load around", reason)
    return Bound(value, "load around", _reason(problem, w, through))


def _reason(problem: Problem, w: HeadsAndTails, i: int) -> str:
    return (
        f"what is before {problem.graph.names[i]!r} takes {w.start[i].min():.6g} s, and what is after it {w.tail[i].min():.6g} s, "
        "by loads of devices, of co-located tasks, and paths"
    )


def _chosen(problem: Problem) -> IntArray:
    """Return the tasks that are considered: all, or half of them those with the most edges, the others evenly in topological order."""
    graph = problem.graph
    most = max(2, int(_WORK / max(1, graph.n_tasks + graph.n_edges)))
    if graph.n_tasks <= most:
        return graph.topological_order
    degree = np.diff(graph.pred_ptr) + np.diff(graph.succ_ptr)
    evenly = graph.topological_order[np.linspace(0, graph.n_tasks - 1, most - most // 2).astype(np.int64)]
    return np.union1d(np.argsort(-degree, kind="stable")[: most // 2], evenly)
