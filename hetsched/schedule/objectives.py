"""Objectives of schedules: the makespan, and the loads of devices and channels when inputs are pipelined.

The period of a schedule of L inputs is the time between the completions of two inputs if L new inputs start as soon as
resources are free: then the busiest resource is never idle. It depends on the batches and their devices, not on the order
of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import BoolArray, Columns, FloatArray, IntArray, texts
from hetsched.errors import UnsupportedFeature
from hetsched.problem.links import MODELS
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule

HOST = "cpu"
"""The kind of the devices whose memory is the main memory, see `max_load`."""


@checked
def makespan(problem: Problem, schedule: Schedule) -> float:
    """Return the makespan in seconds."""
    return schedule.makespan


@checked
def period(problem: Problem, schedule: Schedule) -> float:
    """Return the largest busy time per input of any device or resource of links, in seconds.

    A device is busy while it runs batches, a resource while a transfer holds it. The resource of a
    transfer is the channel of its ordered pair of devices; with ``communication="port"`` its two device
    ports, with ``"node"`` its two node ports. Devices and resources work in parallel.
    """
    devices, links = _resources(problem, schedule)
    return float(max(devices.max(initial=0.0), links.max(initial=0.0)))


@checked
def loads(problem: Problem, schedule: Schedule) -> Columns:
    """Return the busy time per input of every device and of every used channel or port.

    Returns
    -------
    Columns (resource, seconds)
        Busiest first; the first `seconds` is the period.
    """
    devices, links = _resources(problem, schedule)
    rows = [(seconds, name) for seconds, name in zip(devices.tolist(), problem.cluster.names, strict=True)]
    name_of = MODELS[problem.communication].resources(problem.cluster).name
    rows += [(float(links[number]), name_of(number)) for number in np.flatnonzero(links).tolist()]
    rows.sort(key=lambda row: -row[0])
    return Columns(resource=texts(name for _, name in rows), seconds=[seconds for seconds, _ in rows])


@checked
def max_load(problem: Problem, schedule: Schedule) -> float:
    """Return the largest load of a device in seconds, transfers not overlapped with compute (Tarnawski et al. 2020).

    Tensors pass through the main memory of the host, the first device of kind ``"cpu"``. An
    accelerator (a device of another kind) runs its tasks, receives once every tensor that it needs from
    other devices, and sends once every tensor that other devices read; it does one of these at a time.
    Devices of kind ``"cpu"`` only compute. A tensor is the output of a task for all its children; its
    transfer time is the longest among its edges.

    Raises
    ------
    UnsupportedFeature
        More than one input, or no device of kind ``"cpu"``.
    """
    enter, leave = host_times(problem)
    device = np.empty(problem.n_tasks, np.int64)
    device[schedule.batches.task] = schedule.batches.device
    source, target = device[problem.graph.source], device[problem.graph.target]
    out, into = np.zeros(enter.shape, bool), np.zeros(enter.shape, bool)
    apart = source != target
    out[problem.graph.source[apart], source[apart]] = True
    into[problem.graph.source[apart], target[apart]] = True
    moved = np.where(out, leave, 0.0).sum(axis=0) + np.where(into, enter, 0.0).sum(axis=0)
    return float((schedule.busy_time + moved).max(initial=0.0))


OBJECTIVES: Mapping[str, Callable[[Problem, Schedule], float]] = {"makespan": makespan, "period": period, "max-load": max_load}
"""The objectives by name, all minimised, in seconds; the last two are loads per input."""


@checked
def find_objective(name: str) -> Callable[[Problem, Schedule], float]:
    """Return the objective with a given name; raise `UnsupportedFeature` if there is none."""
    if name not in OBJECTIVES:
        raise UnsupportedFeature(f"unknown objective {name!r}; choose from {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]


@checked
def hosts(problem: Problem) -> BoolArray:
    """Return which devices are of kind ``"cpu"``, [K]."""
    return np.array([device.kind == HOST for device in problem.cluster.devices])


@checked
def host_times(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """Return the seconds to move the tensor of a task into a device and out of it, [n, K] each; inf without a path."""
    host = hosts(problem)
    if problem.inputs > 1:
        raise UnsupportedFeature(f"max-load is defined for one input, not {problem.inputs}; use objective='period'")
    if not host.any():
        raise UnsupportedFeature(f"max-load needs a device of kind {HOST!r}, whose memory transfers pass through; use objective='period'")
    graph, every = problem.graph, np.arange(problem.n_devices)
    edges, main = np.arange(graph.n_edges)[:, None], int(np.flatnonzero(host)[0])
    times = []
    for one_edge in (problem.transfer_times(edges, main, every), problem.transfer_times(edges, every, main)):
        longest = np.zeros((problem.n_tasks, problem.n_devices))
        np.maximum.at(longest, graph.source, np.where(host, 0.0, one_edge))
        times.append(longest)
    return times[0], times[1]


def _resources(problem: Problem, schedule: Schedule) -> tuple[FloatArray, FloatArray]:
    """Return the busy seconds per input of devices, [K], and of the resources of links, [n_resources]."""
    size, transfers, table = problem.n_devices, schedule.transfers, problem.links
    where: IntArray = schedule.batches.device
    pair = where[transfers.source] * size + where[transfers.target]
    of_pair = np.bincount(pair, transfers.finish - transfers.start, minlength=size * size)
    one, other = table.resource.reshape(-1, 2).T
    links = np.zeros(table.n_resources + 1)  # the last entry: transfers that hold none
    np.add.at(links, one, of_pair)
    np.add.at(links, other[one != other], of_pair[one != other])
    return schedule.busy_time / problem.inputs, links[:-1] / problem.inputs
