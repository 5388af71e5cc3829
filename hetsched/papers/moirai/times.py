"""Table V: how long the methods take to generate a placement."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hetsched.papers.items import Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.moirai import models
from hetsched.papers.moirai.placing import COMPARED, LEARNED, LIMITS, OTHERS, cases, cell
from hetsched.papers.rendering import number, percent

METHODS = (LEARNED, *COMPARED, "moirai")
"""The columns of the table."""
SHARE = 0.7187
"""The mean share of Moirai's placement time that is left with fused graphs, section IV-C."""


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Table V."""
    tables = [_table(rows, which, offset) for offset, which in ((0, "original"), (4, "fused"))]
    return Report(tables, [_least(rows), _left(rows), _learning(rows), _minutes(rows)])


def _table(rows: Sequence[Row], which: str, offset: int) -> Table:
    lines = []
    for model, printed in models.PRINTED.items():
        if any(row["model"] == model for row in rows):
            own = [
                _shown([row for where in models.CLUSTERS for row in cell(rows, model, where, which, method)])
                for method in (*METHODS, *OTHERS)
            ]
            pairs = [f"{value} / {paper}" for value, paper in zip(own[:4], printed.seconds[offset : offset + 4], strict=True)]
            lines.append([model, *pairs, *own[4:]])
    head = ["seconds here / paper", "learned / HRL", "m-SCT", "GETF", "Moirai", *OTHERS.values()]
    return Table(head, lines, f"{which} graphs")


def _shown(found: Sequence[Row]) -> str:
    """Return the seconds, from the least to the most of the two clusters and of all seeds."""
    seconds = sorted(row["seconds"] for row in found)
    return "" if not seconds else " to ".join(dict.fromkeys(number(value, 2) for value in (seconds[0], seconds[-1])))


def _places(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    return list(dict.fromkeys((row["model"], row["cluster"], row["graph"]) for row in rows))


def _seconds(rows: Sequence[Row], place: tuple[str, str, str], method: str) -> float:
    """Return the seconds of a method, the least of its seeds; nan if it is not measured."""
    return min((row["seconds"] for row in cell(rows, *place, method)), default=math.nan)


def _least(rows: Sequence[Row]) -> Claim:
    text = "m-SCT takes the least time of the four"
    others = [method for method in METHODS if method != "m-sct"]
    count, lost, sooner = 0, 0, list[Row]()  # rows of the methods that take less
    for place in _places(rows):
        own = _seconds(rows, place, "m-sct")
        rest = [row for method in others for row in cell(rows, *place, method)]
        if not math.isnan(own) and rest:
            count += 1
            lost += any(row["seconds"] <= own for row in rest)
            sooner += [row for row in rest if row["seconds"] <= own]
    if not count:
        return Claim(text, Verdict.UNSEEN, "not measured")
    reason = f"it does in {count - lost} of {count}"
    same = [row["method"] for row in sooner if row["method"] != LEARNED and not _coarse(row)]
    if same or not sooner:
        named = f"; with the whole graph no more time than m-SCT take: {', '.join(dict.fromkeys(same))}" if same else ""
        return Claim.decided(text, not sooner, f"{reason}{named}")
    told = []
    sizes = [row["coarse"] for row in sooner if _coarse(row)]
    if sizes:
        told.append(f"Moirai's MILP takes less on a graph of {min(sizes)} to {max(sizes)} tasks, while m-SCT had the whole graph")
    if len(sizes) < len(sooner):
        told.append("the learned placer takes less, which is not HRL and has a limit")
    return Claim(text, Verdict.UNSEEN, f"{reason}; in the other {lost} {'; '.join(told)}")


def _coarse(row: Row) -> bool:
    """Return whether a solve of Moirai's MILP had a graph of fewer tasks than other methods."""
    return row["method"] == "moirai" and row["coarse"] is not None and row["coarse"] < row["tasks"]


def _left(rows: Sequence[Row]) -> Claim:
    text = f"Fusion reduces Moirai's placement time to {percent(SHARE)} on average"
    told = []
    for method in (*COMPARED, "moirai"):
        pairs = [
            (_seconds(rows, (model, where, "original"), method), _seconds(rows, (model, where, "fused"), method))
            for model in models.PRINTED
            for where in models.CLUSTERS
        ]
        shares = [fused / original for original, fused in pairs if original > 0 and fused > 0]
        if shares:
            told.append((method, sum(shares) / len(shares), min(shares), max(shares)))
    solved = [row for row in rows if row["method"] == "moirai" and row["status"]]
    if not solved or not any(method == "moirai" for method, *_ in told):
        return Claim(text, Verdict.UNSEEN, "not measured")
    reason = "; ".join(f"{method} {percent(mean)} ({percent(low)} to {percent(high)})" for method, mean, low, high in told)
    late = sum(row["status"] != "optimal" for row in solved)
    if late:
        return Claim(text, Verdict.UNSEEN, f"{late} of {len(solved)} solves of Moirai's MILP ended at the limit; {reason}")
    return Claim.decided(text, told[-1][1] <= SHARE, reason)


def _learning(rows: Sequence[Row]) -> Claim:
    text = "Moirai reduces the time of generation from the hours of learning to minutes (introduction)"
    spent = [row["seconds"] for row in rows if row["method"] == LEARNED]
    if not spent:
        return Claim(text, Verdict.UNSEEN, "no learned placer is measured")
    return Claim(text, Verdict.UNSEEN, f"learning has a limit here: {number(max(spent), 2)} s; hours of it were not run")


def _minutes(rows: Sequence[Row]) -> Claim:
    text = "GETF and Moirai need minutes"
    ends = {method: [row["seconds"] for row in rows if row["method"] == method] for method in ("getf", "moirai")}
    if not all(ends.values()):
        return Claim(text, Verdict.UNSEEN, "not measured")
    told = "; ".join(f"{method} {number(min(spent), 2)} to {number(max(spent), 2)} s" for method, spent in ends.items())
    return Claim(text, Verdict.UNSEEN, f"Moirai has a limit here, and the graphs have fewer operators: {told}")


TABLE_5 = Item(
    "table-5",
    "Table V: placement generation time",
    "what Figure 9 states. Seconds are those of the method alone in one process on the machine named, the least of two runs if they "
    f"are short, with limits: {', '.join(f'{method} {seconds:g} s' for method, seconds in LIMITS.items())}; of Moirai the MILP, "
    "which has half of its limit, without the search after it. A range is of the two clusters and of all seeds; the paper does not say "
    "which cluster its times are for.",
    cases,
    report,
    needs=(("torch", "torch"), ("highspy", "solvers")),
    time="the same measurements as Figure 9",
)
