"""Stages measured on this machine, and run."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hetsched.experiments.runner import timed
from hetsched.models.ios import dynamic_program as ios
from hetsched.papers.items import Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number

PIXELS = {"squeezenet": 224, "googlenet": 224}
WAYS = ("module", "sequential", "greedy", "best")


def cases(setting: Setting) -> list[Case]:
    """Return a case a network, with the number of runs of a stage and of the whole."""
    names = ("squeezenet",) if setting.quick else tuple(PIXELS)
    return [{"what": "here", "network": name, "runs": 3 if setting.quick else 20} for name in names]


def measure(case: Case, data: Path | None) -> Row:
    """Search with measured stages, then run the module, and sequential, greedy and the best stages in turn."""
    import torch

    from hetsched import runtime
    from hetsched.runtime.accelerator import full_precision

    vision = importlib.import_module("hetsched.workloads.vision")
    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    module = getattr(vision, case["network"])().to(device)
    x = torch.randn(1, 3, *[PIXELS[case["network"]]] * 2, device=device)
    program = runtime.Program(module, x, fuse=True)
    cost = runtime.MeasuredStages(program, x, repeats=case["runs"])
    best, took = timed(lambda: ios.stages(program.graph, cost, bound=cost.bound))
    count = cost.measured
    schedules = {"sequential": ios.sequential(program.graph, cost), "greedy": ios.greedy(program.graph, cost), "best": best}
    ways: dict[str, Callable[[Any], Any]] = {"module": module}
    ways |= {way: runtime.StagedProgram(program, schedule) for way, schedule in schedules.items()}
    times: dict[str, list[float]] = {way: [] for way in ways}
    with torch.no_grad(), full_precision():
        expected = module(x)
        for turn in range(case["runs"] + 1):  # in turn, so that other load of the machine affects all
            for way, run in ways.items():
                made, one = timed(functools.partial(_finished, run, x))
                torch.testing.assert_close(made, expected, rtol=1e-3, atol=1e-4)
                if turn:
                    times[way].append(one["wall_s"])
    name = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads of the CPU"
    about = {
        "kind": device,
        "device": name,
        "possible": best.possible,
        "measured": count,
        "searched_s": took["wall_s"],
        "sum": best.latency,
    }
    return about | {"seconds": times, "says": f"{count:,} stages measured on {name}"}


def _finished(run: Callable[[Any], Any], x: Any) -> Any:
    """Return the result of a run when the device has computed it."""
    import torch

    result = run(x)
    if result.device.type == "cuda":
        torch.cuda.synchronize()
    return result


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return medians and quartiles of the runs."""
    import numpy as np

    lines, told = [], []
    for row in rows:
        quartiles = {way: 1e3 * np.quantile(row["seconds"][way], [0.25, 0.5, 0.75]) for way in WAYS}
        shown = [f"{number(middle)} ({number(low)} to {number(high)})" for low, middle, high in quartiles.values()]
        about = [row["device"], f"{row['measured']:,} of {row['possible']:,}", number(row["searched_s"], 2), number(1e3 * row["sum"])]
        lines.append([row["network"], *about, *shown])
        rival = min(("sequential", "greedy"), key=lambda way, own=quartiles: float(own[way][1]))  # type: ignore[misc]
        told.append((row, quartiles["best"], quartiles[rival], rival))
    text = "Stages that are found by measuring them are faster than sequential and greedy ones when the network is run (section 6.1)"
    reason = "; ".join(
        f"{row['network']} on {row['device']}: {number(best[1])} ms beside {number(other[1])} ms ({rival})"
        for row, best, other, rival in told
    )
    apart = all(best[2] < other[0] or other[2] < best[0] for _, best, other, _ in told)
    gpu = bool(rows) and all(row["kind"] == "cuda" for row in rows)
    claim = Claim.decided(text, all(best[1] < other[1] for _, best, other, _ in told), reason)
    if not (gpu and apart):
        why = (
            "; the quartiles overlap"
            if gpu
            else '; the paper\'s device is a GPU; what an H100 measured is in docs/benchmarks.md, "On a GPU"'
        )
        claim = Claim(text, Verdict.UNSEEN, (reason or "not measured") + why)
    head = ("network, 1 image", "device", "stages measured", "search, s", "best, sum of stages, ms", *(f"{way}, ms" for way in WAYS))
    return Report([Table(head, lines)], [claim])


MEASURED = Item(
    "measured",
    "Stages measured on this machine",
    "the device is a GPU of this machine if there is one, else its CPU, on which groups run on threads; of the paper's networks only "
    "SqueezeNet, and GoogLeNet. Medians and quartiles of complete runs; a stage that is measured alone finds its data in the caches, so "
    "that the sum over stages is less.",
    cases,
    report,
    needs=(("torch", "torch"),),
    time="2 minutes, alone on the machine",
)
