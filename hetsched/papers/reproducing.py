"""Reproduce tables and figures of the papers."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hetsched.arguments import COUNT, checked
from hetsched.errors import HetschedError, InvalidArgument, MissingDependency
from hetsched.experiments.results import Case, Results, key
from hetsched.experiments.runner import Progress, run, title
from hetsched.papers import rendering
from hetsched.papers.items import Claim, Item, Paper, Report, Setting, Verdict
from hetsched.papers.registry import find_paper


@dataclass(frozen=True)
class Reproduction:
    """An item of a paper as measured here.

    Attributes
    ----------
    paper, item
        What was reproduced; `Item.differs` is what differs from the paper's experiment.
    setting : Setting
        Quick or in full.
    report : Report
        Tables, the paper's figures beside ours, and the claims with their verdicts.
    taken : str
        The machines and dates of the measurements; empty if nothing is measured.
    outdated : int
        Cases that were measured with other sources of hetsched.
    """

    paper: Paper
    item: Item
    setting: Setting
    report: Report
    taken: str
    outdated: int

    def __str__(self) -> str:
        return "\n".join(rendering.text(self))

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values: paper, item, title, differs, quick, time_limit, taken, tables, notes and claims."""
        tables = [
            {"title": table.title, "head": list(table.head), "rows": [list(row) for row in table.rows]} for table in self.report.tables
        ]
        claims = [{"text": claim.text, "verdict": str(claim.verdict), "reason": claim.reason} for claim in self.report.claims]
        return {
            "paper": self.paper.name,
            "item": self.item.name,
            "title": self.item.title,
            "differs": self.item.differs,
            "quick": self.setting.quick,
            "time_limit": self.setting.time_limit,
            "taken": self.taken,
            "outdated": self.outdated,
            "tables": tables,
            "notes": list(self.report.notes),
            "claims": claims,
        }


@checked(InvalidArgument, jobs=COUNT)
def reproduce(
    paper: str,
    items: str | Sequence[str] | None = None,
    *,
    quick: bool = False,
    results: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    time_limit: float | None = None,
    fresh: bool = False,
    stored: bool = False,
    jobs: int = 1,
    on_progress: Callable[[Progress], object] | None = None,
) -> list[Reproduction]:
    """Measure tables and figures of a paper, and compare them with the paper's own figures and claims.

    Parameters
    ----------
    paper : str
        ``"diviml"``, ``"moirai"``, ``"celeritas"``, ``"tavarageri"`` or ``"ios"``.
    items : str or sequence of str, optional
        For example ``"table-1"``; default all items of the paper.
    quick : bool
        Small cases, about a minute for an item; the verdicts then say less. In full an item may take hours.
    results : path, optional
        Folder in which results are stored as they are measured, and found again by a later call. Default: they are kept for
        this call only.
    data : path, optional
        Folder of data that the papers' authors have published, for the items that read some.
    time_limit : float, optional
        Seconds of each case that has a limit, for instance the paper's; default the item's own. These are cases of their own: results of
        other limits are neither shown nor replaced.
    fresh : bool
        Measure again what is stored; the new results replace the stored ones.
    stored : bool
        Measure nothing: report what `results` has.
    jobs : int
        Cases measured at once, each in one thread of a process of its own.
    on_progress : callable, optional
        Called with a `Progress` after each case.

    Returns
    -------
    list of Reproduction
        One for each item, in the paper's order. ``print`` shows its tables and verdicts.

    Raises
    ------
    InvalidArgument
        There is no such paper or item, `stored` without `results`, or a `time_limit` where no case has a limit.
    MissingDependency
        An item needs a library that is not installed.
    InvalidProblem
        The stored results are damaged.
    HetschedError
        A case failed; the results of the others are stored.
    """
    found = find_paper(paper)
    chosen = _chosen(found, items)
    if stored and results is None:
        raise InvalidArgument("stored is True without results; give the folder of the results to report")
    if stored and fresh:
        raise InvalidArgument("stored and fresh are both True; stored reports the results that fresh would replace, so choose one")
    setting = Setting(quick, None if data is None else Path(data), time_limit)
    store = Results(None if results is None else Path(results) / f"{paper}.jsonl")
    every = {item.name: item.cases(setting) for item in chosen}
    if time_limit is not None:
        every = _limited(every, float(time_limit))
    cases = {item.name: [case for case in every[item.name] if item.possible(case) or store.rows([case])] for item in chosen}
    if not stored:
        for item in chosen:
            for module, extra in item.needs:
                if importlib.util.find_spec(module) is None:
                    raise MissingDependency(module, extra)
        unique = {key(case): case for item in chosen for case in cases[item.name] if item.possible(case)}
        work = partial(_measured, paper, setting.data)
        run(unique.values(), work, results=store, jobs=jobs, fresh=fresh, on_progress=on_progress)
        for case in unique.values():
            for failure in store.failures([case]):
                raise HetschedError(f"{title(case)} failed: {failure['error']}; what was measured is kept, so correct it and run again")
    return [_reproduction(found, item, setting, cases[item.name], store) for item in chosen]


def _limited(cases: Mapping[str, Sequence[dict[str, Any]]], seconds: float) -> dict[str, Sequence[dict[str, Any]]]:
    """Return the cases of each item, those that have a limit with another one."""
    if all(case.get("limit") is None for own in cases.values() for case in own):
        raise InvalidArgument(f"time_limit is {seconds:g}, but no case of {', '.join(cases)} has a limit; leave it out")
    return {item: [case if case.get("limit") is None else case | {"limit": seconds} for case in own] for item, own in cases.items()}


def _measured(paper: str, data: Path | None, case: Case) -> dict[str, Any]:
    """Measure a case of a paper."""
    return find_paper(paper).measure(dict(case), data)


def _reproduction(paper: Paper, item: Item, setting: Setting, cases: list[dict[str, Any]], store: Results) -> Reproduction:
    rows = store.rows(cases)
    report = item.report(rows, setting)
    if 0 < len(rows) < len(cases):  # a part may not decide what all do
        part = f"{len(rows)} of {len(cases)} cases are measured yet"
        report = replace(report, claims=[Claim(claim.text, Verdict.UNSEEN, f"{part}; {claim.reason}") for claim in report.claims])
    return Reproduction(paper, item, setting, report, store.taken(cases), store.outdated(cases))


def _chosen(paper: Paper, items: str | Sequence[str] | None) -> list[Item]:
    if items is None:
        return list(paper.items)
    names = [items] if isinstance(items, str) else list(items)
    known = [item.name for item in paper.items]
    for name in names:
        if name not in known:
            raise InvalidArgument(f"{name!r} is not an item of {paper.name!r}; choose from {', '.join(known)}")
    return [paper.item(name) for name in known if name in names]
