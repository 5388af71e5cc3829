"""The certificate of a bound: what `hetsched.checker` replays."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from typing import NamedTuple

from hetsched import documents
from hetsched.arguments import checked
from hetsched.arrays import Frozen

Token = tuple[str | int | tuple[int, ...], ...]
"""A leaf, a branch or a hint of a tree; see `hetsched.checker`."""


class Lemma(NamedTuple):
    """A goal and the tree that proves it."""

    goal: tuple[str | int, ...]
    """("release", task, device, time), ("delivery", task, device, time) or ("makespan",)."""
    tree: tuple[Token, ...]
    window: tuple[int, ...] | None = None
    """The tasks that the tree speaks of; None: all that are allowed."""


class CertifiedDecision(NamedTuple):
    """A decision that is re-timed exactly; tasks, devices and edges by index."""

    batches: tuple[tuple[int, int, tuple[int, ...]], ...]
    """(task, device, inputs), in the order of each device."""
    transfers: tuple[tuple[int, int, int], ...] | None = None
    """(edge, source batch, target batch) in their order, where transfers may contend."""


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Frozen):
    """A proof that no schedule of a problem is shorter than `claim`, or that it has none.

    It proves nothing before ``hetsched check`` or `hetsched.checker.check` has accepted it.

    Attributes
    ----------
    digest : str
        That of the problem, `hetsched.checker.Problem.digest`.
    unit : Fraction
        Seconds of a unit of time.
    claim : Fraction or None
        Seconds; None: there is no schedule.
    lemmas : tuple of Lemma
        The last is that of the claim.
    schedule : CertifiedDecision or None
    made_by : str
    """

    _format = "hetsched-certificate"
    digest: str
    unit: Fraction
    claim: Fraction | None
    lemmas: tuple[Lemma, ...]
    schedule: CertifiedDecision | None = None
    made_by: str = ""

    def __repr__(self) -> str:
        claim = "infinity" if self.claim is None else f"{self.claim} s"
        return f"<Certificate of {claim}: {sum(len(lemma.tree) for lemma in self.lemmas)} tokens in {len(self.lemmas)} lemmas>"

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the certificate as a JSON document; ``hetsched.read`` reads it back."""
        documents.write(self, path)
