"""Stages on one device for the four networks of the paper on IOS, by the contention model and measured.

    python benchmarks/ios.py [--quick] [--counts] [--networks inception_v3 squeezenet]

Size of the largest block as the authors divide the networks; latency of IOS's strategies and of sequential and greedy stages; time of
the search and number of stages; limits on stages; block by block; schedules made for one batch size or device run on another;
throughput over batch sizes. Then stages measured on this machine, on a GPU if there is one. Needs torch.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import figures
import instances
import numpy as np

import hetsched as hs
from hetsched.models.ios import counting
from hetsched.models.ios import dynamic_program as ios
from hetsched.workloads import units

REGION, COUNTS = "ios", "ios_counts"
NETWORKS = ("inception_v3", "randwire", "nasnet_a", "squeezenet")
SIZE = {"inception_v3": 299}
"""Height and width of the images; default 224."""
STRATEGIES = ("merge", "concurrent", "both")


class Printed(NamedTuple):
    """What the paper prints of a network."""

    operators: int
    """Table 2."""
    size: str
    """Table 1: tasks, width and bound of the largest block."""
    counts: str
    """Table 1: its transitions and schedules."""


PAPER = {
    "inception_v3": Printed(119, "11, 6, 2.6e4", "4.9e3, 3.8e6"),
    "randwire": Printed(120, "33, 8, 3.7e9", "1.2e6, 9.2e22"),
    "nasnet_a": Printed(374, "18, 8, 5.2e6", "3.1e5, 7.2e12"),
    "squeezenet": Printed(50, "6, 3, 2.2e2", "51, 1.3e2"),
}
AUTHORS = {
    "inception_v3": (6.2, 4.62, 5.39, 4.11, 4.03),
    "randwire": (8.49, 6.27, 8.54, 6.02, 6.02),
    "nasnet_a": (22.95, 16.78, 22.94, 16.04, 16.04),
    "squeezenet": (0.86, 0.98, 0.74, 0.82, 0.73),
}
"""Milliseconds on a V100 at batch 1, by the authors: sequential, greedy, IOS-Merge, IOS-Parallel and IOS-Both. Their NASNet and RandWire
are larger than ours."""
BATCHES, CROSSED, DEVICES = (1, 16, 32, 64, 128), (1, 32, 128), ("p4", "v100")
LIMITS = tuple((size, groups) for size in (1, 2, 3) for groups in (3, 8))
"""r and s of Figure 9."""


class Network(NamedTuple):
    """A captured network and its blocks."""

    graph: hs.TaskGraph
    blocks: list[tuple[str, ...]]

    def cost(self, device: str = "v100", inputs: int = 1) -> hs.costs.Contention:
        """Return the contention model of a device for a batch size."""
        return hs.costs.Contention(self.graph, hs.costs.device(device), inputs=inputs)

    def best(self, cost: hs.costs.Contention, **options: Any) -> hs.StageSchedule:
        """Return the best stages."""
        return hs.stages(self.graph, cost, blocks=self.blocks, **options)


@functools.cache
def network(name: str, data: Path) -> Network:
    """Capture a network in the units of the paper."""
    vision = importlib.import_module("hetsched.workloads.vision")
    graph = hs.frontends.torch.capture(maker(name, data), vision.images(SIZE.get(name, 224)), fuse=True)
    return Network(graph, cells(graph) if name == "nasnet_a" else ios.blocks(graph))


def wirings(data: Path) -> list[list[tuple[int, int]]]:
    """Return the edges of the three stages of 32 nodes."""
    return [wiring(data / f"ws-32-4-0.75-{x}.txt") for x in (3, 4, 5)]


def wiring(path: Path) -> list[tuple[int, int]]:
    """Return the edges of a stage, which follow the numbers of nodes and edges."""
    return [(int(i), int(j)) for i, j in map(str.split, path.read_text().splitlines()[2:])]


def cells(graph: hs.TaskGraph) -> list[tuple[str, ...]]:
    """Return the cells of NASNet, and the tasks before and after them."""
    numbers = [int(name.split(".")[1].split("/")[0]) if name.startswith("cells.") else -1 for name in graph.names]
    last = graph.n_tasks if -1 not in numbers[::-1] else max(i for i, number in enumerate(numbers) if number >= 0)
    members: dict[int, list[str]] = {}
    for i, (name, number) in enumerate(zip(graph.names, numbers, strict=True)):
        members.setdefault(number if number >= 0 or i < last else max(numbers) + 1, []).append(name)
    return [tuple(members[number]) for number in sorted(members)]


def part(graph: hs.TaskGraph, tasks: Sequence[str]) -> hs.TaskGraph:
    """Return the subgraph of some tasks."""
    edges = [(graph.names[i], graph.names[j]) for i, j in graph.edges.tolist()]
    return hs.TaskGraph(list(tasks), [edge for edge in edges if set(edge) <= set(tasks)])


def seconds(schedule: hs.StageSchedule, cost: hs.costs.Contention) -> float:
    """Return the latency of a schedule's stages by another cost."""
    order = {name: x for x, name in enumerate(schedule.tasks[i] for i in cost.graph.topological_order.tolist())}
    total = 0.0
    for s, row in enumerate(schedule.stages):
        tasks = sorted((name for group in schedule.groups(s) for name in group), key=order.__getitem__)
        total += cost(tuple(tasks), row["strategy"])
    return total


def milliseconds(value: float) -> str:
    """Return seconds as milliseconds."""
    return figures.number(value * 1e3)


def strategies(networks: dict[str, Network]) -> str:
    """Return Figure 7 as a table: milliseconds, and times the sequential speed."""
    lines = []
    for name, net in networks.items():
        cost = net.cost()
        usual = [ios.sequential(net.graph, cost).latency, ios.greedy(net.graph, cost).latency]
        latencies = usual + [net.best(cost, strategies=strategy).latency for strategy in STRATEGIES]
        theirs = AUTHORS[name]
        lines.append([name, *(f"{milliseconds(value)} ({latencies[0] / value:.2f}x)" for value in latencies)])
        lines.append([f"{name}, measured by the authors", *(f"{value:.2f} ({theirs[0] / value:.2f}x)" for value in theirs)])
    return figures.table(["milliseconds (times sequential)", "sequential", "greedy", "IOS-Merge", "IOS-Parallel", "IOS-Both"], lines)


def divided(name: str, data: Path) -> Network:
    """Return a network and its blocks as the authors' program has them: with all their wirings, or the larger NASNet."""
    if name == "randwire":
        graph = units.randwire([wiring(data / f"ws-{x}.txt") for x in ("16-4-0.75-2", "32-4-0.75-3", "32-4-0.75-4", "32-4-0.75-5")])
        return Network(graph, ios.blocks(graph))
    if name == "nasnet_a":
        graph = units.nasnet_large()
        return Network(graph, cells(graph))
    return network(name, data)


def sizes(networks: dict[str, Network]) -> str:
    """Return Table 1: the block of the most transitions of each network, by both rules, beside the paper's."""
    lines = []
    for name, net in networks.items():
        operators = sum(op not in ("input", "linear") for op in net.graph.op)
        blocks = [part(net.graph, block) for block in net.blocks]
        block = max(blocks, key=lambda block: counting.counts(block, rule="published").transitions)
        ours, theirs, pruned = (
            counting.counts(block, **options) for options in ({}, {"rule": "published"}, {"groups": 8, "group_size": 3})
        )
        paper = PAPER[name]
        own = f"{block.n_tasks}, {ours.width}, {ours.bound:.2g}"
        cells = [f"{operators} / {paper.operators}", f"{own} / {paper.size}", f"{theirs.transitions:,}, {scientific(theirs.schedules)}"]
        lines.append([name, *cells, paper.counts, f"{ours.transitions:,}, {scientific(ours.schedules)}", f"{pruned.transitions:,}"])
    head = ["here / paper", "operators", "tasks, width, bound of the block", "transitions, schedules, published rule", "the paper's"]
    return figures.table([*head, "every ending", "transitions, every ending, r = 3, s = 8"], lines)


def scientific(count: int) -> str:
    """Return a count, to four digits if it has more than six."""
    return f"{count:,}" if count < 10**6 else f"{count:.3e}"


def search(networks: dict[str, Network]) -> tuple[str, float]:
    """Return the table of search times with compiled kernels, all costs included, and the seconds of all networks."""
    lines, total = [], 0.0
    for name, net in networks.items():
        cost, times = net.cost(), []
        for _ in range(4):
            start = time.perf_counter()
            best = net.best(cost)
            times.append(time.perf_counter() - start)
        spent = float(np.median(times[1:]))
        total += spent
        transitions = sum(len(block.tail) for block in map(functools.partial(walked, net.graph), net.blocks))
        lines.append([name, str(len(net.blocks)), f"{transitions:,}", f"{best.possible:,}", figures.number(spent)])
    head = ["network", "blocks", "transitions (r = 3, s = 8)", "stages", "search, s"]
    return figures.table(head, lines), total


def walked(graph: hs.TaskGraph, tasks: Sequence[str]) -> ios.Block:
    """Return the states and transitions of a block."""
    own = {graph.index[name] for name in tasks}
    return ios.Block(graph, np.array([i for i in graph.topological_order.tolist() if i in own]), 8, 3)


def limits(networks: dict[str, Network]) -> str:
    """Return Figure 9: latency and search time by the limits on stages."""
    lines = []
    for name in ("inception_v3", "nasnet_a"):
        if name not in networks:
            continue
        net, cost = networks[name], networks[name].cost()
        cell = []
        for size, groups in LIMITS:
            start = time.perf_counter()
            latency = net.best(cost, groups=groups, group_size=size).latency
            cell.append(f"{milliseconds(latency)} ({figures.number(time.perf_counter() - start, 2)} s)")
        lines.append([name, *cell])
    return figures.table(["milliseconds (search)", *(f"r = {size}, s = {groups}" for size, groups in LIMITS)], lines)


def by_block(net: Network) -> str:
    """Return Figure 16: the speed-up of the best stages of each block over sequential ones."""
    cost = net.cost()
    best, lines = net.best(cost), []
    for block in net.blocks:
        inside = [s for s in range(len(best)) if set(best.groups(s)[0]) <= set(block)]
        own = float(best.stages.latency[inside].sum())
        alone = sum(cost((name,), "concurrent") for name in block)
        lines.append([block[0], str(len(block)), milliseconds(alone), milliseconds(own), f"{alone / own:.2f}x"])
    return figures.table(["block begins with", "tasks", "sequential, ms", "best, ms", "speed-up"], lines)


def crossed(net: Network, costs: dict[str, hs.costs.Contention]) -> str:
    """Return Table 3 by the model: schedules made for one cost (columns) under another (rows); "=" where the model does not tell apart."""
    made = {name: net.best(cost) for name, cost in costs.items()}
    lines = []
    for name, cost in costs.items():
        row = {other: seconds(schedule, cost) for other, schedule in made.items()}
        marks = {other: " =" if abs(value / row[name] - 1) <= cost.error else "" for other, value in row.items()}
        lines.append(
            [name, *(f"**{milliseconds(value)}**" if other == name else milliseconds(value) + marks[other] for other, value in row.items())]
        )
    return figures.table(["run on, ms", *(f"made for {name}" for name in costs)], lines)


def throughput(net: Network) -> str:
    """Return Figure 11: images per second by batch size."""
    lines = []
    for way in ("sequential", "greedy", "IOS-Both"):
        cells = []
        for inputs in BATCHES:
            cost = net.cost(inputs=inputs)
            made = net.best(cost) if way == "IOS-Both" else getattr(ios, way)(net.graph, cost)
            cells.append(figures.number(inputs / made.latency))
        lines.append([way, *cells])
    return figures.table(["images a second", *(f"batch {inputs}" for inputs in BATCHES)], lines)


def measured(name: str, data: Path, repeats: int) -> list[str]:
    """Return a line of measurements on this machine: the latency by the search, and of complete runs."""
    torch = importlib.import_module("torch")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    module = maker(name, data)().to(device)
    x = torch.randn(1, 3, SIZE.get(name, 224), SIZE.get(name, 224), device=device)
    program = hs.runtime.Program(module, x, fuse=True)
    cost = hs.runtime.MeasuredStages(program, x, repeats=repeats)
    start = time.perf_counter()
    best = hs.stages(program.graph, cost, bound=cost.bound)
    spent, evaluated = time.perf_counter() - start, cost.measured
    schedules = {"sequential": ios.sequential(program.graph, cost), "greedy": ios.greedy(program.graph, cost), "best": best}
    ways = {"module": module, **{way: hs.runtime.StagedProgram(program, schedule) for way, schedule in schedules.items()}}
    times: dict[str, list[float]] = {way: [] for way in ways}
    with torch.no_grad():
        expected = module(x)
        for turn in range(repeats + 1):  # in turn, so that other load of the machine affects all
            for way, run in ways.items():
                start = time.perf_counter()
                made = run(x)
                if device == "cuda":
                    torch.cuda.synchronize()
                if turn:
                    times[way].append(time.perf_counter() - start)
                torch.testing.assert_close(made, expected, rtol=1e-3, atol=1e-4)
    cells = [milliseconds(float(np.median(times[way]))) for way in ways]
    return [name, device, f"{best.possible:,}", f"{evaluated:,}", figures.number(spent, 2), milliseconds(best.latency), *cells]


def maker(name: str, data: Path) -> Callable[[], Any]:
    """Return the function that makes a network."""
    vision = importlib.import_module("hetsched.workloads.vision")
    return functools.partial(vision.randwire, wirings(data)) if name == "randwire" else getattr(vision, name)  # type: ignore[no-any-return]


def main(words: Sequence[str] | None = None) -> None:
    """Make every table and publish them."""
    parser = figures.parser(__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, help="default: all; with --quick squeezenet")
    parser.add_argument(
        "--measured",
        nargs="*",
        choices=(*NETWORKS, "googlenet"),
        default=("squeezenet", "googlenet"),
        help="networks to measure here (default: squeezenet googlenet)",
    )
    parser.add_argument("--repeats", type=int, default=10, help="runs of a stage, and of the whole (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=instances.DATA / "ios", help="folder of RandWire's wirings (default: %(default)s)")
    parser.add_argument("--counts", action="store_true", help="count the largest blocks, and nothing else")
    arguments: argparse.Namespace = figures.parse(parser, words, region=REGION)
    if arguments.docs is not None:
        figures.replaced(arguments.docs / "benchmarks.md", COUNTS, "")
    names = arguments.networks or (NETWORKS[-1:] if arguments.quick else NETWORKS)
    figures.publish(arguments, COUNTS, sizes({name: divided(name, arguments.data) for name in names}), {})
    if arguments.counts:
        return
    networks = {}
    for name in names:
        networks[name] = network(name, arguments.data)
        print(f"{name}: {networks[name].graph}, {len(networks[name].blocks)} blocks", flush=True)
    shown = networks.get("inception_v3") or next(iter(networks.values()))
    evaluated, total = search(networks)
    batches = crossed(shown, {f"batch {inputs}": shown.cost(inputs=inputs) for inputs in CROSSED})
    devices = crossed(shown, {device: shown.cost(device) for device in DEVICES})
    which = next(name for name, net in networks.items() if net is shown)
    text = "\n\n".join(
        [
            f"Taken on: {figures.machine()}.",
            strategies(networks),
            "### Search",
            f"All searches together take {figures.number(total)} s (target: 1 s for the four networks), kernels compiled.",
            evaluated,
            *(["### Limits on stages", limits(networks)] if {"inception_v3", "nasnet_a"} & set(networks) else []),
            f"### Block by block: {which}",
            by_block(shown),
            f"### Made for one batch size or device, run on another: {which}",
            f"By the model; what differs from the row's own by no more than its error, {figures.percent(hs.costs.Contention.error)}, is "
            'marked "=". Latencies measured by the authors are in "Stages on a V100".',
            batches,
            devices,
            f"### Batch sizes: {which}",
            throughput(shown),
        ]
    )
    lines = [measured(name, arguments.data, arguments.repeats) for name in arguments.measured[: 1 if arguments.quick else None]]
    if lines:
        head = [
            "network, 1 image",
            "device",
            "stages",
            "measured",
            "search, s",
            "best, sum of stages, ms",
            "module, ms",
            "sequential, ms",
            "greedy, ms",
            "best, ms",
        ]
        text += f"\n\n### Measured\n\n{figures.table(head, lines)}"
    figures.publish(arguments, REGION, text, {"search_s": total})


if __name__ == "__main__":
    main()
