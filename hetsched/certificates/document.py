"""The JSON document of a certificate."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

import msgspec

from hetsched import checker
from hetsched.certificates.certificate import Certificate, CertifiedDecision, Lemma
from hetsched.documents import VERSION, Document, Row
from hetsched.errors import InvalidProblem

Natural = Annotated[int, msgspec.Meta(ge=0)]
Rational = Annotated[str, msgspec.Meta(pattern="^[0-9]+(/[0-9]+)?$", max_length=80)]
"""Digits, or digits/digits."""


class LemmaRow(Row, kw_only=True):
    """A lemma: the tasks of its window, its goal and its tree in prefix order.

    Goals are ["release", task, device, time], ["delivery", task, device, time] and, of the last lemma alone, ["makespan"]. Tokens are
    ["d", task, device] and ["o", task, task], which branch; ["."], a leaf; and hints: ["b", head, tail, prices], ["h", head, task, prices],
    ["t", tail, task, prices], ["m", head, tail, prices, prices of bits]; with the rules 2 also ["j"] and ["w", head, tail, prices], with
    the rules 3 ["f", head, tail, prices].
    """

    window: list[Natural] | None
    goal: list[str | Natural]
    tree: list[list[str | Natural | list[Natural]]]


class DecisionPart(Row, kw_only=True):
    """Batches [task, device, inputs] in the order of each device; transfers [edge, source batch, target batch] in their order."""

    batches: list[tuple[Natural, Natural, list[Natural]]]
    transfers: list[tuple[Natural, Natural, Natural]] | None = None


class CertificateDocument(Document[Certificate], kw_only=True, tag="hetsched-certificate"):
    """A certificate, which ``hetsched check`` replays; times are whole multiples of `unit` seconds, tasks, devices and edges are indices.

    `digest` is that of the exact problem; `claim` is seconds, or "infinity": there is no schedule.
    """

    keys_once = True
    rules: Literal[1, 2, 3]
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    objective: Literal["makespan"]
    unit: Rational
    claim: Rational | Literal["infinity"]
    lemmas: list[LemmaRow]
    schedule: DecisionPart | None = None
    made_by: str = ""

    @classmethod
    def of(cls, value: Certificate) -> Self:
        """Return the document of a certificate."""
        decision, kinds = value.schedule, {token[0] for lemma in value.lemmas for token in lemma.tree}
        return cls(
            version=VERSION,
            rules=max((since for token, (since, _) in checker.TOKENS.items() if token in kinds), default=1),
            digest=value.digest,
            objective="makespan",
            unit=str(value.unit),
            claim="infinity" if value.claim is None else str(value.claim),
            lemmas=[LemmaRow(window=_lists(window), goal=_lists(goal), tree=_lists(tree)) for goal, tree, window in value.lemmas],
            schedule=None if decision is None else DecisionPart(batches=_lists(decision.batches), transfers=_lists(decision.transfers)),
            made_by=value.made_by,
        )

    def value(self) -> Certificate:
        """Return the certificate, which is not replayed."""
        decision = self.schedule
        return Certificate(
            self.digest,
            _rational(self.unit),
            None if self.claim == "infinity" else _rational(self.claim),
            tuple(Lemma(_tuples(row.goal), _tuples(row.tree), _tuples(row.window)) for row in self.lemmas),
            None if decision is None else CertifiedDecision(_tuples(decision.batches), _tuples(decision.transfers)),
            self.made_by,
        )


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _lists(value: Any) -> Any:
    return list(map(_lists, value)) if isinstance(value, list | tuple) else value


def _rational(text: str) -> Fraction:
    if not re.fullmatch("[0-9]+(/[0-9]*[1-9][0-9]*)?", text):
        raise InvalidProblem(f"{text!r} is no rational number; its denominator must not be 0")
    return Fraction(text)
