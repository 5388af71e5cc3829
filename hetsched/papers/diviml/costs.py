"""Table II: milliseconds of networks on the three devices, by the cost models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hetsched as hs
from hetsched.costs import device
from hetsched.papers.diviml import networks
from hetsched.papers.diviml.judging import factor
from hetsched.papers.diviml.single import MODULES
from hetsched.papers.diviml.stacks import MEAN_MS
from hetsched.papers.items import BY_MODEL, Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number

PRINTED = {"torchvision": (223.10, 12.16, 7.80), "RWNN": MEAN_MS}
"""Milliseconds on the CPU, the T4 and the A100, averaged over the networks."""
MODELS = ("Analytic", "Roofline")
THREADS = (26, 2, 1)
"""Cores of the CPU that compute: all, and as few as explain the paper's time."""
WITHIN = 1.5
"""The factor within which a ratio agrees."""


def cases(setting: Setting) -> list[Case]:
    """Return a case a network and cost model."""
    names = [*(networks.SHIPPED if setting.quick else networks.PIXELS), *(f"{wiring}, {tasks} tasks" for wiring, tasks in MODULES)]
    return [{"what": "durations", "network": name, "costs": costs} for name in names for costs in MODELS]


def measure(case: Case, data: Path | None) -> Row:
    """Return the milliseconds of a network on the CPU with each number of threads, the T4 and the A100."""
    wiring, _, tasks = case["network"].partition(", ")
    graph = hs.workloads.rwnn(wiring, int(tasks.split()[0]), modules=1) if tasks else networks.graph(wiring)
    full = device("skylake")
    peak = {dtype: value / THREADS[0] for dtype, value in full.peak_flops.items()}
    cpus = [device("skylake", f"cpu{n}", peak_flops={dtype: n * value for dtype, value in peak.items()}, units=n) for n in THREADS]
    cluster = hs.Cluster([*cpus, device("t4"), device("a100")], bandwidth=1e9)
    costs: Any = getattr(hs.costs, case["costs"])()
    durations = hs.Problem(graph, cluster, costs=costs).durations[:, :, 0]
    made = (durations.sum(axis=0) * 1e3).tolist()
    launched = int((durations[:, -1] > 0).sum())
    return {"ms": made, "operators": launched, "says": ", ".join(f"{value:.3g}" for value in made) + " ms"}


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Table II and whether its ratios are found."""
    lines, claims, notes = [], [], networks.missing(rows)
    for group, printed in PRINTED.items():
        own = [row for row in rows if ("tasks" in row["network"]) == (group == "RWNN")]
        lines.append([f"{group}: paper", "", *_cells(printed), "", ""])
        for costs in MODELS:
            found = [row for row in own if row["costs"] == costs]
            lines.extend([row["network"], costs, *_row(row["ms"])] for row in found)
            if found:
                lines.append([f"{group}: mean", costs, *_row(np.mean([row["ms"] for row in found], axis=0).tolist())])
        measured = {costs: np.mean([row["ms"] for row in own if row["costs"] == costs], axis=0) for costs in MODELS if _has(own, costs)}
        fewer = {f"{n} core{'s' * (n > 1)}": [ms[at] / ms[-1] for ms in measured.values()] for at, n in enumerate(THREADS)}
        claims.append(_ratio(group, "CPU", printed[0] / printed[2], fewer))
        claims.append(_ratio(group, "T4", printed[1] / printed[2], {"": [ms[-2] / ms[-1] for ms in measured.values()]}))
        if own:
            notes.append(_each(group, printed[2], own))
    notes.append(
        "The paper runs and times operators one by one from Python (`torch.fx.Interpreter`), and does not say how many of the CPU's cores "
        "compute; the cost models count kernels and all cores; the last columns are for fewer cores with the full bandwidth of memory."
    )
    head = [
        "networks",
        "cost model",
        "CPU, ms",
        "T4, ms",
        "A100, ms",
        "CPU / A100",
        "T4 / A100",
        *(f"CPU with {n} core{'s' * (n > 1)} / A100" for n in THREADS[1:]),
    ]
    return Report([Table(head, lines, f"The CPU has {THREADS[0]} cores; the last columns are for fewer")], claims, notes)


def _each(group: str, ms: float, rows: Sequence[Row]) -> str:
    """Return what a task takes in the paper and by the cost models."""
    tasks = float(np.mean([row["operators"] for row in rows]))
    made = float(np.mean([row["ms"][-1] for row in rows]))
    return (
        f"{group}: the paper's {ms:g} ms on the A100 are {number(1e3 * ms / tasks)} us for each of {tasks:.0f} tasks, the mean of the "
        f"graphs here, which take {number(1e3 * made / tasks)} us by the cost models."
    )


def _has(rows: Sequence[Row], costs: str) -> bool:
    return any(row["costs"] == costs for row in rows)


def _cells(ms: Sequence[float]) -> list[str]:
    return [*(number(value) for value in ms), factor(ms[0] / ms[2]), factor(ms[1] / ms[2])]


def _row(ms: Sequence[float]) -> list[str]:
    a100 = ms[-1]
    return [*_cells([ms[0], ms[-2], a100]), *(factor(value / a100) for value in ms[1 : len(THREADS)])]


def _ratio(group: str, name: str, printed: float, found: Mapping[str, Sequence[float]]) -> Claim:
    """Return whether the first ratios found, one a cost model, agree with one of the paper within `WITHIN`; the others explain it."""
    text = f"{group}: the {name} takes {printed:.3g} times as long as the A100 (Table II), here within a factor of {WITHIN:g}"
    first = next(iter(found.values()))
    if not first:
        return Claim(text, Verdict.UNSEEN, "not measured")
    shown = [f"{' and '.join(map(factor, ratios))}{how and f' with {how}'}" for how, ratios in found.items()]
    reason = f"by {' and '.join(MODELS)}: {'; '.join(shown)}"
    return Claim.decided(text, all(max(value / printed, printed / value) <= WITHIN for value in first), reason).undecided(BY_MODEL)


TABLE_2 = Item(
    "table-2",
    "Table II: speeds of the devices",
    "the paper averages profiles of its networks on its devices; here the cost models that the other items use give the durations of the "
    "networks' operators on the catalogue's devices: `Analytic`, fitted to measurements of operators, and `Roofline`, from data sheets. "
    "Randomly wired modules have the first stage's tensors of the small RandWire network, and a task for each node, not each operator.",
    cases,
    report,
    time="a minute, three where torchvision's networks are captured",
    possible=networks.possible,
)
