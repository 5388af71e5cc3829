"""Ghannane and Abdelfattah, "DiviML: A Module-based Heuristic for Mapping Neural Networks onto Heterogeneous Platforms", ICCAD 2023."""

from __future__ import annotations

from pathlib import Path

from hetsched.papers.diviml import costs, networks, nodes, over_time, runtimes, single, solving, stacks, tables
from hetsched.papers.items import Case, Claim, Paper, Row, Verdict

_WHAT = {
    "modules": stacks.measure,
    "network": networks.measure,
    "durations": costs.measure,
    "decoder": nodes.measure,
    "half": nodes.measure_half,
}


def _measure(case: Case, data: Path | None) -> Row:
    return _WHAT[case["what"]](case, data)


PAPER = Paper(
    "diviml",
    "DiviML: modules of a network on a CPU and two GPUs",
    'Y. Ghannane, M. S. Abdelfattah, "DiviML: A Module-based Heuristic for Mapping Neural Networks onto Heterogeneous Platforms", 2023',
    (
        tables.TABLE_1,
        costs.TABLE_2,
        runtimes.TABLE_3,
        tables.TABLE_4,
        nodes.TABLE_5,
        single.FIGURE_3,
        single.FIGURE_4,
        single.FIGURE_5,
        single.FIGURE_6,
        over_time.FIGURE_7,
    ),
    _measure,
    about=f"Methods, where an item does not say otherwise: {solving.METHODS}",
    besides=(
        Claim(
            "The first formulation of scheduling with model and data parallelism for batched networks (I)",
            Verdict.UNSEEN,
            "a claim about the literature",
        ),
        Claim(
            "The computation of the lower bound lends itself well to parallel processes (IV-B)",
            Verdict.UNSEEN,
            "the paper has no figure; `hetsched.bounds.modular` with `executor=` bounds parts side by side, the items do not",
        ),
        Claim(
            "The scheduler is plugged into existing frameworks easily (abstract, III)",
            Verdict.UNSEEN,
            "no figure; what runs placed models here is `hetsched.runtime`",
        ),
        Claim(
            "When b of L inputs have passed a module, L - b + 1 are left for what depends on one of its outputs (IV-B2)",
            Verdict.UNSEEN,
            "proven here for all outputs together, and for one of c outputs with the c-th part of that (`hetsched.bounds.batches`)",
        ),
        Claim(
            "The optimum is at least that of M_1 plus the least optimum of what depends on an input of the other modules (IV-B2)",
            Verdict.NOT_HELD,
            "not where nothing depends on a task of M_1: of u and x in M_1 and v after u in M_2, of 1, 10 and 10 s on two equal devices, "
            "M_1 takes 10 s and v 10 s, all three 11 s. The bounds here leave out what nothing depends on (`hetsched.bounds.recursive`)",
        ),
    ),
)
