"""Moirai's MILP on a coarse graph: chains merged first, carried back, never worse than list schedulers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.models.coarsened import fewer
from hetsched.models.formulation import quick
from hetsched.testing import brute_force
from hetsched.testing.strategies import problems
from tests.models.test_pesto_getf import few, plain


def branches(count: int, length: int) -> hs.Problem:
    """Return chains of equal tasks between a first and a last one, on two devices."""
    chains = [[f"{c}.{i}" for i in range(length)] for c in range(count)]
    edges = [edge for chain in chains for edge in zip(["first", *chain], [*chain, "last"], strict=True)]
    graph = hs.TaskGraph(["first", *(task for chain in chains for task in chain), "last"], edges, output_bytes=1.0)
    cluster = hs.Cluster(["u", "v"], bandwidth=100.0)
    return hs.Problem(graph, cluster, durations=np.ones((graph.n_tasks, 2)), communication="port")


@few
@given(problem=problems(**{**plain, "communication": "port"}, inputs=1), tasks=st.integers(1, 4))
def test_it_is_valid_and_never_worse_than_list_schedulers(problem: hs.Problem, tasks: int) -> None:
    solution = hs.solve(problem, "moirai", options={"solver": "cpsat", "tasks": tasks})
    assert solution.makespan <= quick(problem).makespan
    assert solution.bound <= solution.makespan
    if tasks >= problem.n_tasks:
        optimum = brute_force(problem)
        assert optimum is None or solution.makespan == pytest.approx(optimum.makespan, rel=1e-6)


def test_chains_are_merged_first_and_stay_apart() -> None:
    problem = branches(2, 5)
    coarsening = fewer(problem, 4)
    assert coarsening.coarse.n_tasks == 4  # the first, two branches, the last
    solution = hs.solve(problem, "moirai", options={"tasks": 4})
    assert solution.makespan == pytest.approx(7.01)  # both branches at the same time
    assert any(note.startswith("moirai: the graph of 4 tasks takes 7.01 s by ") for note in solution.messages)
    assert fewer(branches(40, 1), 25).coarse.n_tasks <= 25  # no chains: heavy edges and siblings
    assert fewer(problem, 12).coarse is problem


@pytest.mark.slow
def test_a_search_of_the_whole_graph_follows() -> None:
    solution = hs.solve(branches(3, 4), "moirai", time_limit=4, options={"solver": "cpsat", "tasks": 3, "improve": True})
    assert "annealing" in solution.methods.method.tolist()
    assert solution.makespan == pytest.approx(hs.solve(branches(3, 4), "cpsat", time_limit=60).makespan)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"tasks": 0}, "tasks is 0; it must be a whole number, at least 1"), ({"improve": True}, "improve is True without tasks")],
)
def test_wrong_options_are_refused(options: dict[str, int], said: str) -> None:
    with pytest.raises(hs.UnsupportedFeature, match=said):
        hs.solve(branches(2, 2), "moirai", options=options)
