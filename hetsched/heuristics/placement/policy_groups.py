"""The groups of tasks that a policy gives devices, and what its network is told about them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.analysis.levels import unit_sums
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.coarsening.coarse import Coarsening, mean_durations, mean_transfers
from hetsched.coarsening.matching import hierarchy
from hetsched.errors import InvalidProblem
from hetsched.heuristics.list_scheduling.static import ranks
from hetsched.problem.problem import Problem
from hetsched.search import Monitor


class Groups(NamedTuple):
    """Groups of co-location units: each is a unit, or a cluster of them."""

    of_unit: IntArray
    """[n_units]: the group of each unit."""
    allowed: BoolArray
    """[groups, K]: the devices that run all tasks of a group."""
    features: FloatArray
    """[groups, F], of the order of 1: none changes if all times or all bytes are multiplied by a power of two."""
    source: IntArray
    target: IntArray
    """[A]: pairs of different groups with an edge between them."""


def grouped(problem: Problem, monitor: Monitor, count: int) -> Groups:
    """Return the groups of a problem, coarsened along heavy edges to about `count` tasks if it has more units."""
    coarsening = Coarsening.through(problem, ())
    try:
        for level in hierarchy(problem, tasks=count) if problem.n_units > count else ():
            coarsening = coarsening.then(level)
            monitor.deadline.check("coarsening")
    except InvalidProblem as refusal:  # clusters without a path between them
        monitor.note(f"coarsening ends at {coarsening.coarse.n_tasks} tasks, because the next coarse problem is invalid: {refusal}")
    coarse = coarsening.coarse
    ends = np.unique(coarse.unit[coarse.graph.edges].reshape(-1, 2), axis=0)
    source, target = ends[ends[:, 0] != ends[:, 1]].T
    first = np.unique(problem.unit, return_index=True)[1]
    allowed = np.isfinite(unit_sums(coarse, coarse.whole_durations))
    return Groups(coarse.unit[coarsening.cluster[first]], allowed, _features(coarse, allowed), source, target)


def _features(problem: Problem, allowed: BoolArray) -> FloatArray:
    """Return the features of units, [n_units, F].

    They are the seconds on each device, and those of transfers to and from the unit, relative to the mean unit; the devices that
    are allowed; memory relative to the largest unit; and the place on the longest path and in the topological order.
    """
    unit, count, graph = problem.unit, problem.n_units, problem.graph
    size, transfer = np.bincount(unit, minlength=count), mean_transfers(problem)
    seconds = np.where(allowed, unit_sums(problem, problem.whole_durations), 0.0)
    moved = np.stack([np.bincount(unit[end], transfer, count) for end in (graph.source, graph.target)], axis=1)
    claim = unit_sums(problem, problem.static_bytes @ [1.0, problem.inputs])
    upward, downward = ranks(problem)
    places = np.stack([upward, downward], axis=1) / (float((upward + downward).max(initial=0.0)) or 1.0)
    rank = graph.rank / max(1, problem.n_tasks)
    average = float(unit_sums(problem, mean_durations(problem)).mean()) or 1.0
    return np.column_stack(
        [
            np.log1p(seconds / average),
            allowed,
            np.log1p(moved / average),
            claim / (float(claim.max()) or 1.0),
            unit_sums(problem, places) / size[:, None],
            unit_sums(problem, rank) / size,
        ]
    )
