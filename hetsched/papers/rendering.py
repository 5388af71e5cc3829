"""Reports as Markdown, and as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from hetsched.experiments.rendering import Table, aligned, markdown
from hetsched.experiments.rendering import number as number
from hetsched.experiments.rendering import percent as percent
from hetsched.papers.items import Claim, Verdict

if TYPE_CHECKING:
    from hetsched.papers.reproducing import Reproduction


DIFFERENT = "these instances, or the schedules compared with, differ from the paper's"
"""What follows where lower bounds exclude a figure of a paper."""
NOT_YET = "not measured yet"


def text(reproduction: Reproduction) -> Iterator[str]:
    """Yield the lines of a reproduction for a terminal, which need not know the spaces that do not break lines."""
    for line in _lines(reproduction):
        yield line.replace("\N{NO-BREAK SPACE}", " ")


def _lines(reproduction: Reproduction) -> Iterator[str]:
    yield f"{reproduction.paper.name} {reproduction.item.name}: {reproduction.item.title}"
    yield f"differs from the paper: {' '.join(filter(None, [reproduction.item.differs, reproduction.paper.about]))}"
    yield from _limit(reproduction)
    yield f"taken on: {reproduction.taken or 'nothing is measured yet'}"
    if reproduction.outdated:
        yield f"{reproduction.outdated} of its cases were measured with other sources of hetsched; --fresh measures the paper again"
    for table in reproduction.report.tables if reproduction.taken else ():
        yield ""
        yield from ([table.title] if table.title else [])
        yield from aligned(table)
    for note in reproduction.report.notes if reproduction.taken else ():
        yield from ("", note)
    for claim in reproduction.report.claims:
        yield ""
        yield f"claim: {claim.text}"
        yield f"{claim.verdict}: {claim.reason}"


def _limit(reproduction: Reproduction) -> Iterator[str]:
    seconds = reproduction.setting.time_limit
    if seconds is not None:
        yield f"Whatever limit is named above, here it is {seconds:g} s for each method, by --time-limit."


def page(reproductions: Sequence[Reproduction]) -> str:
    """Return a Markdown page: all claims with their verdicts, then each item."""
    parts = ["# The papers, item by item", _INTRODUCTION, _RULE, "## Claims", _claims(reproductions)]
    seen = set()
    for reproduction in reproductions:
        paper = reproduction.paper
        if paper.name not in seen:
            seen.add(paper.name)
            parts += [f"## {paper.title}", f"{paper.source}. `hetsched reproduce {paper.name}`.", *filter(None, [paper.about])]
        parts += list(_section(reproduction))
    return "\n\n".join(parts) + "\n"


_INTRODUCTION = (
    "This page is made by `hetsched reproduce` of the results in the folder beside it: each table and figure of the five papers that is "
    "measured here, beside the paper's own figures, and each claim with a verdict: *held*, *not held* or *cannot be seen here*. What "
    "differs from the paper's experiment stands before the figures; what is not measured yet says so. The figures are those of the day and "
    "the version that are named; `hetsched reproduce` says how many were measured with other sources. Durations are those of cost models "
    "or made by a generator unless an item says that they are measured, so milliseconds compare within a table, not with the paper's."
)
_RULE = """A claim is *held* if everything measured here agrees with it, and *not held* if it does not; one about every setting is not held
if one setting contradicts it. A claim *cannot be seen here*

- if what it speaks of was not run, or is so by construction;
- if seeds or repetitions disagree;
- if in more than half of the instances a limit that is shorter than the paper's, or the schedule that a method begins with, hides it;
- if the paper ran it on devices, and here it is computed by a cost model alone, or measured on another kind of device;
- if graphs, times of a generator or a limit of memory that are not the paper's decide it;
- if in more than half of the instances lower bounds exclude the figure: then the instances, or the schedules compared with, differ from the
  paper's, and nothing is said of its method.

A claim that an algorithm finds an optimum, never makes a schedule worse or takes a time in proportion to something speaks of every graph
and all times, so that these here decide it; what is said of results that the authors have published is decided by those."""


def _section(reproduction: Reproduction) -> Iterator[str]:
    item, report = reproduction.item, reproduction.report
    yield f"### {item.title}"
    yield f"`hetsched reproduce {reproduction.paper.name} {item.name}`. Differs from the paper: {item.differs}"
    yield from _limit(reproduction)
    if not reproduction.taken:
        yield "Nothing of it is measured here yet."
        return
    scale = " Quick cases only." if reproduction.setting.quick else ""
    yield f"Taken on: {reproduction.taken}.{scale}"
    for table in report.tables:
        yield from ([f"**{table.title}**"] if table.title else [])
        yield markdown(table)
    yield from report.notes
    if report.claims:
        yield "\n".join(f"- {claim.text}: **{claim.verdict}**. {claim.reason}" for claim in report.claims)


def _claims(reproductions: Sequence[Reproduction]) -> str:
    rows: list[list[str]] = []
    papers = {reproduction.paper.name: reproduction.paper for reproduction in reproductions}
    sums = []
    for name, paper in papers.items():
        own = [one for one in reproductions if one.paper.name == name]
        sums.append(f"{name}: {counted([*(claim for one in own if one.taken for claim in one.report.claims), *paper.besides])}")
        for one in own:
            rows += [
                [name, one.item.name, claim.text, *((str(claim.verdict), claim.reason) if one.taken else (NOT_YET, ""))]
                for claim in one.report.claims
            ]
        rows += [[name, "", claim.text, str(claim.verdict), claim.reason] for claim in paper.besides]
    return f"{'. '.join(sums)}.\n\n" + markdown(Table(["paper", "item", "claim", "verdict", "because"], rows), "---")


def counted(claims: Iterable[Claim]) -> str:
    """Return how many claims have each verdict."""
    verdicts = [claim.verdict for claim in claims]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in Verdict if verdict in verdicts)
