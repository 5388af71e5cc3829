"""What an executor is given, checked: a program, the problem of its decision, and a place for each device."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import torch

from hetsched.errors import InvalidArgument, InvalidProblem, InvalidSchedule, UnsupportedFeature
from hetsched.problem.cluster import Cluster
from hetsched.problem.problem import Problem
from hetsched.runtime.places import Place, Where, place
from hetsched.runtime.program import Program
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate

HAND_OFF = 6e-6
"""Seconds of a hand-off between two threads, assumed where the run does not show them."""


def checked_program(module: Any, example_args: Any, example_kwargs: Mapping[str, Any] | None) -> Program:
    if isinstance(module, Program):
        program = module
    elif example_args is None:
        raise InvalidProblem("example_args is None, which only a Program can do without; give arguments of a call")
    else:
        program = Program(module, example_args, example_kwargs=example_kwargs)
    if program.device.type != "cpu":
        raise UnsupportedFeature(
            f"the module is on a {program.device.type} device; give it on the CPU: the executor copies weights, arguments and result"
        )
    return program


def checked_problem(program: Program, decision: Schedule | Decision, problem: Problem | None) -> tuple[Problem, Decision, float]:
    """Return the problem of a decision, the decision as the program runs it, and its makespan."""
    names = program.graph.names
    tasks = decision.tasks if isinstance(decision, Schedule) else None if problem is None else problem.graph.names
    if tasks is None:
        raise InvalidArgument("a Decision has no names of devices; give its problem too, or a Schedule")
    if problem is not None and isinstance(decision, Schedule):
        same = decision.devices == problem.cluster.names and decision.n_inputs == problem.inputs and tasks == problem.graph.names
        if not same:
            raise InvalidSchedule("the schedule is of another problem; give the one that it was made for, or leave it out")
    if tasks != names:
        missing = next((name for name in tasks if name not in program.graph.index), None) or next(
            (name for name in names if name not in set(tasks)), names[0]
        )
        raise InvalidSchedule(
            f"the schedule has {len(tasks)} tasks and the module {len(names)}, which differ, as in {missing!r}; "
            "give the Program that was made with the same arguments as the graph, such as fuse"
        )
    if isinstance(decision, Decision):
        assert problem is not None
        return problem, program.arranged(problem, decision), simulate(problem, decision).makespan
    if problem is None:
        batches = decision.batches
        sizes, place = np.unique(batches.size, return_inverse=True)
        table = np.ones((len(names), len(decision.devices), len(sizes)))
        table[batches.task, :, place] = (batches.finish - batches.start)[:, None]
        cluster = Cluster(decision.devices, bandwidth=float("inf"), latency=HAND_OFF)
        problem = Problem(program.graph, cluster, durations=table, batch_sizes=sizes, inputs=decision.n_inputs, batching="free")
    return problem, program.arranged(problem, decision.decision), float(decision.makespan)


def check_autocast() -> None:
    """Raise `UnsupportedFeature` in a context of autocast, where values have other types than those that processes exchange."""
    if torch.is_autocast_enabled("cpu"):
        raise UnsupportedFeature("autocast changes the types of values, which the ranks fix beforehand; run without it, or on threads")


def check_updates(program: Program, engine: Any, places: Sequence[Place]) -> None:
    """Raise `UnsupportedFeature` if a program with updates is to run elsewhere than on CPU threads of this process."""
    if not program.updates:
        return
    rule = "training steps run on CPU threads of one process so far"
    if engine != "threads":
        raise UnsupportedFeature(f"engine is {engine!r}, and {rule}; leave it out")
    for own in places:
        if own.device.type != "cpu":
            raise UnsupportedFeature(f"device {own.name!r} is {own.device}, and {rule}; give it a number of threads")


def checked_places(names: Sequence[str], devices: Mapping[str, Where], here: Iterable[bool] = repeat(True)) -> list[Place]:
    """Return the places of the problem's devices; those not `here` are on other hosts."""
    if set(names) != devices.keys():
        raise InvalidProblem(
            f"the devices of the problem are {', '.join(map(repr, names))}, and places are given for "
            f"{', '.join(map(repr, devices)) or 'none'}; give one for each"
        )
    made = [place(name, devices[name], here=own) for name, own in zip(names, here, strict=False)]
    for own in made:
        if own.device.type == "cpu" and isinstance(devices[own.name], str):
            raise InvalidProblem(f"device {own.name!r} is 'cpu'; give a number of CPU threads, or a list of cores")
    pinned = frozenset[int]().union(*(own.cores for own in made if own.cores is not None))
    left = frozenset(os.sched_getaffinity(0)) - pinned if pinned else pinned
    # The thread that feeds a GPU does not take a core of a CPU device, if there is another one.
    return [own._replace(cores=left) if left and own.device.type != "cpu" else own for own in made]
