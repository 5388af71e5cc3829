"""Work in other processes: ``--workers`` and ``--scheduler``."""

from __future__ import annotations

import json
import sys

import pytest

import hetsched as hs
from tests.cli.conftest import Run


@pytest.fixture
def stack(run: Run) -> str:
    """Return the name of a file with two modules of four tasks."""
    run("generate", "rwnn", "--n", 4, "--modules", 2, "--cluster", "diviml", "-o", "stack.json")
    return "stack.json"


@pytest.mark.slow
def test_processes_solve_the_modules(run: Run, stack: str) -> None:
    result = run("solve", stack, "--method", "split", "--workers", 1, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["status"] == "optimal"
    assert json.loads(result.stdout)["messages"] == []


def test_workers_are_an_option_of_auto(run: Run, problem: hs.Problem) -> None:
    result = run("solve", "problem.json", "--workers", 1, "--time-limit", 1, "--json")
    assert result.exit_code == 0, result.stderr


@pytest.mark.slow
def test_a_scheduler_solves_the_modules(run: Run, stack: str) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        for names in (("--time-limit", 100), ("--method", "split"), ("--option", "members=annealing", "--time-limit", 4)):
            result = run("solve", stack, "--scheduler", cluster.scheduler_address, *names, "--json")
            assert result.exit_code == 0, result.stderr
            assert json.loads(result.stdout)["status"] == ("feasible" if "--option" in names else "optimal")
    assert json.loads(result.stdout)["messages"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "heft", "--workers", 2), "method 'heft' takes no option 'workers'"),
        (("--method", "heft", "--scheduler", "tcp://127.0.0.1:1"), "heft uses no scheduler; choose --method auto or split"),
        (("--workers", 0), "greater than or equal to 1"),
        (("--method", "split", "--workers", 2, "--option", "workers=3"), "--option workers=3 is given too"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, problem: hs.Problem, words: tuple[object, ...], message: str) -> None:
    result = run("solve", "problem.json", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_scheduler_that_cannot_be_reached(run: Run, problem: hs.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("hetsched.cli.executors.SECONDS", 0.2)
    result = run("solve", "problem.json", "--scheduler", "tcp://127.0.0.1:1")
    assert result.exit_code == 2
    assert "no scheduler answers at 'tcp://127.0.0.1:1'" in result.stderr


def test_without_the_package_the_message_names_the_extra(run: Run, problem: hs.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = run("solve", "problem.json", "--scheduler", "tcp://127.0.0.1:1")
    assert result.exit_code == 2
    assert "hetsched[distributed]" in result.stderr
