"""Bounds that need no search: memory, critical path, load, head-tail load.

All hold for any number of inputs, both batchings and every communication model: a batch takes at
least its shortest duration, an input at least the best seconds per input, a transfer at least the
time of one input, and contention only lengthens.
"""

from __future__ import annotations

import math

import numpy as np

from hetsched.analysis.levels import CAPACITY, Levels, unit_sums
from hetsched.analysis.load import Load, head_tail_set, least_load
from hetsched.arguments import checked
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.problem.graph import named, plural
from hetsched.problem.problem import Problem
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline


@checked
def memory(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return inf if the memory model leaves no schedule, with the reason; else 0.

    Under ``static`` the proof counts weights, inputs and outputs, under ``peak`` weights and what
    one batch needs alone. Fractions of a task may lie on different devices here.
    """
    levels, count = (Levels(problem) if levels is None else levels).merged
    fits = unit_sums(problem, levels.least) < np.inf
    stuck = np.flatnonzero(~fits.any(axis=1))
    if len(stuck):
        members = np.flatnonzero(problem.unit == stuck[0])
        return Bound(math.inf, "memory", f"no device that may run {named(members, problem.graph.names)} has the memory for it")
    burden = _burden(levels.problem, fits, count)
    if burden is None:
        return Bound(0.0, "memory", "any device can hold everything that may run on it")
    fill = least_load(burden).value
    if fill > 1.0:
        return Bound(math.inf, "memory", f"however the tasks are spread, some device needs at least {fill:.4%} of its capacity")
    return Bound(0.0, "memory", f"tasks in fractions fit, with every device at most {fill:.2%} full")


@checked
def critical_path(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the length of the longest path of shortest batches, unavoidable transfers included.

    A task starts on a device no earlier than the data of each parent are there, from the parent's own device: with the best one for each
    parent, and the shortest batch of a task, that is its least start there, in topological order. In the reverse order the same is its
    tail, the least time from its end to the end of the schedule. A task runs on some device: the least, over its devices, of start,
    duration and tail is a bound on the makespan, and the bound is the largest over the tasks.
    """
    path = (Levels(problem) if levels is None else levels).merged.levels.critical_path
    if math.isinf(path.length):
        return Bound(
            math.inf, "critical path", f"no device is left for {named(path.tasks, problem.graph.names, 1)}, memory and paths considered"
        )
    if not len(path.tasks):
        return Bound(0.0, "critical path", "there are no tasks")
    names = problem.graph.names
    return Bound(
        path.length,
        "critical path",
        f"{plural(len(path.tasks), 'task')} one after another, from {names[path.tasks[0]]!r} to {names[path.tasks[-1]]!r}",
    )


@checked
def load(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the least load of the busiest device over all fractional assignments.

    Co-located tasks move together; memory rows count fractions of weights and, under ``static``, of
    inputs and outputs. The value is a Lagrangian evaluated in floating point with its rounding
    subtracted, so it does not rest on a solver's tolerance.
    """
    levels = Levels(problem) if levels is None else levels
    proof = memory(problem, levels=levels)
    levels, count = levels.merged
    if math.isinf(proof.value):
        return Bound(proof.value, "load", proof.evidence)
    cost = unit_sums(problem, levels.work) / count
    spread = least_load(cost, _burden(levels.problem, cost < np.inf, count))
    return Bound(spread.value, "load", "work spread over the devices at " + _price_list(levels.problem, spread))


@checked
def head_tail_load(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the largest a + load({tasks with head >= a and tail >= b}) + b over thresholds a and b.

    The tasks of such a set run between a and b before the end. With many distinct heads or tails, 64
    of each are tried. The load of the set found is that of its linear program.
    """
    return _head_tail_load(problem, levels, program=True)


@checked
def quick_head_tail_load(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return `head_tail_load` without the linear program: the load is that of the prices found with the set, a little lower."""
    return _head_tail_load(problem, levels, program=False)


def _head_tail_load(problem: Problem, levels: Levels | None, *, program: bool) -> Bound:
    between = head_tail_set(Levels(problem) if levels is None else levels, program=program)
    if math.isinf(between.head):
        reason = f"no device is left for {named(between.tasks, problem.graph.names)}, memory and paths considered"
        return Bound(math.inf, "head-tail load", reason)
    return Bound(
        between.head + between.load + between.tail,
        "head-tail load",
        f"{plural(len(between.tasks), 'task')} that start after {between.head:.6g} s and end {between.tail:.6g} s before the end "
        f"keep a device busy for {between.load:.6g} s",
    )


def _burden(problem: Problem, fits: BoolArray, count: IntArray) -> FloatArray | None:
    """Return the share of the capacity of `count` devices [K] each that a whole unit takes, [units, K]; None if none can be exceeded."""
    weights, activations = problem.static_bytes.T
    needed = unit_sums(problem, weights + (problem.inputs * activations if problem.memory == "static" else 0.0))
    capacity = problem.cluster.memory_bytes * CAPACITY * count
    share = np.divide(needed[:, None], capacity, out=np.zeros(fits.shape), where=fits & (needed > 0)[:, None])
    return np.where(fits, share, np.inf) if (share.sum(axis=0) > 1.0).any() else None


def _price_list(problem: Problem, load: Load) -> str:
    def listed(prices: FloatArray, unit: str) -> str:
        return ", ".join(f"{price:.4g}{unit} on {name!r}" for name, price in zip(problem.cluster.names, prices, strict=True) if price > 0)

    memory = f", full memory at {listed(load.burden_prices, ' s')}" if load.burden_prices.any() else ""
    return f"prices {listed(load.prices, '')}{memory}"
