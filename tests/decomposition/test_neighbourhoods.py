"""Large neighbourhood search: a method like all others, never worse than its start, and good on modules in series."""

from __future__ import annotations

from collections.abc import Sequence

import instances
import numpy as np
import pytest

import hetsched as hs
from hetsched.search import Budget, Monitor, select
from hetsched.testing import conformance, corpus


class TestLns(conformance.MethodSuite):
    method = "lns"
    options = {"largest": 4}
    evaluations = 10
    enumerated = 100

    def cases(self) -> Sequence[corpus.Case]:
        return super().cases()[::20]


def test_it_improves_the_schedule_of_a_stack_of_modules():
    problem = instances.stack("er", 8, 3, seed=0)
    start = hs.solve(problem, "heft")
    monitor = Monitor(problem, Budget(evaluations=150))
    solution = monitor.run_alone("lns", start.schedule)
    assert solution.makespan < start.makespan
    assert not hs.verify(problem, solution.schedule)


def test_auto_runs_it_where_modules_are_in_series():
    def chosen(problem: hs.Problem) -> bool:
        return "lns" in [member.name for member in select(auto=True, objective="makespan", problem=problem)]

    stack = instances.stack("er", 10, 3, seed=0)
    assert chosen(stack)
    assert chosen(instances.stack("er", 10, 3, channels=3, seed=0)), "whatever joins them"
    assert not chosen(stack.replace(communication="channel"))
    peak = stack.replace(memory="peak")
    assert chosen(peak)
    limited = hs.Cluster([hs.Device(name, memory_bytes=1e12) for name in stack.cluster.names], bandwidth=1e9)
    assert not chosen(peak.replace(cluster=limited))
    for n in (20, 10_001):
        for chain in (True, False):
            edges = np.column_stack([np.arange(n - 1), np.arange(1, n)])[: n if chain else n // 3]
            graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges)
            assert chosen(hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=np.ones((n, 2)))) == chain


def test_too_many_devices_are_refused():
    cluster = hs.Cluster([f"d{k}" for k in range(65)], bandwidth=1.0)
    problem = hs.Problem(hs.TaskGraph(["a"]), cluster, durations=[[1.0] * 65])
    with pytest.raises(hs.UnsupportedFeature, match="at most 64 devices, not 65; use method 'annealing'"):
        Monitor(problem).run("lns")
