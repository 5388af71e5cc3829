"""Two schedules of a problem in one chart: a row of each for every device."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from hetsched.arrays import Columns, FloatArray
from hetsched.costs.timeline import Timeline
from hetsched.problem.problem import Problem
from hetsched.report.tables import schedule_of
from hetsched.schedule.schedule import Schedule
from hetsched.search.solution import Solution

Against: TypeAlias = Schedule | Solution | Timeline
"""The second schedule of a chart; of a timeline the times of its run."""
PALE = 0.55
"""Strength of the colours of the second schedule."""


class Pair(NamedTuple):
    """Two schedules as one, which has two rows for each device; the second is the one of the other schedule."""

    schedule: Schedule
    """The batches of both, those of the first ahead, and the transfers of the first."""
    name: str
    """What the second one is: "forecast", or "other" if it was measured."""
    makespan: float
    """Of the second one."""
    ends: FloatArray
    """The makespan of the schedule of each row."""


def paired(problem: Problem, first: Schedule, against: Against) -> Pair:
    """Return both schedules as one; raise `InvalidSchedule` if the second one is of another problem."""
    measured = isinstance(against, Timeline) and against.measured
    second = schedule_of(problem, against.schedule if isinstance(against, Timeline) else against)
    name = "other" if measured else "forecast"
    a, b = first.batches, second.batches
    columns = {column: np.concatenate([a[column], b[column]]) for column in ("task", "start", "finish", "size")}
    both = Schedule.of_problem(
        first.tasks,
        tuple(row for device in first.devices for row in (device, f"{device}, {name}")),
        first.n_inputs,
        Columns(device=np.concatenate([2 * a.device, 2 * b.device + 1]), **columns),
        np.concatenate([first.item_ptr, second.item_ptr[1:] + first.item_ptr[-1]]),
        np.concatenate([first.items, second.items]),
        first.transfers,
        makespan=max(first.makespan, second.makespan),
    )
    return Pair(both, name, second.makespan, np.tile([first.makespan, second.makespan], len(first.devices)))


def paler(colours: FloatArray) -> FloatArray:
    """Return colours, red, green and blue from 0 to 1, for the batches of the second schedule."""
    return 1 - PALE * (1 - colours)
