"""Table 3 and Figure 10: schedules made for one batch size or device and run on another."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hetsched.costs import devices
from hetsched.costs.stages import Contention
from hetsched.papers.ios import authors
from hetsched.papers.ios.networks import APART, MODEL, REACHES, agree, listed, network, ran, reaches
from hetsched.papers.ios.published import K80, SPECIALISED
from hetsched.papers.items import BY_MODEL, Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent

HALVES: dict[str, tuple[authors.Cell, ...]] = {
    "first": authors.FITTED,
    "second": tuple(cell for cell in authors.MEASURED if cell not in authors.FITTED),
}
"""The cells that the constants are fitted to; a fit has the sequential latencies too."""
BATCHES = (1, 32, 128)
MEASURED_APART = 0.02
"""Schedules whose measured latencies differ by less are not a pair to be ordered."""
GAIN = 1.15
"""The most that the paper gains by a schedule of its own."""


def cases(setting: Setting) -> list[Case]:
    """Return the two fits, and the schedules made by each and run by the other."""
    if authors.folder(setting.data) is None:
        return []
    return [{"what": what, "fitted to": half} for what in ("authors' schedules", "our schedules") for half in HALVES]


@functools.cache
def _constants(half: str, folder: Path) -> dict[str, float]:
    return authors.fitted(HALVES[half], folder)


def _folder(data: Path | None) -> Path:
    found = authors.folder(data)
    assert found is not None, "the schedules are looked for before a case is made"
    return found


def measure(case: Case, data: Path | None) -> Row:
    """Return a fit and the authors' cells by it; or our schedules for three batch sizes, run on times of the other fit."""
    folder, half = _folder(data), case["fitted to"]
    constants = _constants(half, folder)
    if case["what"] == "authors' schedules":
        cells = [[*cell, 1e3 * authors.seconds(cell, folder, constants)] for cell in (*authors.MEASURED, *authors.ALONE)]
        return {"constants": constants, "ms": cells, "says": f"interference {constants['interference']:.2f}"}
    net = network("inception_v3", None)
    other = _constants(next(one for one in HALVES if one != half), folder)
    made = {batch: net.best(_cost(net.graph, batch, constants)) for batch in BATCHES}
    ms = [[1e3 * ran(made[best], _cost(net.graph, batch, other)) for best in BATCHES] for batch in BATCHES]
    return {"ms": ms, "says": ", ".join(f"{row[x]:.2f} ms" for x, row in enumerate(ms))}


def _cost(graph: Any, batch: int, constants: dict[str, float]) -> Contention:
    return Contention(graph, devices.device("v100"), inputs=batch, **constants)  # type: ignore[arg-type]


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Table 3 by the authors' schedules and by ours, and the fits."""
    fits = {row["fitted to"]: row for row in rows if row["what"] == "authors' schedules"}
    ours = {row["fitted to"]: row["ms"] for row in rows if row["what"] == "our schedules"}
    held = _held(fits)
    tables, notes = [_authors_table(held)] if held else [], []
    for half, ms in ours.items():
        head = ("run at batch", *(f"made for {batch}, ms" for batch in BATCHES))
        lines = [[str(batch), *(number(value) for value in row)] for batch, row in zip(BATCHES, ms, strict=True)]
        tables.append(Table(head, lines, f"Our schedules, made by the {half} fit and run on times of the other"))
    for half, row in fits.items():
        constants = row["constants"]
        notes.append(
            f"The {half} fit, to {len(HALVES[half])} of the {len(authors.MEASURED)} cells: launch {1e6 * constants['launch']:.1f} us, host "
            f"{1e6 * constants['host']:.1f} us, interference {constants['interference']:.2f}, strided {constants['strided']:.2f}."
        )
    if held:
        misses = _misses(held)
        pairs = _pairs(held)
        notes.append(
            f"Cells held out of their fit: median error {percent(float(np.median(misses)))}, largest {percent(max(misses))}. Of "
            f"{len(pairs)} pairs of the authors' schedules that differ by {percent(MEASURED_APART)} or more at one batch size, "
            f"{sum(pairs)} are in the order that was measured. The constants of the first fit are the defaults of `Contention`, whose "
            "error is that of its held cells."
        )
    return Report(tables, _claims(ours, held), notes)


def _held(fits: dict[str, Row]) -> dict[authors.Cell, float]:
    """Return the milliseconds of each cell by the fit that has not seen it; those of the sequential schedule, in both, by the first."""
    made = {}
    for half, row in fits.items():
        for name, batch, ms in row["ms"]:
            if (name, batch) not in HALVES[half] and (name != "sequential" or half == "first"):
                made[name, batch] = ms
    return made


def _authors_table(held: dict[authors.Cell, float]) -> Table:
    measured = authors.MEASURED | authors.ALONE
    batches = sorted({batch for _, batch in measured})
    shown = {cell: f"{held[cell]:.2f} / {ms:.2f} ({100 * (held[cell] / ms - 1):+.1f} %)" for cell, ms in measured.items() if cell in held}
    lines = [[name, *(shown.get((name, batch), "") for batch in batches)] for name in (*SPECIALISED, "sequential")]
    head = ("made for", *(f"run at batch {batch}" for batch in batches))
    return Table(
        head, lines, "The authors' schedules: milliseconds by the fit that has not seen the cell (sequential: both have) / measured by them"
    )


def _misses(made: dict[authors.Cell, float]) -> list[float]:
    """Return by how much the milliseconds of cells are off."""
    return [abs(made[cell] / ms - 1) for cell, ms in authors.MEASURED.items() if cell in made]


def _pairs(made: dict[authors.Cell, float]) -> list[bool]:
    """Return for pairs of the authors' schedules at one batch size whether they are in the order that was measured."""
    measured = authors.MEASURED
    return [
        (made[one] > made[other]) == (measured[one] > measured[other])
        for one, other in itertools.combinations([cell for cell in measured if cell in made], 2)
        if one[1] == other[1] and abs(math.log(measured[one] / measured[other])) >= math.log(1 + MEASURED_APART)
    ]


def _claims(ours: dict[str, list[list[float]]], held: dict[authors.Cell, float]) -> list[Claim]:
    best = "The schedule made for a batch size is the fastest on it (Table 3 (1), Inception-v3 at 1, 32 and 128)"
    gain = f"A schedule of its own is up to {GAIN} times as fast as one made for another batch size or device"
    device = "The schedule made for a device is the fastest on it (Table 3 (2), K80 and V100)"
    k80 = Claim(
        device,
        Verdict.UNSEEN,
        f"on a V100 the authors measured {SPECIALISED['1'][1]} and {SPECIALISED['k80'][1]} ms, on a K80 {K80['k80']} and {K80['v100']} ms; "
        "no K80 is here, and the model has no constants for it. Where there is a GPU, `benchmarks/gpu.py` measures",
    )
    if not ours or not held:
        return [*(Claim(text, Verdict.UNSEEN, "not measured; it needs the authors' schedules, `--data`") for text in (best, gain)), k80]
    margins = [min(value for y, value in enumerate(row) if y != x) / row[x] - 1 for ms in ours.values() for x, row in enumerate(ms)]
    faster, slower = sum(margin > APART for margin in margins), sum(margin < -APART for margin in margins)
    reason = (
        f"our schedules made by one fit are on times of the other faster than the next by {percent(min(margins))} to "
        f"{percent(max(margins))}; beyond {percent(APART)}, which the model tells apart, in {faster} of {len(margins)} rows, slower beyond "
        f"it in {slower}"
    )
    decided = slower or faster == len(margins)
    most = max(value / row[x] for ms in ours.values() for x, row in enumerate(ms) for value in row)
    theirs = max(ms / held[str(batch), batch] for (name, batch), ms in held.items() if name != "sequential" and (str(batch), batch) in held)
    gains = reaches(theirs, GAIN) and most > 1 + APART
    return [
        Claim.decided(best, not slower, reason).undecided(BY_MODEL) if decided else Claim(best, Verdict.UNSEEN, reason),
        Claim(
            gain,
            Verdict.HELD if gains else Verdict.UNSEEN,
            f"the authors' schedules up to {theirs:.2f} times by the fit that has not seen them, ours up to {most:.2f} times; devices "
            f"were not compared; {REACHES}",
        ).undecided(BY_MODEL),
        k80,
    ]


# ---------------------------------------------------------------------- Figure 10

FASTER = {1: 1.28, 32: 1.08}
"""By batch size, how many times as fast the schedule made for it is as the other."""


def block_cases(setting: Setting) -> list[Case]:
    """Return the case of the authors' schedules, if they are there, and that of ours."""
    return [{"what": "last block", "whose": whose} for whose in (["authors"] if authors.folder(setting.data) else []) + ["ours"]]


def measure_block(case: Case, data: Path | None) -> Row:
    """Return the stages of the network, and of its last block with their seconds at each batch size, by what they were made for."""
    rows = _of_authors(_folder(data)) if case["whose"] == "authors" else _of_ours()
    return rows | {"says": ", ".join(f"{count} stages" for count in rows["block"])}


def _of_authors(folder: Path) -> Row:
    made = {batch: authors.schedule(folder / f"{batch}.json") for batch in FASTER}
    blocks = {batch: authors.last_block(folder / f"{batch}.json") for batch in FASTER}
    convolutions = [sum(made[x].graph.op[made[x].graph.index[name]] == "conv2d" for name in own) for x, (_, own) in blocks.items()]
    every = {batch: len(authors.schedule(folder / f"{batch}.json").stages) for batch in (1, 16, 32, 64, 128)}
    return {
        "network": [[batch, count] for batch, count in every.items()],
        "block": [len(stages) for stages, _ in blocks.values()],
        "merged": [_CONVOLUTIONS - count for count in convolutions],
        "ms": [[1e3 * made[x].seconds(batch, {}, own.__contains__) for batch in FASTER] for x, (_, own) in blocks.items()],
    }


def _of_ours() -> Row:
    net = network("inception_v3", None)
    block, last = set(net.blocks[-2]), net.blocks[-2][-1:]
    costs = {batch: net.cost(inputs=batch) for batch in FASTER}
    best = {batch: listed(net.best(cost), net.graph) for batch, cost in costs.items()}
    inner = [[row for row in rows if block.issuperset(row[0]) and row[0] != last] for rows in best.values()]
    return {
        "network": [[batch, len(rows)] for batch, rows in best.items()],
        "block": [len(rows) for rows in inner],
        "merged": [sum(len(tasks) - 1 for tasks, way in rows if way == "merge") for rows in inner],
        "ms": [[1e3 * sum(cost(tasks, way) for tasks, way in rows) for cost in costs.values()] for rows in inner],
    }


_CONVOLUTIONS = 9
"""Convolutions of the last block."""


def report_block(rows: Sequence[Row], setting: Setting) -> Report:
    """Return the schedules of the last block."""
    lines = []
    for row in rows:
        for x, batch in enumerate(FASTER):
            cells = [str(row["block"][x]), str(row["merged"][x]), *(f"{value:.3f}" for value in row["ms"][x])]
            lines.append([f"{row['whose']}, made for batch {batch}", *cells])
    head = ("schedule", "stages before the concatenation", "convolutions merged into others", *(f"ms at batch {batch}" for batch in FASTER))
    found = {row["whose"]: row for row in rows}
    texts = (
        "The last block of Inception-v3 has two stages at batch 1, and four at batch 32, where a 1x3 and a 3x1 convolution are merged",
        "There the schedule for batch 1 is 28 % faster on batch 1, and that for 32 8 % faster on batch 32",
        "Schedules for large batches have more stages",
    )
    if len(found) < 2:
        return Report([Table(head, lines)], [Claim(text, Verdict.UNSEEN, _NO_DATA) for text in texts])
    return Report([Table(head, lines)], _block_claims(texts, found["authors"], found["ours"]))


_NO_DATA = "not measured; it needs the authors' schedules, `--data`"


def _block_claims(texts: Sequence[str], theirs: Row, ours: Row) -> list[Claim]:
    ms = theirs["ms"]
    made = {1: ms[1][0] / ms[0][0], 32: ms[0][1] / ms[1][1]}
    trusted = all(agree(made[batch], times) for batch, times in FASTER.items())
    speed = f"by the model the authors' schedules of the block are {made[1]:.2f} and {made[32]:.2f} times as fast as the other"
    reason = (
        f"the schedules that the authors published have {theirs['block'][0]} and {theirs['block'][1]} stages, and merge "
        f"{theirs['merged'][0]} and {theirs['merged'][1]} convolutions into others; by the model, our search finds {ours['block'][0]} and "
        f"{ours['block'][1]} stages, and merges {ours['merged'][0]} and {ours['merged'][1]}"
    )
    wrong = "; the authors measured both, so the model is wrong about this block, and a V100 has to decide"
    counts = dict(theirs["network"])
    every = ", ".join(f"{count} at batch {batch}" for batch, count in counts.items())
    return [
        Claim.decided(texts[0], theirs["block"] == [2, 4] and theirs["merged"] == [0, 1], reason),
        Claim.decided(texts[1], True, speed).undecided(BY_MODEL) if trusted else Claim(texts[1], Verdict.UNSEEN, speed + wrong),
        Claim.decided(
            texts[2],
            min(count for batch, count in counts.items() if batch > 1) > counts[1],
            f"the schedules that the authors published have in all {every}; ours, by the model, {ours['network'][0][1]} at 1 and "
            f"{ours['network'][1][1]} at 32",
        ),
    ]


_NEEDS = "The authors' schedules are read from `--data`, the folder `schedules` of their program's experiments on specialisation."

TABLE_3 = Item(
    "table-3",
    "Table 3: schedules of Inception-v3 made for one batch size and run on another",
    "times are not measured here but fitted to what the authors measured on a V100: the constants of the contention model twice, each "
    "time to some of the cells of their table. Their schedules have times of the fit that has not seen the cell, and our schedules are "
    f"made by one fit and run on times of the other. {_NEEDS}",
    cases,
    report,
    needs=(("torch", "torch"),),
    time="a minute",
)
FIGURE_10 = Item(
    "figure-10",
    "Figure 10: the last block of Inception-v3, scheduled for batch 1 and for batch 32",
    f"{MODEL} {_NEEDS}",
    block_cases,
    report_block,
    needs=(("torch", "torch"),),
    time="a minute",
)
