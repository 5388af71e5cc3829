"""What a paper's table or figure is here: cases to measure, and a report made of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from hetsched.experiments.rendering import Table as Table

Case = dict[str, Any]
"""The identity of a measurement, JSON values only: an instance, a method, limits. Equal cases of a paper are measured once."""
Row = dict[str, Any]
"""A case together with what was measured, JSON values only."""


class Verdict(StrEnum):
    """What the measurements here say about a claim of a paper."""

    HELD = "held"
    NOT_HELD = "not held"
    UNSEEN = "cannot be seen here"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, in our words and with its figure, the verdict, and the figures measured here that decide."""

    text: str
    verdict: Verdict
    reason: str

    def undecided(self, because: str) -> Claim:
        """Return the claim as one that the measurements here do not decide, either way; `because` follows the verdict that they had."""
        if self.verdict is Verdict.UNSEEN:
            return self
        return Claim(self.text, Verdict.UNSEEN, f"{self.reason}; {self.verdict}{because}")

    @classmethod
    def decided(cls, text: str, held: bool, reason: str) -> Claim:
        """Return a claim that measurements decide."""
        return cls(text, Verdict.HELD if held else Verdict.NOT_HELD, reason)


BY_MODEL = " by a cost model alone, where the paper ran it on devices"
ON_CPU = " on threads of a CPU, where the paper's devices are GPUs"
OTHER_GRAPHS = " on graphs that are not the paper's"
GENERATED = " on graphs and times of a generator, not the paper's"
OUR_MEMORY = " under a limit of memory that is ours"
"""Why a claim is undecided, see `Claim.undecided`."""


@dataclass(frozen=True)
class Report:
    """The tables of an item, ours beside the paper's, and the claims that they decide."""

    tables: Sequence[Table] = ()
    claims: Sequence[Claim] = ()
    notes: Sequence[str] = ()
    """Paragraphs between the tables and the claims."""


@dataclass(frozen=True)
class Setting:
    """How an item is reproduced: within about a minute, or in full; and where the papers' published data are."""

    quick: bool = False
    data: Path | None = None
    """Folder of the published data that some items read; None: those items say what is missing."""
    time_limit: float | None = None
    """Seconds of each solve that has a limit, instead of the item's own, which the cases have; None: the item's."""


@dataclass(frozen=True)
class Item:
    """A table or figure of a paper."""

    name: str
    """For example ``"table-1"``."""
    title: str
    differs: str
    """What differs here from what the paper describes; printed before the figures."""
    cases: Callable[[Setting], Sequence[Case]]
    report: Callable[[Sequence[Row], Setting], Report]
    """Given the rows of all its cases, in their order."""
    needs: Sequence[tuple[str, str]] = ()
    """Modules, with the extra of hetsched that installs each, without which the cases cannot be measured."""
    time: str = "a minute"
    """About how long all cases take in full."""
    possible: Callable[[Case], bool] = lambda case: True
    """Whether a case can be measured where this is; others count where their results are stored."""


@dataclass(frozen=True)
class Paper:
    """A paper and those of its items that are reproduced."""

    name: str
    title: str
    source: str
    items: Sequence[Item]
    measure: Callable[[Case, Path | None], Row]
    """Measure a case, in a process of its own, given `Setting.data`; return what is added to the case. ``"says"`` is told as progress."""
    about: str = field(default="", kw_only=True)
    """What is so of all its items; printed before them."""
    besides: Sequence[Claim] = ()
    """Claims that no item decides, with their verdicts."""

    def item(self, name: str) -> Item:
        """Return an item by its name."""
        return next(item for item in self.items if item.name == name)
