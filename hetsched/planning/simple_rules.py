"""What the default of a tool and simple rules make of the question of a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hetsched.chain.placement import Placement
from hetsched.errors import UnsupportedFeature
from hetsched.planning import baselines
from hetsched.planning.question import Question, unmerged


class Baseline(NamedTuple):
    """The placement of a simple rule, the bytes that it lacks, and its value, inf if it lacks any or is impossible by the costs.

    Its devices are sets of as many as `tensor_parallel` says. Without a placement, 0 bytes and a value of inf, `reason` says why.
    """

    name: str
    placement: Placement | None
    missing_bytes: float
    value: float
    tensor_parallel: int = 1
    reason: str = ""


def baselines_of(questions: Sequence[Question]) -> tuple[Baseline, ...]:
    """Return what simple rules make of the first degree of tensor parallelism, and the default of the tool with each other one."""
    first, *others = questions
    rows = _judged(first, {**_default(first, f"{first.tool.name} default" if first.tool else ""), **_simple(first)})
    return sum((_judged(own, _default(own, f"tensor parallel {own.tensor_parallel}")) for own in others), start=rows)


def _judged(question: Question, made: Mapping[str, Placement | str]) -> tuple[Baseline, ...]:
    """Return rows of placements, or of the reasons why there are none."""
    size = question.tensor_parallel
    return tuple(
        Baseline(name, None, 0.0, math.inf, size, placement)
        if isinstance(placement, str)
        else Baseline(name, placement, *question.judged(placement), size)
        for name, placement in made.items()
    )


def _default(question: Question, name: str) -> dict[str, Placement | str]:
    """Return the default of the tool as it is run, or why it is unknown, by a name; nothing without a tool."""
    card, problem, tool = question.card, question.offloading_problem, question.tool
    if tool is not None:
        names = question.names(tool.name)
        memory = [min(question.device(one).memory_bytes for one in own) for own in question.sets]
        try:
            stated = tool.default(card, problem, names, free_bytes=memory)
            return {name: stated if problem.offloading is None else tool.execution.as_run(stated, names)}
        except UnsupportedFeature as error:
            return {name: str(error)}
    return {}


def _simple(question: Question) -> dict[str, Placement | str]:
    """Return what simple rules make of the first problem, with the devices that can run all blocks.

    Of rules that need a finite figure of each device it is a reason where one has none.
    """
    card, problem = question.card, question.problems[0]
    made: dict[str, Placement | str] = {}
    host = question.host
    able = [k for k in range(problem.n_devices) if k != host and np.isfinite(problem.seconds[1 : card.n_blocks + 1, k]).all()]
    if able:
        widths = np.array([question.device(own[0]).memory_bandwidth or math.inf for own in question.sets])
        made["even"] = baselines.even(card, problem, devices=able, host=host)
        starts = question.starts
        made["fill-first"] = unmerged(baselines.fill_first(problem.merged(starts), devices=able, host=host), starts, problem.n_items)
        made["by memory"] = made["by bandwidth"] = "a device has no finite figure, by which blocks would be shared out"
        if np.isfinite(problem.memory_bytes[able]).all() and problem.memory_bytes[able].any():
            made["by memory"] = baselines.by_memory(card, problem, devices=able, host=host)
        if np.isfinite(widths[able]).all():
            made["by bandwidth"] = baselines.by_bandwidth(card, problem, widths, devices=able, host=host)
    return made
