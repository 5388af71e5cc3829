"""What each co-location unit claims of a device's memory, where times are not known yet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hetsched.arrays import FloatArray, readonly
from hetsched.problem.problem import Problem


def memory_claims(problem: Problem) -> Iterator[FloatArray]:
    """Yield, from optimistic to conservative, what each co-location unit claims on a device: [n_units, 2] bytes, once and per input there.

    Under ``static`` memory the claims are exact. Under ``peak`` what is held depends on times: first
    only weights are claimed and the outcome is left to the simulator, then as much as a device
    could ever hold for the tasks.
    """
    graph = problem.graph
    per_task = [problem.static_bytes]
    if problem.memory == "peak":
        moved = np.bincount(graph.target, graph.edge_bytes, problem.n_tasks)
        per_task = [problem.static_bytes * [1.0, 0.0], problem.static_bytes + np.stack([np.zeros_like(moved), moved], axis=1)]
    for columns in per_task:
        yield readonly(np.stack([np.bincount(problem.unit, column, problem.n_units) for column in columns.T], axis=1))


def memory_needs(problem: Problem) -> Iterator[FloatArray]:
    """Yield, from optimistic to conservative, the bytes each co-location unit claims on its device for all inputs, [n_units]."""
    for claims in memory_claims(problem):
        yield readonly(claims @ np.array([1.0, problem.inputs]))
