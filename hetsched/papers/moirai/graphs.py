"""Table IV: the models, their operators before and after fusion, and their memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hetsched.papers.items import OTHER_GRAPHS, Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.moirai import models
from hetsched.papers.rendering import number, percent

QUICK = ("gpt3 330M",)
CLOSE = 0.05
"""The share of operators left by fusion may differ by this from the paper's."""


def chosen(setting: Setting) -> Sequence[str]:
    """Return the names of the models."""
    return QUICK if setting.quick else tuple(models.PRINTED)


def cases(setting: Setting) -> list[Case]:
    """Return a case a model."""
    return [{"what": "graph", "model": model} for model in chosen(setting)]


def measure(case: Case, data: Path | None) -> Row:
    """Count operators and bytes of a model."""
    problem, fused = (models.whole(case["model"], "intra", which) for which in models.GRAPHS)
    graph = problem.graph
    return {
        "original": problem.n_tasks,
        "fused": fused.n_tasks,
        "weights": float(graph.weight_bytes.sum()),
        "once": float((graph.weight_bytes + graph.output_bytes).sum()),
        "static": float((problem.static_bytes @ [1.0, 1.0]).sum()),
        "capacity": {name: float(models.cluster(name).memory_bytes.sum()) for name in models.CLUSTERS},
        "says": f"{problem.n_tasks:,} operators, {fused.n_tasks:,} fused",
    }


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Table IV with the memory of the models."""
    lines, left = [], []
    for row in rows:
        printed = models.PRINTED[row["model"]]
        left.append((row["fused"] / row["original"], printed.coarsened / printed.original))
        lines.append(
            [
                row["model"],
                f"{row['original']:,} / {printed.original:,}",
                f"{row['fused']:,} / {printed.coarsened:,}",
                " / ".join(map(percent, left[-1])),
                *(number(row[what] / 1e9) for what in ("weights", "once", "static")),
            ]
        )
    head = ["here / paper", "operators", "fused", "left", "parameters, GB", "with outputs, GB", "with inputs too, GB"]
    text = "Fusion leaves 69 to 81 % of the operators of a model"
    if not rows:
        return Report([Table(head, lines)], [Claim(text, Verdict.UNSEEN, "not measured")])
    near = sum(abs(own - theirs) <= CLOSE for own, theirs in left)
    reason = (
        f"here {percent(min(own for own, _ in left))} to {percent(max(own for own, _ in left))}; of {len(left)} models {near} are within "
        f"{100 * CLOSE:.0f} points of the paper's share"
    )
    return Report([Table(head, lines)], [Claim.decided(text, near == len(left), reason).undecided(OTHER_GRAPHS)], [_memory(rows)])


def _memory(rows: Sequence[Row]) -> str:
    """Return which models fit the clusters under the three ways to count memory."""
    told = []
    for name, capacity in rows[0]["capacity"].items():
        fit = [sum(row[what] <= capacity for row in rows) for what in ("weights", "once", "static")]
        told.append(
            f"the {name}-server cluster ({number(capacity / 1e9)} GB) holds the parameters of {fit[0]} of {len(rows)} models, "
            f"parameters and every output of {fit[1]}, these and every input of {fit[2]}"
        )
    return (
        f"Memory, if nothing is freed before the end: {'; '.join(told)}. The paper places all models, so the footprint of an operator that "
        "it reads from the framework cannot have all activations: here it is the parameters, in half precision."
    )


TABLE_4 = Item(
    "table-4",
    "Table IV: models, their operators and memory",
    "a graph has the operators of one call in PyTorch, recorded here without data, heads of attention together, views left out; the "
    "paper does not say what an operator is. Layers, widths and heads are those of Table IV; of AlphaFold2 there is the Evoformer trunk, "
    "with a width of pairs, and of Swin a distribution of layers over its stages, chosen for the number of parameters. Tensors are of two "
    "bytes a number, as in the paper's 350 GB for 175 billion parameters: with four the models of 13B would not fit its first cluster. "
    "Fusion is the paper's Algorithm 1 with the `cudnn` rules, for the rules of its Table I are for convolutions only.",
    cases,
    report,
    needs=(("torch", "torch"),),
    time="8 minutes",
)
