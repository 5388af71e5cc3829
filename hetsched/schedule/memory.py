"""What a schedule needs in each device's memory, under both models of the problem statement."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.columns import Columns
from hetsched.problem.graph import FloatArray, IntArray
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision


class Links(NamedTuple):
    """(edge, source batch, target batch) with shared inputs; `finish` is that of a transfer."""

    edge: IntArray
    source: IntArray
    target: IntArray
    inputs: IntArray
    start: FloatArray
    finish: FloatArray


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


def peak(problem: Problem, decision: Decision, batches: Columns, links: Links) -> FloatArray:
    """Return the largest number of bytes each device holds at any time, [K].

    Outputs live from their batch's start until nothing on the device needs them, moved tensors from
    the transfer's start to their consumer's finish, the inputs of tasks without parents from time 0
    to their finish.
    """
    graph, n_devices = problem.graph, problem.n_devices
    batch = np.repeat(np.arange(decision.n_batches), np.diff(decision.item_ptr))  # one row per (task, input)
    task = decision.task[batch]
    makespan = batches.finish.max(initial=0.0)
    row = np.empty((problem.n_tasks, problem.inputs), np.int64)
    row[task, decision.items] = np.arange(len(batch))
    release = batches.finish[batch].copy()
    release[(np.diff(graph.succ_ptr) == 0)[task]] = makespan

    moving = decision.device[links.source] != decision.device[links.target]
    needed_until = np.where(moving, links.finish, batches.finish[links.target])
    if problem.inputs == 1:
        np.maximum.at(release, row[graph.source[links.edge], 0], needed_until)
    else:
        item_link, item = _items_of_links(problem, decision, links)
        np.maximum.at(release, row[graph.source[links.edge[item_link]], item], needed_until[item_link])

    sources = (np.diff(graph.pred_ptr) == 0)[task]
    intervals = [
        (decision.device[batch], batches.start[batch], release, graph.output_bytes[task]),
        (
            decision.device[links.target[moving]], links.start[moving], batches.finish[links.target[moving]],
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


def _items_of_links(problem: Problem, decision: Decision, links: Links) -> tuple[IntArray, IntArray]:
    """Return (link, input) for every input that a link carries."""
    size = problem.inputs
    batch = np.repeat(np.arange(decision.n_batches), np.diff(decision.item_ptr))
    batch_of = np.empty((problem.n_tasks, size), np.int64)
    batch_of[decision.task[batch], decision.items] = batch
    edge = np.repeat(np.arange(problem.graph.n_edges), size)
    item = np.tile(np.arange(size), problem.graph.n_edges)
    m = decision.n_batches

    def key(e: IntArray, a: IntArray, b: IntArray) -> IntArray:
        return (e * m + a) * m + b

    wanted = key(edge, batch_of[problem.graph.source[edge], item], batch_of[problem.graph.target[edge], item])
    return np.searchsorted(key(links.edge, links.source, links.target), wanted), item


def over_capacity(problem: Problem, needed: FloatArray) -> FloatArray:
    """Return by how many bytes each device is over its capacity, [K]; 0 where it fits.

    One part in 1e9 is forgiven, as in ``verify``.
    """
    capacity = problem.cluster.memory_bytes
    return np.where(needed > capacity * (1 + 1e-9), needed - capacity, 0.0)
