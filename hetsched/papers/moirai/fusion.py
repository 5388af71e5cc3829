"""Figure 10: what fusion does to Moirai's latency."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hetsched.papers.items import BY_MODEL, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.moirai import models
from hetsched.papers.moirai.placing import Place, by_milp, cases, cell, highest, length, seen
from hetsched.papers.rendering import number, percent

PRINTED = {"inter": 0.057, "intra": 0.038}
"""The largest reductions of latency that section IV-C states."""
ROUNDING = 0.0005


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return a table of Moirai's latency, and of the best by any method, before and after fusion."""
    lines = []
    for model in [model for model in models.PRINTED if any(row["model"] == model for row in rows)]:
        line = [model]
        for where in models.CLUSTERS:
            for of in (_moirai, _best):
                pair = _pair(rows, model, where, of)
                line += ["", ""] if pair is None else [" / ".join(number(1e3 * value) for value in pair), percent(1 - pair[1] / pair[0])]
        lines.append(line)
    head = ["ms, original / fused"]
    printed = ["paper, most"]
    for where, most in PRINTED.items():
        head += [f"{where}-server: Moirai", "shorter by", f"{where}-server: best of all methods", "shorter by"]
        printed += ["", percent(most), "", ""]
    claims = [*(_reduction(rows, where) for where in PRINTED), _kept(rows)]
    return Report([Table(head, [*lines, printed])], [claim.undecided(BY_MODEL) for claim in claims])


def _moirai(rows: Sequence[Row], model: str, where: str, which: str) -> float | None:
    found = cell(rows, model, where, which, "moirai")
    return length(found[0]) if found else None


def _best(rows: Sequence[Row], model: str, where: str, which: str) -> float | None:
    place = model, where, which
    here = [row["makespan"] for row in rows if (row["model"], row["cluster"], row["graph"]) == place and row["makespan"] is not None]
    return min(here, default=None)


def _pair(rows: Sequence[Row], model: str, where: str, of: Callable[..., float | None]) -> tuple[float, float] | None:
    """Return the latencies of the original and the fused graph, or None if one is missing."""
    original, fused = (of(rows, model, where, which) for which in models.GRAPHS)
    return None if original is None or fused is None else (original, fused)


def _less(rows: Sequence[Row], where: str, of: Callable[..., float | None]) -> dict[str, float]:
    """Return the share by which fusion reduces the latency, by model."""
    pairs = {model: _pair(rows, model, where, of) for model in models.PRINTED}
    return {model: 1 - pair[1] / pair[0] for model, pair in pairs.items() if pair is not None}


def _reduction(rows: Sequence[Row], where: str) -> Claim:
    text = f"Fusion reduces Moirai's latency by up to {percent(PRINTED[where])}, {where}-server"
    less, best = _less(rows, where, _moirai), _less(rows, where, _best)
    if not less:
        return Claim(text, Verdict.UNSEEN, "not measured")
    wanted = PRINTED[where] - ROUNDING
    most = highest(less, lambda model: all(by_milp(rows, place) for place in _places([model], where)), wanted)
    reason = (
        f"{percent(min(less.values()))} to {percent(less[most])}, most for {most}; of the best schedules by any method "
        f"{percent(min(best.values()))} to {percent(max(best.values()))}"
    )
    held = less[most] >= wanted
    if not held and len(less) < len(models.PRINTED):
        return Claim(text, Verdict.UNSEEN, f"{reason}; {len(less)} of {len(models.PRINTED)} models are measured")
    return seen(Claim.decided(text, held, reason), rows, _places([most] if held else less, where))


def _places(names: Iterable[str], where: str) -> list[Place]:
    return [(model, where, which) for model in names for which in models.GRAPHS]


def _kept(rows: Sequence[Row]) -> Claim:
    text = "Fusion shrinks the search space without loss of quality (conclusion)"
    moirai, best = (
        {(model, where): share for where in models.CLUSTERS for model, share in _less(rows, where, of).items()} for of in (_moirai, _best)
    )
    if not moirai:
        return Claim(text, Verdict.UNSEEN, "not measured")
    longer = [place for place, share in moirai.items() if share < -1e-6]
    longer_best = [place for place, share in best.items() if share < -1e-6]
    reason = (
        f"Moirai's latency is longer after fusion in {len(longer)} of {len(moirai)}, the best of all in {len(longer_best)} of {len(best)}"
    )
    if longer and not longer_best:
        return Claim(text, Verdict.UNSEEN, f"{reason}; the MILP of the whole graphs was not solved to the optimum")
    return seen(Claim.decided(text, not longer, reason), rows, [(*place, which) for place in moirai for which in models.GRAPHS])


FIGURE_10 = Item(
    "figure-10",
    "Figure 10: Moirai's latency on original and fused graphs",
    "what Figure 9 states; and that a fused operator neither writes nor reads the tensors between its parts is a rule of the roofline "
    "model here, not measured.",
    cases,
    report,
    needs=(("torch", "torch"), ("highspy", "solvers")),
    time="the same measurements as Figure 9",
)
