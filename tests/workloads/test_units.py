"""Networks in the operators of the paper on IOS: its Table 2, the structure of cells and stages, messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.models import ios
from hetsched.testing.profiles import examples
from hetsched.workloads import units


def wiring(path: Path) -> list[tuple[int, int]]:
    numbers = np.array(path.read_text(encoding="utf-8").split(), np.int64)
    return [(i, j) for i, j in numbers[2:].reshape(-1, 2).tolist()]


def part(graph: hs.TaskGraph, start: str) -> hs.TaskGraph:
    """Return the subgraph of the tasks whose names begin like this."""
    tasks = [name for name in graph.names if name.startswith(start)]
    arcs = [(graph.names[i], graph.names[j]) for i, j in graph.edges.tolist()]
    return hs.TaskGraph(tasks, [arc for arc in arcs if set(arc) <= set(tasks)])


def test_nasnet_has_the_operators_of_table_2():
    graph = units.nasnet_large()
    assert graph.n_tasks == 374 + 1
    assert graph.op[0] == "input"
    sizes = {k: part(graph, f"cells.{k}.").n_tasks for k in range(22)}
    first, reduction = {2, 9, 16}, {8, 15}
    assert sizes.pop(0) == 18
    assert sizes.pop(1) == 21
    assert sizes == {k: 18 if k in first else 19 if k in reduction else 16 for k in sizes}
    counts = {k: ios.counts(part(graph, f"cells.{k}."), rule="published").transitions for k in range(22)}
    assert {k for k in counts if counts[k] == max(counts.values())} == first
    assert ios.counts(part(graph, "cells.16.")).width == 8


def test_nasnet_computes_about_what_is_published():
    """The published network has 88.9 M parameters and 23.8 G multiplications and additions; the program's has narrower branches in
    its second cell, no classifier, and sums there for concatenations."""
    graph = units.nasnet_large()
    assert 0.85 < graph.weight_bytes.sum() / 4 / 88.9e6 < 1
    assert 0.85 < graph.flops.sum() / 2 / 23.8e9 < 1
    sides = [np.sqrt(graph.shape[graph.index[f"cells.{k}.e.left.2" if k in (8, 15) else f"cells.{k}.e.2"]].rows) for k in (2, 8, 9, 15, 16)]
    assert sides == [42, 21, 21, 11, 11]
    assert graph.output_bytes[graph.index["cells.21.cat"]] == 4 * 5 * 672 * 11**2


def test_randwire_has_the_operators_of_table_2(shared_data: Path):
    files = ["ws-16-4-0.75-2", *(f"ws-32-4-0.75-{x}" for x in (3, 4, 5))]
    graph = units.randwire([wiring(shared_data / "ios" / f"{file}.txt") for file in files])
    assert graph.n_tasks == 120 + 1
    blocks = [block for block in ios.blocks(graph) if len(block) > 10]
    assert [len(block) for block in blocks[1:]] == [33, 33, 33]
    assert all(block[-1].endswith(".sum") for block in blocks[1:])
    counts = [ios.counts(part(graph, f"stage{k}."), rule="published").transitions for k in (2, 3, 4)]
    assert counts[1] == max(counts) == 1_170_663
    assert graph.shape[graph.index["stage4.31"]].rows == 7**2


@st.composite
def wirings(draw):
    n = draw(st.integers(2, 6))
    pairs = st.tuples(st.integers(0, n - 2), st.integers(1, n - 1)).filter(lambda pair: pair[0] < pair[1])
    return draw(st.lists(pairs, min_size=1, max_size=9, unique=True))


@given(st.lists(wirings(), min_size=1, max_size=3))
@examples(30)
def test_a_stage_is_its_wiring_between_an_input_and_a_sum(stages):
    graph = units.randwire(stages, channels=8)
    arcs = {(graph.names[i], graph.names[j]) for i, j in graph.edges.tolist()}
    source = "conv1"
    for k, edges in enumerate(stages, 1):
        n = 1 + max(j for _, j in edges)
        name = [f"stage{k}.{i}" for i in range(n)]
        heads, tails = {j for _, j in edges}, {i for i, _ in edges}
        own = {(name[i], name[j]) for i, j in edges}
        own |= {(source, name[i]) for i in range(n) if i not in heads}
        source = f"stage{k}.sum"
        own |= {(name[i], source) for i in range(n) if i not in tails}
        assert {arc for arc in arcs if arc[1].startswith(f"stage{k}.")} == own
        assert graph.output_bytes[graph.index[source]] == 4 * 8 * 2 ** (k - 1) * (112 // 2**k) ** 2
    assert np.array_equal(graph.edge_bytes, graph.output_bytes[graph.source])


@given(st.integers(1, 3), st.sampled_from([4, 8, 20]))
@examples(10)
def test_a_smaller_nasnet_has_the_same_cells(cells, filters):
    graph, whole = units.nasnet_large(cells=cells, filters=filters), units.nasnet_large()
    assert graph.n_tasks == 375 - 3 * 16 * (6 - cells)
    for k in (0, 1, 2):
        assert np.array_equal(part(graph, f"cells.{k}.").edges, part(whole, f"cells.{k}.").edges)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: units.nasnet_large(filters=42), "filters is 42; the stem has a quarter and a half of them, so give a multiple of 4"),
        (lambda: units.nasnet_large(cells=0), "cells is 0"),
        (lambda: units.randwire([[(0, 1)], []]), r"wirings\[1\] has no edges; leave the stage out"),
        (lambda: units.randwire([[(1, 0)]]), r"wirings\[0\] has the edge \(1, 0\); an edge leads from a node, 0 or more, to one"),
        (lambda: units.randwire([[(0, 1)]], channels=0), "channels is 0"),
    ],
)
def test_what_is_no_network_is_refused(call, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        call()
