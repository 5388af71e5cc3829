"""Estimates of the memory of each co-location unit on a device before times are known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hetsched.arrays import FloatArray, readonly
from hetsched.problem.problem import Problem, sums_by_unit


def memory_claims(problem: Problem) -> Iterator[FloatArray]:
    """Yield the bytes that each co-location unit claims on a device, optimistic before conservative; [n_units, 2], once and per input.

    Under ``static`` memory the claims are exact. Under ``peak`` the bytes held depend on times: the first
    claims are the weights only, so that a simulation has to check the result; the second are an upper bound
    on what a device holds for the tasks.
    """
    if problem.memory == "peak":
        moved = np.bincount(problem.graph.target, problem.graph.edge_bytes, problem.n_tasks)
        yield readonly(sums_by_unit(problem, problem.static_bytes * [1.0, 0.0]))
        yield readonly(sums_by_unit(problem, problem.static_bytes + np.stack([np.zeros_like(moved), moved], axis=1)))
    else:
        yield problem.unit_bytes


def memory_needs(problem: Problem) -> Iterator[FloatArray]:
    """Yield the bytes that each co-location unit claims on its device for all inputs, optimistic before conservative; [n_units]."""
    for claims in memory_claims(problem):
        needs = claims @ np.array([1.0, problem.inputs])
        needs.setflags(write=False)
        yield needs
