"""Bin completion: optima of independent tasks on identical devices, and bounds on all graphs there."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import hetsched as hs
from hetsched.errors import UnsupportedFeature
from hetsched.portfolio import members
from hetsched.testing import brute_force, conformance, problems
from hetsched.testing.profiles import examples


def alike(**features: object) -> SearchStrategy[hs.Problem]:
    """Return the strategy of problems of one input whose tasks take the same time on every device."""
    drawn = problems(**{**features, "inputs": 1, "absent": False, "pins": False, "missing_links": False})  # type: ignore[arg-type]
    return drawn.map(lambda problem: problem.replace(durations=np.repeat(problem.durations[:, :1], problem.n_devices, axis=1)))


def independent(length: list[float], devices: int, edges: list[tuple[str, str]] | None = None) -> hs.Problem:
    """Return a problem of tasks t0, t1, ... on devices between which transfers take no time."""
    graph = hs.TaskGraph([f"t{i}" for i in range(len(length))], edges or [])
    cluster = hs.Cluster([f"d{k}" for k in range(devices)], bandwidth=math.inf)
    return hs.Problem(graph, cluster, durations=np.repeat(np.array(length, np.float64)[:, None], devices, axis=1))


class TestBinCompletion(conformance.MethodSuite):
    method = "bin-completion"
    answers_plain = False  # the devices of the corpus are not alike

    def problems(self, **features: object) -> SearchStrategy[hs.Problem]:
        return alike(**features)


@examples(60)
@given(length=st.lists(st.integers(1, 100), min_size=1, max_size=30), devices=st.integers(1, 8))
def test_independent_tasks_are_solved_to_the_optimum(length: list[int], devices: int) -> None:
    solution = hs.solve(independent([float(one) for one in length], devices), "bin-completion")
    assert solution.status == "optimal", (solution.makespan, solution.bound)
    assert solution.makespan >= max(max(length), math.ceil(sum(length) / devices))


@examples(60)
@given(length=st.lists(st.integers(1, 100), min_size=1, max_size=20), ends=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_tasks_between_a_fork_and_its_join_are_solved_to_the_optimum(length: list[int], ends: tuple[int, int]) -> None:
    last = len(length) + 1
    edges = [edge for i in range(1, last) for edge in (("t0", f"t{i}"), (f"t{i}", f"t{last}"))]
    alone = hs.solve(independent([float(one) for one in length], 3), "bin-completion")
    forked = hs.solve(independent([float(ends[0]), *map(float, length), float(ends[1])], 3, edges), "bin-completion")
    assert (forked.makespan, forked.status) == (alone.makespan + sum(ends), "optimal")


@pytest.mark.slow
@examples(150)
@given(problem=alike(n_tasks=st.integers(1, 6)))
def test_the_bound_holds_for_every_graph(problem: hs.Problem) -> None:
    """Precedence, transfers, contention, co-location, limited memory."""
    try:
        optimum = brute_force(problem, limit=50_000)
        solution = hs.solve(problem, "bin-completion")
    except UnsupportedFeature:
        return
    if optimum is not None:
        assert solution.bound <= optimum.makespan * (1 + 1e-9)
        assert solution.schedule is None or solution.makespan >= optimum.makespan * (1 - 1e-9)


def test_whole_tasks_are_packed_whatever_precedes_them_and_that_is_said() -> None:
    """Three tasks of 4 s and one of 1 s after one of them, on two devices: 7 s in fractions, as times are whole, 8 in whole tasks."""
    solution = hs.solve(independent([4.0, 4.0, 4.0, 1.0], 2, [("t0", "t3")]), "bin-completion")
    assert (solution.makespan, solution.bound, solution.proof.name) == (8.0, 8.0, "bin completion")
    assert solution.proof.evidence == (
        "4 tasks that start after 0 s and end 0 s before the end, packed whole into 2 devices, keep one busy for 8 s"
    )


def test_other_problems_are_refused_with_a_remedy() -> None:
    unequal = independent([1.0, 2.0], 2).replace(durations=[[1.0, 2.0], [2.0, 2.0]])
    many = independent([1.0] * 61, 2)
    for problem in (unequal, many):
        with pytest.raises(UnsupportedFeature, match=r"up to 60 tasks that take the same time on all devices.*use method 'branch'"):
            hs.solve(problem, "bin-completion")


def test_auto_begins_with_it_where_devices_are_alike() -> None:
    problem = independent([float(17 * i % 23 + 1) for i in range(24)], 5)
    assert "bin-completion" in members.usual(problem, "makespan")
    assert "bin-completion" not in members.usual(problem.replace(durations=problem.durations * np.arange(1.0, 6.0)[:, None]), "makespan")
    solution = hs.solve(problem, "auto", time_limit=20)
    assert solution.status == "optimal"
