"""Tables 1 and 2: the sizes of the networks and of the searches in their largest blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hetsched.models.ios import counting
from hetsched.papers.ios.networks import NETWORKS, largest, network, wirings
from hetsched.papers.items import Case, Claim, Item, Report, Row, Setting, Table, Verdict


class Printed(NamedTuple):
    """What the paper prints of a network in Tables 1 and 2."""

    operators: int
    tasks: int
    width: int
    bound: float
    transitions: float
    schedules: float


PRINTED = {
    "inception_v3": Printed(119, 11, 6, 2.6e4, 4.9e3, 3.8e6),
    "randwire": Printed(120, 33, 8, 3.7e9, 1.2e6, 9.2e22),
    "nasnet_a": Printed(374, 18, 8, 5.2e6, 3.1e5, 7.2e12),
    "squeezenet": Printed(50, 6, 3, 2.2e2, 51, 1.3e2),
}


def cases(setting: Setting) -> list[Case]:
    """Return a case a network; RandWire needs the authors' wirings."""
    return [{"what": "counts", "network": name} for name in NETWORKS if name != "randwire" or wirings(setting.data) is not None]


def measure(case: Case, data: Path | None) -> Row:
    """Count the operators of a network, and the transitions and schedules of its largest block."""
    net = network(case["network"], data)
    block = largest([net.block(which) for which in range(len(net.blocks))])
    ours, published = counting.counts(block), counting.counts(block, rule="published")
    pruned = counting.counts(block, groups=8, group_size=3)
    return {
        "operators": sum(op not in ("input", "linear") for op in net.graph.op),
        "tasks": block.n_tasks,
        "width": ours.width,
        "bound": ours.bound,
        "published": [published.transitions, published.schedules],
        "every": [ours.transitions, ours.schedules],
        "pruned": pruned.transitions,
        "says": f"{published.transitions:,} transitions, {_count(published.schedules)} schedules",
    }


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Tables 1 and 2, by both rules."""
    lines, equal = [], []
    for row in rows:
        paper = PRINTED[row["network"]]
        own = (row["operators"], row["tasks"], row["width"], row["bound"], *row["published"])
        equal += [_agrees(value, printed) for value, printed in zip(own, paper, strict=True)]
        lines.append(
            [
                row["network"],
                f"{row['operators']} / {paper.operators}",
                f"{row['tasks']}, {row['width']}, {row['bound']:.2g} / {paper.tasks}, {paper.width}, {paper.bound:.2g}",
                f"{_pair(*row['published'])} / {paper.transitions:.2g}, {paper.schedules:.2g}",
                _pair(*row["every"]),
                f"{row['pruned']:,}",
            ]
        )
    head = [
        "here / paper",
        "operators",
        "tasks, width, bound of the block",
        "transitions, schedules",
        "every ending",
        "transitions, every ending, r = 3, s = 8",
    ]
    text = "Operators, and size, transitions and schedules of the largest block of the four networks, as Tables 1 and 2 print them"
    claims = [Claim.decided(text, all(equal), f"{sum(equal)} of {len(equal)} numbers agree to the digits printed")]
    if len(rows) < len(NETWORKS):
        missing = ", ".join(sorted({*NETWORKS} - {row["network"] for row in rows}))
        claims = [Claim(text, Verdict.UNSEEN if all(equal) else Verdict.NOT_HELD, f"{claims[0].reason}; {missing} is not measured")]
    return Report([Table(head, lines)], claims)


def _agrees(value: float, printed: float) -> bool:
    """Return whether a number is what the paper prints, which has two significant digits where it is not a small whole number."""
    return value == printed or f"{value:.1e}" == f"{printed:.1e}"


def _pair(transitions: int, schedules: int) -> str:
    return f"{transitions:,}, {_count(schedules)}"


def _count(count: int) -> str:
    """Return a count, to four digits if it has more than six."""
    return f"{count:,}" if count < 10**6 else f"{count:.3e}"


TABLE_1 = Item(
    "table-1",
    "Tables 1 and 2: networks, and the searches in their largest blocks",
    "the graphs are built or captured here, NASNet-A large and RandWire by `hetsched.workloads.units`. The authors' program finds only "
    "stages in which each group is one operator and all its descendants in the stage, an error that it keeps so that its figures can be "
    "had again (issue 10 of github.com/mit-han-lab/inter-operator-scheduler); the paper's definition allows every ending, as `hs.stages` "
    "does. RandWire needs the wirings of that program: `--data` names the folder with its files `ws-*.txt`.",
    cases,
    report,
    needs=(("torch", "torch"),),
    time="20 seconds",
)
