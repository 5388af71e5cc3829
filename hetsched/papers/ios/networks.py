"""The four networks of the paper, divided into blocks as the authors' program divides them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hetsched.models.ios import dynamic_program as ios
from hetsched.problem.graph import TaskGraph
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
        return Network(graph, _cells(graph))
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


def _cells(graph: TaskGraph) -> list[tuple[str, ...]]:
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
