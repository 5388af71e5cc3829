"""Figures 6 and 14: schedules under the strategies of IOS, sequential and greedy ones, on two devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hetsched.papers.ios.networks import APART, BEST, MODEL, NETWORKS, available, network
from hetsched.papers.ios.published import AGAIN, FIGURE_6, WAYS
from hetsched.papers.items import BY_MODEL, Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent

_HEAD = ("milliseconds (times sequential)", "sequential", "greedy", "IOS-Merge", "IOS-Parallel", "IOS-Both")
_UNMERGED = ("randwire", "nasnet_a")
"""Networks of separable convolutions."""
_SAME = 0.02
"""Within this the paper's measured schedules that are the same differ."""


def cases(device: str, setting: Setting) -> list[Case]:
    """Return a case a network."""
    names = ("squeezenet", "nasnet_a") if setting.quick else NETWORKS
    return [{"what": "strategies", "network": name, "device": device} for name in available(names, setting.data)]


def measure(case: Case, data: Path | None) -> Row:
    """Return the seconds of a network by each of `published.WAYS`."""
    net = network(case["network"], data)
    cost = net.cost(case["device"])
    seconds = {way: net.latency(way, cost) for way in WAYS}
    return {"seconds": seconds, "says": f"IOS-Both {seconds['sequential'] / seconds['both']:.2f} times as fast as sequential"}


def _speeds(row: Row) -> dict[str, float]:
    """Return the speed of each way, times that of the sequential schedule."""
    return {way: row["seconds"]["sequential"] / value for way, value in row["seconds"].items()}


def _lines(rows: Sequence[Row]) -> list[list[str]]:
    return [
        [row["network"], *(f"{number(1e3 * row['seconds'][way])} ({speed:.2f}x)" for way, speed in _speeds(row).items())] for row in rows
    ]


def report_6(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Figure 6 as a table, with what the authors measured."""
    lines = []
    for row, line in zip(rows, _lines(rows), strict=True):
        lines.append(line)
        for who, theirs in (("authors' README", FIGURE_6), ("authors' README, another run", AGAIN)):
            cells = theirs[row["network"]]
            lines.append([f"{row['network']}, {who}", *(f"{ms:.2f} ({cells[0] / ms:.2f}x)" for ms in cells)])
    notes, off = [], 0.0
    if rows:
        misses = {row["network"]: 1e3 * row["seconds"]["sequential"] / FIGURE_6[row["network"]][0] - 1 for row in rows}
        ratios = [
            abs(_speeds(row)[way] / (theirs[row["network"]][0] / ms) - 1)
            for theirs in (FIGURE_6, AGAIN)
            for row in rows
            for way, ms in zip(WAYS[1:], theirs[row["network"]][1:], strict=True)
        ]
        off = max(ratios)
        notes = [
            "The model's sequential milliseconds are off by "
            + ", ".join(f"{100 * miss:+.0f} % ({name})" for name, miss in misses.items())
            + f"; its speeds relative to sequential, by which the claims are decided, by at most {percent(off)}, of either of the authors' "
            "runs."
        ]
    return Report([Table(_HEAD, lines)], [_best(rows), _greedy(rows, off), _unmerged(rows)], notes)


def _complete(text: str, rows: Sequence[Row], names: Sequence[str]) -> Claim | None:
    """Return a claim that nothing decides, if a network is missing."""
    missing = [name for name in names if name not in {row["network"] for row in rows}]
    return Claim(text, Verdict.UNSEEN, f"{', '.join(missing)} not measured") if missing else None


def _best(rows: Sequence[Row]) -> Claim:
    text = "IOS-Both is faster than the four other schedules on all four networks, batch 1, V100"
    speeds = {row["network"]: _speeds(row) for row in rows}
    margins = {name: own["both"] / max(own["sequential"], own["greedy"]) for name, own in speeds.items()}
    reason = (
        f"by the model {_listed(margins)} times as fast as the better of sequential and greedy; {BEST}, except than greedy beyond the "
        "limits r and s; IOS-Merge and IOS-Parallel equal it on some networks here and in the paper"
    )
    return _complete(text, rows, NETWORKS) or Claim(text, Verdict.UNSEEN, reason)


def _greedy(rows: Sequence[Row], off: float) -> Claim:
    text = "Greedy is good on RandWire and NASNet, and slower than sequential on SqueezeNet"
    speeds = {row["network"]: _speeds(row)["greedy"] for row in rows}
    names = (*_UNMERGED, "squeezenet")
    missing = _complete(text, rows, names)
    if missing:
        return missing
    held = min(speeds[name] for name in _UNMERGED) > 1 + off and speeds["squeezenet"] < 1 - off
    paper = {name: FIGURE_6[name][0] / FIGURE_6[name][1] for name in names}
    reason = f"greedy is {_listed({name: speeds[name] for name in names})} times as fast as sequential; by the authors {_listed(paper)}"
    reason += f"; decided beyond {percent(off)}, by which the model is off"
    return Claim(text, Verdict.HELD if held and off <= APART else Verdict.UNSEEN, reason).undecided(BY_MODEL)


def _unmerged(rows: Sequence[Row]) -> Claim:
    text = "Separable convolutions cannot be merged: on RandWire and NASNet IOS-Merge equals sequential, and IOS-Both equals IOS-Parallel"
    speeds = {row["network"]: _speeds(row) for row in rows if row["network"] in _UNMERGED}
    away = {name: max(own["merge"] / own["sequential"], own["both"] / own["concurrent"]) - 1 for name, own in speeds.items()}
    differ = ", ".join(f"{percent(value)} ({name})" for name, value in away.items())
    reason = f"they differ by at most {differ}, by plain convolutions; {percent(_SAME)} count as equal"
    by_program = " by the program, which merges no separable convolution"
    return _complete(text, rows, _UNMERGED) or Claim.decided(text, max(away.values()) <= _SAME, reason).undecided(by_program)


def report_14(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Figure 14 as a table."""
    text = "On an RTX 2080 Ti too IOS-Both is faster than the other schedules, 1.1 to 1.5 times as fast as sequential"
    reason = "nothing is measured"
    if rows:
        speeds = {row["network"]: _speeds(row)["both"] for row in rows}
        reason = (
            f"the model, whose constants are a V100's, makes IOS-Both {_listed(speeds)} times as fast as sequential; the constants of one "
            'GPU are not another\'s. What an H100 measured is in docs/benchmarks.md, "On a GPU"'
        )
    return Report([Table(_HEAD, _lines(rows))], [Claim(text, Verdict.UNSEEN, reason)])


def _listed(values: dict[str, float]) -> str:
    return ", ".join(f"{value:.2f} ({name})" for name, value in values.items())


_WIRINGS = "RandWire needs the authors' wirings (`--data`)."

FIGURE_6_ITEM = Item(
    "figure-6",
    "Figure 6: sequential, greedy and IOS's schedules at batch 1 on a V100",
    f"{MODEL} {_WIRINGS}",
    lambda setting: cases("v100", setting),
    report_6,
    needs=(("torch", "torch"),),
    time="2 minutes",
)
FIGURE_14 = Item(
    "figure-14",
    "Figure 14: the same schedules on an RTX 2080 Ti",
    f"{MODEL} Here the peaks are an RTX 2080 Ti's, and the constants a V100's. The paper prints no numbers. {_WIRINGS}",
    lambda setting: cases("rtx2080ti", setting),
    report_14,
    needs=(("torch", "torch"),),
    time="2 minutes",
)
