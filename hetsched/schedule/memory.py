"""What a schedule needs in each device's memory, under both models of the problem statement."""

from __future__ import annotations

import numpy as np

from hetsched.columns import Columns
from hetsched.problem.graph import FloatArray
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.links import Links


def weights(problem: Problem, decision: Decision) -> FloatArray:
    """Return the bytes of the weights of the tasks that ever run on each device, [K]."""
    pair = np.unique(decision.task * problem.n_devices + decision.device)
    weight = problem.graph.weight_bytes[pair // problem.n_devices]
    return np.bincount(pair % problem.n_devices, weight, problem.n_devices).astype(np.float64)


def static(problem: Problem, decision: Decision) -> FloatArray:
    """Return bytes per device, [K]: weights once, plus input and output of every (task, input)."""
    size = np.diff(decision.item_ptr)
    activations = problem.static_bytes[decision.task, 1] * size
    return weights(problem, decision) + np.bincount(decision.device, activations, problem.n_devices)


def peak(problem: Problem, decision: Decision, batches: Columns, links: Links, link_start: FloatArray) -> FloatArray:
    """Return the largest number of bytes each device holds at any time, [K].

    Outputs live from their batch's start until nothing on the device needs them, moved tensors from
    the transfer's start to their consumer's finish, the inputs of tasks without parents from time 0
    to their finish.
    """
    graph, n_devices = problem.graph, problem.n_devices
    batch = np.repeat(np.arange(decision.n_batches), np.diff(decision.item_ptr))  # one row per (task, input)
    task = decision.task[batch]
    makespan = batches.finish.max(initial=0.0)
    release = np.where((np.diff(graph.succ_ptr) == 0)[task], makespan, batches.finish[batch])
    row = np.empty((problem.n_tasks, problem.inputs), np.int64)
    row[task, decision.items] = np.arange(len(batch))
    moving = links.moving
    needed_until = np.where(moving, link_start + links.seconds, batches.finish[links.target])
    np.maximum.at(release, row[graph.source], needed_until[links.of_input])

    sources = (np.diff(graph.pred_ptr) == 0)[task]
    intervals = [
        (decision.device[batch], batches.start[batch], release, graph.output_bytes[task]),
        (
            decision.device[links.target[moving]], link_start[moving], batches.finish[links.target[moving]],
            graph.edge_bytes[links.edge[moving]] * links.inputs[moving],
        ),
        (decision.device[batch[sources]], np.zeros(sources.sum()), batches.finish[batch[sources]], graph.input_bytes[task[sources]]),
    ]  # fmt: skip
    device, start, end, size = (np.concatenate(columns) for columns in zip(*intervals, strict=True))
    held = (end > start) & (size > 0)
    device, start, end, size = device[held], start[held], end[held], size[held]
    time, change = np.concatenate([start, end]), np.concatenate([size, -size])
    device = np.concatenate([device, device])
    result = weights(problem, decision)
    order = np.lexsort((change, time, device))  # releases before acquisitions at one time
    for k in range(n_devices):
        mine = order[device[order] == k]
        result[k] += np.cumsum(change[mine]).max(initial=0.0)
    return result


def over_capacity(problem: Problem, needed: FloatArray) -> FloatArray:
    """Return by how many bytes each device is over its capacity, [K]; 0 where it fits.

    One part in 1e9 is forgiven, as in ``verify``.
    """
    capacity = problem.cluster.memory_bytes
    return np.where(needed > capacity * (1 + 1e-9), needed - capacity, 0.0)
