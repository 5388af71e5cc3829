"""The memory that a schedule needs on each device, under the models ``"static"`` and ``"peak"``."""

from __future__ import annotations

import itertools

import numpy as np

from hetsched.arrays import Columns, FloatArray, IntArray, row_starts
from hetsched.errors import InvalidSchedule
from hetsched.problem.problem import Problem
from hetsched.schedule.arcs import Arcs, of_schedule
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule


def weights(problem: Problem, decision: Decision) -> FloatArray:
    """Return the bytes of the weights of the tasks with a batch on each device, [K]."""
    pair = decision.task * problem.n_devices + decision.device
    pair = np.unique(pair) if np.bincount(decision.task).max(initial=0) > 1 else np.sort(pair)
    weight = problem.graph.weight_bytes[pair // problem.n_devices]
    return np.bincount(pair % problem.n_devices, weight, problem.n_devices).astype(np.float64)


def static(problem: Problem, decision: Decision) -> FloatArray:
    """Return the static memory of each device in bytes, [K]: weights once, plus input and output of every (task, input)."""
    activations = problem.static_bytes[decision.task, 1] * decision.sizes
    return weights(problem, decision) + np.bincount(decision.device, activations, problem.n_devices)


def peak(problem: Problem, decision: Decision, batches: Columns, arcs: Arcs, arc_start: FloatArray) -> FloatArray:
    """Return the peak memory of each device in bytes, [K]."""
    device, _, change = _changes(problem, decision, batches, arcs, arc_start)
    result = weights(problem, decision)
    for k in range(problem.n_devices):
        result[k] += np.cumsum(change[device == k]).max(initial=0.0)
    return result


def profile(problem: Problem, schedule: Schedule) -> Columns:
    """Return the bytes each device holds over time, under the accounting of ``memory="peak"``.

    Parameters
    ----------
    problem : Problem
    schedule : Schedule
        A valid one.

    Returns
    -------
    Columns (device, time, bytes)
        Steps sorted by device and time: from `time` (seconds) to the next step, or to the makespan,
        the device holds `bytes` bytes. Every device has a step at time 0.
    """
    batches = schedule.batches
    decision, arcs = of_schedule(problem, schedule)
    arc_start, moving = batches.finish[arcs.source], np.flatnonzero(arcs.moving)
    moves = schedule.transfers
    by_key = np.lexsort((moves.target, moves.source, moves.edge))  # the order of the arcs
    wanted = [getattr(arcs, name)[moving] for name in ("edge", "source", "target")]
    if len(by_key) != len(moving) or (np.array([moves[name][by_key] for name in ("edge", "source", "target")]) != wanted).any():
        raise InvalidSchedule("the transfers are not those its batches need; hetsched.verify(problem, schedule) lists the violations")
    arc_start[moving] = moves.start[by_key]
    device, time, change = _changes(problem, decision, batches, arcs, arc_start)
    every = np.arange(problem.n_devices)
    device, time = np.concatenate([every, device]), np.concatenate([np.zeros(len(every)), time])
    change = np.concatenate([weights(problem, decision), change])
    order = np.argsort(device, kind="stable")
    device, time, total = device[order], time[order], np.cumsum(change[order])
    first = np.searchsorted(device, every)
    total -= np.concatenate([[0.0], total])[first][device]
    last = np.append((np.diff(device) != 0) | (np.diff(time) != 0), True)  # the last change at one time
    return Columns(device=device[last], time=time[last], bytes=np.maximum(total[last], 0.0))


def _changes(
    problem: Problem, decision: Decision, batches: Columns, arcs: Arcs, arc_start: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return (device, time, bytes acquired or released), sorted by device and time, without weights.

    An output is held from the start of its batch until no batch or transfer on the device needs it, a transferred
    tensor from the start of the transfer to the finish of its consumer, the input of a task without parents from
    time 0 to its finish.
    """
    graph = problem.graph
    batch = np.repeat(np.arange(decision.n_batches), np.diff(decision.item_ptr))  # one row per (task, input)
    task = decision.task[batch]
    makespan = batches.finish.max(initial=0.0)
    release = np.where((np.diff(graph.succ_ptr) == 0)[task], makespan, batches.finish[batch])
    row = np.empty((problem.n_tasks, problem.inputs), np.int64)
    row[task, decision.items] = np.arange(len(batch))
    moving = arcs.moving
    needed_until = np.where(moving, arc_start + arcs.seconds, batches.finish[arcs.target])
    np.maximum.at(release, row[graph.source], needed_until[arcs.of_input])

    sources = (np.diff(graph.pred_ptr) == 0)[task]
    intervals = [
        (decision.device[batch], batches.start[batch], release, graph.output_bytes[task]),
        (
            decision.device[arcs.target[moving]],
            arc_start[moving],
            batches.finish[arcs.target[moving]],
            graph.edge_bytes[arcs.edge[moving]] * arcs.inputs[moving],
        ),
        (decision.device[batch[sources]], np.zeros(sources.sum()), batches.finish[batch[sources]], graph.input_bytes[task[sources]]),
    ]
    device, start, end, size = (np.concatenate(columns) for columns in zip(*intervals, strict=True))
    held = (end > start) & (size > 0)
    device, start, end, size = device[held], start[held], end[held], size[held]
    device = np.concatenate([device, device])
    order = np.argsort(device.astype(np.min_scalar_type(problem.n_devices)), kind="stable")  # small integers are sorted in linear time
    moments = np.empty(len(device), np.complex128)  # sorted by real, then by imaginary part; lexsort takes twice as long
    moments.real, moments.imag = np.concatenate([start, end])[order], np.concatenate([size, -size])[order]
    for first, last in itertools.pairwise(row_starts(np.bincount(device, minlength=problem.n_devices)).tolist()):
        moments[first:last].sort(kind="stable")  # releases before acquisitions at one time
    return device[order], moments.real.copy(), moments.imag.copy()


def limited(problem: Problem) -> bool:
    """Return whether the memory of some device is limited."""
    return bool(np.isfinite(problem.cluster.memory_bytes).any())


def timed(problem: Problem) -> bool:
    """Return whether memory is limited, and what is needed depends on times."""
    return problem.memory == "peak" and limited(problem)


def needed(problem: Problem, schedule: Schedule) -> FloatArray:
    """Return the bytes that each device needs under the problem's memory model, [K]."""
    size = schedule.static_memory if problem.memory == "static" else schedule.peak_memory
    assert size is not None
    return size


def over_capacity(problem: Problem, needed: FloatArray, capacity: FloatArray | None = None) -> FloatArray:
    """Return the bytes by which each device exceeds its capacity, [K]; 0 if it does not.

    The tolerance is 1e-9 of the capacity, as in ``verify``; `capacity` [K] replaces that of the problem.
    """
    capacity = problem.cluster.memory_bytes if capacity is None else capacity
    return np.where(needed > capacity * (1 + 1e-9), needed - capacity, 0.0)
