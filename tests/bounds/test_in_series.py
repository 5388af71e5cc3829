"""Bounds of parts one after another: never above the optimum, the sum of the parts, and for graphs of large modules."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import patch

import instances
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import hetsched as hs
from hetsched.analysis.cuts import series_cuts
from hetsched.analysis.levels import Levels
from hetsched.bounds.destructive import destructive
from hetsched.bounds.in_series import in_large_modules, in_series, parts_of
from hetsched.papers.diviml.stacks import profiled
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline
from hetsched.testing import bounds, brute_force, problems
from hetsched.testing.clocks import SteppingClock


class TestInSeries(bounds.BoundSuite):
    """With parts as small as the cuts permit, so that small problems have several."""

    ignores_numbering = False

    @staticmethod
    def function(problem: hs.Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
        with patch("hetsched.bounds.in_series.TYPICAL", 1):
            return in_series(problem, levels=levels, best=best, deadline=deadline)

    def problems(self, **features: Any) -> SearchStrategy[hs.Problem]:
        return problems(**features) | problems(**{**features, "inputs": 1, "n_tasks": st.integers(3, 6)})


def forks(widths: list[int]) -> hs.Problem:
    """Return forks and joins through single tasks, with tasks of 1 s on two devices between them and free links."""
    names, edges = ["cut0"], []
    for m, width in enumerate(widths):
        own = [f"task{m}.{x}" for x in range(width)]
        names += [*own, f"cut{m + 1}"]
        edges += [edge for name in own for edge in ((f"cut{m}", name), (name, f"cut{m + 1}"))]
    graph = hs.TaskGraph(names, edges)
    return hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=np.inf), durations=np.ones((graph.n_tasks, 2)))


def test_parts_add_up() -> None:
    """1 + (2 + 1) + (1 + 1) s, where the longest path has 5 tasks."""
    problem = forks([4, 2])
    optimum = brute_force(problem)
    assert optimum is not None
    with patch("hetsched.bounds.in_series.TYPICAL", 1):
        bound = in_series(problem)
    assert bound.value == pytest.approx(optimum.makespan) == pytest.approx(6)
    assert bound.evidence == "3 parts one after another"


@given(problem=problems(n_tasks=st.integers(0, 12)), most=st.integers(1, 8))
def test_parts_lie_between_series_cuts(problem: hs.Problem, most: int) -> None:
    graph = problem.graph
    with patch("hetsched.bounds.in_series.TYPICAL", most):
        parts = list(parts_of(graph))
    assert np.concatenate([np.zeros(0, np.int64), *parts]).tolist() == graph.topological_order.tolist()
    cuts = set(series_cuts(graph).tolist())
    assert {int(part[-1]) for part in parts[:-1]} <= cuts
    for part in parts:
        inside = [place for place, task in enumerate(part.tolist()) if task in cuts]
        assert len(part) <= most or inside in ([], [len(part) - 1]), "no cut between"


def test_a_part_that_is_impossible_makes_the_whole_so() -> None:
    """Three tasks of 6 bytes fit two devices of 11 bytes together, but none of these holds two."""
    problem = forks([18, 18])
    weights = np.zeros(problem.n_tasks)
    weights[1:4] = 6
    cluster = hs.Cluster([hs.Device(name, memory_bytes=11) for name in "xy"], bandwidth=1)
    scarce = problem.replace(graph=problem.graph.replace(weight_bytes=weights), cluster=cluster)
    assert in_large_modules(scarce)
    assert math.isinf(in_series(scarce).value)
    assert math.isinf(hs.bound(scarce).value)


def test_large_modules_are_bounded_better_than_by_their_loads() -> None:
    problem = profiled(20, 4)
    assert in_large_modules(problem)
    assert in_series(problem).value > 1.03 * destructive(problem).value
    assert not in_large_modules(profiled(10, 4)), "the split proves the optimum"
    assert not in_large_modules(profiled(20, 4, channels=2))


def test_a_part_of_more_tasks_than_are_searched_counts_with_its_longest_path() -> None:
    bound = in_series(forks([60, 2]))
    assert bound.value == pytest.approx(3 + 2)


@pytest.mark.parametrize("looks", [0, 1, 10])
def test_after_the_deadline_hardly_anything_is_done(looks: int) -> None:
    problem = instances.stack("er", 30, 10)
    clock = SteppingClock(step=1.0)
    deadline = Deadline.after(looks, clock)
    bound = in_series(problem, deadline=deadline)
    assert clock.late(deadline) <= problem.n_tasks
    assert bound.value >= Levels(problem).critical_path.length
