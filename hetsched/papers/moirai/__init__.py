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
        Claim(
            "Modern networks typically have many operators with short computation times (section III, Figure 4)",
            Verdict.UNSEEN,
            "the paper measures four networks on four devices; durations here are a cost model's",
        ),
        Claim(
            "The MILP can be extended to several heterogeneous devices (conclusion)",
            Verdict.UNSEEN,
            "so by construction: in both clusters of Figure 9 it places on devices of several kinds",
        ),
        Claim(
            "Moirai's placement generation time is reasonable (conclusion)",
            Verdict.UNSEEN,
            "the paper does not say what is; Table V has the times, here under a limit",
        ),
    ),
)
