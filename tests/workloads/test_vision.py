"""Networks with branches: published sizes, and the units and counts of the paper on IOS."""

from __future__ import annotations

from pathlib import Path

import pytest

import hetsched as hs
from hetsched.models import ios

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from hetsched.workloads import vision  # noqa: E402

capture = hs.frontends.torch.capture


def wiring(path: Path) -> list[tuple[int, int]]:
    """Read the edges of a file: the numbers of nodes and edges, then a line for each edge."""
    _, count, *edges = path.read_text().splitlines()
    pairs = [(int(i), int(j)) for i, j in (line.split() for line in edges)]
    assert len(pairs) == int(count)
    return pairs


def parameters(make, leave: str = "-") -> int:
    with torch.device("meta"):
        return sum(tensor.numel() for name, tensor in make().named_parameters() if leave not in name)


def part(graph: hs.TaskGraph, tasks: tuple[str, ...]) -> hs.TaskGraph:
    """Return the subgraph of some tasks."""
    edges = [(graph.names[i], graph.names[j]) for i, j in graph.edges.tolist()]
    return hs.TaskGraph(list(tasks), [edge for edge in edges if set(edge) <= set(tasks)])


def largest(graph: hs.TaskGraph) -> ios.Counts:
    """Return the counts of the block with the highest bound."""
    return max((ios.counts(part(graph, block)) for block in ios.blocks(graph)), key=lambda counts: counts.bound)


def published(counts: ios.Counts) -> tuple[int, int]:
    """Return the transitions and schedules by the rule of the authors' program."""
    ours = ios.counts(counts.graph, rule="published")
    return ours.transitions, ours.schedules


def test_published_numbers_of_parameters():
    assert parameters(vision.squeezenet, leave="branches.1.") == 1_248_424  # without bypass
    assert parameters(vision.nasnet_a) == pytest.approx(5.3e6, rel=0.01)


@pytest.mark.slow
def test_inception_units_are_those_of_the_paper():
    graph = capture(vision.inception_v3, vision.images(299), fuse=True)
    assert graph.n_tasks == 119 + 2  # the input and the classifier are not operators of the paper
    counts = largest(graph)
    assert (counts.graph.n_tasks, counts.width) == (11, 6)
    assert counts.bound == pytest.approx(2.6e4, rel=0.02)
    assert (counts.transitions, counts.schedules) == (5040, 4_410_136)
    assert published(counts) == (4871, 3_757_392)  # the paper: 4.9e3, 3.8e6


@pytest.mark.slow
def test_squeezenet_units_are_those_of_the_paper():
    graph = capture(vision.squeezenet, vision.images(224), fuse=True)
    assert graph.n_tasks == 50 + 1
    counts = largest(graph)
    assert (counts.graph.n_tasks, counts.width, counts.bound) == (6, 3, 216)  # the paper: 2.2e2
    assert (counts.transitions, counts.schedules) == (60, 152)
    assert published(counts) == (51, 131)  # the paper: 51, 1.3e2


@pytest.mark.slow
def test_randwire_units_are_those_of_the_paper(shared_data: Path):
    wirings = [wiring(shared_data / "ios" / f"ws-32-4-0.75-{x}.txt") for x in (3, 4, 5)]
    assert parameters(lambda: vision.randwire(wirings)) == pytest.approx(5.6e6, rel=0.02)
    graph = capture(lambda: vision.randwire(wirings[:1]), vision.images(64), fuse=True)
    counts = largest(graph)
    assert (counts.graph.n_tasks, counts.width) == (33, 8)
    assert counts.bound == pytest.approx(3.7e9, rel=0.01)
    assert counts.transitions == 2_980_514
    assert published(counts)[0] == 762_079  # the block of the paper, of 1.2e6, is that of the second of these wirings


def small_nasnet():
    return vision.nasnet_a(10, cells=1, filters=8)


@pytest.mark.slow
def test_nasnet_cells_have_the_size_of_the_paper():
    """By coincidence: the block of the paper, of 3.1e5 transitions, is another one, see `units.nasnet_large`."""
    graph = capture(small_nasnet, vision.images(64), fuse=True)
    cell = [name for name in graph.names if name.startswith(("cells.2.", "cells.2/"))]
    inner = tuple(name for name in cell if not name.endswith("/cat") and "here" not in name and "there" not in name)
    counts = ios.counts(part(graph, inner))
    assert (len(inner), counts.width) == (18, 8)  # without the concatenation and the two convolutions at the cell's entry
    assert counts.bound == pytest.approx(5.2e6, rel=0.01)
    assert counts.transitions == 1_771_440


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(small_nasnet, marks=pytest.mark.slow),
        lambda: vision.squeezenet(10),
        lambda: vision.randwire([[(0, 1), (0, 2), (1, 2), (0, 3)]], 10, channels=8),
    ],
)
def test_units_make_what_the_module_makes(make):
    module, x = make(), torch.randn(2, 3, 64, 64)
    program = hs.runtime.Program(module, x, fuse=True)
    with torch.no_grad():
        assert torch.equal(program(x), module(x))
        with FlopCounterMode(display=False) as counter:
            module(x[:1])
    assert program.graph.flops.sum() == counter.get_total_flops()
