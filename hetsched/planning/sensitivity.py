"""What the least value of a chain depends on: each answer solves changed problems again."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hetsched.chain.evaluation import evaluate
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.errors import UnsupportedFeature
from hetsched.planning.tables import Tables

CLOSE = 1e-9
"""Relative difference of values that are equal."""
STEPS = 4
"""About how many solves tell up to which factor a placement stays the best."""


@dataclass(frozen=True)
class Best:
    """A least value and a placement of it; inf and None if none fits."""

    value: float
    placement: Placement | None


Problems = tuple[ChainProblem, ...]
"""The problems for 1, 2, ... stages, the last one for more too, or for other restrictions; with the same items, devices and memory."""
Value = Callable[[ChainProblem, Placement], float]
"""Returns the value of a placement that fits, in its problem."""
Solve = Callable[[Problems], Best]
"""Returns the best placement by one objective."""
SolveBelow = Callable[[Problems, float], Best]
"""Returns the best placement if its value is at most a number, else one of a value above it."""


class MemoryStep(NamedTuple):
    """The least memory of a device, in bytes, with which the value falls, and the best placement then."""

    memory_bytes: float
    best: Best


def with_memory(problems: Problems, device: int | list[int], memory_bytes: float) -> Problems:
    """Return problems with another memory of one device, or of each of some."""
    memory = problems[0].memory_bytes.copy()
    memory[device] = memory_bytes
    return tuple(problem.replace(memory_bytes=memory) for problem in problems)


def next_memory_step(
    problems: Problems, device: int, solve: Solve, *, now: float | None = None, tried: MemoryStep | None = None
) -> MemoryStep | None:
    """Return the least memory of a device with which the value falls; None if none does.

    The value can fall only at a memory that is exactly what some stage needs, and never rises with memory. Where items may be offloaded
    it can fall at any whole number of bytes. A placement that is better is so with the memory that it needs, so that the search goes on
    below that; above a memory that is too little it goes on in steps that double, as the next stage that is longer is often enough.

    Parameters
    ----------
    problems, device, solve
    now : float, optional
        The least value of the problems. Default: it is solved. A solve may leave out placements that are not better.
    tried : MemoryStep, optional
        A memory, and the best with it.
    """
    now, memory = solve(problems).value if now is None else now, float(problems[0].memory_bytes[device])
    amounts = _amounts(problems, memory)
    low, high = -1, len(amounts)
    found: Best | None = None

    def learn(at: int, best: Best) -> bool:
        """Return whether the value falls with the amount at a place, or one between it and the next, and where to go on."""
        nonlocal low, high, found
        if best.placement is None or best.value >= now * (1 - CLOSE):
            low = max(low, at)
            return False
        high, found = min(at, bisect.bisect_left(amounts, _held(problems, best.placement, device))), best
        return True

    if tried is not None and high:
        learn(bisect.bisect_right(amounts, tried.memory_bytes) - 1, tried.best)
    if found is None and low < high - 1:
        learn(high - 1, solve(with_memory(problems, device, amounts[-1])))
    fell, step = False, 1
    while high - low > 1 and found is not None:
        at = high - 1 if fell else low + min(step, (high - low) // 2)
        fell = learn(at, solve(with_memory(problems, device, amounts[at]))) and not fell
        step *= 2
    return None if found is None else MemoryStep(amounts[high], found)


def _amounts(problems: Problems, memory: float) -> Sequence[float]:
    """Return the amounts above a device's memory at which a value may fall, in order."""
    if any(problem.offloading is not None for problem in problems) and math.isfinite(memory):
        return range(int(memory) + 1, int(max(map(_most_bytes, problems))) + 1)
    needs = (Tables(problem).needed for problem in problems)
    amounts: list[float] = np.unique(np.concatenate([own[(own > memory) & (own < math.inf)] for own in needs])).tolist()
    return amounts


def _held(problems: Problems, placement: Placement, device: int) -> float:
    """Return the bytes of a placement on a device; the first problem is the one in which items may be offloaded."""
    found = evaluate(problems[0 if placement.offloaded else min(len(placement), len(problems)) - 1], placement)
    own = [held for stage, held in zip(placement.stages, found.stage_bytes.tolist(), strict=True) if stage.device == device]
    return own[0] if own else float(found.held_bytes[device])


def _most_bytes(problem: ChainProblem) -> float:
    """Return what a device needs at most."""
    moved = 0.0 if problem.offloading is None else problem.offloading.weight_bytes
    return float(problem.weight_bytes.sum() + problem.cache_bytes.sum() + (problem.workspace_bytes + moved).max())


def most_that_fits(fits: Sequence[Callable[[int], bool]], limit: int, start: int = 1) -> int:
    """Return the greatest number from 1 to a limit that fits in some way, 0 if none does; in each way less always fits too.

    What is tried first is `start`, whatever fits.
    """
    low = 0
    for fits_so in fits:
        step = max(start - low, 1)
        while low + step <= limit and fits_so(low + step):
            low, step = low + step, 2 * step
        high = min(low + step, limit + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits_so(middle) else (low, middle)
    return low


def with_factor(problem: ChainProblem, device: int, factor: float) -> ChainProblem:
    """Return the problem with the times of one device multiplied."""
    changed = {name: getattr(problem, name).copy() for name in ("seconds", "overlapped_seconds", "stage_seconds")}
    for amounts in changed.values():
        amounts[..., device] *= factor
    offloading = None if problem.offloading is None else problem.offloading.scaled(factor, device=device)
    return problem.replace(**changed, offloading=offloading)


def break_even(problems: Problems, placement: Placement, device: int, solve: Solve, *, most: float = 16.0) -> tuple[float, float]:
    """Return the factors of a device's times, from 1 / `most` to `most`, between which a placement of least latency stays one.

    The latency of a placement is affine in the factor, and the least latency, a minimum of such functions, is concave; so the factors
    are an interval. Where times of the device overlap, neither holds.

    Raises
    ------
    UnsupportedFeature
        Times of the device overlap.
    """
    if any(problem.overlapped_seconds[:, device].any() for problem in problems):
        raise UnsupportedFeature(
            f"times of device {problems[0].devices[device]!r} overlap, so the factors may be several intervals; compare least latencies "
            "with other times, or give overlapped_seconds=None"
        )

    def margins(factor: float) -> tuple[float, Placement]:
        """Return by how much the placement is worse than the best one, and that."""
        changed = with_factor(problems[0], device, factor)
        best = solve((changed,))
        assert best.placement is not None
        own = evaluate(changed, placement).latency
        return (0.0 if own <= best.value * (1 + CLOSE) else own - best.value), best.placement

    def last(limit: float) -> float:
        """Return the factor between 1 and a limit up to which the placement stays the best: where a better one meets it, if none is there.

        The next better one meets it nearer to 1, as the differences are affine.
        """
        factor = limit
        while True:
            worse, other = margins(factor)
            if not worse:
                return factor
            ahead = max(evaluate(problems[0], other).latency - evaluate(problems[0], placement).latency, 0.0)
            nearer = 1 + (factor - 1) * ahead / (ahead + worse)
            if nearer == factor:
                return factor
            factor = nearer

    return last(1 / most), last(most)


def regret(problems: Problems, own: ChainProblem, placement: Placement, share: float, solve: SolveBelow, value: Value) -> float:
    """Return the largest of the shares by which the value of a placement is above the best, where a device's times are off by a share.

    The best is the same whichever of devices that may change places is off, so that it is solved once for them; the value of the placement
    is not: it is taken for each that has a stage and for one that has none. Only a best with a larger share than those before is sought.

    Parameters
    ----------
    problems : sequence of ChainProblem
    own : ChainProblem
        That of the placement.
    placement : Placement
    share, solve
    value : callable
        Returns the value of the placement in its changed problem.
    """
    used = [stage.device for stage in placement.stages]
    groups = problems[0].groups.tolist()
    idle = {groups[k]: k for k in range(len(groups)) if k not in used}
    members = [[k for k in [*used, *idle.values()] if groups[k] == group] for group in set(groups)]
    cases = [
        (max(value(with_factor(own, device, factor), placement) for device in devices), devices[0], factor)
        for devices in members
        for factor in (1 - share, 1 + share)
    ]
    worst = 0.0
    for reached, device, factor in sorted(cases, reverse=True):  # the largest shares tend to be first
        most = reached / (1 + worst) * (1 - CLOSE)
        best = solve(tuple(with_factor(problem, device, factor) for problem in problems), most).value
        if 0 < best <= most:
            worst = reached / best - 1
    return worst


def second_best(problems: Problems, placement: Placement, solve: SolveBelow) -> Best:
    """Return the best placement that lacks the first stage's device, the last one's, or a hop of a placement.

    Devices that may change places count as one, so that the placement with two of them exchanged is not meant.
    """
    groups, stages = problems[0].groups, placement.stages
    alike = [np.flatnonzero(groups == groups[stage.device]) for stage in stages]
    forbidden = [[_replaced(problem, "seconds", (place, own)) for problem in problems] for place, own in ((0, alike[0]), (-1, alike[-1]))]
    forbidden += [[_replaced(problem, "hops", np.ix_(a, b)) for problem in problems] for a, b in itertools.pairwise(alike)]
    best = Best(math.inf, None)
    for changed in forbidden:
        best = min(best, solve(tuple(changed), best.value), key=lambda found: found.value)
    return best


def _replaced(problem: ChainProblem, name: str, places: tuple[Any, ...]) -> ChainProblem:
    """Return the problem in which some times are inf."""
    times = getattr(problem, name).copy()
    times[places] = np.inf
    return problem.replace(**{name: times})


def without_hops(problems: Problems) -> Problems:
    """Return problems with links that take no time; impossible hops stay impossible."""
    return tuple(
        problem.replace(
            hops=np.where(np.isfinite(problem.hops), 0.0, np.inf),
            overlapped_hops=None,
            closing=np.where(np.isfinite(problem.closing), 0.0, np.inf),
            offloading=None if problem.offloading is None else problem.offloading.without_times(links_only=True),
        )
        for problem in problems
    )
