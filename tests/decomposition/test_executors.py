"""Splits whose modules are solved by threads, processes or a cluster, also when workers die."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
from typing import Any

import instances
import pytest

import hetsched as hs

SPLIT = {"solver": "scip", "workers": 2}


@pytest.fixture(scope="module")
def problem() -> hs.Problem:
    return instances.stack("er", 8, 4, seed=1)


@pytest.fixture(scope="module")
def optimum(problem: hs.Problem) -> float:
    solution = hs.solve(problem, "split", options={**SPLIT, "workers": 1})
    assert solution.status == "optimal"
    return solution.makespan


def proves(solution: hs.Solution, optimum: float) -> None:
    assert solution.status == "optimal"
    assert solution.makespan == pytest.approx(optimum, rel=1e-6)


def test_threads(problem: hs.Problem, optimum: float) -> None:
    proves(hs.solve(problem, "split", options=SPLIT), optimum)


def test_an_executor_of_threads(problem: hs.Problem, optimum: float) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        proves(hs.solve(problem, "split", executor=executor, options=SPLIT), optimum)


@pytest.mark.slow
def test_an_executor_of_processes(problem: hs.Problem, optimum: float) -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
        solution = hs.solve(problem, "split", executor=executor, options=SPLIT)
    proves(solution, optimum)
    assert solution.messages == ()


class Killing(concurrent.futures.Executor):
    """An executor that forwards work to another one, and kills one of its processes after two submissions."""

    def __init__(self, executor: concurrent.futures.Executor, victim: int) -> None:
        self.executor, self.victim, self.submitted = executor, victim, 0

    def submit(self, /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        future = self.executor.submit(*args, **kwargs)
        self.submitted += 1
        if self.submitted == 2:
            os.kill(self.victim, signal.SIGKILL)
        return future


def test_a_killed_process_loses_nothing_and_is_reported(problem: hs.Problem, optimum: float) -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
        killing = Killing(executor, executor.submit(os.getpid).result())
        solution = hs.solve(problem, "split", executor=killing, options=SPLIT)
    proves(solution, optimum)
    assert any("the executor failed" in message for message in solution.messages)


@pytest.mark.slow
def test_a_cluster_of_dask_and_a_worker_killed_meanwhile(problem: hs.Problem, optimum: float) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        proves(hs.solve(problem, "split", executor=client, options=SPLIT), optimum)
        killing = Killing(client.get_executor(), next(iter(client.run(os.getpid).values())))
        proves(hs.solve(problem, "split", executor=killing, options=SPLIT), optimum)
        assert killing.submitted > 2, "it was over before the worker was killed"


def test_what_is_no_executor_is_refused(problem: hs.Problem) -> None:
    with pytest.raises(hs.HetschedError, match=r"executor is 3; it must be a concurrent.futures.Executor or a client of dask"):
        hs.solve(problem, "split", executor=3)  # type: ignore[arg-type]
