"""Plans of models in words: labelled rows for a terminal, and fields for JSON."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hetsched.chain.placement import ChainStage, Placement
from hetsched.costs.tensor_parallel import SOURCE
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning.explanation import LINK_CHANGE, MEMORY_CHANGE, MORE, DeviceLimit, Explanation
from hetsched.planning.planner import OFF_BY, ModelPlan
from hetsched.planning.rows import stage_rows, transfer_rows
from hetsched.planning.sensitivity import CLOSE, Best
from hetsched.planning.simple_rules import Baseline
from hetsched.planning.tables import Tables
from hetsched.planning.tools import Command
from hetsched.problem.graph import plural
from hetsched.problem.units import percent, seconds, size
from hetsched.search.solution import Status
from hetsched.stopping import Stop

Row = tuple[str, str]
SAME = 0.01
"""Share by which a baseline may be worse than the plan and still be called as good."""
TIGHT = 0.03
"""Share of its memory that a device should have left: below it the plan warns."""


def plan_rows(plan: ModelPlan, *, labelled: bool = False) -> list[Row]:
    """Return a plan in words, as labels and facts: the headline, what was asked, the placement, the baselines and the limits.

    Parameters
    ----------
    plan : ModelPlan
        Limits are told if it is explained.
    labelled : bool
        Whether each fact has its label; otherwise only the first of several has it.
    """
    rows = [("plan", headline(plan)), *asked(plan)]
    if plan.placement is not None:
        rows += [*_placed(plan), *rates(plan), ("proven", proof(plan))]
    rows += [("against" if not k else "", text) for k, text in enumerate(f"{row.name}: {judgement(plan, row)}" for row in plan.baselines)]
    if plan.explanation is not None:
        rows += [("limits" if not k else "", text) for k, text in enumerate(limits(plan, plan.explanation))]
    return each_labelled(rows) if labelled else rows


def each_labelled(rows: Sequence[Row]) -> list[Row]:
    """Return rows of which each has a label: its own, or that of the one before."""
    labels: Iterator[str] = itertools.accumulate((label for label, _ in rows), lambda before, label: label or before)
    return list(zip(labels, (text for _, text in rows), strict=True))


def plan_facts(plan: ModelPlan) -> dict[str, Any]:
    """Return a plan as fields for JSON, with limits if it is explained."""
    explanation = plan.explanation
    facts: dict[str, Any] = {
        "headline": headline(plan),
        "costs": plan.cost_basis,
        "status": str(plan.status),
        "regime": plan.regime,
        "tool": plan.tool,
        "tensor_parallel": plan.tensor_parallel,
        "seconds": plan.value,
        "bound": plan.bound,
        "bound_name": bound_name(plan),
        "bound_evidence": proof(plan),
        "gap": plan.gap,
        "stopped": str(plan.stopped),
        "tokens_per_second": plan.tokens_per_second,
        "missing_bytes": plan.missing_bytes,
        "stages": stage_rows(plan),
        "transfers": transfer_rows(plan),
        "baselines": [
            {"name": row.name, "seconds": row.value, "missing_bytes": row.missing_bytes, "reason": row.reason} for row in plan.baselines
        ],
    }
    if explanation is not None:
        facts["limits"] = {
            "most_context": explanation.most_context,
            "most_sequences": explanation.most_sequences,
            "most_bits": explanation.most_bits,
            "without_hops": explanation.without_hops,
            "second_best": explanation.second_best.value,
            "regret": explanation.regret,
            "devices": [_limit_facts(limit) for limit in explanation.devices],
            "left_out": list(explanation.left_out),
        }
    return facts


def _limit_facts(limit: DeviceLimit) -> dict[str, Any]:
    return {
        "device": limit.device,
        "more_bytes": MORE,
        "seconds_with_more": limit.with_more.value,
        "step_bytes": limit.step_bytes,
        "seconds_with_step": limit.step.value,
        "factors": list(limit.factors),
    }


def headline(plan: ModelPlan) -> str:
    """Return the answer in a sentence; whether the times are modelled or measured comes first."""
    times = plan.cost_basis.upper()
    if plan.status is Status.UNKNOWN:
        return (
            f"no placement found before the search ended ({plan.stopped}), and none is proven not to fit{_in_order(plan)}; allow more time"
        )
    if plan.placement is None:
        if math.isnan(plan.missing_bytes):
            return f"does not fit{_of_tool(plan)}{_in_order(plan)}; how much is missing was not found before the end ({plan.stopped})"
        if math.isinf(plan.missing_bytes):
            return f"no placement: none of the devices can run all items{f' for {plan.tool}' if plan.tool else ''}{_in_order(plan)}"
        without = plan.question.not_searched
        lacking = f"{'' if plan.question.offloads is None and plan.question.is_exact else 'at least '}{size(plan.missing_bytes)}"
        return (
            f"does not fit: {lacking} are missing, over all placements of whole blocks{_of_tool(plan)}{_in_order(plan)}"
            f"{f', without {without}' if without else ''}"
        )
    if plan.regime == "fit":
        return f"fits, on {plural(len(plan.placement), 'device')}; no times are asked for"
    what = "a request" if plan.work.sequences == 1 else f"{plan.work.sequences} requests at a time"
    value = f"{seconds(plan.value)} for {what}" if plan.regime == "latency" else f"a request every {seconds(plan.value)}"
    stated = f", but {plan.tool} cannot state it" if plan.refusal else ""
    among = f"the best of whole blocks for these costs{_of_tool(plan)}{_in_order(plan)}"
    if plan.status is not Status.OPTIMAL:
        gap = f"{among} takes at most {percent(plan.gap)} less" if plan.bound else "with no bound yet"
        among = f"{_ended(plan)}, {gap}"
    return f"{times} costs: {value}, {among}{stated}; {_verdict(plan)}"


def _verdict(plan: ModelPlan) -> str:
    """Return how the best baseline compares."""
    best = _best_baseline(plan)
    if best is None:
        return "no simple rule fits"
    gain = 1 - plan.value / best.value
    return f"{best.name} is as good" if gain < SAME else f"{percent(gain)} less than {best.name}"


def _best_baseline(plan: ModelPlan) -> Baseline | None:
    fitting = [row for row in plan.baselines if math.isfinite(row.value)]
    return min(fitting, key=lambda row: row.value, default=None)


def _ended(plan: ModelPlan) -> str:
    """Return how a placement was found that is not proven the best."""
    if plan.stopped is Stop.FINISHED:
        return "found by local search, as too many devices differ for exact search"
    return f"found before the end ({plan.stopped})"


def _of_tool(plan: ModelPlan) -> str:
    return "" if plan.tool is None or plan.refusal else f" that {plan.tool} can state"


def _in_order(plan: ModelPlan) -> str:
    return "" if plan.question.order is None else f" in the order {', '.join(plan.question.order)}"


def asked(plan: ModelPlan) -> Iterator[Row]:
    """Yield what the plan answers: the model, the machine, the costs and the workload."""
    card, work, machine = plan.card, plan.work, plan.machine
    stored = "as stored" if card.exact else "by formula"
    cache = float((card.items.cache_numbers * work.cache_bytes).sum())
    yield (
        "model",
        f"{card.name}: {card.family}, {plural(card.n_blocks, 'block')}, {card.n_parameters / 1e9:.4g} B parameters, "
        f"{size(card.total_bytes)} {stored}, KV cache {size(cache)} a token"
        f"{', its items by the class in transformers' if card.source.endswith('transformers') else ''}",
    )
    problem, kinds = plan.problem, {device.name: device.kind for device in machine.cluster.devices}
    devices = [
        f"{name}{f' {kinds[own[0]]}' if kinds[own[0]] not in ('', name) else ''} {size(memory)}{_each(plan)}"
        for name, own, memory in zip(problem.devices, plan.question.sets, problem.memory_bytes.tolist(), strict=True)
    ]
    yield "machine", f"usable memory: {', '.join(devices)}"
    if plan.regime != "fit":
        yield "costs", _costs(plan)
    tokens = f"prompt {work.prompt}, output {work.output}, context {work.tokens}"
    chunks = f"prompts in chunks of {work.chunk}" if plan.question.execution.chunks else "each prompt at once"
    yield "asked", f"{plan.regime}: {tokens}, {plural(work.sequences, 'sequence')}, {chunks}"
    if plan.question.execution.note:
        yield "note", plan.question.execution.note


def _each(plan: ModelPlan) -> str:
    return " each" if plan.tensor_parallel > 1 else ""


def _costs(plan: ModelPlan) -> str:
    own, costs = plan.machine.efficiency, plan.costs
    known = ", ".join(f"{name} {own[name].compute:.3g} and {own[name].memory:.3g}" for name in plan.question.used if name in own)
    assumed = f"{costs.compute:g} of the peak and {costs.memory:g} of the memory bandwidth"
    if plan.cost_basis == "modelled":
        return f"modelled from data sheets, reaching {assumed}, which are guesses; run llama-bench and give --measured to make it yours"
    rest = "" if plan.cost_basis == "measured" else f"; others by data sheets, reaching {assumed}, which are guesses"
    return f"{plan.cost_basis}; of the peak and the memory bandwidth: {known}{rest}"


def _device(plan: ModelPlan, stage: ChainStage) -> str:
    return plan.problem.devices[stage.device]


def block_range(first: int, last: int) -> str:
    """Return blocks in words: ``block 3``, ``blocks 0-13``."""
    return f"block {first}" if first == last else f"blocks {first}-{last}"


def stage_items(plan: ModelPlan, placement: Placement, stage: ChainStage) -> str:
    """Return the items of a stage in words: ``embed, blocks 0-13, head, experts of blocks 0-3 on cpu``."""
    offloads = plan.question.execution.offloads
    part = "" if offloads is None else offloads.part
    moved = [f"{part} of {_items(plan, first, end)} on {plan.problem.devices[k]}" for k, first, end in placement.offloaded_runs(stage)]
    return ", ".join([_items(plan, stage.first, stage.end), *moved])


def _items(plan: ModelPlan, start: int, end: int) -> str:
    card, n = plan.card, plan.card.n_blocks
    first, last = max(start, 1) - 1, min(end - 1, n) - 1
    blocks = [] if last < first else [block_range(first, last)]
    closed = plan.problem.n_items < card.n_items and start == 0
    parts = [*(["embed"] if start == 0 else []), *blocks, *(["head"] if end == card.n_items or closed else [])]
    return ", ".join(parts)


def command(plan: ModelPlan, model: str | None = None, tool: str | None = None) -> tuple[Command | None, str]:
    """Return the command of the plan's tool, or of another, or the reason why it has none; neither without a tool or a placement.

    `model` is what the tool calls the model, as in `ModelPlan.command`.
    """
    if (tool or plan.tool) is None or plan.placement is None:
        return None, ""
    try:
        return plan.command(tool, model=model), ""
    except (InvalidArgument, UnsupportedFeature) as error:
        return None, str(error)


def described(plan: ModelPlan, placement: Placement | None, size: int | None = None) -> str:
    """Return a placement in a line, empty without one; its devices are sets of a size, by default those of the plan."""
    if placement is None:
        return ""
    names = plan.question.devices(size or plan.tensor_parallel)
    return "; ".join(f"{names[stage.device]} {stage_items(plan, placement, stage)}" for stage in placement.stages)


def _placed(plan: ModelPlan) -> Iterator[Row]:
    assert plan.placement is not None
    found, memory = plan.values, plan.problem.memory_bytes
    for k, (stage, taken, held) in enumerate(
        zip(plan.placement.stages, found.stage_seconds.tolist(), found.stage_bytes.tolist(), strict=True)
    ):
        free = float(memory[stage.device])
        warning = f", less than {percent(TIGHT)} left" if tight(held, free) else ""
        times = "" if plan.regime == "fit" else f", {seconds(taken)}"
        room = f"{size(held)} of {size(free)}{_each(plan)}"
        text = f"{_device(plan, stage)}: {stage_items(plan, plan.placement, stage)}; {room}{warning}{times}"
        yield "placement" if not k else "", text
    for k in set(np.flatnonzero(found.held_bytes).tolist()) - {stage.device for stage in plan.placement.stages}:
        yield "", f"{plan.problem.devices[k]}: holds {size(found.held_bytes[k])} of {size(memory[k])}"
    if plan.tensor_parallel > 1 and plan.regime != "fit":
        shares = [part / whole for part, whole in zip(plan.question.messages_within(plan.placement), found.stage_seconds, strict=True)]
        yield "", f"up to {percent(max(shares))} of a stage are messages between its devices, modelled: {SOURCE}"


def tight(held: float, free: float) -> bool:
    """Return whether a stage leaves too little of the memory that its device has for it."""
    return free < math.inf and held > (1 - TIGHT) * free


def rates(plan: ModelPlan) -> Iterator[Row]:
    """Yield how fast requests are; nothing where no time counts."""
    if plan.regime == "latency":
        work, prompt = plan.work, plan.prompt_seconds
        each = (plan.value - prompt) / work.output if work.output else math.nan
        decoding = f", then {seconds(each)} a token, {work.sequences / each:.4g} tokens/s" if work.output and each > 0 else ""
        yield "request", f"prompt {seconds(prompt)}{decoding}"
    if plan.regime == "throughput":
        count = plan.values.in_progress
        each = math.ceil(plan.work.sequences / count)
        yield (
            "rate",
            f"{plan.tokens_per_second:.4g} tokens/s of output, prompts included; {count} times {plural(each, 'sequence')} in progress",
        )


def bound_name(plan: ModelPlan) -> str:
    """Return what the bound comes from."""
    if not plan.bound and plan.status is not Status.OPTIMAL:
        return "none"
    if plan.status is Status.INFEASIBLE:
        problems = [problem for question in plan.question.with_degrees(plan.degrees) for problem in question.problems]
        if all(problem.offloading is None and Tables(problem).lacking for problem in problems):
            return "sum of bytes"
    if not plan.question.is_exact:
        return "Lagrangian bound"
    return "exact search" if plan.status in (Status.OPTIMAL, Status.INFEASIBLE) else "exact search until its end"


def proof(plan: ModelPlan) -> str:
    """Return among which placements the plan is the best, or that none fits, or what is known of them."""
    if plan.placement is None:
        return headline(plan)
    order = "in the given order of devices" if plan.question.order is not None else "in any order of devices"
    if plan.degrees != (1,):
        sizes = ", ".join(map(str, plan.degrees[:-1])) + " or " * (len(plan.degrees) > 1) + str(plan.degrees[-1])
        order = f"each on {sizes} alike devices of a node with the fastest links, as many for all, {order}"
    without = plan.question.not_searched
    unsearched = f"; not searched: {without}" if without else ""
    offloads = plan.question.offloads
    blocks = f"of whole blocks{_of_tool(plan)}{'' if offloads is None else f', with or without {offloads.searched}'}"
    if plan.status is not Status.OPTIMAL:
        least = f"no placement {blocks}, {order}, takes less than {seconds(plan.bound)}" if plan.bound else "nothing"
        return f"{least}; {_ended(plan)}, the placement is verified{unsearched}"
    how = "exact search" if plan.question.is_exact else "local search and a bound that it reaches,"
    return f"by {how} over all placements {blocks}, one interval a device, {order}; verified{unsearched}"


def judgement(plan: ModelPlan, row: Baseline) -> str:
    """Return how a baseline does beside the plan."""
    if row.reason:
        return f"unknown: {row.reason}"
    if row.missing_bytes:
        return f"does not fit, {size(row.missing_bytes)} are missing"
    if math.isinf(row.value):
        return "is not among the placements that are searched, and has no time by these costs"
    if plan.regime == "fit":
        return "fits"
    gain = 1 - plan.value / row.value
    return f"{seconds(row.value)}, {'equal' if gain < 1e-9 else f'the plan takes {percent(gain)} less'}"


def limits(plan: ModelPlan, explanation: Explanation) -> Iterator[str]:
    """Yield what limits a plan, and what would change it, as sentences without an end."""
    known = plan.card.context_length
    made_for = f" (the model was made for {known})" if known is not None and (explanation.most_context or 0) > known else ""
    most = [
        *([] if explanation.most_context is None else [f"a context of {explanation.most_context} tokens{made_for}"]),
        *([] if explanation.most_sequences is None else [plural(explanation.most_sequences, "sequence")]),
        *([] if explanation.most_bits is None else [f"{explanation.most_bits:.4g} bits a parameter"]),
    ]
    if most:
        told = f"{', '.join(most[:-1])}, or {most[-1]}" if len(most) > 2 else " or ".join(most)
        yield f"fits at most: {told}; each with the rest as asked"
    if plan.placement is not None and plan.regime != "fit":
        yield from _changes(plan, plan.placement, explanation)
    impossible = [] if plan.question.is_exact else [name for name in explanation.left_out if name not in (MEMORY_CHANGE, LINK_CHANGE)]
    left_out = [name for name in explanation.left_out if name not in impossible]
    if left_out:
        how = "allow more time with --time-limit" if explanation.out_of_time else "ask for it with --limits"
        yield f"not computed, for it takes long: {', '.join(left_out)}; {how}"
    if impossible:
        yield f"not computed, as too many devices differ for exact search: {', '.join(impossible)}"


def _changes(plan: ModelPlan, placement: Placement, explanation: Explanation) -> Iterator[str]:
    """Yield what would change a plan."""
    if not plan.question.is_exact:
        yield "what follows is found by local search: no more seconds than are told are needed, and fewer may be"
    if len(plan.degrees) > 1:
        yield f"what follows keeps tensor parallelism {plan.tensor_parallel}"
    enough = [limit.device for limit in explanation.devices if math.isinf(limit.step_bytes)]
    if enough:
        yield f"more memory changes nothing on {', '.join(enough)}"
    for limit in explanation.devices:
        if math.isfinite(limit.step_bytes):
            yield f"memory of {limit.device}: with {size(limit.step_bytes)} more{_each(plan)} {_change(plan, limit.step)}"
        if limit.with_more.value < plan.value * (1 - CLOSE) and limit.with_more.value != limit.step.value:
            yield f"memory of {limit.device}: with {size(MORE)} more{_each(plan)} {_change(plan, limit.with_more)}"
        least, most = limit.factors
        if least > 1 / 16 or most < 16:
            at_least, at_most = (f"at least {least:.3g}" if least > 1 / 16 else ""), (f"at most {most:.3g}" if most < 16 else "")
            yield f"the placement stays the best while {limit.device} takes {' and '.join(filter(None, (at_least, at_most)))} times as long"
    if (len(placement) > 1 or placement.offloaded) and not math.isnan(explanation.without_hops):
        yield f"links that take no time: {_change(plan, Best(explanation.without_hops, None))}"
    if explanation.second_best.placement is not None:
        other = explanation.second_best
        assert other.placement is not None
        yield f"next best, with other devices or another order: {described(plan, other.placement)}, {seconds(other.value)}"
    if not math.isnan(explanation.regret):
        worse = f"the plan is at most {percent(explanation.regret)} worse than the best"
        yield f"if all times of one device are off by {percent(OFF_BY)}, {worse}"
        best = _best_baseline(plan)
        gain = 0.0 if best is None else best.value / plan.value - 1
        if best is not None and CLOSE < gain < explanation.regret:
            yield f"that is more than the gain of {percent(gain)}: {best.name} is as good as can be told"


def _change(plan: ModelPlan, best: Best) -> str:
    gain = 1 - best.value / plan.value
    unchanged = "no change" if plan.question.is_exact else "nothing better is found"
    return unchanged if gain < 1e-9 else f"{seconds(best.value)}, {percent(gain)} less"
