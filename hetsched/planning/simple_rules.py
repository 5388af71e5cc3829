"""What the default of a tool and simple rules make of the question of a plan."""

from __future__ import annotations

import contextlib
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

    Its devices are sets of as many as `tensor_parallel` says.
    """

    name: str
    placement: Placement
    missing_bytes: float
    value: float
    tensor_parallel: int = 1


def baselines_of(questions: Sequence[Question]) -> tuple[Baseline, ...]:
    """Return what simple rules make of the first degree of tensor parallelism, and the default of the tool with each other one."""
    first, *others = questions
    rows = _judged(first, {**_default(first, f"{first.tool.name} default" if first.tool else ""), **_simple(first)})
    return sum((_judged(own, _default(own, f"tensor parallel {own.tensor_parallel}")) for own in others), start=rows)


def _judged(question: Question, made: Mapping[str, Placement]) -> tuple[Baseline, ...]:
    size = question.tensor_parallel
    return tuple(Baseline(name, placement, *question.judged(placement), size) for name, placement in made.items())


def _default(question: Question, name: str) -> dict[str, Placement]:
    """Return the default of the tool, by a name; nothing without one."""
    card, problem, tool = question.card, question.problems[0], question.tool
    if tool is not None:
        names = question.names(tool.name)
        memory = [min(question.device(one).memory_bytes for one in own) for own in question.sets]
        with contextlib.suppress(UnsupportedFeature):  # it has none for this model, is no stages, or needs a finite memory
            stated = tool.default(card, problem, names, free_bytes=memory)
            return {name: stated if problem.offloading is None else tool.execution.as_run(stated, names)}
    return {}


def _simple(question: Question) -> dict[str, Placement]:
    """Return what simple rules make of the first problem, with the devices that can run all blocks.

    Rules that need a finite figure of each device are left out where one has none.
    """
    card, problem = question.card, question.problems[0]
    made: dict[str, Placement] = {}
    host = question.host
    able = [k for k in range(problem.n_devices) if k != host and np.isfinite(problem.seconds[1 : card.n_blocks + 1, k]).all()]
    if able:
        widths = np.array([question.device(own[0]).memory_bandwidth or math.inf for own in question.sets])
        made["even"] = baselines.even(card, problem, devices=able, host=host)
        starts = question.starts
        made["fill-first"] = unmerged(baselines.fill_first(problem.merged(starts), devices=able, host=host), starts, problem.n_items)
        if np.isfinite(problem.memory_bytes[able]).all() and problem.memory_bytes[able].any():
            made["by memory"] = baselines.by_memory(card, problem, devices=able, host=host)
        if np.isfinite(widths[able]).all():
            made["by bandwidth"] = baselines.by_bandwidth(card, problem, widths, devices=able, host=host)
    return made
