"""Arcs of a decision: one for each edge and pair of batches that share inputs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.errors import InvalidSchedule
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule


class Arcs(NamedTuple):
    """Triples (edge, source batch, target batch) with common inputs, in lexicographic order.

    An arc is a transfer if its batches run on different devices, else only a precedence constraint.
    """

    edge: IntArray
    source: IntArray
    target: IntArray
    inputs: IntArray
    """Number of inputs in both batches."""
    seconds: FloatArray
    """Transfer time; 0 on one device, inf without a path."""
    moving: BoolArray
    """Whether the arc is a transfer."""
    of_input: IntArray
    """[E, L]: the arc that carries each input along each edge."""


def of_schedule(problem: Problem, schedule: Schedule) -> tuple[Decision, Arcs]:
    """Return the decision of a schedule, with the same numbers of batches, and its arcs.

    Raises `InvalidSchedule` if an input of a task is in no batch or in several.
    """
    batches = schedule.batches
    if len(schedule.items) != schedule.batch_of.size or (schedule.batch_of < 0).any():
        raise InvalidSchedule("some input of a task is in no batch, or in two; hetsched.verify(problem, schedule) lists the violations")
    decision = Decision(batches.task, batches.device, schedule.item_ptr, schedule.items)
    return decision, arcs_of(problem, decision, schedule.batch_of)


def arcs_of(problem: Problem, decision: Decision, batch_of: IntArray) -> Arcs:
    """Return the arcs of a decision, given the batch of each (task, input), ``batch_of`` [n, L]."""
    graph, m = problem.graph, max(decision.n_batches, 1)
    edge = np.arange(graph.n_edges)
    if problem.inputs == 1:
        batch = batch_of[:, 0]
        source, target, count, of_input = batch[graph.source], batch[graph.target], np.ones(len(edge), np.int64), edge[:, None]
    else:
        source, target = batch_of[graph.source], batch_of[graph.target]  # [E, L]
        keys, of_input, count = np.unique((edge[:, None] * m + source) * m + target, return_inverse=True, return_counts=True)
        edge, source, target, of_input = keys // m // m, keys // m % m, keys % m, of_input.reshape(source.shape)
    h, k = decision.device[source], decision.device[target]
    return Arcs(edge, source, target, count, problem.transfer_times(edge, h, k, count), h != k, of_input)
