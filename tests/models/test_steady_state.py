"""The optimum of the exact model of loads is that of all assignments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

import hetsched as hs
from hetsched.models.steady_state import SteadyState
from hetsched.testing import conformance
from hetsched.testing.profiles import examples
from tests.enumerated import objectives, optimum, with_host

CLOSE = 1e-6


class TestLoadMilp(conformance.MethodSuite):
    method = "load-milp"
    evaluations = None


@examples(40)
@given(drawn=objectives())
def test_the_model_proves_the_optimum_of_all_assignments(drawn: tuple[hs.Problem, str]) -> None:
    problem, objective = drawn
    best = optimum(problem, objective)
    solution = hs.solve(problem, "load-milp", objective=objective)
    assert solution.bound <= best * (1 + 1e-9)
    assert solution.value == pytest.approx(best, rel=CLOSE, abs=1e-9)
    if math.isfinite(best):
        assert solution.status == "optimal"
        formulation = SteadyState(problem, objective=objective)
        values = formulation.encode(solution)
        assert np.isfinite(values).all()
        assert formulation.model.violations(values, tolerance=1e-6) == []
    else:
        assert solution.schedule is None


@examples(15)
@given(drawn=objectives(communication="port"))
def test_highs_agrees(drawn: tuple[hs.Problem, str]) -> None:
    problem, objective = drawn
    solution = hs.solve(problem, "load-milp", objective=objective, options={"solver": "highs"})
    assert solution.value == pytest.approx(optimum(problem, objective), rel=CLOSE, abs=1e-9)


def small(**arguments: object) -> hs.Problem:
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 4.0)])
    return hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[3, 1], [1, 3]], **arguments)


def test_unsupported_problems_are_refused() -> None:
    with pytest.raises(hs.UnsupportedFeature, match="one input is supported, but the problem has 2"):
        hs.solve(small(inputs=2, batching="free").replace(durations=[[[3], [1]], [[1], [3]]], batch_sizes=[1], inputs=2), "load-milp")
    with pytest.raises(hs.UnsupportedFeature, match="memory='peak' is not supported"):
        hs.solve(small(memory="peak"), "load-milp", objective="period")
    with pytest.raises(hs.UnsupportedFeature, match="cannot use the solver 'cpsat'; choose scip or highs"):
        hs.solve(small(), "load-milp", objective="period", options={"solver": "cpsat"})
    with pytest.raises(hs.UnsupportedFeature, match="formulate"):
        SteadyState(small(), objective="makespan")
    with pytest.raises(hs.UnsupportedFeature, match="unknown objective 'latency'"):
        SteadyState(small(), objective="latency")


def test_a_host_and_an_accelerator_alike_in_all_else_do_not_trade_places() -> None:
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 1.0)], devices=[None, None])
    cluster = hs.Cluster([hs.Device("acc"), hs.Device("host", kind="cpu")], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=[[2.0, 2.0], [1.0, 1.0]])
    solution = hs.solve(problem, "load-milp", objective="max-load")
    assert (solution.status, solution.value) == ("optimal", 2.0)  # b on acc: 1 + 1 for the tensor's transfer
    assert solution.schedule.device_of("a") == "host"


def test_without_a_host_max_load_is_refused() -> None:
    with pytest.raises(hs.UnsupportedFeature, match="device of kind 'cpu'"):
        hs.solve(small(), "load-milp", objective="max-load")
    assert hs.solve(with_host(small()), "load-milp", objective="max-load").status == "optimal"
