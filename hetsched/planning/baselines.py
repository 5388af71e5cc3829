"""Placements by simple rules, to compare plans with; they may not fit.

The shares of devices count blocks: the embedding goes with the first block, the head with the last. A rule may be kept to some devices,
and a host has the embedding, as the CPU does in llama.cpp.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

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
def even(card: ModelCard, problem: ChainProblem, *, devices: Sequence[int] | None = None, host: int | None = None) -> Placement:
    """Return the placement with as many blocks on each device, in order, or one more on some.

    Parameters
    ----------
    card : ModelCard
    problem : ChainProblem
    devices : sequence of int, optional
        Numbers of the devices that share the blocks. Default: all.
    host : int, optional
        The device of the embedding. Default: that of the first block.
    """
    return _by_shares(card, problem, np.ones(problem.n_devices if devices is None else len(devices)), devices, host)


@checked
def by_memory(card: ModelCard, problem: ChainProblem, *, devices: Sequence[int] | None = None, host: int | None = None) -> Placement:
    """Return the placement with blocks in proportion to the memory of the devices, in order; parameters as those of `even`.

    Raises
    ------
    InvalidArgument
        The memory of a device is unlimited, or no device has any.
    """
    return _by_shares(card, problem, _shares(problem.memory_bytes, "memory_bytes of the problem", devices), devices, host)


@checked
def by_bandwidth(
    card: ModelCard, problem: ChainProblem, bandwidth: npt.ArrayLike, *, devices: Sequence[int] | None = None, host: int | None = None
) -> Placement:
    """Return the placement with blocks in proportion to the memory bandwidth of the devices, in order.

    Parameters
    ----------
    card : ModelCard
    problem : ChainProblem
    bandwidth : array_like [m]
        Of each device, in any unit.
    devices, host
        As those of `even`.

    Raises
    ------
    InvalidArgument
        A bandwidth is no finite number from 0, or all are 0.
    """
    shares = _shares(check_array(bandwidth, "bandwidth", (problem.n_devices,)), "bandwidth", devices)
    return _by_shares(card, problem, shares, devices, host)


@checked
def fill_first(problem: ChainProblem, *, devices: Sequence[int] | None = None, host: int | None = None) -> Placement:
    """Return the placement that fills the fastest device to its memory, then the next; the last takes what is left.

    Devices are ordered by their seconds of the whole chain. One that has no room for the next item is left out. A host has the first
    item, and as few of the following as the others have no room for.

    Parameters
    ----------
    problem : ChainProblem
    devices, host
        As those of `even`.
    """
    seconds = np.where(np.isfinite(problem.seconds), problem.seconds, 0.0).sum(axis=0) + problem.stage_seconds
    chosen = range(problem.n_devices) if devices is None else devices
    order = sorted((k for k in chosen if k != host), key=lambda k: float(seconds[k]))
    if host is None:
        return Placement(_filled(problem, order, 0))
    for first in range(1, problem.n_items if order else 0):
        stages = _filled(problem, order, first)
        if all(stage_bytes(problem, ChainStage(*stage)) <= problem.memory_bytes[stage[0]] for stage in stages):
            return Placement([(host, 0, first), *stages])
    return Placement([(host, 0, problem.n_items)])


def _filled(problem: ChainProblem, order: Sequence[int], first: int) -> list[tuple[int, int, int]]:
    """Return the stages of the items from the first on devices that are filled in an order; the last one may not fit."""
    stages: list[tuple[int, int, int]] = []
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
    return stages


def _shares(values: FloatArray, what: str, devices: Sequence[int] | None) -> FloatArray:
    values = values if devices is None else values[list(devices)]
    if not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise InvalidArgument(f"{what} is {shown(values.tolist())}; blocks are shared out by finite numbers from 0, one of them above 0")
    return values


def _by_shares(card: ModelCard, problem: ChainProblem, shares: FloatArray, devices: Sequence[int] | None, host: int | None) -> Placement:
    if problem.n_items not in (card.n_items, card.n_items - 1):
        raise InvalidArgument(
            f"problem has {plural(problem.n_items, 'item')}; give one of the {card.n_items} items of {card.name!r}, or of all but the head"
        )
    ends = np.floor(card.n_blocks * np.cumsum(shares / shares.max()) / (shares / shares.max()).sum() + 1e-9).astype(int).tolist()
    ends[-1] = card.n_blocks
    counts = [b - a for a, b in itertools.pairwise([0, *ends])]
    stages = from_counts(problem.n_items, card.n_blocks, counts, range(problem.n_devices) if devices is None else devices).stages
    return Placement(stages if host is None else [(host, 0, 1), (stages[0].device, 1, stages[0].end), *stages[1:]])
