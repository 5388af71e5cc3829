"""Figures 2 and 8: three schedules of a small network, and how far they use the device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hetsched.costs import devices
from hetsched.costs.stages import Contention
from hetsched.models.ios import dynamic_program as ios
from hetsched.papers.ios.networks import MODEL, agree
from hetsched.papers.items import Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent
from hetsched.problem.graph import Shape, TaskGraph

CHANNELS, SIDE = 384, 15
PAPER = {"sequential": (0.48, 0.48), "greedy": (0.37, 0.62), "IOS": (0.33, 0.70)}
"""Milliseconds, and part of the peak that is used."""
THEIRS = (("a", "d"), ("b", "c"), ("concat",))
"""The stages of the paper's schedule."""


def sample() -> TaskGraph:
    """Return the network: b reads a; a, c and d read the input; their outputs are concatenated."""
    reads = {"a": "x", "b": "a", "c": "x", "d": "x"}
    outputs = {"x": 1, "a": 1, "b": 2, "c": 1, "d": 2, "concat": 5}
    tensor, rows = 4.0 * CHANNELS * SIDE**2, SIDE**2
    shapes = {name: Shape(rows, outputs[name] * CHANNELS, 9 * CHANNELS, (3, 3), (1, 1)) for name in reads}
    return TaskGraph(
        list(outputs),
        [(source, name) for name, source in reads.items()] + [(name, "concat") for name in "bcd"],
        op=["input", *["conv2d"] * 4, "cat"],
        shape=[shapes.get(name) for name in outputs],
        flops=[2.0 * rows * shapes[name].columns * shapes[name].reduction if name in shapes else 0.0 for name in outputs],
        weight_bytes=[4.0 * shapes[name].columns * shapes[name].reduction if name in shapes else 0.0 for name in outputs],
        input_bytes=[0.0, *[tensor] * 4, 5 * tensor],
        output_bytes=[count * tensor for count in outputs.values()],
    )


def cases(setting: Setting) -> list[Case]:
    """Return the one case."""
    return [{"what": "sample"}]


def measure(case: Case, data: Path | None) -> Row:
    """Return the stages of each schedule with their work and seconds."""
    graph, device = sample(), devices.device("v100")
    cost = Contention(graph, device)
    made = {"sequential": ios.sequential(graph, cost), "greedy": ios.greedy(graph, cost), "IOS": ios.stages(graph, cost)}
    schedules: dict[str, list[list[str]]] = {
        way: [[name for group in one.groups(s) for name in group] for s in range(len(one))] for way, one in made.items()
    }
    ways = {way: one.stages.strategy.tolist() for way, one in made.items()}
    schedules["the paper's"], ways["the paper's"] = [["x"], *map(list, THEIRS)], ["concurrent"] * 4
    work = dict(zip(graph.names, graph.flops.tolist(), strict=True))
    rows = {
        way: [
            [tasks, sum(map(work.__getitem__, tasks)), cost(tuple(tasks), ways[way][s])] for s, tasks in enumerate(stages) if tasks != ["x"]
        ]
        for way, stages in schedules.items()
    }
    return {"stages": rows, "peak": device.peak_flops["float32"], "says": f"IOS {1e3 * made['IOS'].latency:.3f} ms"}


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return the stages, and the totals beside the paper's."""
    texts = (
        "On a small network the sequential and the greedy schedule are slow, 0.48 and 0.37 ms, and use 48 to 62 % of a V100's peak; IOS "
        "takes 0.33 ms and uses 70 %",
        "IOS has 58 % more active warps than the sequential schedule on average (Figure 8)",
    )
    if not rows:
        return Report(claims=[Claim(text, Verdict.UNSEEN, "not measured") for text in texts])
    row, lines, totals = rows[0], [], {}
    for way, stages in row["stages"].items():
        work, seconds = (sum(stage[at] for stage in stages) for at in (1, 2))
        totals[way] = seconds, work / seconds / row["peak"]
        for tasks, own, alone in stages:
            lines.append([f"{way}: {' '.join(tasks)}", number(own / 1e9), f"{1e3 * alone:.3f}", *_used(own / alone, row["peak"]), "", ""])
        paper = PAPER.get({"the paper's": "IOS", "IOS": ""}.get(way, way))  # ours is another schedule
        printed = ("", "") if paper is None else (f"{paper[0]:.2f}", f"{100 * paper[1]:.0f} %")
        lines.append([f"{way}, in all", number(work / 1e9), f"{1e3 * seconds:.3f}", *_used(work / seconds, row["peak"]), *printed])
    head = ("stage", "GFLOP", "ms", "TFLOP/s", "part of the peak", "the paper: ms", "part of the peak")
    close = [agree(1e3 * totals[way][0], ms) for way, (ms, _) in PAPER.items()]
    reason = "; ".join(f"{way} {1e3 * seconds:.2f} ms, {percent(part)}" for way, (seconds, part) in totals.items())
    first = Claim(texts[0], Verdict.HELD, reason)
    if not all(close):
        off = 1e3 * totals["sequential"][0] / PAPER["sequential"][0] - 1
        about = f"the model's sequential latency is off by {100 * off:+.0f} % on this network, so that it decides nothing: {reason}"
        first = Claim(texts[0], Verdict.UNSEEN, about)
    more = totals["IOS"][1] / totals["sequential"][1] - 1
    claims = [
        first,
        Claim(
            texts[1],
            Verdict.UNSEEN,
            f"warps are counted by the profiler of a GPU, which nothing here reads; by the model IOS uses {percent(more)} more of the peak",
        ),
    ]
    return Report([Table(head, lines)], claims)


def _used(speed: float, peak: float) -> tuple[str, str]:
    return number(speed / 1e12), percent(speed / peak)


FIGURE_2 = Item(
    "figure-2",
    "Figures 2 and 8: schedules of a small network, and the use of the device",
    f"{MODEL} The network has {CHANNELS} channels and {SIDE} x {SIDE} pixels, as in the authors' program for Figure 8.",
    cases,
    report,
    time="seconds",
)
