"""Claims as the measurements would decide them, were they the paper's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hetsched.papers import Claim, Verdict
from hetsched.papers.items import BY_MODEL, GENERATED, ON_CPU, OTHER_GRAPHS, OUR_MEMORY

WHY = (BY_MODEL, GENERATED, ON_CPU, OTHER_GRAPHS, OUR_MEMORY, " by the program", " within the noise")


def before(claim: Claim) -> Claim:
    """Return a claim with the verdict that `Claim.undecided` says that it had, and with its reason."""
    for verdict in (Verdict.HELD, Verdict.NOT_HELD):
        for why in WHY:
            if f"; {verdict}{why}" in claim.reason:
                assert claim.verdict is Verdict.UNSEEN
                return replace(claim, verdict=verdict, reason=claim.reason.replace(f"; {verdict}{why}", ""))
    return claim


def decided(claims: Iterable[Claim]) -> set[str]:
    """Return the texts of the claims that are held or not held."""
    return {claim.text for claim in claims if claim.verdict is not Verdict.UNSEEN}
