"""Large graphs: tasks of Moirai's models, and times of capture and scheduling.

    python benchmarks/training_graphs.py [--quick] [--models nmt ...]

The models of Moirai as calls, and two training steps of more than 50,000 tasks, from module to schedule. All on tensors without
data. Needs torch.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import figures

import hetsched as hs
from hetsched.papers import models
from hetsched.papers.celeritas import testbed
from hetsched.papers.models import Model

REGION = "training_graphs"


OPERATORS = {"swin": "6k to 22k", "gpt3": "5k to 20k", "alphafold2": "5k to 51k"}
"""Moirai's operators, smallest to largest model of each kind."""
LARGEST = ("nmt, 180 words", "alphafold2 3.2B, trained")
WANTED, SECONDS = 50_000, 60.0
"""Targets for the largest: tasks, and seconds from module to schedule."""


def larger() -> dict[str, Model]:
    """Return the largest training steps."""
    translation = importlib.import_module("hetsched.workloads.translation")
    return dict(zip(LARGEST, (models.translated(translation.nmt, 512, 180), models.Model(_trunk)), strict=True))


def _trunk() -> hs.TaskGraph:
    folding = importlib.import_module("hetsched.workloads.folding")
    return hs.frontends.torch.capture_training(
        lambda: folding.evoformer("3.2B"),
        folding.aligned("3.2B"),
        loss=lambda made: made[0].square().mean() + made[1].square().mean(),
        optimiser="adam",
    )


def problem_of(graph: hs.TaskGraph) -> hs.Problem:
    """Return the problem of placing a graph on four V100 without limits on memory."""
    return hs.Problem(graph, testbed.four_v100(), costs=hs.costs.Roofline())


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the result of a call, and its wall-clock and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    made = call()
    return made, time.perf_counter() - wall, time.process_time() - cpu


def call_table(names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the table of calls."""
    lines, rows = [], {}
    for name, call in ((name, call) for name, call in models.calls().items() if name in names):
        graph, wall, cpu = timed(call.capture)
        print(f"{name}: {graph}, {wall:.1f} s", flush=True)
        parameters = f"{graph.weight_bytes.sum() / 4e9:.3g}B"
        lines.append([name, parameters, f"{graph.n_tasks:,}", f"{graph.n_edges:,}", figures.number(cpu, 2), OPERATORS[name.split()[0]]])
        rows[name] = {"tasks": graph.n_tasks, "edges": graph.n_edges, "wall_s": wall, "cpu_s": cpu}
    return figures.table(["call", "weights read", "tasks", "edges", "capture, CPU s", "paper: operators"], lines), rows


def largest_table(names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the table of the largest, from module to a schedule by HEFT."""
    lines, rows = [], {}
    steps = larger()
    for name in (name for name in names if name in LARGEST):
        graph, capture, capture_cpu = timed(steps[name].capture)
        solution, solve, solve_cpu = timed(lambda graph=graph: hs.solve(problem_of(graph), "heft"))
        assert solution.schedule is not None
        print(f"{name}: {graph}, {capture:.1f} s, {solution}, {solve:.1f} s", flush=True)
        total, cpu = capture + solve, capture_cpu + solve_cpu
        shown = figures.number(total) if total <= SECONDS and graph.n_tasks >= WANTED else f"**{figures.number(total)}**"
        cells = [figures.number(value) for value in (capture, solve, cpu)]
        lines.append(
            [name, f"{graph.n_tasks:,}", f"{graph.n_edges:,}", cells[0], cells[1], shown, cells[2], figures.number(solution.makespan)]
        )
        rows[name] = {"tasks": graph.n_tasks, "capture_s": capture, "solve_s": solve, "cpu_s": cpu}
    head = ["training step", "tasks", "edges", "capture, s", "HEFT, s", f"both, s (target {SECONDS:g})", "both, CPU s", "makespan, s"]
    return figures.table(head, lines), rows


def main(words: Sequence[str] | None = None) -> None:
    """Make every table and publish them."""
    everything = [*LARGEST, *models.calls()]
    parser = figures.parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=everything, help="default: all; with --quick gpt3 330M")
    arguments = figures.parse(parser, words, region=REGION)
    names = arguments.models or (["gpt3 330M"] if arguments.quick else everything)
    parts = {"Calls": call_table, "From module to schedule": largest_table}
    text, rows = [f"Taken on: {figures.machine()}."], {}
    for title, table in parts.items():
        made, figures_by_model = table(names)
        if figures_by_model:
            text += [f"### {title}", made]
            rows |= figures_by_model
    figures.publish(arguments, REGION, "\n\n".join(text), rows)


if __name__ == "__main__":
    main()
