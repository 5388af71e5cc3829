"""A first schedule for clusters of several nodes: successive modules on successive nodes, the part of each node solved apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from hetsched.analysis.isomorphism import identical_parts
from hetsched.analysis.symmetry import exchanges
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.decomposition.series import Module
from hetsched.errors import InvalidProblem
from hetsched.heuristics.repair import repair
from hetsched.problem.problem import Problem, stated
from hetsched.schedule.decision import Decision
from hetsched.schedule.parts import PartialDecision, join, subproblem
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate
from hetsched.search import Monitor
from hetsched.stopping import Deadline

PERIOD = 64
"""The most modules of a sequence that is looked for again and again, such as the block of a transformer."""
HALVINGS = 60
"""Halvings of the interval of the seconds of the busiest node."""
ROUNDING = 1e-9
"""Relative excess over the least work of the busiest node, so that equal pieces are equal whatever is before them."""


class Part(NamedTuple):
    """The tasks that run on the devices of one node."""

    tasks: IntArray
    devices: IntArray

    def alone(self, problem: Problem) -> Problem:
        """Return the part as a problem, whose tasks run on these devices only."""
        durations = stated(problem.usable_durations[self.tasks])
        durations[:, np.setdiff1d(np.arange(problem.n_devices), self.devices)] = np.nan
        return subproblem(problem, self.tasks, durations=durations)


def parts_of_nodes(problem: Problem, modules: Sequence[Module]) -> list[Part]:
    """Divide modules in series among the nodes of a cluster: successive ones on successive nodes, as listed.

    The busiest node gets as little work as possible, and no node more static memory than it has; a task is counted as if the
    devices of the node shared it. Where a sequence of modules is repeated, as in transformers, it is not divided, so that
    parts are equal where they can be.

    Returns
    -------
    list of Part
        One for each node that has tasks. Empty if the cluster does not consist of several nodes, of which one at least has
        several devices, if only one node would have tasks, or if co-located tasks would be on two of them.
    """
    nodes = [device.node for device in problem.cluster.devices]
    groups = [np.array([k for k, other in enumerate(nodes) if other == node]) for node in dict.fromkeys(nodes)]
    if not all(nodes) or not 1 < len(groups) < len(nodes):
        return []
    own = [module.tasks[module.given :] for module in modules]
    pieces = _unbroken(problem, own)
    spent, held = np.zeros((len(groups), len(pieces) + 1)), np.zeros(len(pieces) + 1)
    seconds, static = _seconds(problem, groups), problem.static_bytes @ [1.0, problem.inputs]
    for p, piece in enumerate(pieces):
        spent[:, p + 1], held[p + 1] = seconds[:, piece].sum(axis=1), static[piece].sum()
    capacity = np.array([problem.cluster.memory_bytes[group].sum() for group in groups])
    ends = _least(np.cumsum(spent, axis=1), np.cumsum(held), capacity)
    if ends is None:
        return []
    rows = [pieces[a:b] for a, b in pairwise([0, *ends])]
    parts = [Part(np.concatenate(row), group) for row, group in zip(rows, groups, strict=True) if row]
    homes = {(unit, p) for p, part in enumerate(parts) for unit in problem.unit[part.tasks].tolist()}
    return parts if len(parts) > 1 and len(homes) == len({unit for unit, _ in homes}) else []


def _seconds(problem: Problem, groups: Sequence[IntArray]) -> FloatArray:
    """Return the seconds for an input of each task on each node, [nodes, n], if all devices of the node share it in its best batch."""
    apiece = (problem.usable_durations / problem.batch_sizes).min(axis=2, initial=np.inf, where=np.isfinite(problem.usable_durations))
    with np.errstate(divide="ignore"):
        shared = np.array([1 / (1 / apiece[:, group]).sum(axis=1) for group in groups])
    return np.where(np.isfinite(shared), shared, 1e3 * shared[np.isfinite(shared)].sum())  # a task that the node cannot run


def _unbroken(problem: Problem, own: Sequence[IntArray]) -> list[IntArray]:
    """Return the tasks of the modules, those of each repetition of a sequence of modules as one piece."""
    kind = np.array([copy.of for copy in identical_parts(problem, own)])
    again = [np.append(kind[period:] == kind[:-period], False) for period in range(1, min(PERIOD, len(kind) // 2) + 1)]
    runs = [_longest(same) for same in again]
    if not runs:
        return list(own)
    period = 1 + int(np.argmax([length for _, length in runs]))
    first, length = runs[period - 1]
    cuts = np.arange(first, first + length + period + 1, period)
    bounds = np.unique(np.concatenate([np.arange(first), cuts, np.arange(cuts[-1], len(own) + 1)]))
    return [np.concatenate(own[a:b]) for a, b in pairwise(bounds.tolist())]


def _longest(same: BoolArray) -> tuple[int, int]:
    """Return where the longest run of true values begins, and its length."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], same.astype(np.int64), [0]])))
    return max(((int(a), int(b - a)) for a, b in edges.reshape(-1, 2)), key=lambda run: run[1], default=(0, 0))


def _least(spent: FloatArray, held: FloatArray, capacity: FloatArray) -> list[int] | None:
    """Return the end of each node's pieces so that the busiest node has the least work; None if memory lacks."""

    def filled(limit: float) -> list[int] | None:
        ends, at = [], 0
        for own, most in zip(spent, capacity, strict=True):
            at = min(int(np.searchsorted(own, own[at] + limit, "right")), int(np.searchsorted(held, held[at] + most, "right"))) - 1
            ends.append(at)
        return ends if at == len(held) - 1 else None

    low, high = 0.0, float(spent[:, -1].max())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if filled(middle) is None else (low, middle)
    return filled(high * (1 + ROUNDING))


class SolvedApart:
    """Schedules of a problem in which each part is solved alone, equal parts on exchangeable nodes once.

    Parameters
    ----------
    problem : Problem
    parts : sequence of Part
        As of `parts_of_nodes`.
    """

    def __init__(self, problem: Problem, parts: Sequence[Part]) -> None:
        self.problem, self.parts = problem, parts
        self.copies = identical_parts(problem, [part.tasks for part in parts])
        sorts, self.images = _exchangeable(problem, parts)
        self.keys = [(copy.of, sort) for copy, sort in zip(self.copies, sorts, strict=True)]
        self._alone: dict[tuple[int, int], Problem] = {}

    def alone(self, key: tuple[int, int]) -> Problem:
        """Return a part as a problem; raise `InvalidProblem` if a task cannot process all inputs on its node."""
        if key not in self._alone:
            self._alone[key] = Part(self.copies[key[0]].tasks, self.parts[key[1]].devices).alone(self.problem)
        return self._alone[key]

    def solve(
        self, monitor: Monitor, deadline: Deadline, evaluations: int | None, method: str, options: Mapping[str, Any] | None = None
    ) -> Schedule | None:
        """Return the schedule by a method, None if it has none; the parts share the time until the deadline and the evaluations."""
        distinct = list(dict.fromkeys(self.keys))
        known: dict[tuple[int, int], Decision] = {}
        for left, key in zip(range(len(distinct), 0, -1), distinct, strict=True):
            try:
                alone = self.alone(key)
            except InvalidProblem:
                return None
            seconds = deadline.part(1 / left).limit
            share = None if evaluations is None else evaluations // len(distinct)
            found = monitor.subsolve(alone, method, time_limit=seconds, evaluations=share, options=options).schedule
            if found is None:
                return None
            known[key] = found.decision
        pieces = []
        for key, copy, image in zip(self.keys, self.copies, self.images, strict=True):
            given = known[key]
            moved = Decision(given.task, image[given.device], given.item_ptr, given.items)
            pieces.append((PartialDecision(moved, np.empty(0, np.int64)), copy.tasks, np.empty(0, np.int64)))
        decision = repair(self.problem, join(self.problem, pieces))
        if decision is None:
            return None
        monitor.offer(decision)
        return simulate(self.problem, decision)


def _exchangeable(problem: Problem, parts: Sequence[Part]) -> tuple[list[int], list[IntArray]]:
    """Return for each part the first on an exchangeable node, and what each device of that node becomes, [K]."""
    place = {frozenset(part.devices.tolist()): p for p, part in enumerate(parts)}
    sorts, images = list(range(len(parts))), [np.arange(problem.n_devices) for _ in parts]
    for one, other in exchanges(problem):  # pairs of nodes follow their class in order
        a, b = place.get(frozenset(one.tolist())), place.get(frozenset(other.tolist()))
        if a is not None and b is not None:
            sorts[b] = sorts[a]
            step = np.arange(problem.n_devices)
            step[one], step[other] = other, one
            images[b] = step[images[a]]
    return sorts, images
