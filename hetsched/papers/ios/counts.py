"""Tables 1 and 2, and Figure 1: the sizes of the networks, of the searches in their largest blocks, and of convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hetsched.models.ios import counting
from hetsched.papers.ios.networks import NETWORKS, available, largest, network
from hetsched.papers.items import Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent


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


GROUPS, SIZE = 8, 3
"""The paper's limits s and r of its evaluation: groups of a stage, and tasks of a group."""


def cases(setting: Setting) -> list[Case]:
    """Return a case a network; RandWire needs the authors' wirings."""
    return [{"what": "counts", "network": name} for name in available(NETWORKS, setting.data)]


def measure(case: Case, data: Path | None) -> Row:
    """Count the operators of a network, and the transitions and schedules of its largest block."""
    net = network(case["network"], data)
    block = largest([net.block(which) for which in range(len(net.blocks))])
    ours, published = counting.counts(block), counting.counts(block, rule="published")
    pruned = counting.counts(block, groups=GROUPS, group_size=SIZE)
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
    text = (
        "Operators, and size, transitions and schedules of the largest block of the four networks, as Tables 1 and 2 print them, by "
        "the rule of the authors' program"
    )
    reason = (
        f"{sum(equal)} of {len(equal)} numbers agree to the digits printed; transitions and schedules of every ending, as the paper "
        "defines them, are others"
    )
    claims = [Claim.decided(text, all(equal), reason)]
    if len(rows) < len(NETWORKS):
        missing = ", ".join(sorted({*NETWORKS} - {row["network"] for row in rows}))
        claims = [Claim(text, Verdict.UNSEEN if all(equal) else Verdict.NOT_HELD, f"{claims[0].reason}; {missing} is not measured")]
    return Report([Table(head, lines)], [*claims, *_complexity(rows)])


def _complexity(rows: Sequence[Row]) -> Iterator[Claim]:
    """Yield the claims on the number of transitions, which a count above it would refute, and counts below it do not prove."""
    for text, counts, most in (
        (
            "The search has at most C(n/d + 2, 2)^d transitions (4.2 and Appendix A, for n operators of width d)",
            [row["every"][0] for row in rows],
            [row["bound"] for row in rows],
        ),
        (
            f"With the limits r and s it has at most (n/d + 1)^d (r + 1)^s (4.3), here r = {SIZE} and s = {GROUPS}",
            [row["pruned"] for row in rows],
            [(row["tasks"] / row["width"] + 1) ** row["width"] * (SIZE + 1) ** GROUPS for row in rows],
        ),
    ):
        shares = [count / bound for count, bound in zip(counts, most, strict=True)]
        reason = f"{100 * min(shares):.2g} % to {100 * max(shares):.2g} % of it in the largest blocks" if shares else "not measured"
        if max(shares, default=0.0) > 1:
            yield Claim(text, Verdict.NOT_HELD, reason)
        else:
            yield Claim(text, Verdict.UNSEEN, f"{reason}, which is no proof; the paper has one" if shares else reason)


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


# ---------------------------------------------------------------------- Figure 1

VGG = ((224, 3, 64), (224, 64, 64), (112, 64, 128), (112, 128, 128), (56, 128, 256), *[(56, 256, 256)] * 2)
VGG += ((28, 256, 512), *[(28, 512, 512)] * 2, *[(14, 512, 512)] * 3)
"""Side, and channels in and out, of the 3x3 convolutions of VGG-16 (Simonyan and Zisserman, ICLR 2015, configuration D)."""
MFLOPS = {"vgg_16": 2330, "nasnet_a": 82}
"""MFLOP of a convolution on average, in the paper."""


def convolution_cases(setting: Setting) -> list[Case]:
    """Return a case a network."""
    return [{"what": "convolutions", "network": name} for name in MFLOPS]


def measure_convolutions(case: Case, data: Path | None) -> Row:
    """Return the number of convolutions of a network and their work; a separable convolution is two."""
    if case["network"] == "vgg_16":
        own = [2 * side**2 * 9 * inputs * outputs for side, inputs, outputs in VGG]
        return {"convolutions": len(own), "flops": sum(own)}
    graph = network(case["network"], data).graph
    shapes = {i: shape for i, shape in enumerate(graph.shape) if shape is not None and graph.op[i] == "conv2d"}
    separable = sum(graph.flops[i] > 2 * shape.rows * shape.columns * shape.reduction for i, shape in shapes.items())
    return {"convolutions": int(len(shapes) + separable), "flops": float(graph.flops[list(shapes)].sum())}


def convolution_report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return the average work of a convolution."""
    mean = {row["network"]: row["flops"] / row["convolutions"] / 1e6 for row in rows}
    lines = [
        [row["network"], str(row["convolutions"]), number(row["flops"] / 1e9), number(mean[row["network"]]), str(MFLOPS[row["network"]])]
        for row in rows
    ]
    text = "A convolution has 2330 MFLOP on average in VGG and 82 MFLOP in NASNet (introduction)"
    claim = Claim(text, Verdict.UNSEEN, "not measured")
    if len(mean) == len(MFLOPS):
        reason = ", ".join(f"{value:.0f} MFLOP ({name})" for name, value in mean.items())
        reason += f", held within {percent(_CLOSE)}: the paper says neither which VGG nor how it counts"
        claim = Claim.decided(text, all(abs(mean[name] / paper - 1) < _CLOSE for name, paper in MFLOPS.items()), reason)
    return Report([Table(("network", "convolutions", "GFLOP", "MFLOP of one", "the paper"), lines)], [claim])


_CLOSE = 0.15
"""The paper does not say which VGG, nor how it counts."""

FIGURE_1 = Item(
    "figure-1",
    "Figure 1: work of a convolution over the years",
    "only the convolutions, of VGG-16 and NASNet-A large; the paper does not say which VGG it counts. The peaks of GPUs that it draws are "
    "those of data sheets.",
    convolution_cases,
    convolution_report,
    time="seconds",
)
