"""Tavarageri et al., "Automatic Model Parallelism for Deep Neural Networks with Compiler and Hardware Support", 2019."""

from __future__ import annotations

from pathlib import Path

from hetsched.papers.items import Case, Claim, Paper, Row, Verdict
from hetsched.papers.tavarageri import assistants, partition

_WHAT = {"partition": partition.measure, "assistants": assistants.measure}


def _measure(case: Case, data: Path | None) -> Row:
    return _WHAT[case["what"]](case, data)


PAPER = Paper(
    "tavarageri",
    "Tavarageri et al.: partitioning by a compiler, and scheduling assistants",
    'S. Tavarageri, S. Sridharan, B. Kaul, "Automatic Model Parallelism for Deep Neural Networks with Compiler and Hardware Support", 2019',
    (partition.SECTION_2, assistants.SECTION_3),
    _measure,
    (
        Claim(
            "The performance of training on Intel architectures increases dramatically (section 1)",
            Verdict.UNSEEN,
            "the paper has no figure, and no such devices are measured here",
        ),
        Claim(
            "Rules in hardware eliminate the overheads of run-time techniques in middleware, and so are superior to them (section 1)",
            Verdict.UNSEEN,
            "no such hardware exists; here the assistants are a program, and the time of their decisions is not counted",
        ),
        Claim(
            "The techniques are applicable to directed graphs, Kernighan and Lin's to undirected ones only (sections 2 and 4)",
            Verdict.UNSEEN,
            "a claim about formulations: the cost counts incoming edges; what it gains over a partition that ignores directions is beside "
            "METIS in section-2",
        ),
        Claim(
            "Earlier hardware schedulers assist the scheduling of processes by an operating system, a distinct problem (section 4)",
            Verdict.UNSEEN,
            "a claim about the literature",
        ),
    ),
)
