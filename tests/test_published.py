"""Instances with published optima: no bound is above, no makespan below them, and all schedules are valid."""

from __future__ import annotations

from pathlib import Path

import instances
import pytest

import hetsched as hs
from tests.golden import arabnejad, topcuoglu

SLACK = 1e-9


def bracket(problem: hs.Problem, lower: float, upper: float, seconds: float = 0.3) -> tuple[float, float]:
    """Return the makespan and the bound of a solve of at most `seconds`; the optimum is between `lower` and `upper`."""
    solution = hs.solve(problem, time_limit=seconds)
    assert solution.schedule is not None
    assert hs.verify(problem, solution.schedule) == []
    bound = hs.bound(problem, time_limit=seconds).value
    assert bound <= upper * (1 + SLACK)
    assert solution.bound <= upper * (1 + SLACK)
    assert solution.makespan >= lower * (1 - SLACK)
    return bound, solution.makespan


@pytest.mark.parametrize(("instance", "optimum"), [(topcuoglu, 73), (arabnejad, 113)])
def test_examples_of_the_list_scheduling_papers(instance, optimum):
    bound, makespan = bracket(instance(), optimum, optimum, seconds=60.0)
    assert bound > 0.5 * optimum
    assert makespan < 1.2 * optimum


@pytest.mark.slow
def test_flexible_job_shops(shared_data: Path):
    folder = shared_data / "fjsp"
    rows = instances.rows(folder)
    assert rows
    for row in rows:
        name = row["instance"]
        problem = instances.read(folder / f"{name}.json")
        assert problem.n_tasks == int(row["operations"]), name
        bracket(problem, float(row["lower"]), float(row["upper"]))


@pytest.mark.slow
def test_standard_task_graphs(shared_data: Path):
    folder = shared_data / "stg"
    rows = instances.rows(folder)
    assert rows
    proven = 0
    for row in rows:
        problem = instances.read(folder / row["file"], processors=int(row["processors"]))
        optimum = float(row["optimum"])
        _, makespan = bracket(problem, optimum, optimum)
        proven += makespan == optimum
    assert proven > len(rows) / 3, "on identical processors list scheduling is often optimal"


@pytest.mark.parametrize("communication", ["delay", pytest.param("channel", marks=pytest.mark.slow), "port"])
def test_moirais_tight_example(shared_data: Path, communication: str):
    problem = instances.read(shared_data / "moirai" / "example-1.json").replace(communication=communication)
    assert hs.bound(problem, time_limit=0.5).value <= 30
    solution = hs.solve(problem, time_limit=0.5)
    if solution.schedule is None:  # memory is exactly enough: greedy packing may fail, with a message
        assert solution.messages
    else:
        assert solution.makespan >= 30
    roomy = problem.replace(cluster=problem.cluster.replace(devices=problem.cluster.names))
    bracket(roomy, 28, 28 if communication == "delay" else 30)


@pytest.mark.parametrize("communication", ["delay", *(pytest.param(name, marks=pytest.mark.slow) for name in ("channel", "port"))])
@pytest.mark.parametrize("network", ["GoogLeNet", "transformer"])
def test_moirais_networks_are_scheduled_validly(shared_data: Path, network: str, communication: str):
    problem = instances.read(shared_data / "moirai" / f"{network}.json").replace(communication=communication)
    best_known = {"GoogLeNet": 1.314, "transformer": 20.04}[network]
    solution = hs.solve(problem, time_limit=0.5)
    assert solution.schedule is not None
    assert hs.verify(problem, solution.schedule) == []
    if communication == "delay":
        assert hs.bound(problem, time_limit=0.5).value <= best_known
    assert solution.makespan <= hs.solve(problem, "best-device").makespan
