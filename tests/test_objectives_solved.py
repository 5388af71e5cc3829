"""Solves for other objectives: comparisons, bounds, stops, documents and starts."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

import hetsched as hs
from hetsched.schedule.objectives import period
from hetsched.search import Monitor
from hetsched.search.solution import Bound
from hetsched.testing.backends import PLENTY


def chain(count: int = 4) -> hs.Problem:
    """Return a chain of least makespan on one device, and of least period on two."""
    names = [f"t{i}" for i in range(count)]
    graph = hs.TaskGraph(names, [(a, b, 0.5) for a, b in pairwise(names)])
    return hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[1.0, 1.0]] * count)


def test_the_least_period_wins_and_the_makespan_is_reported_too() -> None:
    problem = chain()
    solution = hs.solve(problem, ["heft", "contiguous"], objective="period")
    assert (solution.objective, solution.value, solution.period, solution.throughput) == ("period", 2.0, 2.0, 0.5)
    assert (solution.makespan, solution.method, solution.status, solution.stopped) == (4.5, "contiguous", "optimal", "optimal")
    assert period(problem, solution.schedule) == solution.value
    assert solution.history.incumbent[-2:].tolist() == [4.0, 2.0]
    assert repr(solution) == "<Solution by contiguous: optimal, period 2 s, gap 0.00%>"
    assert dict(zip(solution.methods.method.tolist(), solution.methods.makespan.tolist(), strict=True)) == {"heft": 4.0, "contiguous": 2.0}


def test_the_makespan_remains_what_it_was() -> None:
    solution = hs.solve(chain(), "heft")
    assert (solution.objective, solution.value, solution.makespan) == ("makespan", 4.0, 4.0)
    assert (solution.period, solution.throughput) == (4.0, 0.25)


def test_bounds_of_another_objective_are_passed_over_unless_they_exclude_everything() -> None:
    monitor = Monitor(chain(), objective="period")
    monitor.raise_bound(Bound(4.0, "critical path"))
    assert monitor.bound.value == 0
    monitor.raise_bound(Bound(1.5, "load", objective="period"))
    assert (monitor.bound.value, monitor.bound.objective) == (1.5, "period")
    monitor.raise_bound(Bound(math.inf, "memory"))
    assert (monitor.bound.value, monitor.bound.objective) == (math.inf, "period")


def test_a_bound_above_the_value_is_an_error() -> None:
    monitor = Monitor(chain(), objective="period")
    monitor.offer(hs.Decision.whole(chain(), [0, 0, 1, 1], range(4)))
    with pytest.raises(hs.InconsistentBound, match="above the period 2.0 s"):
        monitor.raise_bound(Bound(3.0, "wrong", objective="period"))


def test_a_start_is_worth_what_it_is_under_the_objective() -> None:
    problem = chain()
    best = hs.solve(problem, "contiguous", objective="period")
    again = hs.solve(problem, "best-device", objective="period", start=best)
    assert (again.value, again.method) == (2.0, "start")
    assert hs.solve(problem, "best-device", start=best).makespan == 4.0


def test_a_document_keeps_objective_and_value(tmp_path) -> None:
    for objective in ("makespan", "period"):
        solution = hs.solve(chain(), "contiguous", objective=objective)
        solution.write(tmp_path / "s.json")
        assert hs.read(tmp_path / "s.json") == solution
    text = (tmp_path / "s.json").read_text()
    assert '"objective"' in text
    (tmp_path / "s.json").write_text(text.replace('"objective_value"', '"objective_volume"'))
    with pytest.raises(hs.HetschedError):
        hs.read(tmp_path / "s.json")


def test_no_schedule_has_no_value() -> None:
    problem = hs.Problem(hs.TaskGraph(["a"], weight_bytes=5), hs.Cluster([hs.Device("x", memory_bytes=4)]), durations=[[1]])
    solution = hs.solve(problem, "load-search", objective="period")
    assert (solution.value, solution.period, solution.throughput, solution.status) == (math.inf, math.inf, 0.0, "infeasible")


def test_auto_runs_the_methods_of_the_objective() -> None:
    solution = hs.solve(chain(12), objective="period", time_limit=PLENTY)
    assert (solution.status, solution.value) == ("optimal", 6.0)
    assert solution.method in ("load-search", "contiguous", "load-milp")
