"""Verdicts on claims from a figure for each instance and seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hetsched.papers.items import Claim, Verdict
from hetsched.papers.rendering import DIFFERENT, number


def judged(
    text: str,
    values: Sequence[float],
    *,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    each: str = "seed",
    shown: Callable[[float], str] = number,
    absent: str = "not measured",
) -> Claim:
    """Return a claim that a figure is within bounds: held if it is for all repetitions, not held if it is for none, else undecided.

    Parameters
    ----------
    values : sequence of float
        The figure, one for each repetition; inf where it has no upper limit.
    at_least, at_most : float
        What the paper claims; the figure must be above `at_least`, so that of 0 a tie is not a gain.
    each : str
        What a repetition is: a seed, or a "run" for one of another setting too.
    shown : callable
        Makes text of a figure.
    absent : str
        The reason if there is no value.
    """
    if not values:
        return Claim(text, Verdict.UNSEEN, absent)
    asked = f"held if more than {shown(at_least)}" if math.isfinite(at_least) else f"held if at most {shown(at_most)}"
    within = [at_least < value <= at_most for value in values]
    ordered = sorted(values)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    spread = f", {shown(ordered[0])} to {shown(ordered[-1])}" if len(values) > 1 else ""
    reason = f"median {shown(middle)}{spread}, of {len(values)} {each}{'s' * (len(values) > 1)}; {asked}"
    if all(within):
        return Claim(text, Verdict.HELD, reason)
    if any(within):
        return Claim(text, Verdict.UNSEEN, f"{reason}: the {each}s disagree, {sum(within)} of {len(values)} have it")
    return Claim(text, Verdict.NOT_HELD, reason)


def unless_most(claim: Claim, count: int, known: int, where: str) -> Claim:
    """Return a claim with the number of instances that do not show what it says; it cannot be seen here if they are more than half.

    `where` names the instances, and says why.
    """
    if not count:
        return claim
    return Claim(claim.text, Verdict.UNSEEN if count > known / 2 else claim.verdict, f"{claim.reason}; on {count} of {known} {where}")


def unless_excluded(claim: Claim, most: Sequence[float], at_least: float, *, shown: Callable[[float], str]) -> Claim:
    """Return a claim that a figure is above `at_least`; it cannot be seen here if in most repetitions lower bounds exclude that.

    Then the instances, or the schedules compared with, differ from the paper's, and nothing is said of its method. `most` is what the
    bounds allow, one for each repetition.
    """
    if not most:
        return claim
    reason = f"{claim.reason}; by the lower bounds no schedule has more than {shown(max(most))}"
    excluded = sum(value <= at_least for value in most)
    if excluded:
        reason += f", and in {excluded} of {len(most)} none has what is claimed: {DIFFERENT}"
    return Claim(claim.text, Verdict.UNSEEN if excluded > len(most) / 2 else claim.verdict, reason)


def factor(value: float) -> str:
    """Return a factor as text, for example ``1.93x``."""
    return f"{number(value)}x"
