"""Placements by simple rules, to compare plans with; they may not fit.

The shares of devices count blocks: the embedding goes with the first block, the head with the last.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, checked, shown
from hetsched.arrays import FloatArray
from hetsched.chain.card import ModelCard
from hetsched.chain.evaluation import stage_bytes
from hetsched.chain.placement import ChainStage, Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import InvalidArgument
from hetsched.planning.tools.protocol import from_counts
from hetsched.problem.graph import plural


@checked
def even(card: ModelCard, problem: ChainProblem) -> Placement:
    """Return the placement with as many blocks on each device, in order, or one more on some."""
    return _by_shares(card, problem, np.ones(problem.n_devices))


@checked
def by_memory(card: ModelCard, problem: ChainProblem) -> Placement:
    """Return the placement with blocks in proportion to the memory of the devices, in order.

    Raises
    ------
    InvalidArgument
        The memory of a device is unlimited, or no device has any.
    """
    return _by_shares(card, problem, _shares(problem.memory_bytes, "memory_bytes of the problem"))


@checked
def by_bandwidth(card: ModelCard, problem: ChainProblem, bandwidth: npt.ArrayLike) -> Placement:
    """Return the placement with blocks in proportion to the memory bandwidth of the devices, in order.

    Parameters
    ----------
    card : ModelCard
    problem : ChainProblem
    bandwidth : array_like [m]
        Of each device, in any unit.

    Raises
    ------
    InvalidArgument
        A bandwidth is no finite number from 0, or all are 0.
    """
    return _by_shares(card, problem, _shares(check_array(bandwidth, "bandwidth", (problem.n_devices,)), "bandwidth"))


@checked
def fill_first(problem: ChainProblem) -> Placement:
    """Return the placement that fills the fastest device to its memory, then the next; the last takes what is left.

    Devices are ordered by their seconds of the whole chain. One that has no room for the next item is left out.
    """
    order = np.argsort(problem.seconds.sum(axis=0) + problem.stage_seconds, kind="stable").tolist()
    stages: list[tuple[int, int, int]] = []
    first = 0
    for k in order:
        end = first
        while end < problem.n_items and stage_bytes(problem, ChainStage(k, first, end + 1)) <= problem.memory_bytes[k]:
            end += 1
        if end > first:
            stages.append((k, first, end))
            first = end
    if first < problem.n_items:
        if order[-1] in [k for k, _, _ in stages]:
            k, start, _ = stages.pop()
            stages.append((k, start, problem.n_items))
        else:
            stages.append((order[-1], first, problem.n_items))
    return Placement(stages)


def _shares(values: FloatArray, what: str) -> FloatArray:
    if not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise InvalidArgument(f"{what} is {shown(values.tolist())}; blocks are shared out by finite numbers from 0, one of them above 0")
    return values


def _by_shares(card: ModelCard, problem: ChainProblem, shares: FloatArray) -> Placement:
    if problem.n_items not in (card.n_items, card.n_items - 1):
        raise InvalidArgument(
            f"problem has {plural(problem.n_items, 'item')}; give one of the {card.n_items} items of {card.name!r}, or of all but the head"
        )
    ends = np.floor(card.n_blocks * np.cumsum(shares / shares.max()) / (shares / shares.max()).sum() + 1e-9).astype(int).tolist()
    ends[-1] = card.n_blocks
    return from_counts(problem.n_items, card.n_blocks, [b - a for a, b in itertools.pairwise([0, *ends])], range(problem.n_devices))
