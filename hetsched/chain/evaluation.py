"""Bytes, loads and values of placements."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray, Frozen
from hetsched.chain.placement import ChainStage, Placement, check_stages
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
        What each stage needs, and by how much that is more than its device has.
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
    in_progress: int

    @property
    def fits(self) -> bool:
        """Whether each stage fits its device."""
        return not self.missing_bytes.any()

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
        The placement does not cover the chain in order, or two stages have one device.
    """
    stages = placement.stages
    check_stages(placement, problem.n_items, problem.n_devices)
    devices = [stage.device for stage in stages]
    pairs = list(itertools.pairwise(devices))
    used = np.array([stage_bytes(problem, stage) for stage in stages])
    free = problem.memory_bytes[devices]
    return ChainValues(
        np.array([problem.stage_seconds[k] + math.fsum(problem.seconds[first:end, k]) for k, first, end in stages]),
        np.array([problem.hops[pair] for pair in pairs]),
        float(problem.closing[devices[-1], devices[0]]),
        np.array([math.fsum(problem.overlapped_seconds[first:end, k]) for k, first, end in stages]),
        np.array([problem.overlapped_hops[pair] for pair in pairs]),
        used,
        np.maximum(used - free, 0.0),
        problem.in_progress(len(stages)),
    )


class StageParts(NamedTuple):
    """Bytes that a stage needs on its device."""

    weights: float
    cache: float
    workspace: float


def stage_parts(problem: ChainProblem, stage: ChainStage) -> StageParts:
    """Return what a stage needs on its device, part by part."""
    own = slice(stage.first, stage.end)
    shared = problem.shared_bytes if stage.end - stage.first == problem.n_items else 0.0
    weights, cache = math.fsum(problem.weight_bytes[own]) - shared, math.fsum(problem.cache_bytes[own])
    return StageParts(weights, cache, float(problem.workspace_bytes[own].max()))


def stage_bytes(problem: ChainProblem, stage: ChainStage) -> float:
    """Return the bytes that a stage needs on its device."""
    return math.fsum(stage_parts(problem, stage))
