"""A hypothesis strategy for serving problems, and their best placement by enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.chain.serving import ServingPlacement, ServingProblem
from hetsched.errors import UnsupportedFeature
from hetsched.testing.strategies import FLAGS, Given

Interval = tuple[int, int, float]
"""First, end and tokens per second of a device; the last is 0 if it holds nothing."""

_FEW = st.integers(1, 4)
_RATES = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0])
_LIMITS = st.sampled_from([0.0, 1.0, 2.0, math.inf, math.inf])


@st.composite
def serving_problems(
    draw: DrawFn, *, n_items: Given[int] = _FEW, n_devices: Given[int] = _FEW, limited: Given[bool] = FLAGS
) -> ServingProblem:
    """Draw a serving problem of few items and devices; throughputs are whole numbers, 0 where a device cannot hold so many items.

    Every argument is a value or a strategy for it.

    Parameters
    ----------
    n_items, n_devices : int
        Devices are of at most three types.
    limited : bool
        Whether links have limits.
    """
    n = n_items if isinstance(n_items, int) else draw(n_items)
    m = n_devices if isinstance(n_devices, int) else draw(n_devices)
    counts = np.bincount(draw(st.lists(st.integers(0, 2), min_size=m, max_size=m)), minlength=1).tolist()
    tables = [draw(st.lists(_RATES, min_size=1, max_size=n)) for _ in counts]
    links = None
    if limited if isinstance(limited, bool) else draw(limited):
        links = np.array(draw(st.lists(_LIMITS, min_size=(m + 1) ** 2, max_size=(m + 1) ** 2))).reshape(m + 1, m + 1)
    return ServingProblem(n, [f"t{k}" for k in range(len(counts))], counts, tables, links=links)


class BestServing(NamedTuple):
    """The most tokens per second of all placements, and a placement that has it."""

    value: float
    placement: ServingPlacement


@checked
def best_serving(problem: ServingProblem, *, limit: int = 200_000) -> BestServing:
    """Return the best placement by enumeration of all intervals of all devices; a flow is its minimum cut, by enumeration too.

    Parameters
    ----------
    problem : ServingProblem
    limit : int
        The most placements to enumerate.

    Raises
    ------
    UnsupportedFeature
        The problem has more placements.
    """
    n, tables = problem.n_items, problem.throughput.tolist()
    limited = bool(np.isfinite(problem.links).any())
    choices: list[list[tuple[Interval, ...]]] = []
    for table, count in zip(tables, problem.counts.tolist(), strict=True):
        own = [(0, 0, 0.0)] + [(s, s + k, rate) for k, rate in enumerate(table, 1) if rate > 0 for s in range(n - k + 1)]
        if limited:
            choices += [[(one,) for one in own]] * count
        else:  # devices of a type may change places
            size = math.comb(len(own) + count - 1, count)
            _check_size(size, limit)
            choices.append(list(itertools.combinations_with_replacement(own, count)))
    _check_size(math.prod(map(len, choices)), limit)
    best, rows = -1.0, list[Interval]()
    cut = _device_cuts(problem) if limited else _position_cuts(n)
    for choice in itertools.product(*choices):
        devices = [interval for group in choice for interval in group]
        value = cut(devices)
        if value > best:
            best, rows = value, devices
    return BestServing(best, ServingPlacement([row[0] for row in rows], [row[1] for row in rows]))


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise UnsupportedFeature(
            f"the problem has {size} placements or more, above limit={limit}; take fewer items or devices, or raise the limit"
        )


def _sides(count: int) -> FloatArray:
    """Return all choices of nodes [2 ** count, count], 1 for those on the side of the source."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=count))).reshape(2**count, count)


def _position_cuts(n: int) -> Callable[[list[Interval]], float]:
    """Return the function from intervals to the least cut of the positions of the chain."""
    inner = _sides(n - 1)
    side = np.hstack([np.ones((len(inner), 1)), inner, np.zeros((len(inner), 1))])

    def least(intervals: list[Interval]) -> float:
        return float(sum(rate * side[:, first] * (1 - side[:, end]) for first, end, rate in intervals).min())

    return least


def _device_cuts(problem: ServingProblem) -> Callable[[list[Interval]], float]:
    """Return the function from intervals to the least cut of the entries and exits of devices."""
    n, m = problem.n_items, len(problem.links) - 1
    many = 1.0 + float(problem.throughput.sum(axis=1) @ problem.counts)  # more than any flow
    link = np.minimum(problem.links, many).tolist()
    sides = _sides(2 * m)
    entry, leave = sides[:, :m].T, sides[:, m:].T

    def least(intervals: list[Interval]) -> float:
        cut = np.zeros(len(sides))
        for a, (first, end, rate) in enumerate(intervals):
            cut += rate * entry[a] * (1 - leave[a])
            if rate and first == 0:
                cut += link[m][a] * (1 - entry[a])
            if rate and end == n:
                cut += link[a][m] * leave[a]
            for b, (begin, _, other) in enumerate(intervals):
                if rate and other and begin == end:
                    cut += link[a][b] * leave[a] * (1 - entry[b])
        return float(cut.min())

    return least
