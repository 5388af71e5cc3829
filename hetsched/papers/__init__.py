"""The tables and figures of the five papers, measured here, beside the papers' own figures and with a verdict on each claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.papers.items import Claim, Item, Paper, Report, Setting, Table, Verdict
    from hetsched.papers.registry import find_paper, papers
    from hetsched.papers.reproducing import Reproduction, reproduce

__all__ = ["Claim", "Item", "Paper", "Report", "Reproduction", "Setting", "Table", "Verdict", "find_paper", "papers", "reproduce"]

_HOMES = {
    "items": ["Claim", "Item", "Paper", "Report", "Setting", "Table", "Verdict"],
    "registry": ["find_paper", "papers"],
    "reproducing": ["Reproduction", "reproduce"],
}

__getattr__, __dir__ = attach(__name__, _HOMES)
