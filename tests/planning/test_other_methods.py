"""The least period of a chain beside those of the methods for graphs, where both say the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.planning.dynamic_program import least_period
from hetsched.testing.profiles import examples

TIMES = st.integers(1, 12)


@st.composite
def chains(draw, *, transfers):
    """Draw a chain with limited memory, as a problem of placements and as a graph whose transfers hold ports that are alike."""
    n, m = draw(st.integers(2, 6)), draw(st.integers(1, 3))
    seconds = np.array(draw(st.lists(TIMES, min_size=n * m, max_size=n * m))).reshape(n, m)
    weights, hop = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), draw(TIMES) if transfers else 0
    memory = draw(st.lists(st.integers(sum(weights) // m, sum(weights)), min_size=m, max_size=m))
    items, devices = [f"i{i}" for i in range(n)], [f"d{k}" for k in range(m)]
    chain = hs.ChainProblem(items, devices, seconds, weight_bytes=weights, memory_bytes=memory, hops=np.full((m, m), hop))
    graph = hs.TaskGraph(items, [(a, b, float(hop)) for a, b in itertools.pairwise(items)], weight_bytes=weights)
    cluster = hs.Cluster([hs.Device(name, memory_bytes=held) for name, held in zip(devices, memory, strict=True)], bandwidth=1.0)
    return chain, hs.Problem(graph, cluster, durations=seconds, communication="port")


@examples(15)
@given(chains(transfers=False))
def test_the_least_period_is_that_of_contiguous(drawn):
    """Without hops the sum of the loads over their number is at most the largest, which is the period of a graph."""
    chain, problem = drawn
    assert least_period(chain).period == pytest.approx(hs.solve(problem, "contiguous", objective="period").value)


@examples(10)
@given(chains(transfers=True))
def test_with_transfers_the_least_period_is_not_below_that_of_contiguous(drawn):
    """As many requests are in progress as there are stages; a graph may have more, so that hops between them take no time of theirs."""
    chain, problem = drawn
    found, other = least_period(chain), hs.solve(problem, "contiguous", objective="period").value
    assert found.period >= other * (1 - 1e-9)


@examples(6)
@given(chains(transfers=True))
def test_the_least_period_is_at_least_the_bound_of_all_assignments(drawn):
    """`load-milp` may give a device any tasks, not an interval alone."""
    chain, problem = drawn
    solution = hs.solve(problem, "load-milp", objective="period")
    assert least_period(chain).period >= solution.bound * (1 - 1e-6)
