"""Zhang et al., "Moirai: Towards Optimal Placement for Distributed Inference on Heterogeneous Devices", 2023."""

from __future__ import annotations

from pathlib import Path

from hetsched.papers.items import Case, Claim, Paper, Row, Verdict
from hetsched.papers.moirai import fusion, graphs, latency, placing, times

_WHAT = {"graph": graphs.measure, "placement": placing.measure}


def _measure(case: Case, data: Path | None) -> Row:
    return _WHAT[case["what"]](case, data)


PAPER = Paper(
    "moirai",
    "Moirai: fused graphs on unequal devices",
    'B. Zhang et al., "Moirai: Towards Optimal Placement for Distributed Inference on Heterogeneous Devices", 2023',
    (graphs.TABLE_4, latency.FIGURE_9, fusion.FIGURE_10, times.TABLE_5),
    _measure,
    besides=(
        Claim(
            "Relaxing the MILP reduces the placement time significantly (section IV-B)",
            Verdict.UNSEEN,
            "the paper has no figure for it, and does not say what is relaxed",
        ),
    ),
)
