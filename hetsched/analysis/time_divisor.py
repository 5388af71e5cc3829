"""The common divisor of times: of some shortest schedule all times are multiples of it, so a bound may be rounded up."""

from __future__ import annotations

import math

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.problem.problem import Problem

MOST = 2.0**40
"""The most multiples in a time: sums of thousands of such times are exact in float64."""
CELLS = 10**6
"""The most times of a problem that are looked at."""
ROUNDING = 1e-9
"""Relative excess of a bound over a multiple that counts as rounding."""


def common_divisor(*times: FloatArray) -> float:
    """Return the largest number of which all finite times are multiples; 0 if there are none, or it is too small for exact sums."""
    values = np.concatenate([part[np.isfinite(part) & (part > 0.0)] for part in times])
    if not len(values):
        return 0.0
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = int((exponent - 54 + np.frexp((whole & -whole).astype(np.float64))[1]).min())  # power of two that divides all
    if values.max() >= math.ldexp(MOST, lowest):
        return 0.0
    return math.ldexp(float(np.gcd.reduce(np.ldexp(values, -lowest).astype(np.int64))), lowest)


def time_divisor(problem: Problem) -> float:
    """Return the common divisor of the times of all batches and transfers of a problem, 0 if there is none or it is not sought.

    In a semi-active schedule every time is the length of a path of batches and transfers, contention or not.
    """
    size, edges = problem.n_devices, np.arange(problem.graph.n_edges)
    if (problem.n_tasks * size + len(edges) * size**2) * problem.inputs > CELLS:
        return 0.0
    device, carried = np.arange(size), np.arange(1, problem.inputs + 1)
    return common_divisor(
        problem.durations, problem.transfer_times(edges[:, None, None, None], device[:, None, None], device[:, None], carried)
    )


def rounded_up(value: float, divisor: float) -> float:
    """Return the least multiple of a divisor (0: none) that is at least a lower bound, whose rounding does not count."""
    return math.ceil(value / divisor * (1 - ROUNDING)) * divisor if divisor and math.isfinite(value) else value
