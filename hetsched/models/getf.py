"""GETF: a group of devices of similar speed for each task by a rounded program, then earliest start first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.analysis.levels import unit_sums
from hetsched.arguments import check_array, checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import InvalidArgument, InvalidProblem
from hetsched.modeling.model import Model
from hetsched.problem.problem import Problem
from hetsched.search import Monitor
from hetsched.stopping import NEVER, Deadline

PROGRAM = 0.75
"""Share of the time for the assignment; what is left is for the schedule."""


@checked
def mean_speeds(problem: Problem) -> FloatArray:
    """Return the speed of each device, [K]: the inverse geometric mean of its durations relative to those of all devices.

    A task counts with the devices that run it. Of related devices, with durations = work / speed, these are the speeds.
    """
    durations = problem.whole_durations
    counted = problem.eligible & np.isfinite(durations) & (durations > 0)
    logs = np.log(np.where(counted, durations, 1.0))
    own = logs.sum(axis=1, keepdims=True) / np.maximum(1, counted.sum(axis=1, keepdims=True))
    relative = np.where(counted, logs - own, 0.0).sum(axis=0) / np.maximum(1, counted.sum(axis=0))
    return np.asarray(np.exp(-relative))


@checked
def group_program(problem: Problem, *, integral: bool = False, deadline: Deadline = NEVER) -> tuple[Model, Any]:
    """Return the program of the group assignment and its fractions x[u, k] of co-location units, or with `integral` its binaries.

    It minimises T such that every unit is fully assigned, completion times of tasks respect precedence, and the load
    of each device and every completion time are at most T. Times are shares of the longest durations of all tasks.
    """
    graph, model = problem.graph, Model(deadline=deadline)
    usable = problem.eligible & np.isfinite(problem.whole_durations)
    seconds = np.where(usable, problem.whole_durations, 0.0)
    scale = 1.0 / max(float(seconds.max(axis=1, initial=0.0).sum()), 1e-300)
    unable = unit_sums(problem, (~usable).astype(np.float64)) > 0
    shape, upper = (problem.n_units, problem.n_devices), np.where(unable, 0.0, 1.0)
    x = model.binary("x", shape, upper=~unable) if integral else model.continuous("x", shape, upper=upper)
    completion = model.continuous("completion", problem.n_tasks)
    taken = x[problem.unit] * (seconds * scale)
    length = taken.sum(axis=1)
    makespan = model.continuous("T")
    model.add(x.sum(axis=1) == 1, tag="assigned")
    model.add(completion >= length, tag="completion")
    model.add(completion[graph.target] >= completion[graph.source] + length[graph.target], tag="precedence")
    model.add(taken.sum(axis=0) <= makespan, tag="load")
    model.add(completion <= makespan, tag="makespan")
    model.minimise(makespan)
    return model, x


@checked
def speed_groups(speed: FloatArray) -> IntArray:
    """Return the group of each device, from slow to fast; -1 if it is more than m times slower than the fastest of m devices.

    Within a group speeds differ by less than a factor of gamma = log m / log log m, at least 2.
    """
    m = check_array(speed, "speed", ("devices",)).size
    if not m:
        raise InvalidArgument("speed is empty; it must be one number for each device")
    gamma = max(2.0, math.log(m) / math.log(math.log(m))) if m > 3 else 2.0
    ratio = speed / speed.max() * m
    group = np.floor(np.log(np.maximum(ratio, 1.0)) / math.log(gamma) + 1e-12).astype(np.int64)
    return np.where(ratio >= 1.0 - 1e-12, group, -1)


@checked
def chosen_groups(fractions: FloatArray, group: IntArray, speed: FloatArray) -> IntArray:
    """Return the group of each row of fractions, that is of each unit.

    Of the slowest group such that half of the unit is assigned to it or to faster ones, and those faster ones, it
    is the group with the largest total speed.
    """
    devices = check_array(speed, "speed", ("devices",)).size
    check_array(group, "group", (devices,), np.int64)
    check_array(fractions, "fractions", ("units", devices))
    count = int(group.max(initial=-1)) + 1
    if not count:
        raise InvalidArgument(f"group is {group.tolist()}; some device must be in a group")
    member = group[:, None] == np.arange(count)
    share = fractions @ member
    from_here = share[:, ::-1].cumsum(axis=1)[:, ::-1]
    floor = np.where(from_here >= 0.5 - 1e-9, np.arange(count), -1).max(axis=1).clip(0)
    total = speed @ member
    return np.array([low + int(np.argmax(total[low:])) for low in floor.tolist()], np.int64).reshape(len(fractions))


def getf(problem: Problem, monitor: Monitor, solver: str, *, integral: bool) -> None:
    """Assign tasks to groups of devices of similar speed by a program, then schedule by earliest start within them."""
    speed = mean_speeds(problem)
    model, x = group_program(problem, integral=integral, deadline=monitor.deadline)
    deadline = monitor.deadline.part(PROGRAM)
    outcome = model.solve(solver, deadline=deadline, seed=monitor.seed, stop=lambda: monitor.should_stop).raise_for_failure()
    if outcome.values is None:
        monitor.note(f"the group assignment has no solution: {outcome.detail or outcome.stopped}")
        return
    group = speed_groups(speed)
    kept = chosen_groups(x.value(outcome.values), group, speed)[problem.unit][:, None] == group
    kept[~(kept & problem.eligible & np.isfinite(problem.whole_durations)).any(axis=1)] = True
    try:
        narrowed = problem.replace(durations=np.where(kept[:, :, None], problem.durations, np.nan))
    except InvalidProblem as reason:  # no paths between groups
        monitor.note(f"the chosen groups permit no schedule: {reason}")
        return
    solution = monitor.subsolve(narrowed, "etf")
    if solution.schedule is None:
        monitor.note(f"etf finds no schedule within the chosen groups: {'; '.join(solution.messages) or solution.stopped}")
        return
    monitor.offer(solution.schedule.decision)
