"""Table 2: tasks and communication-to-computation ratio before and after operation fusion."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hetsched import coarsening
from hetsched.papers.celeritas import testbed
from hetsched.papers.items import BY_MODEL, OTHER_GRAPHS, Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem


class Printed(NamedTuple):
    """What the paper prints of a model in Table 2."""

    nodes: int
    ccr: float
    merged: int
    merged_ccr: float


PRINTED = {
    "inception_v3": Printed(6332, 33.118, 59, 8.137),
    "nmt": Printed(25463, 18.630, 154, 6.372),
    "transformer, heads apart": Printed(36352, 111.957, 220, 11.10),
    "holography": Printed(3810, 49.147, 37, 7.438),
}
FEWER, LOWER = 165, 10
"""The largest reductions of nodes and CCR that the paper names."""
OTHERS = {"labels": "labels whole", "module": "modules", "rules": "kernels", "degree one": "only edges", "heavy edges": "heavy edges"}
"""Other ways to coarsen, and the heads of their columns."""
_OTHERS = (
    "Labels whole: Celeritas' fusion that keeps the tasks of a co-location label together. Modules: a task for what one outermost module "
    "of PyTorch computes in a pass. Kernels: sequences of operators that one kernel computes. Only edges: along an edge that is the only "
    "one of a task, as Baechi does. Heavy edges: matchings along edges of much data, level by level."
)


def cases(setting: Setting) -> list[Case]:
    """Return a case a graph."""
    return [{"what": "fusion", "graph": name} for name in (testbed.QUICK if setting.quick else testbed.COLUMNS)]


def measure(case: Case, data: Path | None) -> Row:
    """Fuse a graph in several ways: tasks, CCR and seconds of each."""
    problem = testbed.problem(case["graph"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no sequence of operators")  # by the fusion rules, which the table shows
        levels = {how: [level.coarse.n_tasks, coarsening.ccr(level.coarse), took] for how, level, took in coarsened(problem)}
    tasks, ratio, _ = levels["celeritas"]
    return {
        "tasks": problem.n_tasks,
        "claimed": float(problem.static_bytes.sum()),
        "edges": problem.graph.n_edges,
        "phases": phases(problem.graph),
        "ccr": coarsening.ccr(problem),
        "levels": levels,
        "says": f"{problem.n_tasks:,} tasks become {tasks:,}, CCR {ratio:.3g}",
    }


def coarsened(problem: Problem) -> Iterator[tuple[str, coarsening.Coarsening, float]]:
    """Yield "celeritas", then each of `OTHERS`, with its coarsening of a problem and the seconds that it took."""
    unlabelled = problem.replace(graph=problem.graph.replace(colocation=None))
    ways: dict[str, Callable[[], coarsening.Coarsening]] = {
        "celeritas": lambda: coarsening.operation_fusion(unlabelled),
        "labels": lambda: coarsening.operation_fusion(problem),
        "module": lambda: coarsening.by_module(problem),
        "rules": lambda: coarsening.fuse(problem),
        "degree one": lambda: coarsening.degree_one(problem),
        "heavy edges": lambda: coarsening.Coarsening.through(problem, coarsening.hierarchy(problem)),
    }
    for how, way in ways.items():
        way()  # compiles kernels
        start = time.perf_counter()
        level = way()
        yield how, level, time.perf_counter() - start


def phases(graph: TaskGraph) -> list[int]:
    """Return the numbers of tasks of the forward pass with its loss, of the backward pass, and of updates."""
    kinds = [name.partition(":")[0] if name.startswith(("backward:", "update:")) else "forward" for name in graph.names]
    return [kinds.count(kind) for kind in ("forward", "backward", "update")]


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Table 2, and the same for other ways to coarsen."""
    lines, others = [], []
    for row in rows:
        printed = PRINTED.get(row["graph"])
        merged, merged_ccr, took = row["levels"]["celeritas"]
        lines.append(
            [
                row["graph"],
                f"{row['tasks']:,}" + (f" / {printed.nodes:,}" if printed else ""),
                ", ".join(f"{count:,}" for count in row["phases"]),
                f"{row['ccr']:.3g}" + (f" / {printed.ccr:.1f}" if printed else ""),
                f"{merged:,}" + (f" / {printed.merged:,}" if printed else ""),
                f"{merged_ccr:.3g}" + (f" / {printed.merged_ccr:.1f}" if printed else ""),
                number(took, 2),
                number(row["claimed"] / 1e9),
            ]
        )
        others.append([row["graph"], *(f"{row['levels'][how][0]:,}, {row['levels'][how][1]:.3g}" for how in OTHERS)])
    head = [
        "here / paper",
        "tasks",
        "forward, backward, updates",
        "CCR",
        "tasks after fusion",
        "CCR after fusion",
        "fusion, s",
        "memory claimed, GB",
    ]
    tables = [Table(head, lines), Table(["tasks, CCR", *OTHERS.values()], others, "Other ways to coarsen, ours or of others")]
    return Report(tables, [*_claims(rows), _high(rows)], [_OTHERS])


def _claims(rows: Sequence[Row]) -> Iterator[Claim]:
    fewer = {row["graph"]: row["tasks"] / row["levels"]["celeritas"][0] for row in rows}
    lower = {row["graph"]: row["ccr"] / row["levels"]["celeritas"][1] for row in rows}
    for text, most, ratios, why in (
        (f"Operation fusion reduces the nodes by up to {FEWER} times", FEWER, fewer, OTHER_GRAPHS),
        (f"Operation fusion reduces the CCR by up to {LOWER} times", LOWER, lower, BY_MODEL),
    ):
        reason = "; ".join(f"{name} {ratio:.3g} times" for name, ratio in ratios.items())
        held = max(ratios.values(), default=0.0) >= most
        if not held and len(rows) < len(testbed.COLUMNS):
            yield Claim(text, Verdict.UNSEEN, f"{reason or 'nothing'}; the other graphs are not measured")
        else:
            yield Claim.decided(text, held, reason).undecided(why)


def _high(rows: Sequence[Row]) -> Claim:
    text = "Graphs of large models have a high ratio of communication to computation (5.1; 18.6 to 112 in Table 2)"
    if len(rows) < len(testbed.COLUMNS):
        return Claim(text, Verdict.UNSEEN, "not all graphs are measured")
    ratios = {row["graph"]: row["ccr"] for row in rows}
    least = min(printed.ccr for printed in PRINTED.values())
    reason = f"{', '.join(f'{name} {ratio:.3g}' for name, ratio in ratios.items())}; held if all have at least {least:.1f}"
    return Claim.decided(text, min(ratios.values()) >= least, reason).undecided(BY_MODEL)


TABLE_2 = Item(
    "table-2",
    "Table 2: nodes and communication-to-computation ratio, before and after operation fusion",
    "the graphs are captured from PyTorch modules written for this package, with sentences of 50 words and holograms of 192 x 192 pixels, "
    "which the paper does not state; TensorFlow's nodes include constants, shapes, views and the parts of a normalisation or an update, "
    "which are no tasks here. In `transformer` the heads of attention are one operator, in `transformer, heads apart` each has its own. "
    "Durations and transfers are those of the roofline on V100s on PCIe 3.0 instead of measured ones. "
    "Fusion ignores co-location labels (R = 200, M = 0.25), as in the paper, where a label follows its first node placed.",
    cases,
    report,
    needs=(("torch", "torch"),),
    time="2 minutes",
)
