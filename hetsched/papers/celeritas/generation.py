"""Table 4: seconds in which a placement is generated."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from hetsched.papers.celeritas import testbed
from hetsched.papers.celeritas.placement import OTHERS, PAPER, ROUNDING, Found, beside, placements
from hetsched.papers.items import OTHER_GRAPHS, Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent

PRINTED = {
    "m-sct": ("8.591", "-", "129.498", "2.968"),
    "HRL": ("5 hrs", "5 hrs", "5 hrs", "5 hrs"),
    "order-place": ("5.439", "54.695", "92.639", "2.711"),
    "celeritas": ("7.183", "59.418", "95.304", "3.586"),
}
"""The paper's seconds, in the order of `testbed.PAPERS`."""
STEADY = 3.0
"""By how many times repeats may differ that refute a claim."""
TENS = 100.0
"""Seconds: "tens of seconds"."""


def cases(setting: Setting) -> list[Case]:
    """Return a case for each graph and method."""
    return placements(setting, (*PAPER, *OTHERS))


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Table 4, and the same for other methods."""
    found = Found(rows)
    printed = {method: dict(zip(testbed.PAPERS, cells, strict=True)) for method, cells in PRINTED.items()}

    def line(method: str) -> list[str]:
        return [method, *(beside(_cell(found.seconds(graph, method)), printed.get(method, {}).get(graph, "")) for graph in found.graphs)]

    lines = [line(method) for method in PAPER]
    lines.insert(4, ["HRL (the paper's alone)", *(printed["HRL"].get(graph, "") for graph in found.graphs)])
    head = ["seconds of placement", *found.graphs]
    tables = [Table([f"{head[0]}, here / paper", *head[1:]], lines), Table(head, [line(method) for method in OTHERS], "Other methods")]
    return Report(tables, [claim.undecided(OTHER_GRAPHS) for claim in _claims(found)])


def _cell(seconds: Sequence[float]) -> str:
    return number(statistics.median(seconds)) if seconds else ""


def _claims(found: Found) -> Iterator[Claim]:
    graphs = {"inception_v3": "16.4 % faster on Inception_V3", "transformer, heads apart": "26.4 % faster on the Transformer"}
    for graph, what in graphs.items():
        yield _faster(found, graph, f"Celeritas generates a placement {what} than m-SCT", float(what.split()[0]) / 100)
    rival = found.fitting("holography", "m-sct")
    pair = found.seconds("holography", "celeritas"), found.seconds("holography", rival)
    text = "On Tensor Holography Celeritas takes longer than m-SCT, by 0.618 s, for the coarse graph"
    yield longer(text, {f"holography, against {rival}," if pair[1] else "holography": pair}, 1)
    pairs = {graph: (found.seconds(graph, "celeritas"), found.seconds(graph, "order-place")) for graph in found.papers}
    text = "Celeritas takes longer than Order-Place, by 2.5 s on average, for the coarse graph"
    yield longer(text, pairs, len(testbed.PAPERS))
    text = "Celeritas finds placements within tens of seconds, where reinforcement learning needs hours"
    most = {graph: max(found.seconds(graph, "celeritas")) for graph in found.papers if found.seconds(graph, "celeritas")}
    reason = ", ".join(f"{graph} {number(seconds)} s" for graph, seconds in most.items())
    if most and max(most.values()) > TENS:
        yield Claim.decided(text, False, reason)
    else:
        rest = "" if len(most) == len(testbed.PAPERS) else "; the other models are not measured"
        told = f"Celeritas needs at most {reason}{rest}; HRL's hours are the paper's, hours of learning were not run"
        yield Claim(text, Verdict.UNSEEN, told if most else "not measured")
    etf = found.seconds("transformer, heads apart", "m-etf")
    text = "Even the simple ETF needs more than ten minutes for the 36,352 nodes of the Transformer"
    if etf:
        reason = f"m-etf, compiled here, places the Transformer, heads apart, of fewer tasks (Table 2), in {_cell(etf)} s"
        yield Claim(text, Verdict.UNSEEN, f"{reason}; larger graphs are in docs/benchmarks.md")
    else:
        yield Claim(text, Verdict.UNSEEN, "not measured")


def _faster(found: Found, graph: str, text: str, share: float) -> Claim:
    rival = found.fitting(graph, "m-sct")
    own, other = found.seconds(graph, "celeritas"), found.seconds(graph, rival)
    if not own or not other:
        return Claim(text, Verdict.UNSEEN, "not measured")
    gain = 1 - statistics.median(own) / statistics.median(other)
    reason = f"{_cell(own)} s ({_range(own)}) against {_cell(other)} s ({_range(other)}) of {rival}, {percent(gain)} faster"
    if max(own) >= min(other) and max(other) >= min(own):
        return Claim(text, Verdict.UNSEEN, f"{reason}: the runs overlap")
    return Claim.decided(text, gain >= share - ROUNDING, reason)


def longer(text: str, pairs: dict[str, tuple[list[float], list[float]]], wanted: int) -> Claim:
    """Return the claim that the first of each pair takes longer; where the runs overlap nothing is decided."""
    known = {graph: pair for graph, pair in pairs.items() if all(pair)}
    if not known:
        return Claim(text, Verdict.UNSEEN, "not measured")
    reason = "; ".join(
        f"{graph} {_cell(own)} s ({_range(own)}) against {_cell(other)} s ({_range(other)})" for graph, (own, other) in known.items()
    )
    unsteady = [graph for graph, pair in known.items() if any(max(seconds) > STEADY * min(seconds) for seconds in pair)]
    steady = {graph: pair for graph, pair in known.items() if graph not in unsteady}
    if any(max(own) < min(other) for own, other in steady.values()):
        return Claim.decided(text, False, reason)
    if all(min(own) > max(other) for own, other in known.values()) and len(known) == wanted:
        return Claim.decided(text, True, reason)
    overlapping = [graph for graph, (own, other) in steady.items() if min(own) <= max(other)]
    rest = "; ".join(
        f"{what} ({', '.join(names)})"
        for what, names in (("runs overlap", overlapping), (f"runs differ by more than {STEADY:g} times", unsteady))
        if names
    )
    return Claim(text, Verdict.UNSEEN, f"{reason}: {rest if len(known) == wanted else 'the other models are not measured'}")


def _range(seconds: Sequence[float]) -> str:
    return f"{number(min(seconds))} to {number(max(seconds))}"


TABLE_4 = Item(
    "table-4",
    "Table 4: time to generate a placement",
    "the graphs, the memory and the rules of Table 3, on one core; where m-SCT's placement is over the memory, the claims compare the one "
    "that claims labels whole. The time is that of the method without the check of its schedule: the median of the repeats, of which the "
    "claims name the range. m-SCT solves its linear program by HiGHS.",
    cases,
    report,
    needs=(("torch", "torch"), ("pymetis", "metis")),
    time="8 minutes",
)
