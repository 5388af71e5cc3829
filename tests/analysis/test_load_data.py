"""Ideals, orders of units and the narrowing of graphs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis.ideals import chain, ideals
from hetsched.analysis.load_data import linear_order, load_data, unit_order, without_pendants
from hetsched.testing.profiles import examples


@st.composite
def orders(draw: st.DrawFn) -> tuple[int, np.ndarray]:
    size = draw(st.integers(0, 7))
    pairs = [(a, b) for b in range(size) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return size, np.array(chosen, np.int64).reshape(-1, 2)


@examples(100)
@given(order=orders())
def test_ideals_are_all_the_down_sets(order: tuple[int, np.ndarray]) -> None:
    size, pairs = order
    lattice = ideals(size, pairs, limit=1000)
    assert lattice is not None
    every = [set(some) for count in range(size + 1) for some in combinations(range(size), count)]
    down = [some for some in every if all(a in some or b not in some for a, b in pairs.tolist())]
    members: list[set[int]] = [set()] + [set()] * (lattice.number - 1)
    for c in range(lattice.number):
        for a in range(lattice.ptr[c], lattice.ptr[c + 1]):
            larger = members[c] | {int(lattice.element[a])}
            assert members[lattice.larger[a]] in (set(), larger)
            members[lattice.larger[a]] = larger
    assert sorted(map(sorted, members)) == sorted(map(sorted, down))
    assert [len(some) for some in members] == sorted(len(some) for some in members)
    if lattice.number > 1:
        assert ideals(size, pairs, limit=lattice.number - 2) is None


def test_many_elements_need_more_than_one_word() -> None:
    size = 150
    pairs = np.column_stack([np.arange(size - 1), np.arange(1, size)])
    lattice, straight = ideals(size, pairs, limit=1000), chain(size)
    assert lattice is not None
    assert [column.tolist() for column in lattice] == [column.tolist() for column in straight]


def test_a_stop_ends_the_enumeration() -> None:
    assert ideals(3, np.zeros((0, 2), np.int64), limit=100, stop=lambda: True) is None


@examples(100)
@given(order=orders(), data=st.data())
def test_joining_pendants_leaves_an_order(order: tuple[int, np.ndarray], data: st.DataObject) -> None:
    size, pairs = order
    light = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
    able = np.array(data.draw(st.lists(st.sampled_from([(True, True), (True, False), (False, True)]), min_size=size, max_size=size)), bool)
    group = without_pendants(pairs, linear_order(pairs, np.arange(size)), light, able.reshape(size, 2))
    count = int(group.max(initial=-1)) + 1
    assert sorted(set(group.tolist())) == list(range(count))
    between = np.unique(group[pairs], axis=0)
    between = between[between[:, 0] != between[:, 1]]
    assert len(linear_order(between, np.arange(count))) == count, "no cycle came of it"
    for g in range(count):
        assert able[group == g].all(axis=0).any(), "some device can run all of it"
        assert (~light[group == g]).sum() <= 1 or light[group == g].sum() >= 1
    if not light.any():
        assert count == size


def test_forward_and_backward_tasks_together_are_ordered_as_the_forward_ones() -> None:
    names = ["w2", "f1", "f2", "f3", "b3", "b2", "b1"]
    arcs = [("f1", "f2"), ("w2", "f2"), ("f2", "f3"), ("f3", "b3"), ("b3", "b2"), ("b2", "b1"), ("w2", "b2")]
    graph = hs.TaskGraph(names, arcs, output_bytes=1.0, colocation=["2", "1", "2", "3", "3", "2", "1"])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=np.ones((7, 2)))
    pairs, order = unit_order(problem)
    unit = dict(zip(graph.colocation, problem.unit.tolist(), strict=True))
    assert [unit[label] for label in "123"] == order.tolist()
    assert {(unit["1"], unit["2"]), (unit["2"], unit["3"])} == set(map(tuple, pairs.tolist()))


def test_what_cannot_run_as_one_batch_is_refused() -> None:
    graph = hs.TaskGraph(["a"])
    problem = hs.Problem(graph, hs.Cluster(["x"]), durations=[[[1.0]]], batch_sizes=[1], inputs=2, batching="free")
    with pytest.raises(hs.UnsupportedFeature, match="one batch of all 2 inputs, but task 'a'"):
        load_data(problem, "period")
