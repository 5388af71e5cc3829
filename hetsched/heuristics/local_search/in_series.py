"""Modules in series, each searched by itself: where all inputs pass one task, little is lost by a schedule of one module after another."""

from __future__ import annotations

import numpy as np

from hetsched.analysis.modules import LARGEST, modules
from hetsched.arguments import checked
from hetsched.arrays import IntArray, row_starts
from hetsched.heuristics.repair import repair
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.parts import PartialDecision, join, subproblem
from hetsched.search import Monitor

FEW = 150
"""Number of tasks up to which a search of the whole is as good."""
SMALLEST = 8
"""The fewest tasks of a module; smaller ones are merged with a neighbour."""
MOST = 50
"""About the most modules."""


@checked
def in_series(problem: Problem) -> list[IntArray]:
    """Return the tasks of each of several modules between clean cuts, in topological order; empty if they cannot be searched apart.

    So it is for one input, whose modules method `split` solves exactly; for at most `FEW` tasks; with any number of batches of a task on
    a device, so that inputs may follow one another through the modules; with co-location labels in several modules; with more than half
    of the tasks in one module; and where not every device has the memory of all tasks.
    """
    if problem.inputs == 1 or problem.n_tasks <= FEW or problem.batching == "free":
        return []
    if (problem.static_bytes @ [1.0, problem.inputs]).sum() > problem.cluster.memory_bytes.min():
        return []
    smallest = max(SMALLEST, problem.n_tasks // MOST)
    parts = modules(problem.graph, channels=1, smallest=smallest, largest=max(LARGEST, 2 * smallest)).tasks()
    homes = {(unit, t) for t, tasks in enumerate(parts) for unit in problem.unit[tasks].tolist()}
    return parts if 2 * max(map(len, parts)) <= problem.n_tasks and len(homes) == problem.n_units else []


def search_apart(monitor: Monitor, parts: list[IntArray], method: str, time_limit: float | None, evaluations: int | None) -> None:
    """Search each module by a method, with its share of the limits by its tasks, and offer its schedule joined to those of the others.

    Modules that come later are as in the best schedule. A module begins with its part of the schedule that was given, if one was.
    """
    if monitor.best is None:
        return
    problem, whole = monitor.problem, monitor.best.decision
    pieces = [_restricted(whole, tasks, problem.n_tasks) for tasks in parts]
    seconds = None if time_limit is None else monitor.elapsed + time_limit
    left = sum(map(len, parts))
    for t, tasks in enumerate(parts):
        share = len(tasks) / left
        left -= len(tasks)
        own = None if evaluations is None else int(evaluations * share)
        limit = None if seconds is None else max(0.0, (seconds - monitor.elapsed) * share)
        before = monitor.evaluations
        start = pieces[t] if monitor.from_start else None
        found = monitor.subsolve(subproblem(problem, tasks), method, time_limit=limit, evaluations=own, start=start).schedule
        if evaluations is not None:
            evaluations -= monitor.evaluations - before
        if found is not None:
            pieces[t] = found.decision
            _offer(monitor, parts, pieces)
        if monitor.should_stop:
            return


def _offer(monitor: Monitor, parts: list[IntArray], pieces: list[Decision]) -> None:
    """Offer the modules' decisions, one module after another."""
    none = np.empty(0, np.int64)
    joined = [(PartialDecision(piece, none), tasks, none) for piece, tasks in zip(pieces, parts, strict=True)]
    decision = repair(monitor.problem, join(monitor.problem, joined))
    if decision is not None:
        monitor.offer(decision)


def _restricted(decision: Decision, tasks: IntArray, n_tasks: int) -> Decision:
    """Return the decision of some tasks, numbered as in `tasks`."""
    place = np.full(n_tasks, -1)
    place[tasks] = np.arange(len(tasks))
    kept = place[decision.task] >= 0
    items = decision.items[np.repeat(kept, decision.sizes)]
    return Decision(place[decision.task[kept]], decision.device[kept], row_starts(decision.sizes[kept]), items)
