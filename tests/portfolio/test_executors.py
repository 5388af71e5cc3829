"""`auto` whose members run by the workers of an executor, which may be lost."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest

import hetsched as hs
from hetsched.portfolio.workers import Pool
from hetsched.search import cores
from hetsched.testing.backends import PLENTY
from tests.portfolio.strange_methods import tangle


@pytest.mark.slow
def test_members_run_by_an_executor_and_a_callback_stops_them(pools: list[Pool]) -> None:
    busy: list[int] = []

    def found(event: hs.search.Event) -> bool:
        busy.append(sum(worker.receiver is not None for pool in pools for worker in pool.workers))
        return event.source == "wanders" and busy[-1] > 0

    with ThreadPoolExecutor(1) as executor:
        solution = hs.solve(tangle(), time_limit=PLENTY, executor=executor, options={"members": ["olb", "wanders"]}, on_progress=found)
        assert solution.stopped == "callback"
        assert max(busy) == 1
        assert executor.submit(int, "7").result(PLENTY) == 7
    assert hs.verify(tangle(), solution.schedule) == []
    assert solution.makespan < hs.solve(tangle(), "olb").makespan
    assert pools[0].workers == []


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_and_the_executor(pools: list[Pool], ctrl_c: None) -> None:
    best: list[float] = []

    def interrupt(event: hs.search.Event) -> None:
        if event.source == "wanders" and not best and any(worker.receiver is not None for pool in pools for worker in pool.workers):
            best.append(event.incumbent)
            os.kill(os.getpid(), signal.SIGINT)

    with ThreadPoolExecutor(1) as executor:
        members = {"members": ["olb", "wanders"]}
        solution = hs.solve(tangle(), time_limit=PLENTY, executor=executor, options=members, on_progress=interrupt)
        assert solution.stopped == "interrupted"
        assert executor.submit(int, "7").result(PLENTY) == 7
    assert solution.makespan <= best[0]
    assert pools[0].workers == []


def test_an_executor_that_accepts_no_task_leaves_the_work_to_this_process() -> None:
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    members = {"members": ["olb", "wanders"]}
    solution = hs.solve(tangle(), time_limit=PLENTY, executor=closed, options=members, on_progress=lambda event: event.source == "wanders")
    assert solution.messages[0].startswith("auto: no worker process can be started (the executor accepts no task: RuntimeError")
    assert "wanders" in solution.methods.method.tolist()


def test_the_cores_of_an_executor_are_its_workers() -> None:
    assert cores(ThreadPoolExecutor(3)) == 3


def solve_while_a_worker_is_killed(executor: object, victim: int, pools: list[Pool]) -> hs.Solution:
    """Solve, kill the worker once its process has found a schedule, and stop at one that was found without that process."""
    lost: list[object] = []
    best: list[float] = []

    def kill(event: hs.search.Event) -> bool:
        current = [worker.process for pool in pools for worker in pool.workers]
        if event.source == "wanders" and not lost and any(worker.receiver is not None for pool in pools for worker in pool.workers):
            os.kill(victim, signal.SIGKILL)
            lost.extend(current)
            best.append(event.incumbent)
        return event.source == "wanders" and bool(lost) and not any(process in lost for process in current)

    members = {"members": ["olb", "wanders"], "workers": 1}
    solution = hs.solve(tangle(), time_limit=PLENTY, executor=executor, options=members, on_progress=kill)  # type: ignore[arg-type]
    assert solution.stopped == "callback"
    assert solution.makespan < best[0]
    return solution


@pytest.mark.slow
def test_a_killed_process_of_a_pool_costs_its_turn(pools: list[Pool]) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        solution = solve_while_a_worker_is_killed(executor, executor.submit(os.getpid).result(), pools)
    lost, refused = solution.messages
    assert lost.startswith("wanders's process was lost: ")
    assert lost.endswith("; its results so far are kept")
    assert refused.startswith("auto: no new worker process can be started (the executor accepts no task: BrokenProcessPool")


@pytest.mark.slow
def test_a_killed_worker_of_dask_costs_its_turn(pools: list[Pool]) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert cores(client.get_executor()) == 1
        (victim,) = client.run(os.getpid).values()
        solution = solve_while_a_worker_is_killed(client, victim, pools)
        assert solution.messages == ("wanders's process was lost: the connection to its worker was closed; its results so far are kept",)
        solution = hs.solve(tangle(), time_limit=4, executor=client)
        assert (solution.stopped, solution.messages) == ("time limit", ())
        assert client.submit(int, "7").result(PLENTY) == 7
