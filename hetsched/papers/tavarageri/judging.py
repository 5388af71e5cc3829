"""Verdicts on claims from every repetition of every setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hetsched.papers.items import Case, Claim, Row, Verdict

LEAST = 0.01
"""Figures that differ by at most this share are equal; and a smaller loss has no share that is recovered."""


def judged(text: str, cells: Mapping[str, Sequence[bool]], figures: str) -> Claim:
    """Return a claim that is to hold in every setting.

    It is held if it is in every repetition of each setting, not held if there is a setting where it is in none, else undecided.

    Parameters
    ----------
    cells : mapping of str to sequence of bool
        Whether it holds, by setting, one for each repetition; settings without repetitions do not count.
    figures : str
        The figures that decide.
    """
    measured = {name: list(each) for name, each in cells.items() if each}
    if not measured:
        return Claim(text, Verdict.UNSEEN, "not measured")
    always = [name for name, each in measured.items() if all(each)]
    never = [name for name, each in measured.items() if not any(each)]
    reason = f"{figures}; true in {len(always)} of {len(measured)} settings"
    if len(always) == len(measured):
        return Claim(text, Verdict.HELD, reason)
    if never:
        names = f" ({'; '.join(never)})" if len(never) < len(measured) else ""
        return Claim(text, Verdict.NOT_HELD, f"{reason}, and false in every repetition of {len(never)}{names}")
    return Claim(text, Verdict.UNSEEN, f"{reason}; in the others repetitions disagree")


def so_far(claims: Sequence[Claim], cases: Sequence[Case], rows: Sequence[Row], *keys: str) -> list[Claim]:
    """Return the claims, none of them held if of some setting, which is the values of `keys`, nothing is measured."""
    settings, measured = ({tuple(one[key] for key in keys) for one in some} for some in (cases, rows))
    missing = len(settings - measured)
    if not missing:
        return list(claims)
    return [
        replace(claim, verdict=Verdict.UNSEEN, reason=f"{claim.reason}; of {missing} settings nothing is measured")
        if claim.verdict is Verdict.HELD
        else claim
        for claim in claims
    ]


def span(values: Sequence[float], digits: int = 2) -> str:
    """Return the least and the largest of some numbers as text; empty without any."""
    if not values:
        return ""
    ends = [f"{value:.{digits}f}" for value in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
