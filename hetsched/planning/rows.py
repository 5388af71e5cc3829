"""The stages, the transfers and the devices of a plan as rows, for documents, JSON and pages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from hetsched.chain.evaluation import StageParts, held_bytes, stage_parts
from hetsched.chain.placement import ChainStage, Placement
from hetsched.planning.planner import ModelPlan


def stage_rows(plan: ModelPlan) -> list[dict[str, Any]]:
    """Return device, items, seconds, bytes and offloaded items of each stage, these with their device; none without a placement.

    The seconds are those of prompt and output; in the regime throughput those of one request.
    """
    if plan.placement is None:
        return []
    names, found, prompt = plan.problem.devices, plan.values, plan.prompt_values.stage_seconds.tolist()
    return [
        {
            "device": names[stage.device],
            "first": stage.first,
            "last": stage.end - 1,
            "seconds": taken,
            "prompt_seconds": first,
            "output_seconds": max(taken - first, 0.0),
            "bytes": held,
            "offloaded": [(names[k], first, end - 1) for k, first, end in plan.placement.offloaded_runs(stage)],
        }
        for stage, taken, first, held in zip(
            plan.placement.stages, found.stage_seconds.tolist(), prompt, found.stage_bytes.tolist(), strict=True
        )
    ]


def transfer_rows(plan: ModelPlan) -> list[dict[str, Any]]:
    """Return source, target, the item sent, seconds and bytes of what goes from each stage to the next, and back from the last one.

    In the regime throughput they are those of one request. What goes back, tokens or the activations of a tied head, has no bytes.
    """
    if plan.placement is None or len(plan.placement) == 1:
        return []
    work, execution = plan.work, plan.question.execution
    requests = 1 if plan.regime == "throughput" else work.sequences
    number = (work.prompt + work.output) * requests * plan.card.width * execution.tensors_sent
    size = number * (execution.activation_bytes or work.activation_bytes)
    stages, names, found = plan.placement.stages, plan.problem.devices, plan.values
    seconds = [*found.hop_seconds.tolist(), found.closing_seconds]
    return [
        {
            "source": names[stage.device],
            "target": names[other.device],
            "item": stage.end - 1,
            "seconds": taken,
            "bytes": None if other is stages[0] else size,
        }
        for stage, other, taken in zip(stages, [*stages[1:], stages[0]], seconds, strict=True)
    ]


class DeviceBytes(NamedTuple):
    """What a device, or each of a set of devices, has in its memory, and what it lacks; `stage` is its stage, if it has one."""

    device: str
    stage: ChainStage | None
    weights: float
    """With those of other stages."""
    cache: float
    workspace: float
    reserved: float
    free: float
    missing: float
    memory: float
    held: float
    """Weights, cache and workspace."""


def device_rows(plan: ModelPlan, placement: Placement | None) -> Iterator[DeviceBytes]:
    """Yield what the devices that may be used hold by a placement, which may not fit."""
    problem, question = plan.question.of(placement), plan.question
    stages = {} if placement is None else {stage.device: stage for stage in placement.stages}
    others = [0.0] * problem.n_devices if placement is None else held_bytes(problem, placement).tolist()
    for k, (name, usable) in enumerate(zip(problem.devices, problem.memory_bytes.tolist(), strict=True)):
        memory, stage = question.device(question.sets[k][0]).memory_bytes, stages.get(k)
        own = StageParts(0.0, 0.0, 0.0)
        if stage is not None and placement is not None:
            own = stage_parts(problem, stage, placement.offloaded_in(stage))
        held = math.fsum(own) + others[k]
        yield DeviceBytes(
            name,
            stage,
            *own._replace(weights=own.weights + others[k]),
            reserved=memory - usable if math.isfinite(usable) else 0.0,
            free=max(usable - held, 0.0),
            missing=max(held - usable, 0.0),
            memory=memory,
            held=held,
        )
