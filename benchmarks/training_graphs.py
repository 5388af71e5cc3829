"""Training graphs and large models: numbers of tasks compared with the papers, and times of capture and scheduling.

    python benchmarks/training_graphs.py [--quick] [--models nmt ...]

The models of Celeritas as training steps, those of Moirai as calls, and two training steps of more than 50,000 tasks, from module
to schedule. All on tensors without data. Needs torch.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import figures

import hetsched as hs
from hetsched import coarsening
from hetsched.workloads import clusters

REGION = "training_graphs"


class Step(NamedTuple):
    """A training step of Celeritas' section 6, and the numbers there: nodes of TensorFlow and CCR."""

    capture: Callable[[], hs.TaskGraph]
    nodes: int
    ccr: float


class Call(NamedTuple):
    """A model of Moirai's Table IV."""

    capture: Callable[[], hs.TaskGraph]
    parameters: str


OPERATORS = {"swin": "6k to 22k", "gpt3": "5k to 20k", "alphafold2": "5k to 51k"}
"""Moirai's operators, smallest to largest model of each kind."""
PICTURE = 192
"""Height and width of the images of Tensor Holography."""
LARGEST = ("nmt, 180 words", "alphafold2 3.2B, trained")
WANTED, SECONDS = 50_000, 60.0
"""Targets for the largest: tasks, and seconds from module to schedule."""


def training() -> dict[str, Step]:
    """Return the training steps of Celeritas, at its batch sizes; sentences of 50 words, Adam."""
    vision, translation = (importlib.import_module(f"hetsched.workloads.{name}") for name in ("vision", "translation"))
    torch = importlib.import_module("torch")
    functional = torch.nn.functional

    def step(make: Any, args: Any, targets: Any, loss: Any = functional.cross_entropy) -> Callable[[], hs.TaskGraph]:
        return lambda: hs.frontends.torch.capture_training(make, args, targets=targets, loss=loss, optimiser="adam")

    def translated(make: Any, batch: int, words: int = 50) -> Callable[[], hs.TaskGraph]:
        sentences = translation.sentences(words, batch)
        return step(make, (sentences, sentences), sentences)

    labels = torch.empty(512, dtype=torch.int64, device="meta")
    pictures, holograms = (torch.empty(32, channels, PICTURE, PICTURE, device="meta") for channels in (4, 6))
    inception = step(lambda: vision.inception_v3().train(), vision.images(299, 512), labels)
    apart = translated(lambda: translation.transformer(apart=True), 256)
    return {
        "inception_v3": Step(inception, 6332, 33.1),
        "nmt": Step(translated(translation.nmt, 512), 25463, 18.6),
        "transformer": Step(translated(translation.transformer, 256), 36352, 112.0),
        "transformer, heads apart": Step(apart, 36352, 112.0),
        "holography": Step(step(vision.holography, pictures, holograms, functional.mse_loss), 3810, 49.1),
        LARGEST[0]: Step(translated(translation.nmt, 512, 180), 0, math.nan),
        LARGEST[1]: Step(_trunk, 0, math.nan),
    }


def _trunk() -> hs.TaskGraph:
    folding = importlib.import_module("hetsched.workloads.folding")
    return hs.frontends.torch.capture_training(
        lambda: folding.evoformer("3.2B"),
        folding.aligned("3.2B"),
        loss=lambda made: made[0].square().mean() + made[1].square().mean(),
        optimiser="adam",
    )


def calls() -> dict[str, Call]:
    """Return the models of Moirai."""
    language, swin, folding, vision = (
        importlib.import_module(f"hetsched.workloads.{name}") for name in ("language", "swin", "folding", "vision")
    )
    torch = importlib.import_module("torch")
    tokens = torch.empty(1, 2048, dtype=torch.int64, device="meta")

    def call(make: Any, size: str, args: Any) -> Call:
        return Call(lambda: hs.frontends.torch.record(lambda: make(size), args), size)

    return {
        **{f"swin {size}": call(swin.swin, size, vision.images(1100)) for size in swin.SIZES},
        **{f"gpt3 {size}": call(language.decoder, size, tokens) for size in language.DECODERS},
        **{f"alphafold2 {size}": call(folding.evoformer, size, folding.aligned(size)) for size in folding.SIZES},
    }


def cluster() -> hs.Cluster:
    """Return Celeritas' four V100 on PCIe (3.0: half of 4.0), without their limits on memory."""
    gpus = [hs.costs.device("v100", f"gpu{i}", memory_bytes=math.inf) for i in range(4)]
    return hs.Cluster(gpus, bandwidth=clusters.PCIE4_X16 / 2, latency=clusters.LATENCY)


def problem_of(graph: hs.TaskGraph) -> hs.Problem:
    """Return the problem of placing a graph on four V100."""
    return hs.Problem(graph, cluster(), costs=hs.costs.Roofline())


def ccr(graph: hs.TaskGraph) -> float:
    """Return the communication-to-computation ratio of a graph on four V100 (Celeritas, equation 1)."""
    return coarsening.ccr(problem_of(graph))


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the result of a call, and its wall-clock and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    made = call()
    return made, time.perf_counter() - wall, time.process_time() - cpu


def phases(graph: hs.TaskGraph) -> list[int]:
    """Return the numbers of tasks of the forward pass with its loss, of the backward pass, and of updates."""
    kinds = [name.partition(":")[0] if name.startswith(("backward:", "update:")) else "forward" for name in graph.names]
    return [kinds.count(kind) for kind in ("forward", "backward", "update")]


def train_table(names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the table of training steps."""
    lines, rows = [], {}
    for name, step in ((name, step) for name, step in training().items() if name in names and name not in LARGEST):
        graph, wall, cpu = timed(step.capture)
        ratio = ccr(graph)
        print(f"{name}: {graph}, {wall:.1f} s", flush=True)
        counts = [f"{count:,}" for count in (graph.n_tasks, *phases(graph), graph.n_edges)]
        lines.append([name, *counts, figures.number(cpu, 2), figures.number(ratio), f"{step.nodes:,}", f"{step.ccr:g}"])
        rows[name] = {"tasks": graph.n_tasks, "edges": graph.n_edges, "wall_s": wall, "cpu_s": cpu, "ccr": ratio}
    head = ["training step", "tasks", "forward", "backward", "updates", "edges", "capture, CPU s", "CCR", "paper: nodes", "paper: CCR"]
    return figures.table(head, lines), rows


def call_table(names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the table of calls."""
    lines, rows = [], {}
    for name, call in ((name, call) for name, call in calls().items() if name in names):
        graph, wall, cpu = timed(call.capture)
        print(f"{name}: {graph}, {wall:.1f} s", flush=True)
        parameters = f"{graph.weight_bytes.sum() / 4e9:.3g}B"
        lines.append([name, parameters, f"{graph.n_tasks:,}", f"{graph.n_edges:,}", figures.number(cpu, 2), OPERATORS[name.split()[0]]])
        rows[name] = {"tasks": graph.n_tasks, "edges": graph.n_edges, "wall_s": wall, "cpu_s": cpu}
    return figures.table(["call", "weights read", "tasks", "edges", "capture, CPU s", "paper: operators"], lines), rows


def largest_table(names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the table of the largest, from module to a schedule by HEFT."""
    lines, rows = [], {}
    steps = training()
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
    everything = [*training(), *calls()]
    parser = figures.parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=everything, help="default: all; with --quick holography, gpt3 330M")
    arguments = figures.parse(parser, words, region=REGION)
    names = arguments.models or (["holography", "gpt3 330M"] if arguments.quick else everything)
    parts = {"Training": train_table, "Calls": call_table, "From module to schedule": largest_table}
    text, rows = [f"Taken on: {figures.machine()}."], {}
    for title, table in parts.items():
        made, figures_by_model = table(names)
        if figures_by_model:
            text += [f"### {title}", made]
            rows |= figures_by_model
    figures.publish(arguments, REGION, "\n\n".join(text), rows)


if __name__ == "__main__":
    main()
