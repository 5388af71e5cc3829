"""The methods for the period and the max-load against all assignments of tiny problems."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis.load_data import unit_order
from hetsched.testing import conformance
from hetsched.testing.profiles import examples
from tests.enumerated import assignments, is_contiguous, objectives, optimum, problems, uniform, value, with_host

CLOSE = 1e-9
EXAMPLES = examples(60)


class TestContiguous(conformance.MethodSuite):
    method = "contiguous"


class TestLoadSearch(conformance.MethodSuite):
    method = "load-search"


def contiguous_optimum(problem: hs.Problem, objective: str) -> float:
    pairs, _ = unit_order(problem)
    contiguous = [w for w in assignments(problem) if is_contiguous(w, problem.unit, pairs)]
    return min((value(problem, where, objective) for where in contiguous), default=math.inf)


@EXAMPLES
@given(data=st.data())
def test_the_dynamic_program_finds_the_best_contiguous_assignment(data: st.DataObject) -> None:
    objective = data.draw(st.sampled_from(["period", "max-load"]))
    cluster = uniform(data.draw(st.integers(1, 3)))
    problem = data.draw(problems(cluster=cluster, transfers=False, communication="port"))
    if objective == "max-load":
        problem = with_host(problem)
    solution = hs.solve(problem, "contiguous", objective=objective)
    best = contiguous_optimum(problem, objective)
    assert solution.value == pytest.approx(best, rel=CLOSE)


@pytest.mark.slow
@EXAMPLES
@given(data=st.data())
def test_memory_binds_the_dynamic_program(data: st.DataObject) -> None:
    problem = with_host(data.draw(problems(n_tasks=4, n_devices=3, tight=True, missing_links=False, transfers=False)))
    solution = hs.solve(problem, "contiguous", objective="max-load")
    assert solution.value == pytest.approx(contiguous_optimum(problem, "max-load"), rel=CLOSE)


@pytest.mark.slow
@EXAMPLES
@given(drawn=objectives())
def test_no_method_beats_the_optimum_and_values_follow_the_rules(drawn: tuple[hs.Problem, str]) -> None:
    problem, objective = drawn
    best = optimum(problem, objective)
    for method in ("contiguous", "load-search", "heft"):
        solution = hs.solve(problem, method, objective=objective, evaluations=500)
        assert solution.bound <= best * (1 + CLOSE)
        assert solution.value >= best * (1 - CLOSE)
        if solution.schedule is not None:
            where = tuple(problem.cluster.index[solution.schedule.device_of(name)] for name in problem.graph.names)
            assert solution.value == pytest.approx(value(problem, where, objective), rel=CLOSE)
            assert hs.verify(problem, solution.schedule) == []


@EXAMPLES
@given(drawn=objectives())
def test_the_search_finds_the_optimum_of_tiny_problems(drawn: tuple[hs.Problem, str]) -> None:
    problem, objective = drawn
    solution = hs.solve(problem, "load-search", objective=objective, evaluations=20_000)
    assert solution.value == pytest.approx(optimum(problem, objective), rel=CLOSE)


def test_the_search_divides_units_that_fit_no_device_even_if_all_work_takes_no_time() -> None:
    """A target load of 0 would have more weight than any excess of memory."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 1.0)], output_bytes=1.0)
    cluster = hs.Cluster([hs.Device(name, memory_bytes=1.5) for name in ("x", "y")], bandwidth=0.5)
    problem = hs.Problem(graph, cluster, durations=np.zeros((2, 2)))
    assert hs.solve(problem, "load-search", objective="period", evaluations=5_000).value == 2.0


def test_an_evaluation_limit_is_kept_and_the_same_seed_gives_the_same_answer() -> None:
    problem = layers(12)
    first, second = (hs.solve(problem, "load-search", objective="period", evaluations=30_001, seed=5) for _ in range(2))
    assert first.schedule == second.schedule
    assert first.methods.evaluations.sum() <= 30_001


def layers(count: int, width: int = 3) -> hs.Problem:
    rng = np.random.default_rng(count)
    n = count * width
    arcs = [(i, i + width - i % width + int(rng.integers(width))) for i in range(n - width)]
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], np.array(arcs), edge_bytes=rng.uniform(0, 1, len(arcs)))
    durations = rng.uniform(1, 3, (n, 1)) * np.array([1.0, 1.0, 2.0])
    return hs.Problem(graph, hs.Cluster(["a", "b", "c"], bandwidth=1.0), durations=durations)
