"""Schedules and solutions as tables, with names instead of indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import Columns, FloatArray, texts
from hetsched.errors import InvalidSchedule
from hetsched.problem.problem import Problem
from hetsched.report.groups import modules
from hetsched.schedule.schedule import Schedule
from hetsched.search.solution import Solution, relative_gap


def schedule_of(problem: Problem, answer: Schedule | Solution) -> Schedule:
    """Return the schedule of an answer; raise `InvalidSchedule` if it has none, or one of another problem."""
    schedule = answer.schedule if isinstance(answer, Solution) else answer
    if schedule is None:
        raise InvalidSchedule("the solution holds no schedule to draw; see solution.status and solution.messages")
    of_schedule, of_problem = (
        (schedule.tasks, schedule.devices, schedule.n_inputs),
        (problem.graph.names, problem.cluster.names, problem.inputs),
    )
    if of_schedule != of_problem:
        raise InvalidSchedule(
            f"the {len(schedule.tasks)} tasks, {len(schedule.devices)} devices and {schedule.n_inputs} inputs of the schedule are "
            "not those of this problem; give the problem it was made for"
        )
    edge, count = schedule.transfers.edge, problem.graph.n_edges
    if len(edge) and not (0 <= edge.min() and edge.max() < count):
        raise InvalidSchedule(
            f"edge numbers of transfers run from {edge.min()} to {edge.max()}, but the problem has {count} edges; "
            "give the problem the schedule was made for"
        )
    return schedule


def batch_table(problem: Problem, schedule: Schedule) -> Columns:
    """Return a table of batches, in the order of ``schedule.batches``.

    Columns are task, op, module, device, start, finish, duration (seconds), size and inputs (text).
    """
    columns, graph = dict(schedule.named_batches().to_dict()), problem.graph
    of_tasks = {"op": texts(graph.op), "module": texts(modules(graph.names))}
    named = {name: column[schedule.batches.task] for name, column in of_tasks.items()}
    return Columns(task=columns.pop("task"), **named, **columns)


@checked
def to_dataframe(problem: Problem, schedule: Schedule | Solution) -> Any:
    """Return a ``pandas.DataFrame`` of the batches, by start.

    Columns are task, op, module, device, start, finish, duration (seconds), size (inputs in the batch)
    and inputs (their numbers, for instance ``"0-3, 7"``). ``schedule.transfers.to_dataframe()`` has the
    transfers. Raises `MissingDependency` without pandas.
    """
    table = batch_table(problem, schedule_of(problem, schedule))
    return table.to_dataframe().sort_values(["start", "finish"], kind="stable", ignore_index=True)


@checked
def device_table(problem: Problem, answer: Schedule | Solution) -> Columns:
    """Return a table of devices: their work, transfers and memory.

    Columns are device, kind, batches, busy (seconds), utilisation (share of the makespan), sent and
    received (bytes), static_memory and peak_memory (bytes, NaN if not computed) and capacity
    (bytes, inf for none).
    """
    schedule = schedule_of(problem, answer)
    size, moves, device = problem.n_devices, schedule.transfers, schedule.batches.device
    sender, receiver = device[moves.source.astype(np.int64)], device[moves.target.astype(np.int64)]
    amount = problem.graph.edge_bytes[moves.edge.astype(np.int64)] * _shared(schedule)
    unknown = np.full(size, np.nan)
    return Columns(
        device=texts(schedule.devices),
        kind=texts(device.kind for device in problem.cluster.devices),
        batches=np.bincount(device, minlength=size),
        busy=schedule.busy_time,
        utilisation=schedule.busy_time / schedule.makespan if schedule.makespan > 0 else np.zeros(size),
        sent=np.bincount(sender, amount, size),
        received=np.bincount(receiver, amount, size),
        static_memory=unknown if schedule.static_memory is None else schedule.static_memory,
        peak_memory=unknown if schedule.peak_memory is None else schedule.peak_memory,
        capacity=problem.cluster.memory_bytes,
    )


@checked
def method_table(solution: Solution) -> Columns:
    """Return a table of the methods that search for schedules, the best first.

    Columns are method, makespan (seconds, inf if it found none), gap (to the solution's bound),
    evaluations and seconds.
    """
    ran = solution.methods
    searched = np.flatnonzero(np.isfinite(ran.makespan) | (ran.evaluations > 0))
    order = searched[np.argsort(ran.makespan[searched], kind="stable")]
    gap = np.array([relative_gap(makespan, solution.bound) for makespan in ran.makespan[order].tolist()], np.float64)
    columns = {name: ran[name][order] for name in ("method", "makespan", "evaluations", "seconds")}
    return Columns(**columns, gap=gap)


def _shared(schedule: Schedule) -> FloatArray:
    """Return the number of inputs of each transfer, [T]."""
    moves, ptr, items = schedule.transfers, schedule.item_ptr, schedule.items
    if schedule.n_inputs == 1:
        return np.ones(len(moves))
    sets = [frozenset(run.tolist()) for run in np.split(items, ptr[1:-1])] if len(schedule.batches) else []
    pairs = zip(moves.source.tolist(), moves.target.tolist(), strict=True)
    return np.array([len(sets[a] & sets[b]) for a, b in pairs], np.float64)
