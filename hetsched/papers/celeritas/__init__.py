"""Xu et al., "Celeritas: Fast Optimizer for Large Dataflow Graphs", 2022."""

from __future__ import annotations

from pathlib import Path

from hetsched.papers.celeritas import evaluation, fusion, generation, measurement, placement, steps
from hetsched.papers.items import Case, Claim, Paper, Row, Verdict

_WHAT = {
    "fusion": fusion.measure,
    "placement": placement.measure,
    "search": placement.search,
    "adjusting": steps.adjusted,
    "evaluation": evaluation.evaluate,
}


def _measure(case: Case, data: Path | None) -> Row:
    return _WHAT[case["what"]](case, data)


_HRL = "HRL learns for hours on the devices and is not among the methods"
PAPER = Paper(
    "celeritas",
    "Celeritas: placement of training steps",
    'H. Xu, Y. Liao, H. Xie, P. Zhou, "Celeritas: Fast Optimizer for Large Dataflow Graphs", 2022',
    (fusion.TABLE_2, steps.TABLE_3, generation.TABLE_4, evaluation.TABLE_5, measurement.FIGURE_6),
    _measure,
    (
        Claim("HRL ends out of memory in most of its attempts on Inception_V3 with batches of 512 (Figure 1)", Verdict.UNSEEN, _HRL),
        Claim("On NMT the step is 11.0 % faster than HRL's, which succeeds after many attempts", Verdict.UNSEEN, _HRL),
        Claim("HRL's step on the Transformer is very long, 42.8 s", Verdict.UNSEEN, _HRL),
        Claim(
            "A range R too large or too small costs time of fusion, or quality (5.1.3)",
            Verdict.UNSEEN,
            "the paper has no figure; R is 200 here, as in its evaluation",
        ),
    ),
)
