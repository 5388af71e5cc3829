"""Measured memory in a problem, whose law stays as it is.

With ``memory="static"`` a task's `input_bytes` become at least the most bytes that one of its batches was measured to
allocate, by input, less its `output_bytes`; devices then add them up as Celeritas does. With ``memory="peak"`` only tasks without
parents have `input_bytes` that count, so that each device's memory is lowered instead, by the largest workspace (what a batch
allocates beyond its output) of a task that may run there. A graph with such `input_bytes` is for memory alone: cost models,
merging and fusion read them as bytes that a task reads.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem


def with_measured(graph: TaskGraph, held: FloatArray, batch_sizes: FloatArray) -> TaskGraph:
    """Return the graph with room for what was measured: bytes [n, ..., B] of batches, in addition to weights, NaN if unknown."""
    each = np.nan_to_num(held) / np.asarray(batch_sizes)
    most = each.reshape(graph.n_tasks, -1).max(axis=1, initial=0.0)
    return graph.replace(input_bytes=np.maximum(graph.input_bytes, most - graph.output_bytes))


def with_workspace(problem: Problem, held: FloatArray) -> Problem:
    """Return the problem with the bytes [n, K, B] that batches were measured to allocate, NaN if unknown.

    Raises
    ------
    InvalidProblem
        The workspace of a task needs more than the memory of a device on which it may run.
    """
    graph, table = problem.graph, problem.durations
    if problem.memory == "static":
        graph = with_measured(graph, held, problem.batch_sizes.astype(np.float64))
        return problem.replace(graph=graph, durations=table, batch_sizes=problem.batch_sizes)
    workspace = np.nan_to_num(held) - graph.output_bytes[:, None, None] * problem.batch_sizes
    most = np.where(np.isfinite(table), workspace, 0.0).max(axis=(0, 2), initial=0.0)
    devices = []
    for device, needed in zip(problem.cluster.devices, most.tolist(), strict=True):
        if needed > device.memory_bytes:
            raise InvalidProblem(
                f"a task allocates {needed:g} bytes beside its output on device {device.name!r}, which has {device.memory_bytes:g}; "
                "give smaller batches"
            )
        devices.append(replace(device, memory_bytes=device.memory_bytes - needed))
    cluster = problem.cluster
    return problem.replace(cluster=Cluster(devices, cluster.bandwidth, cluster.latency), durations=table, batch_sizes=problem.batch_sizes)
