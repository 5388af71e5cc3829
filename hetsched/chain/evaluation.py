"""Bytes, loads and values of placements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray, Frozen
from hetsched.chain.placement import ChainStage, Offload, Placement, check_offloaded, check_stages
from hetsched.chain.problem import ChainProblem


@dataclass(frozen=True, eq=False)
class ChainValues(Frozen):
    """What a placement takes.

    Attributes
    ----------
    stage_seconds : float64 [K]
        Time of each stage for one request.
    hop_seconds : float64 [K - 1]
        Time between successive stages.
    closing_seconds : float
        Time from the last stage back to the first.
    overlapped_seconds : float64 [K]
        The part of `stage_seconds` during which other stages compute parts of the same request.
    overlapped_hops : float64 [K - 1]
        The same of `hop_seconds`.
    stage_bytes, missing_bytes : float64 [K]
        What the device of each stage needs, with what it holds for others, and by how much that is more than it has; 0 for a stage
        that returns to the device of the first one, which has its bytes.
    held_bytes : float64 [m]
        Weights that each device holds for stages on others.
    held_missing_bytes : float
        By how much that is more than devices without a stage have.
    in_progress : int
        Requests in progress at a time.
    """

    stage_seconds: FloatArray
    hop_seconds: FloatArray
    closing_seconds: float
    overlapped_seconds: FloatArray
    overlapped_hops: FloatArray
    stage_bytes: FloatArray
    missing_bytes: FloatArray
    held_bytes: FloatArray
    held_missing_bytes: float
    in_progress: int

    @property
    def all_missing_bytes(self) -> float:
        """By how much what devices need is more than they have, in all."""
        return math.fsum([*self.missing_bytes, self.held_missing_bytes])

    @property
    def fits(self) -> bool:
        """Whether each stage, and what is held for it, fits its device."""
        return not self.all_missing_bytes

    @property
    def latency(self) -> float:
        """Seconds of one request alone: of the overlapped times only the largest counts."""
        overlapped = [*self.overlapped_seconds, *self.overlapped_hops]
        return math.fsum([*self.stage_seconds, *self.hop_seconds, self.closing_seconds, *np.negative(overlapped), max(overlapped)])

    @property
    def largest_load(self) -> float:
        """Most seconds for which a device or a link is busy with one request."""
        return float(max(*self.stage_seconds, *self.hop_seconds, self.closing_seconds))

    @property
    def period(self) -> float:
        """Seconds between two requests where `in_progress` are at a time."""
        return max(self.largest_load, self.latency / self.in_progress)


@checked
def evaluate(problem: ChainProblem, placement: Placement) -> ChainValues:
    """Return what a placement takes; it has to be valid but for memory.

    Raises
    ------
    InvalidSchedule
        The placement does not cover the chain in order, two stages have one device, or an item is offloaded that may not be.
    """
    stages = placement.stages
    check_stages(placement, problem.n_items, problem.n_devices)
    check_offloaded(problem, placement)
    devices = [stage.device for stage in stages]
    pairs = list(itertools.pairwise(devices))
    held = held_bytes(problem, placement)
    used = np.array([held[stage.device] + _device_bytes(problem, placement, s) for s, stage in enumerate(stages)])
    used[[s for s in range(len(stages)) if placement.returns(s)]] = 0.0
    free = problem.memory_bytes[devices]
    bare = np.setdiff1d(np.arange(problem.n_devices), devices)
    return ChainValues(
        np.array([_stage_seconds(problem, stage, placement.offloaded_in(stage)) for stage in stages]),
        np.array([problem.hops[pair] for pair in pairs]),
        float(problem.closing[devices[-1], devices[0]]),
        np.array([math.fsum(problem.overlapped_seconds[first:end, k]) for k, first, end in stages]),
        np.array([problem.overlapped_hops[pair] for pair in pairs]),
        used,
        np.maximum(used - free, 0.0),
        held,
        math.fsum(np.maximum(held[bare] - problem.memory_bytes[bare], 0.0)),
        problem.in_progress(len(stages)),
    )


def _stage_seconds(problem: ChainProblem, stage: ChainStage, offloaded: Sequence[Offload]) -> float:
    k, first, end = stage
    seconds = problem.seconds[first:end, k].copy()
    for item, holder in offloaded:
        if problem.offloading is not None and math.isfinite(seconds[item - first]):
            seconds[item - first] = problem.offloading.seconds[item, k, holder]
    return float(problem.stage_seconds[k] + math.fsum(seconds))


def held_bytes(problem: ChainProblem, placement: Placement) -> FloatArray:
    """Return the weights that each device holds for stages on others [m]."""
    held = np.zeros(problem.n_devices)
    for item, device in placement.offloaded:
        held[device] += 0.0 if problem.offloading is None else problem.offloading.weight_bytes[item]
    return held


def _device_bytes(problem: ChainProblem, placement: Placement, s: int) -> float:
    """Return what the device of a stage needs for it, and if it is the first one for those that return to it."""
    own = [placement.stages[s], *(stage for t, stage in enumerate(placement.stages) if s == 0 and placement.returns(t))]
    parts = [stage_parts(problem, stage, placement.offloaded_in(stage)) for stage in own]
    return math.fsum([*(part.weights + part.cache for part in parts), max(part.workspace for part in parts)])


class StageParts(NamedTuple):
    """Bytes that a stage needs on its device."""

    weights: float
    cache: float
    workspace: float


def stage_parts(problem: ChainProblem, stage: ChainStage, offloaded: Sequence[Offload] = ()) -> StageParts:
    """Return what a stage needs on its device, part by part; the workspace has room for the weights of one item that is offloaded."""
    own = slice(stage.first, stage.end)
    shared = problem.shared_bytes if stage.end - stage.first == problem.n_items else 0.0
    weights, cache = math.fsum(problem.weight_bytes[own]) - shared, math.fsum(problem.cache_bytes[own])
    workspace = float(problem.workspace_bytes[own].max())
    for item, _ in offloaded:
        moved = 0.0 if problem.offloading is None else float(problem.offloading.weight_bytes[item])
        weights, workspace = weights - moved, max(workspace, float(problem.workspace_bytes[item]) + moved)
    return StageParts(weights, cache, workspace)


def stage_bytes(problem: ChainProblem, stage: ChainStage, offloaded: Sequence[Offload] = ()) -> float:
    """Return the bytes that a stage needs on its device."""
    return math.fsum(stage_parts(problem, stage, offloaded))
