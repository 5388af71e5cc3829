"""Numba kernels that improve the intervals of devices by simulated annealing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import IntArray
from hetsched.chain.flow_kernels import Fleet, Network, throughput
from hetsched.compiled import inner, kernel

PLACE, SHIFT = 0.6, 0.9
"""Cumulative shares of the moves: a device gets an interval that meets another's, a position moves by one, two devices exchange theirs."""

LEAST = 0.7
"""Share of the best throughput below which no move leads: where nothing flows no move is better than another."""


class Intervals(NamedTuple):
    """The intervals of M devices.

    Attributes
    ----------
    first, end : int64 [M]
    """

    first: IntArray
    end: IntArray


class Course(NamedTuple):
    """A course of temperatures.

    Attributes
    ----------
    moves : int
    hot, cold : float
        Tokens per second at the beginning and at the end.
    """

    moves: int
    hot: float
    cold: float


@kernel
def anneal(
    fleet: Fleet, now: Intervals, best: Intervals, trial: Intervals, made: Network, rng: np.random.Generator, course: Course
) -> float:
    """Change the intervals `now` by random moves, keep the best in `best`, and return its throughput."""
    value = throughput(fleet, now.first, now.end, made)
    highest = value
    _copy(now, best)
    cooling = (course.cold / course.hot) ** (1.0 / course.moves)
    temperature = course.hot
    for _ in range(course.moves):
        temperature *= cooling
        _copy(now, trial)
        if not _move(fleet, trial, rng):
            continue
        found = throughput(fleet, trial.first, trial.end, made)
        if found < LEAST * highest or found < value + temperature * np.log(1.0 - rng.random()):
            continue
        _copy(trial, now)
        value = found
        if value > highest:
            highest = value
            _copy(now, best)
    return highest


@inner
def _copy(source: Intervals, target: Intervals) -> None:
    for d in range(len(source.first)):
        target.first[d], target.end[d] = source.first[d], source.end[d]


@inner
def _below(rng: np.random.Generator, limit: int) -> int:
    return min(int(rng.random() * limit), limit - 1)


@inner
def _move(fleet: Fleet, at: Intervals, rng: np.random.Generator) -> bool:
    """Change intervals at random; return whether the devices can hold them."""
    m, n = len(at.first), fleet.rates.shape[1] - 1
    device, other = _below(rng, m), _below(rng, m)
    kind = rng.random()
    if kind < PLACE:
        length = 1 + _below(rng, fleet.longest[device])
        if rng.random() < 0.5:
            at_start = 0 if other == device else at.end[other]
            at.first[device], at.end[device] = at_start, at_start + length
        else:
            at_end = n if other == device else at.first[other]
            at.first[device], at.end[device] = at_end - length, at_end
        return _held(fleet, at, device)
    if kind < SHIFT:
        position = at.end[device]
        if not 0 < position < n:
            return False
        step = 1 if rng.random() < 0.5 else -1
        for d in range(m):
            if at.first[d] == at.end[d]:
                continue
            if at.first[d] == position:
                at.first[d] += step
            elif at.end[d] == position:
                at.end[d] += step
            if not _held(fleet, at, d):
                return False
        return True
    at.first[device], at.first[other] = at.first[other], at.first[device]
    at.end[device], at.end[other] = at.end[other], at.end[device]
    return _held(fleet, at, device) and _held(fleet, at, other)


@inner
def _held(fleet: Fleet, at: Intervals, d: int) -> bool:
    """Return whether a device can hold its interval."""
    length = at.end[d] - at.first[d]
    return bool(0 <= at.first[d] and at.end[d] < fleet.rates.shape[1] and (length == 0 or fleet.rates[d, length] > 0))
