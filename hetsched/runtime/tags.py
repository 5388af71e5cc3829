"""Tags: the resource that limits each node of a placed graph."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.problem.problem import Problem
from hetsched.runtime.iterations import devices_of
from hetsched.schedule.decision import Decision


class Tag(IntEnum):
    """The resource that a node uses longest."""

    COMPUTE = 0
    MEMORY = 1
    NETWORK = 2


@checked
def tags(problem: Problem, decision: Decision, *, dtype: str = "float32") -> IntArray:
    """Return the `Tag` of each task on its device under the decision, [n].

    A task is network-bound if its longest incoming transfer lasts longer than the task itself. Otherwise it
    is memory-bound if its bytes divided by the device's memory bandwidth exceed its FLOPs divided by the
    device's peak for `dtype`, and compute-bound if not, or if its FLOPs or the device's figures are
    unknown. Co-located tasks share the tag with the largest sum of their seconds.

    References
    ----------
    S. Tavarageri, S. Sridharan, B. Kaul, "Automatic model parallelism for deep neural networks with compiler and
    hardware support", 2019, section 3: nodes are tagged compute-, memory- or network-bound; the rule for it is not given.
    """
    graph, device = problem.graph, devices_of(decision)
    seconds = problem.durations[np.arange(problem.n_tasks), device, 0]
    waiting = np.zeros(problem.n_tasks)
    every = np.arange(graph.n_edges)
    np.maximum.at(waiting, graph.target, problem.transfer_times(every, device[graph.source], device[graph.target]))
    own = np.where(_traffic(problem, device) > _arithmetic(problem, device, dtype), Tag.MEMORY, Tag.COMPUTE)
    own = np.where(waiting > seconds, Tag.NETWORK, own)
    by_unit = np.zeros((problem.n_units, len(Tag)))
    np.add.at(by_unit, (problem.unit, own), seconds)
    united = np.where(by_unit.any(axis=1), by_unit.argmax(axis=1), Tag.COMPUTE)
    alone = np.bincount(problem.unit, minlength=problem.n_units) == 1
    return np.where(alone[problem.unit], own, united[problem.unit]).astype(np.int64)


def _arithmetic(problem: Problem, device: IntArray, dtype: str) -> FloatArray:
    """Return FLOPs divided by the device's peak in seconds, [n]; NaN where either is unknown."""
    peak = np.array([one.peak_flops.get(dtype, np.nan) for one in problem.cluster.devices])
    return np.asarray(problem.graph.flops / peak[device])


def _traffic(problem: Problem, device: IntArray) -> FloatArray:
    """Return bytes divided by the device's memory bandwidth in seconds, [n]; NaN where the bandwidth is unknown."""
    graph = problem.graph
    total = graph.weight_bytes + graph.input_bytes + graph.output_bytes
    accessed = np.where(np.isnan(graph.bytes_accessed), total, graph.bytes_accessed)
    bandwidth = np.array([one.memory_bandwidth or np.nan for one in problem.cluster.devices])
    return np.asarray(accessed / bandwidth[device])
