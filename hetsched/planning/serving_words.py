"""Plans for serving in words: labelled rows for a terminal, and fields for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hetsched.planning.serving import ServingPlan
from hetsched.planning.words import block_range
from hetsched.problem.graph import plural
from hetsched.problem.units import percent, size

UNIT = "tokens/s of output"


def serving_rows(plan: ServingPlan) -> Iterator[tuple[str, str]]:
    """Yield a plan for serving as labels and facts."""
    yield "plan", headline(plan)
    yield from asked(plan)
    for k, row in enumerate(plan.intervals):
        blocks = block_range(row["first"], row["end"] - 1)
        yield "placement" if not k else "", f"{row['devices']} x {row['type']}: {blocks}, {row['tokens_per_second']:.4g} {UNIT}"
    yield "bound", f"{plan.bound:.6g} {UNIT} by {plan.proof.name}: {plan.proof.evidence}"
    for k, (name, told) in enumerate(against(plan)):
        yield "against" if not k else "", f"{name}: {told}"


def headline(plan: ServingPlan) -> str:
    """Return the answer in a sentence; whether the times are modelled or measured comes first, if that is known."""
    if plan.placement is None:
        return f"no device holds a block with room for a sequence: nothing is served, {plan.proof.evidence}"
    costs = "" if plan.question is None else f"{plan.question.machine.cost_basis.upper()} costs: "
    what = "the most for these costs" if plan.status == "optimal" else f"at most {plan.bound:.4g}, gap {percent(plan.gap)}"
    return f"{costs}{plan.value:.4g} {UNIT}, {what}; {_verdict(plan)}"


def asked(plan: ServingPlan) -> Iterator[tuple[str, str]]:
    """Yield what the plan answers: the model and the workload, if there are, and the devices."""
    question = plan.question
    if question is not None:
        card = question.card
        size_of = f"{card.n_parameters / 1e9:.4g} B parameters, {size(card.total_bytes)}"
        yield "model", f"{card.name}: {card.family}, {card.n_blocks} blocks, {size_of}"
    types = zip(plan.problem.types, plan.problem.counts.tolist(), plan.problem.throughput, strict=True)
    rates = [f"{count} x {name}, each up to {table.max():.4g}" for name, count, table in types]
    yield "devices", f"{'; '.join(rates)} {UNIT} with as many blocks as suit it"
    if question is not None:
        work = question.work
        most = plural(work.sequences, "sequence")
        yield "asked", f"prompt {work.prompt}, output {work.output}, context {work.tokens}, at most {most} a device"


def against(plan: ServingPlan) -> Iterator[tuple[str, str]]:
    """Yield each baseline and how it does beside the plan."""
    for name, value in plan.baselines.items():
        yield name, f"{value:.4g} {UNIT}, the plan has {percent(plan.value / value - 1)} more" if value else "does not serve"


def _verdict(plan: ServingPlan) -> str:
    name, best = max(plan.baselines.items(), key=lambda item: item[1])
    if not best:
        return "no simple rule serves"
    gain = plan.value / best - 1
    return f"{percent(gain)} more than {name}" if gain > 1e-9 else f"{name} is as good"


def serving_facts(plan: ServingPlan) -> dict[str, Any]:
    """Return a plan for serving as fields for JSON."""
    return {
        "regime": "serving",
        "costs": None if plan.question is None else plan.question.machine.cost_basis,
        "status": str(plan.status),
        "tokens_per_second": plan.value,
        "bound": plan.bound,
        "bound_name": plan.proof.name,
        "bound_evidence": plan.proof.evidence,
        "gap": plan.gap,
        "baselines": plan.baselines,
        "placement": list(plan.intervals),
        "stopped": str(plan.stopped),
    }
