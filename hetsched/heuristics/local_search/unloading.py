"""Repair by random changes of schedules that exceed the memory capacities."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hetsched.heuristics.local_search import edit_kernels, state_kernels
from hetsched.heuristics.local_search.states import States
from hetsched.heuristics.pacing import bursts
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule
from hetsched.search import Monitor, Role, select

_WEIGHT = 4.0
"""Cost of the changes and of what devices hold afterwards, in passes over all tasks and edges."""


def unload(monitor: Monitor) -> None:
    """Offer a schedule that fits the memory, made by random changes from one that does not.

    It starts with the shortest schedule of the start methods without memory limits. Changes are kept unless the bytes over
    capacity, summed over devices, increase. It ends at the first schedule that fits, or when the budget is used up.
    """
    from hetsched.heuristics.local_search import excess_kernels, tabu_kernels

    problem, rng = monitor.problem, monitor.rng
    roomy = _without_limits(problem)
    schedules = [monitor.subsolve(roomy, start.name).schedule for start in select(role=Role.START, problem=roomy)]
    states = States(problem)
    tables, current, trial, log = states.tables, states.empty(), states.empty(), edit_kernels.new_log(states.tables)
    unlimited = tables._replace(capacity=np.full(problem.n_devices, np.inf))
    makespan, smallest = _load_first(states, trial, schedules), math.inf
    if math.isinf(makespan):
        monitor.note("no start was found, even with memory enough, whose batches are intervals of inputs, alike for co-located tasks")
        return
    for count in bursts(monitor, weight=_WEIGHT):
        for _ in range(count):
            over = excess_kernels.excess(tables, trial)
            if over == 0.0 and math.isfinite(monitor.offer(states.decision(trial))):
                return
            if over <= smallest:
                smallest = over
                state_kernels.copy(trial, current)
            else:
                state_kernels.copy(current, trial)
                states.settle(trial)
            tabu_kernels.shake(unlimited, trial, log, rng, int(rng.geometric(0.5)), 0.0)
            monitor.evaluated(1)
            if monitor.should_stop:
                return


def _without_limits(problem: Problem) -> Problem:
    devices = [replace(device, memory_bytes=np.inf) for device in problem.cluster.devices]
    return problem.replace(cluster=problem.cluster.replace(devices=devices))


def _load_first(states: States, state: state_kernels.SearchState, schedules: list[Schedule | None]) -> float:
    """Load the shortest schedule that a state can represent into `state`; return its makespan, inf if there is none."""
    for schedule in sorted((schedule for schedule in schedules if schedule is not None), key=lambda schedule: schedule.makespan):
        makespan = states.load(state, schedule)
        if math.isfinite(makespan):
            return makespan
    return math.inf
