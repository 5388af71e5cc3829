"""Methods compared on problems: cases in separate processes, records in a file, tables, tests of differences, a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.experiments import statistics
    from hetsched.experiments.comparison import Comparison
    from hetsched.experiments.page import html, write_html
    from hetsched.experiments.rendering import Table
    from hetsched.experiments.results import Results
    from hetsched.experiments.runner import Progress, run
    from hetsched.experiments.solving import Configuration, SolveCase, cases
    from hetsched.experiments.sources import Instance, problems

_HOMES = {
    "": ["statistics"],
    "comparison": ["Comparison"],
    "page": ["html", "write_html"],
    "rendering": ["Table"],
    "results": ["Results"],
    "runner": ["Progress", "run"],
    "solving": ["Configuration", "SolveCase", "cases"],
    "sources": ["Instance", "problems"],
}

__all__ = [
    "Comparison",
    "Configuration",
    "Instance",
    "Progress",
    "Results",
    "SolveCase",
    "Table",
    "cases",
    "html",
    "problems",
    "run",
    "statistics",
    "write_html",
]

__getattr__, __dir__ = attach(__name__, _HOMES)
