"""The four networks of the paper, divided into blocks as the authors' program divides them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hetsched.costs import devices
from hetsched.costs.stages import Contention
from hetsched.models.ios import dynamic_program as ios
from hetsched.problem.graph import TaskGraph
from hetsched.schedule.stages import StageSchedule
from hetsched.workloads import units

NETWORKS = ("inception_v3", "randwire", "nasnet_a", "squeezenet")
_PIXELS = {"inception_v3": 299, "squeezenet": 224}
"""Height and width of the images of the networks that are captured from torch."""
_WIRINGS = ("ws-16-4-0.75-2", "ws-32-4-0.75-3", "ws-32-4-0.75-4", "ws-32-4-0.75-5")
"""The files of the authors' program with the wirings of the stages of RandWire."""


class Network(NamedTuple):
    """A network in the operators of the paper, and its blocks."""

    graph: TaskGraph
    blocks: list[tuple[str, ...]]

    def block(self, which: int) -> TaskGraph:
        """Return the subgraph of a block."""
        tasks = set(self.blocks[which])
        names = self.graph.names
        edges = [(names[i], names[j]) for i, j in self.graph.edges.tolist() if names[i] in tasks and names[j] in tasks]
        return TaskGraph(list(self.blocks[which]), edges)

    def cost(self, device: str = "v100", inputs: int = 1) -> Contention:
        """Return the contention model of a device for a batch size."""
        return Contention(self.graph, devices.device(device), inputs=inputs)

    def best(self, cost: Contention, **options: Any) -> StageSchedule:
        """Return the stages of IOS, with the paper's limits unless `options` differ."""
        return ios.stages(self.graph, cost, blocks=self.blocks, **options)

    def latency(self, way: str, cost: Contention) -> float:
        """Return the seconds of one of `published.WAYS`."""
        if way in ("sequential", "greedy"):
            made: StageSchedule = getattr(ios, way)(self.graph, cost)
            return made.latency
        return self.best(cost, strategies=way).latency


MODEL = (
    "the durations are those of a model, `hetsched.costs.Contention`, whose constants are fitted to the authors' latencies of "
    "Inception-v3 on a V100 (Table 3 here); latencies of that network that were held out of the fit are within "
    f"{100 * Contention.error:.0f} %. The authors measured; their milliseconds are those of the README of their program, of several runs. "
    "A schedule that is the best by a model is rather less good than it seems."
)
"""What differs wherever stages have the model's seconds."""


APART = 2 * Contention.error
"""Latencies of two schedules that differ by less are not told apart: each may be off by the error."""


def listed(schedule: StageSchedule, graph: TaskGraph) -> list[tuple[tuple[str, ...], str]]:
    """Return the tasks of each stage, in topological order, and its strategy."""
    place = {graph.names[i]: x for x, i in enumerate(graph.topological_order.tolist())}
    stages = [[name for group in schedule.groups(s) for name in group] for s in range(len(schedule))]
    ways = schedule.stages.strategy.tolist()
    return [(tuple(sorted(tasks, key=place.__getitem__)), way) for tasks, way in zip(stages, ways, strict=True)]


def ran(schedule: StageSchedule, cost: Contention) -> float:
    """Return the seconds of a schedule's stages under another cost."""
    return sum(cost(tasks, way) for tasks, way in listed(schedule, cost.graph))


def agree(here: float, paper: float) -> bool:
    """Return whether ratios of two latencies agree as far as the model can tell."""
    return abs(here / paper - 1) <= APART


def reaches(here: float, paper: float) -> bool:
    """Return whether a speed-up agrees with the paper's, and is not less than it to the digits printed."""
    digits = len(f"{paper:g}".partition(".")[2])
    return agree(here, paper) and round(here, digits) >= paper


REACHES = f"a speed-up is held if not less than the paper's, nor more by over {100 * APART:.1f} %, which the model does not tell apart"
BEST = "the search includes the other choices under the same costs, so by construction it is never slower, whatever a device does"


def available(names: Sequence[str], data: Path | None) -> list[str]:
    """Return the networks that can be made: RandWire needs the wirings."""
    return [name for name in names if name != "randwire" or wirings(data) is not None]


def wirings(data: Path | None) -> Path | None:
    """Return the folder of RandWire's wirings: `data` or its subfolder ``ios``; None if they are not there."""
    for folder in () if data is None else (data, data / "ios"):
        if all((folder / f"{name}.txt").exists() for name in _WIRINGS):
            return folder
    return None


@functools.cache
def network(name: str, data: Path | None) -> Network:
    """Return a network as large as the authors'."""
    if name == "nasnet_a":
        graph = units.nasnet_large()
        return Network(graph, cells(graph))
    if name == "randwire":
        folder = wirings(data)
        assert folder is not None, "the wirings are looked for before a case is made"
        graph = units.randwire([_wiring(folder / f"{wiring}.txt") for wiring in _WIRINGS])
    else:
        from hetsched.frontends import torch

        vision = importlib.import_module("hetsched.workloads.vision")
        graph = torch.capture(getattr(vision, name), vision.images(_PIXELS[name]), fuse=True)
    return Network(graph, ios.blocks(graph))


def _wiring(path: Path) -> list[tuple[int, int]]:
    """Return the edges of a stage, which follow the numbers of nodes and edges."""
    return [(int(i), int(j)) for i, j in map(str.split, path.read_text(encoding="utf-8").splitlines()[2:])]


def cells(graph: TaskGraph) -> list[tuple[str, ...]]:
    """Return the cells of NASNet, and the tasks before and after them."""
    numbers = [int(name.split(".")[1].split("/")[0]) if name.startswith("cells.") else -1 for name in graph.names]
    last = graph.n_tasks if -1 not in numbers[::-1] else max(i for i, number in enumerate(numbers) if number >= 0)
    members: dict[int, list[str]] = {}
    for i, (name, number) in enumerate(zip(graph.names, numbers, strict=True)):
        members.setdefault(number if number >= 0 or i < last else max(numbers) + 1, []).append(name)
    return [tuple(members[number]) for number in sorted(members)]


def largest(blocks: Sequence[TaskGraph]) -> TaskGraph:
    """Return the block of the most transitions under the rule of the authors' program."""
    from hetsched.models.ios import counting

    return max(blocks, key=lambda block: counting.counts(block, rule="published").transitions)
