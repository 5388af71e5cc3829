"""Plans for serving in words: labelled rows for a terminal, and fields for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hetsched.chain.card import ModelCard
from hetsched.chain.workload import Workload
from hetsched.planning.serving import ServingPlan
from hetsched.problem.graph import plural
from hetsched.report.placements import block_range
from hetsched.report.units import percent, size

UNIT = "tokens/s of output"


def serving_rows(card: ModelCard, work: Workload, basis: str, plan: ServingPlan) -> Iterator[tuple[str, str]]:
    """Yield a plan for serving as labels and facts; `basis` says whether the times are modelled, measured or mixed."""
    if plan.placement is None:
        yield "plan", f"no device holds a block with room for a sequence: nothing is served, {plan.proof.evidence}"
    else:
        what = "the most for these costs" if plan.status == "optimal" else f"at most {plan.bound:.4g}, gap {percent(plan.gap)}"
        yield "plan", f"{basis.upper()} costs: {plan.value:.4g} {UNIT}, {what}; {_verdict(plan)}"
    size_of = f"{card.n_parameters / 1e9:.4g} B parameters, {size(card.total_bytes)}"
    yield "model", f"{card.name}: {card.family}, {card.n_blocks} blocks, {size_of}"
    types = zip(plan.problem.types, plan.problem.counts.tolist(), plan.problem.throughput, strict=True)
    rates = [f"{count} x {name}, each up to {table.max():.4g}" for name, count, table in types]
    yield "devices", f"{'; '.join(rates)} {UNIT} with as many blocks as suit it"
    most = plural(work.sequences, "sequence")
    yield "asked", f"prompt {work.prompt}, output {work.output}, context {work.tokens}, at most {most} a device"
    for k, row in enumerate(plan.intervals):
        blocks = block_range(row["first"], row["end"] - 1)
        yield "placement" if not k else "", f"{row['devices']} x {row['type']}: {blocks}, {row['tokens_per_second']:.4g} {UNIT}"
    yield "bound", f"{plan.bound:.6g} {UNIT} by {plan.proof.name}: {plan.proof.evidence}"
    for k, (name, value) in enumerate(plan.baselines.items()):
        told = "does not serve" if not value else f"{value:.4g} {UNIT}, " + (f"the plan has {percent(plan.value / value - 1)} more")
        yield "against" if not k else "", f"{name}: {told}"


def _verdict(plan: ServingPlan) -> str:
    name, best = max(plan.baselines.items(), key=lambda item: item[1])
    if not best:
        return "no simple rule serves"
    gain = plan.value / best - 1
    return f"{percent(gain)} more than {name}" if gain > 1e-9 else f"{name} is as good"


def serving_facts(basis: str, plan: ServingPlan) -> dict[str, Any]:
    """Return a plan for serving as fields for JSON."""
    return {
        "regime": "serving",
        "costs": basis,
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
