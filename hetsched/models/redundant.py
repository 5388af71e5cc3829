"""Rows that do not change the optimal value but speed up its proof: loads between heads and tails, and symmetries."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from hetsched.analysis.closure import ancestors
from hetsched.analysis.load import head_tail_set
from hetsched.analysis.symmetry import exchanges
from hetsched.arguments import checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import UnsupportedFeature
from hetsched.models.formulation import Component, Formulation
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule

CRITERIA = ("batches", "tasks", "time")


class LoadCuts(Component):
    """Redundant rows: heads before, loads during, tails after.

    On each device u, with heads h and tails q that hold on every device: all work, and the work with
    ``h >= a`` and ``q >= b`` for some a and b, fits between a and the makespan less b; for one input the work of all
    ancestors of a task on u fits before its start, that of its descendants after its finish. These last rows
    are omitted if they have more than `terms` terms, for then they cost more than they gain.
    """

    @checked
    def __init__(self, levels: int = 6, terms: int = 60_000) -> None:
        self.levels, self.terms = levels, terms

    def add_to(self, f: Formulation) -> None:
        problem, model, makespan = f.problem, f.model, f.objective.expression
        levels = f.levels
        heads_tails = head_tail_set(levels)
        if math.isinf(heads_tails.head):  # a task has no possible device, so the model is infeasible
            return
        if heads_tails.load:  # the load of every choice of devices: the rows below imply it, but only together
            model.add(makespan >= (heads_tails.head + heads_tails.load + heads_tails.tail) * f.second, tag="load", cut=True)
        head = np.where(np.isfinite(levels.least), levels.starts, np.inf).min(axis=1) * f.second
        tail = np.where(np.isfinite(levels.least), levels.tails, np.inf).min(axis=1) * f.second
        for chosen in between(head, tail, self.levels):
            if len(chosen) > 1:
                begin, rest = float(head[chosen].min()), float(tail[chosen].min())
                model.add(makespan - f.assign.duration[chosen].sum(axis=0) >= begin + rest, tag="load", cut=True)
        if problem.inputs > 1:
            return
        before = ancestors(problem.graph)
        if 2 * problem.n_devices * before.sum() > self.terms:
            return
        for j in range(problem.n_tasks):
            for matrix, level, ends, sign in ((before, head, f.times.start, 1), (before.T, tail, f.times.finish, -1)):
                chosen = np.flatnonzero(matrix[j])
                if len(chosen) > 1:
                    first, work = float(level[chosen].min()), f.assign.duration[chosen].sum(axis=0)
                    room = ends[j] - work if sign > 0 else makespan - ends[j] - work
                    model.add(room >= first, tag="head load" if sign > 0 else "tail load", cut=True)


def check_criterion(criterion: str) -> None:
    """Raise `UnsupportedFeature` for an unknown criterion of symmetries."""
    if criterion not in CRITERIA:
        raise UnsupportedFeature(f"unknown criterion {criterion!r} for symmetries; choose from {', '.join(CRITERIA)}")


class DeviceOrder(Component):
    """Orders identical devices and identical nodes: the first of two has at least the work of the second; DiviML, section VI.

    Work is the number of `batches`, of `tasks` (inputs of tasks), or the `time`.
    """

    @checked
    def __init__(self, criterion: str = "tasks") -> None:
        check_criterion(criterion)
        self.criterion = criterion

    def add_to(self, f: Formulation) -> None:
        sums = {"batches": f.assign.on, "tasks": f.assign.x.sum(axis=2), "time": f.assign.duration}[self.criterion].sum(axis=0)
        for first, second in exchanges(f.problem):
            f.model.add(sums[first].sum() >= sums[second].sum(), tag=f"symmetry by {self.criterion}", cut=True)

    def canonical(self, problem: Problem, schedule: Schedule) -> Decision:
        """Return the decision with devices exchanged so that the rows hold."""
        decision, pairs = schedule.decision, exchanges(problem)
        image = np.arange(problem.n_devices)
        work = self._work(schedule)
        settled = False
        while not settled:
            settled = True
            for first, second in pairs:
                if work[first].sum() < work[second].sum():
                    work[first], work[second] = work[second], work[first]
                    place = np.arange(problem.n_devices)
                    place[first], place[second] = second, first
                    image, settled = place[image], False
        return Decision(decision.task, image[decision.device], decision.item_ptr, decision.items, transfer_order=decision.transfer_order)

    def _work(self, schedule: Schedule) -> FloatArray:
        batches = schedule.batches
        amount = {"batches": np.ones(len(batches)), "tasks": batches.size.astype(np.float64), "time": batches.finish - batches.start}[
            self.criterion
        ]
        return np.bincount(batches.device, amount, len(schedule.devices)).astype(np.float64)


class InputOrder(Component):
    """Orders inputs: the device of the first task for input l + 1 has no lower number than that for input l."""

    def add_to(self, f: Formulation) -> None:
        problem = f.problem
        if problem.inputs > 1 and problem.n_tasks:
            first = int(problem.graph.topological_order[0])
            number = (f.assign.x[first] * np.arange(problem.n_devices)[:, None]).sum(axis=0)
            f.model.add(number[1:] >= number[:-1], tag="symmetry of inputs", cut=True)

    def canonical(self, problem: Problem, schedule: Schedule) -> Decision:
        """Return the decision with inputs renumbered so that the rows hold."""
        decision = schedule.decision
        if problem.inputs == 1 or not problem.n_tasks:
            return decision
        of_item = np.repeat(np.arange(len(decision.task)), np.diff(decision.item_ptr))
        of_first = decision.task[of_item] == problem.graph.topological_order[0]
        order = np.lexsort((decision.items[of_first], decision.device[of_item[of_first]]))
        name = np.empty(problem.inputs, np.int64)
        name[decision.items[of_first][order]] = np.arange(problem.inputs)
        return Decision(decision.task, decision.device, decision.item_ptr, name[decision.items], transfer_order=decision.transfer_order)


def symmetry_order(criterion: str | None) -> Iterator[Component]:
    """Yield the components that order identical devices, nodes and inputs; none without a criterion."""
    if criterion is not None:
        yield DeviceOrder(criterion)
        yield InputOrder()


def between(head: FloatArray, tail: FloatArray, count: int) -> Iterator[IntArray]:
    """Yield what begins at some level of `head` or later, and ends before some level of `tail`; up to `count` levels of each."""
    for a in _steps(head, count):
        for b in _steps(tail, count):
            yield np.flatnonzero((head >= a) & (tail >= b))


def _steps(levels: FloatArray, count: int) -> FloatArray:
    """Return up to `count` values of a level, from 0 up."""
    return np.unique(np.quantile(levels, np.linspace(0.0, 0.9, count), method="lower")) if len(levels) else np.zeros(1)
