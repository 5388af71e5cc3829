"""Figures 11 and 16: Inception-v3 by batch size, and block by block."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from hetsched.models.ios import dynamic_program as ios
from hetsched.papers.ios.networks import APART, BEST, MODEL, listed, network
from hetsched.papers.ios.published import FIGURE_11
from hetsched.papers.items import BY_MODEL, Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent

BATCHES = (1, 16, 32, 64, 128)
BEYOND = 256
"""A batch size beyond which the paper says that nothing is gained."""


def cases(setting: Setting) -> list[Case]:
    """Return a case a batch size."""
    return [{"what": "batch", "batch": batch} for batch in (*BATCHES, BEYOND)]


def measure(case: Case, data: Path | None) -> Row:
    """Return the seconds of a batch by three schedules."""
    net = network("inception_v3", data)
    cost = net.cost(inputs=case["batch"])
    best = net.best(cost)
    seconds = {"sequential": ios.sequential(net.graph, cost).latency, "greedy": ios.greedy(net.graph, cost).latency, "both": best.latency}
    return {"seconds": seconds, "says": f"{case['batch'] / best.latency:.0f} images a second"}


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Figure 11 as a table, beside what the authors measured."""
    speeds = {row["batch"]: {way: row["batch"] / value for way, value in row["seconds"].items()} for row in rows}
    lines = [
        [f"{name}, by the model", *(number(own[way]) for own in speeds.values())]
        for way, name in (("sequential", "sequential"), ("greedy", "greedy"), ("both", "IOS"))
    ]
    for way, name in (("sequential", "sequential"), ("TensorRT", "TensorRT"), ("both", "IOS")):
        theirs = dict(zip(BATCHES, FIGURE_11[way], strict=True))
        lines.append([f"{name}, measured by the authors", *(number(1e3 * b / theirs[b]) if b in theirs else "" for b in speeds)])
    table = Table(("images a second", *(f"batch {batch}" for batch in speeds)), lines)
    return Report([table], _claims(speeds))


def _claims(speeds: dict[int, dict[str, float]]) -> list[Claim]:
    texts = (
        "IOS has a higher throughput than the sequential schedule at every batch size",
        "IOS has a higher throughput than TVM-cuDNN, TASO and TensorRT at every batch size",
        "Throughput grows with the batch size, and hardly beyond 128",
        "The gap between the peak performance and that in sequence is more severe under smaller batch sizes (abstract)",
    )
    library = Claim(texts[1], Verdict.UNSEEN, "those libraries run on an NVIDIA GPU; `benchmarks/gpu.py` compares with torch.compile there")
    if set(speeds) < {*BATCHES, BEYOND}:
        return [library if text is texts[1] else Claim(text, Verdict.UNSEEN, "not all batch sizes are measured") for text in texts]
    gains = [speeds[batch]["both"] / speeds[batch]["sequential"] for batch in BATCHES]
    told = [str(batch) for batch, gain in zip(BATCHES, gains, strict=True) if gain > 1 + APART]
    reason = (
        f"by {percent(min(gains) - 1)} to {percent(max(gains) - 1)}; beyond {percent(APART)}, which the model tells apart, at batch "
        f"{', '.join(told)}; {BEST}"
    )
    first = Claim(texts[0], Verdict.UNSEEN, reason)
    own = [speeds[batch]["both"] for batch in (*BATCHES, BEYOND)]
    return [first, library, _saturates(texts[2], own), _gap(texts[3], [speeds[batch]["sequential"] for batch in BATCHES])]


def _gap(text: str, own: Sequence[float]) -> Claim:
    """Return the claim that the throughput in sequence, so the part of the peak, grows with the batch; up to `APART` is no change."""
    theirs = [1e3 * batch / ms for batch, ms in zip(BATCHES, FIGURE_11["sequential"], strict=True)]
    told = [", ".join(f"{number(speed)} at {batch}" for batch, speed in zip(BATCHES, speeds, strict=True)) for speeds in (own, theirs)]
    reason = f"images a second in sequence, by the model {told[0]}; the authors measured {told[1]}"
    grows = own[-1] > (1 + APART) * own[0] and all(b > (1 - APART) * a for a, b in itertools.pairwise(own))
    return Claim.decided(text, grows, reason).undecided(BY_MODEL)


def _saturates(text: str, own: Sequence[float]) -> Claim:
    """Return the claim that each throughput up to the last but one is higher, and the last is hardly; more than `APART` is growth."""
    *steps, beyond = (b / a - 1 for a, b in itertools.pairwise(own))
    batches = [
        f"{a} to {b} {100 * step:+.1f} %" for (a, b), step in zip(itertools.pairwise((*BATCHES, BEYOND)), (*steps, beyond), strict=True)
    ]
    theirs = [1e3 * batch / ms for batch, ms in zip(BATCHES, FIGURE_11["both"], strict=True)]
    reason = (
        f"by the model {', '.join(batches)}, where more than {percent(APART)} either way is told apart; the authors measured "
        f"{number(theirs[-2])} images a second at {BATCHES[-2]} and {number(theirs[-1])} at {BATCHES[-1]}"
    )
    if beyond > APART or min(steps) < -APART:
        return Claim.decided(text, False, reason).undecided(BY_MODEL)
    if min(steps) > APART:
        return Claim.decided(text, True, reason).undecided(BY_MODEL)
    return Claim(text, Verdict.UNSEEN, f"{reason}: so small steps are neither growth nor none")


# ---------------------------------------------------------------------- Figure 16

MOST, WHOLE = 2.3, 1.6
"""Largest speed-up of a block, and that of the network."""


def block_cases(setting: Setting) -> list[Case]:
    """Return the one case."""
    return [{"what": "blocks"}]


def measure_blocks(case: Case, data: Path | None) -> Row:
    """Return the tasks, and the seconds in sequence and at best, of each block in which tasks are independent."""
    net = network("inception_v3", data)
    cost = net.cost()
    stages = [(tasks, cost(tasks, way)) for tasks, way in listed(net.best(cost), net.graph)]
    rows: list[tuple[str, int, float, float]] = []
    for block in net.blocks:
        own = set(block)
        alone = sum(cost((name,), "concurrent") for name in block)
        rows.append((block[0], len(block), alone, sum(seconds for tasks, seconds in stages if own.issuperset(tasks))))
    whole = sum(row[2] for row in rows) / sum(row[3] for row in rows)
    return {"blocks": rows, "says": f"{whole:.2f} times as fast as sequential"}


def report_blocks(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Figure 16 as a table."""
    texts = (
        "IOS is faster than sequential on each of the 11 blocks of Inception-v3",
        "IOS gains more on the later blocks of Inception-v3",
        f"With IOS a block of Inception-v3 is up to {MOST} times as fast as in sequence",
        f"With IOS Inception-v3 is {WHOLE} times as fast as in sequence",
    )
    if not rows:
        return Report(claims=[Claim(text, Verdict.UNSEEN, "not measured") for text in texts])
    blocks = rows[0]["blocks"]
    lines = [[name, str(n), f"{1e3 * alone:.3f}", f"{1e3 * best:.3f}", f"{alone / best:.2f}x"] for name, n, alone, best in blocks]
    inner = [alone / best for _, n, alone, best in blocks[1:-1]]
    whole = sum(alone for *_, alone, _ in blocks) / sum(best for *_, best in blocks)
    half = len(inner) // 2
    early, late = (sum(part) / len(part) for part in (inner[:half], inner[half:]))
    means = f"{early:.2f} on average on the first {half}, {late:.2f} on the others"
    most = f"{max(inner):.2f} times at most"
    fitted = ", by a model whose constants are fitted to latencies of this network"
    unknown = f"{fitted}; its error is known for networks, not for blocks"
    claims = [
        Claim(texts[0], Verdict.UNSEEN, f"{min(inner):.2f} to {max(inner):.2f} times on {len(inner)} blocks; {BEST}"),
        *(Claim(text, Verdict.UNSEEN, f"{figure}{unknown}") for text, figure in zip(texts[1:3], (means, most), strict=True)),
        Claim(texts[3], Verdict.UNSEEN, f"{whole:.2f} times{fitted}"),
    ]
    return Report([Table(("block begins with", "tasks", "sequential, ms", "IOS, ms", "speed-up"), lines)], claims)


FIGURE_11_ITEM = Item(
    "figure-11", "Figure 11: throughput of Inception-v3 by batch size", MODEL, cases, report, needs=(("torch", "torch"),), time="2 minutes"
)
FIGURE_16 = Item(
    "figure-16", "Figure 16: Inception-v3 block by block", MODEL, block_cases, report_blocks, needs=(("torch", "torch"),), time="a minute"
)
