"""Ding et al., "IOS: Inter-Operator Scheduler for CNN Acceleration", MLSys 2021."""

from __future__ import annotations

from pathlib import Path

from hetsched.papers.ios import counts
from hetsched.papers.items import Case, Paper, Row

_WHAT = {"counts": counts.measure}


def _measure(case: Case, data: Path | None) -> Row:
    return _WHAT[case["what"]](case, data)


PAPER = Paper(
    "ios",
    "IOS: stages on one device",
    'Y. Ding, L. Zhu, Z. Jia, G. Pekhimenko, S. Han, "IOS: Inter-Operator Scheduler for CNN Acceleration", MLSys 2021',
    (counts.TABLE_1,),
    _measure,
)
