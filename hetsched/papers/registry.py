"""The papers by name, imported at first use."""

from __future__ import annotations

import importlib

from hetsched.arguments import checked
from hetsched.errors import InvalidArgument
from hetsched.papers.items import Paper

PAPERS = {
    "diviml": "hetsched.papers.diviml",
    "moirai": "hetsched.papers.moirai",
    "celeritas": "hetsched.papers.celeritas",
    "tavarageri": "hetsched.papers.tavarageri",
    "ios": "hetsched.papers.ios",
}
"""Names of the papers, and the modules or packages of their items, with the attribute ``PAPER``."""


def papers() -> list[Paper]:
    """Return all papers."""
    return [find_paper(name) for name in PAPERS]


@checked
def find_paper(name: str) -> Paper:
    """Return a paper by name.

    Raises
    ------
    InvalidArgument
        There is no such paper.
    """
    if name not in PAPERS:
        raise InvalidArgument(f"{name!r} is not one of the papers; choose from {', '.join(PAPERS)}")
    paper: Paper = importlib.import_module(PAPERS[name]).PAPER
    return paper
