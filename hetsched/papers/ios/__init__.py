"""Ding et al., "IOS: Inter-Operator Scheduler for CNN Acceleration", MLSys 2021."""

from __future__ import annotations

from pathlib import Path

from hetsched.papers.ios import batches, counts, here, limits, sample, specialisation, strategies
from hetsched.papers.items import Case, Claim, Paper, Row, Verdict

_WHAT = {
    "convolutions": counts.measure_convolutions,
    "sample": sample.measure,
    "counts": counts.measure,
    "strategies": strategies.measure,
    "limits": limits.measure,
    "authors' schedules": specialisation.measure,
    "our schedules": specialisation.measure,
    "last block": specialisation.measure_block,
    "batch": batches.measure,
    "blocks": batches.measure_blocks,
    "here": here.measure,
}


def _measure(case: Case, data: Path | None) -> Row:
    return _WHAT[case["what"]](case, data)


_GPU = 'An H100 measured IOS beside the module, a CUDA graph of it and torch.compile: "On a GPU" in docs/benchmarks.md'

UNSEEN = [
    Claim(text, Verdict.UNSEEN, reason)
    for text, reason in (
        (
            "IOS is 1.1 to 1.5 times as fast as TASO, TVM-cuDNN and TensorRT, and faster than TensorFlow with and without XLA, on the four "
            "networks at batch 1 on a V100 (abstract, introduction, Figure 7, conclusion)",
            f"it needs a V100 and those libraries as they were in 2020. {_GPU}",
        ),
        (
            "On an RTX 2080 Ti IOS is faster than the other frameworks on Inception-v3, RandWire and NASNet, and comparable with TASO and "
            "TensorRT on SqueezeNet (Figure 15)",
            f"it needs that GPU and those libraries. {_GPU}",
        ),
        (
            "IOS is faster than kernels tuned by TVM on Inception-v3 and SqueezeNet, slower on RandWire and NASNet, and takes 3 GPU hours "
            "for the four networks instead of 208 (Figure 12)",
            "it needs a V100 and TVM's compiler; the logs that the authors published have the best kernels only, not the time of tuning. "
            "The cost of the search alone is the item search-cost",
        ),
        (
            "ResNet-34 and ResNet-50 gain 2 to 5 % by running the convolutions of their short-cuts in parallel (section 5)",
            "the gain is within the contention model's error",
        ),
    )
]

PAPER = Paper(
    "ios",
    "IOS: stages on one device",
    'Y. Ding, L. Zhu, Z. Jia, G. Pekhimenko, S. Han, "IOS: Inter-Operator Scheduler for CNN Acceleration", MLSys 2021',
    (
        counts.FIGURE_1,
        sample.FIGURE_2,
        counts.TABLE_1,
        limits.SEARCH_COST,
        strategies.FIGURE_6_ITEM,
        limits.FIGURE_9_ITEM,
        specialisation.TABLE_3,
        specialisation.FIGURE_10,
        batches.FIGURE_11_ITEM,
        strategies.FIGURE_14,
        batches.FIGURE_16,
        here.MEASURED,
    ),
    _measure,
    (
        *UNSEEN,
        Claim(
            "The bound on the transitions is reached by d independent paths of c operators (Appendix A, Figure 13)",
            Verdict.HELD,
            "all but those of an empty ending: C(c + 2, 2)^d - (c + 1)^d are counted for up to 30 paths of 30 operators "
            "(tests/models/ios/test_ios.py)",
        ),
    ),
)
