"""The certificate of a bound: what `hetsched.checker` replays."""

from __future__ import annotations

import gzip
import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from typing import NamedTuple

from hetsched import checker, documents
from hetsched.arguments import checked, number
from hetsched.arrays import Frozen
from hetsched.errors import InvalidArgument, OutOfTime
from hetsched.problem.graph import plural
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search.solution import Bound
from hetsched.stopping import Deadline

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


def decision_of(batches: Sequence[tuple[int, int, Sequence[int]]], transfers: Sequence[Sequence[int]] | None = None) -> Decision:
    """Return the decision of the rows of a `CertifiedDecision`."""
    item_ptr = [0, *itertools.accumulate(len(inputs) for _, _, inputs in batches)]
    items = [item for _, _, inputs in batches for item in inputs]
    return Decision([row[0] for row in batches], [row[1] for row in batches], item_ptr, items, transfer_order=transfers)


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Frozen):
    """A proof that no schedule of a problem is shorter than `claim`, or that it has none.

    It proves nothing before its method ``check``, ``hetsched check`` or `hetsched.checker.check` has accepted it.

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
        return f"<Certificate: {self.evidence}>"

    @property
    def value(self) -> float:
        """The claim in seconds, not rounded up; inf if there is no schedule."""
        if self.claim is None:
            return math.inf
        value = float(self.claim)
        return value if value <= self.claim else math.nextafter(value, 0.0)

    @property
    def nodes(self) -> int:
        """Nodes of all trees."""
        return sum(token[0] in (".", "d", "o") for lemma in self.lemmas for token in lemma.tree)

    @property
    def hints(self) -> int:
        """Hints of all trees."""
        return sum(len(lemma.tree) for lemma in self.lemmas) - self.nodes

    @property
    def evidence(self) -> str:
        """What is proven, and the size of the proof."""
        what = "no schedule exists" if self.claim is None else f"no schedule is shorter than {checker.seconds(self.claim)}"
        lemmas = f"{plural(len(self.lemmas), 'lemma')} of " if len(self.lemmas) > 1 else ""
        return f"{what}, in {lemmas}{plural(self.nodes, 'node')} and {plural(self.hints, 'hint')}"

    @checked(time_limit=number(least=0.0))
    def check(self, problem: Problem, *, time_limit: float | None = None) -> Bound:
        """Return the bound that the certificate proves, after the checker has accepted it.

        Parameters
        ----------
        problem : Problem
            The problem that it is of; names do not matter.
        time_limit : float, optional
            Seconds.

        Raises
        ------
        InvalidArgument
            The checker rejects the certificate; the message has the place in the proof and the reason.
        OutOfTime
            The time limit was reached.
        """
        exact = checker.Problem(documents.encode(problem))
        try:
            checker.check(exact, checker.read_certificate(documents.encode(self), exact), Deadline.after(time_limit).end)
        except (checker.Rejected, checker.Malformed) as error:
            raise InvalidArgument(f"the certificate is rejected: {error}; it proves nothing, make one of this problem") from None
        except checker.Late as error:
            raise OutOfTime(f"the certificate is not checked: {error}; allow more time") from None
        return Bound(self.value, "certificate", self.evidence, trust="checked")

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the certificate as a JSON document, packed if the name ends in ``.gz``; ``hetsched.read`` reads it back, unpacked."""
        data = documents.encode(self)
        documents.write_bytes(gzip.compress(data, mtime=0) if os.fspath(path).endswith(".gz") else data, path)
