"""GETF: a group of devices of similar speed for each task by a rounded linear program, then earliest start first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.arguments import check_array, checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import InvalidArgument, InvalidProblem, UnsupportedFeature
from hetsched.modeling.model import Model
from hetsched.problem.problem import Problem
from hetsched.search import Monitor
from hetsched.stopping import NEVER, Deadline

RELATED = 1e-6  # relative tolerance between durations and work / speed


@checked
def related(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Return (work [n], speed [K]) with durations = work / speed; raise `UnsupportedFeature` for unrelated devices."""
    durations = problem.whole_durations
    usable = problem.eligible & np.isfinite(durations)
    complete = np.where(usable & (durations > 0), durations, 1.0)
    if not usable.all() or ((durations > 0).any(axis=1) & (durations == 0).any(axis=1)).any():
        raise UnsupportedFeature("getf is for related devices on which every task can run; use moirai or milp for others")
    taking = (durations > 0).all(axis=1)
    logs = np.log(complete[taking])
    speed = np.exp(-(logs - logs.mean(axis=1, keepdims=True)).mean(axis=0)) if taking.any() else np.ones(problem.n_devices)
    work = (durations * speed).mean(axis=1)
    worst = np.abs(durations * speed - work[:, None]).max(axis=1, initial=0.0)
    off = np.flatnonzero(worst > RELATED * np.maximum(work, 1e-300))
    if len(off):
        raise UnsupportedFeature(
            f"getf is for related devices, with durations = work / speed, but those of task {problem.graph.names[off[0]]!r} "
            "are in other proportions; use moirai or milp for unrelated devices"
        )
    return work, speed


@checked
def group_program(problem: Problem, work: FloatArray, speed: FloatArray, deadline: Deadline = NEVER) -> tuple[Model, Any]:
    """Return the linear program of the group assignment and its fractions x[u, k] of co-location units.

    It minimises T such that every unit is fully assigned, completion times of tasks respect precedence, and the load
    of each device and every completion time are at most T. Times are shares of the work on the slowest device.
    """
    check_array(work, "work", (problem.n_tasks,))
    check_array(speed, "speed", (problem.n_devices,))
    graph, model = problem.graph, Model(deadline=deadline)
    seconds = work[:, None] / speed
    scale = 1.0 / max(float(seconds.max(axis=1).sum()), 1e-300)
    x = model.continuous("x", (problem.n_units, problem.n_devices), upper=1.0)
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


def getf(problem: Problem, monitor: Monitor, solver: str) -> None:
    """Assign tasks to groups of devices of similar speed by a rounded linear program, then schedule by earliest start within them."""
    work, speed = related(problem)
    model, x = group_program(problem, work, speed, monitor.deadline)
    outcome = model.solve(solver, deadline=monitor.deadline, seed=monitor.seed, stop=lambda: monitor.should_stop).raise_for_failure()
    if outcome.values is None:
        monitor.note(f"the group assignment has no solution: {outcome.detail or outcome.stopped}")
        return
    group = speed_groups(speed)
    chosen = chosen_groups(x.value(outcome.values), group, speed)[problem.unit]
    try:
        narrowed = problem.replace(durations=np.where((chosen[:, None] == group)[:, :, None], problem.durations, np.nan))
    except InvalidProblem as reason:  # no paths between groups
        monitor.note(f"the chosen groups permit no schedule: {reason}")
        return
    solution = monitor.subsolve(narrowed, "etf")
    if solution.schedule is None:
        monitor.note(f"etf finds no schedule within the chosen groups: {'; '.join(solution.messages) or solution.stopped}")
        return
    monitor.offer(solution.schedule.decision)
