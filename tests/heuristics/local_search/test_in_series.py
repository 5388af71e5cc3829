"""Modules that are searched by themselves: which, within which limits, and that nothing given is lost."""

from __future__ import annotations

import numpy as np
import pytest

import hetsched as hs
from hetsched.heuristics.local_search.in_series import FEW, in_series, search_apart
from hetsched.search import Budget, Monitor
from hetsched.stopping import Stop


def stack(tasks=20, modules=8, **changes):
    """Return a stack of modules with four inputs on three devices."""
    rng = np.random.default_rng(1)
    graph = hs.workloads.rwnn("er", tasks, modules=modules, seed=1)
    apiece = rng.uniform(1.0, 3.0, (graph.n_tasks, 3, 1))
    cluster = hs.Cluster(["a", "b", "c"], bandwidth=1e9)
    return hs.Problem(graph, cluster, durations=apiece * [1.0, 1.5, 2.5], batch_sizes=[1, 2, 4], inputs=4).replace(**changes)


def test_modules_are_those_between_clean_cuts():
    parts = in_series(stack())
    assert [sorted(part.tolist()) for part in parts] == [list(range(20 * m, 20 * m + 20)) for m in range(8)]


@pytest.mark.parametrize("what", ["few tasks", "free", "one input", "memory", "label", "no cut"])
def test_other_problems_are_searched_as_a_whole(what):
    problem = stack()
    if what == "few tasks":
        problem = stack(modules=FEW // 20)
    elif what == "free":
        problem = problem.replace(batching="free")
    elif what == "one input":
        problem = hs.Problem(problem.graph, problem.cluster, durations=problem.durations[:, :, 0])
    elif what == "memory":
        needed = float((problem.static_bytes @ [1.0, 4.0]).sum())
        assert in_series(problem.replace(cluster=hs.Cluster([hs.Device(name, memory_bytes=needed) for name in "abc"], bandwidth=1e9)))
        problem = problem.replace(cluster=hs.Cluster([hs.Device(name, memory_bytes=0.9 * needed) for name in "abc"], bandwidth=1e9))
    elif what == "label":
        problem = problem.replace(graph=problem.graph.replace(colocation=["x" if i in (5, 155) else None for i in range(160)]))
    else:
        problem = stack(tasks=160, modules=1)
    assert not in_series(problem)


def test_a_schedule_that_is_given_is_kept_in_each_module():
    problem = stack()
    given = hs.solve(problem, "bheft").schedule
    monitor = Monitor(problem, Budget(evaluations=10_000))
    monitor.warm_start(given)
    parts = in_series(problem)
    search_apart(monitor, parts, "heft", None, 8 * len(parts))  # HEFT's schedules are worse: each module stays as it is
    assert monitor.incumbent == pytest.approx(given.makespan, rel=0.2)
    assert monitor.incumbent <= given.makespan


def test_modules_apart_are_better_and_evaluations_are_counted():
    problem = stack()
    limit = 20_000
    solution = hs.solve(problem, "annealing", evaluations=limit)
    assert solution.methods.evaluations.sum() <= 1.1 * limit
    assert not hs.verify(problem, solution.schedule)
    again = hs.solve(problem, "annealing", evaluations=limit)
    assert again.makespan == solution.makespan
    assert again.schedule.decision == solution.schedule.decision
    whole = hs.solve(stack(batching="free"), "annealing", evaluations=limit)
    assert solution.makespan < whole.makespan


def test_the_time_is_shared_by_modules():
    problem, now, spent = stack(), [0.0], []
    monitor = Monitor(problem, Budget(10.0), clock=lambda: now[0])
    monitor.run("best-device")
    slow = monitor.incumbent

    def subsolve(alone, method, *, time_limit, evaluations, start):
        spent.append(time_limit)
        now[0] += time_limit
        return Monitor(alone, Budget(1.0)).run_alone("bheft")

    monitor.subsolve = subsolve
    search_apart(monitor, in_series(problem), "annealing", 8.0, None)
    assert spent == pytest.approx([1.0] * 8)
    assert monitor.incumbent < slow


def test_modules_searched_before_a_stop_are_kept():
    problem = stack()
    monitor = Monitor(problem, Budget(evaluations=100_000))
    monitor.run("best-device")
    slow, searched = monitor.incumbent, []

    def subsolve(alone, method, *, time_limit, evaluations, start):
        searched.append(alone)
        if len(searched) == 2:
            monitor.stop(Stop.STOPPED)
        return Monitor(alone, Budget(1.0)).run_alone("bheft")

    monitor.subsolve = subsolve
    search_apart(monitor, in_series(problem), "annealing", None, 1000)
    assert len(searched) == 2
    assert monitor.incumbent < slow
