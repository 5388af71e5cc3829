"""Sixty named models of torchvision, timm, transformers and diffusers: capture by the plain call, work, and schedules.

    python benchmarks/models.py [--quick] [--models resnet50 ...] [--fresh] [--limit 600]

Each model is captured in a process of its own, so that one which dies or is late costs its row. Rows are appended to a file, and a
run goes on with the models that it lacks. Needs torch, and the libraries in the extra `models`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import architectures
import figures
from architectures import ARCHITECTURES

import hetsched as hs

REGION = "models"
ROWS = Path(__file__).parent / "results" / "models.jsonl"
QUICK = ("squeezenet1_1", "distilbert")
WAYS = {"any batch": "", "whole example": "the whole example is one item", "recorded": "was recorded", "run once": "was run once"}
"""The ways of a capture, and what the warning of each has."""
WANTED = 56
SECONDS = 2.0
"""The limit of `auto`."""


def captured(name: str) -> dict[str, Any]:
    """Return the row of a model: its capture, its work by two counts, and its schedules."""
    model = ARCHITECTURES[name]
    architectures.define_operators()
    args, kwargs = model.example()
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph = hs.frontends.torch.capture(model.make, args, example_kwargs=kwargs)
    row: dict[str, Any] = {"name": name, "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    told = [str(warning.message) for warning in caught]
    row["way"] = next((way for way, words in WAYS.items() if words and any(words in text for text in told)), "any batch")
    row["told"] = [text for text in told if WAYS[row["way"]] in text] if row["way"] != "any batch" else []
    row |= {"tasks": graph.n_tasks, "edges": graph.n_edges, "flops": float(graph.flops.sum()), "counted": counted(name)}
    problem = hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline())
    row["best_device_s"] = hs.solve(problem, "best-device").makespan
    solution = hs.solve(problem, "auto", time_limit=SECONDS)
    return row | {"auto_s": solution.makespan, "gap": solution.gap}


def counted(name: str) -> float:
    """Return the FLOPs of torch's counter in an ordinary call: without data, or where that fails on the CPU."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    torch.backends.mha.set_fastpath_enabled(False)  # it is one operator, whose products the counter does not know
    for mode in (FakeTensorMode(allow_non_fake_inputs=True), contextlib.nullcontext()):
        try:
            with mode:
                args, kwargs = ARCHITECTURES[name].example()
                module = ARCHITECTURES[name].make().requires_grad_(False)  # the counter fails on parameters as arguments of modules
                if getattr(module, "_can_set_experts_implementation", bool)():
                    module.set_experts_implementation("batched_mm")  # the counter does not know grouped products
                # The counter knows the products of the attention's plain form alone.
                with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
                    module(*args, **kwargs)
            return float(counter.get_total_flops())
        except Exception as error:
            print(f"{name}: no count: {type(error).__name__}: {str(error)[:100]}", flush=True)
    return math.nan


def _send(name: str, sender: Connection) -> None:
    try:
        row = captured(name)
    except Exception as error:
        row = {"name": name, "error": f"{type(error).__name__}: {error}"}
    sender.send(row)


def row_of(name: str, limit: float) -> dict[str, Any]:
    """Return the row of a model, made in a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_send, args=(name, sender), daemon=False)
    process.start()
    sender.close()
    try:
        row: dict[str, Any] = receiver.recv() if receiver.poll(limit) else {"name": name, "error": f"not ready after {limit:g} s"}
    except EOFError:
        row = {"name": name, "error": "its process died"}
    process.kill()
    process.join()
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of the models."""
    lines = []
    for row in rows:
        model = ARCHITECTURES[row["name"]]
        name = f"{row['name']} ({model.reduced})" if model.reduced else row["name"]
        if "error" in row:
            lines.append([name, model.library, "**fails**", *["-"] * 8])
            continue
        ratio = row["flops"] / row["counted"] if row["counted"] else math.nan
        gap = "-" if row["gap"] is None or not math.isfinite(row["gap"]) else figures.percent(row["gap"])
        numbers = [figures.number(row[key]) for key in ("best_device_s", "auto_s")]
        shown = [f"{row['tasks']:,}", figures.number(row["cpu_s"], 2), figures.number(row["flops"] / 1e9), f"{ratio:.3f}", *numbers, gap]
        lines.append([name, model.library, row["way"], *shown, figures.number(row["best_device_s"] / row["auto_s"])])
    head = [
        "model",
        "library",
        "captured",
        "tasks",
        "CPU s",
        "GFLOPs",
        "over torch's",
        "best device, s",
        "`auto`, s",
        "gap",
        "times faster",
    ]
    return figures.table(head, lines)


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Return the counts of ways, and the failures."""
    ways = Counter(row["way"] for row in rows if "error" not in row)
    told = ", ".join(f"{ways[way]} {way}" for way in WAYS if ways[way])
    lines = [f"The plain call captured {ways.total()} of {len(rows)} (target {WANTED} of {len(ARCHITECTURES)}): {told}."]
    lines += [f"- {row['name']} fails: {row['error'][:300]}" for row in rows if "error" in row]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Capture and schedule every model, and publish the table."""
    parser = figures.parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=list(ARCHITECTURES), help="default: all; with --quick two small ones")
    parser.add_argument("--rows", type=Path, help="file of the rows (default: results/models.jsonl; with --quick none)")
    parser.add_argument("--fresh", action="store_true", help="measure also the models that the file has")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each model (default: %(default)s)")
    arguments = figures.parse(parser, words, region=REGION)
    names = arguments.models or (QUICK if arguments.quick else list(ARCHITECTURES))
    path = arguments.rows or (None if arguments.quick else ROWS)
    known: dict[str, dict[str, Any]] = {}
    if path is not None and path.exists():
        known = {row["name"]: row for row in map(json.loads, path.read_text().splitlines())}
    missing = [name for name in names if name not in known or arguments.fresh]
    for library in dict.fromkeys(ARCHITECTURES[name].library for name in missing):
        architectures.define_operators()
        importlib.import_module(library)  # once, for the processes of all its models
    for name in missing:
        known[name] = row_of(name, arguments.limit)
        print(known[name], flush=True)
        if path is not None:
            with path.open("a") as file:
                file.write(json.dumps(known[name]) + "\n")
    rows = [known[name] for name in names]
    packages = ("torch", *dict.fromkeys(ARCHITECTURES[name].library for name in names))
    text = f"Taken on: {figures.where(*packages)}.\n\n{summary(rows)}\n\n{table(rows)}"
    figures.publish(arguments, REGION, text, rows)


if __name__ == "__main__":
    main()
