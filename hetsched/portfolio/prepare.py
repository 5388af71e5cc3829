"""Compilation of kernels in advance, by solving tiny problems; it takes milliseconds if they are compiled."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from multiprocessing import get_context
from typing import NoReturn

import numpy as np

from hetsched.analysis.modules import modules
from hetsched.analysis.packing import least_packing
from hetsched.bounds import best
from hetsched.bounds.intervals import path_of_intervals
from hetsched.certificates.certifying import certify
from hetsched.coarsening.coarse import acyclic, settled
from hetsched.coarsening.fusion_rules import fuse
from hetsched.coarsening.matching import hierarchy
from hetsched.coarsening.sequential import operation_fusion
from hetsched.costs.devices import device
from hetsched.costs.stages import Contention
from hetsched.errors import UnsupportedFeature
from hetsched.models.ios.counting import counts
from hetsched.models.ios.dynamic_program import stages
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.links import CONTENDED
from hetsched.problem.problem import Problem
from hetsched.processes import Channel, Ready
from hetsched.search import Budget, Kind, Method, Monitor, registered
from hetsched.search.compilation import BOUNDS, COARSENING, mark_prepared, part

EVALUATIONS = 50
"""Limit for each method."""
LONGEST = "local_search"
"""The family whose kernels take longest to compile; it begins first."""
OPTIONS = {"evolution": {"size": 2, "effort": 5}, "policy-gradient": {"groups": 4, "samples": 10}}
"""Options with which a method reaches all of its kernels within the limit."""
ABOVE = {
    "planning": "hetsched.planning.offloading:prepare",
    "planning on many devices": "hetsched.planning.local_search:prepare",
    "serving": "hetsched.planning.serving:prepare",
}
"""Module and function of each part whose kernels are above this line of the layers."""


def prepare_methods(names: Sequence[str], problem: Problem | None = None) -> None:
    """Compile the kernels of methods by running them, one after another, on a problem, by default a tiny one.

    Each starts from the best schedule of those before it, so that a search does not run its starts again.
    """
    small = tiny() if problem is None else problem
    schedule = None
    for name in names:
        monitor = Monitor(small, Budget(evaluations=EVALUATIONS))
        monitor.warm_start(schedule)
        with suppress(UnsupportedFeature):
            monitor.run(name, OPTIONS.get(name))
        schedule = monitor.best


def prepare_bounds() -> None:
    """Compile the kernels of `best.every` and `certify` with a small problem."""
    problem = tiny()
    for _ in best.every(problem):
        pass
    hosted = problem.cluster.replace(devices=[Device("a", kind="gpu"), Device("b", kind="cpu")])
    for _ in best.every(problem.replace(cluster=hosted), objective="max-load"):
        pass
    certify(problem)
    least_packing(np.array([3.0, 3.0, 2.0, 2.0, 2.0]), 2)
    path_of_intervals(problem)  # as in `every`, for graphs without modules in series
    modules(problem.graph, channels=2, largest=2)  # as in `every`, for graphs without a boundary of one channel
    names = [name for name, method in registered().items() if part(method) == BOUNDS]
    for name in names:
        prepare_methods([name])
        mark_prepared(name)


def parts() -> dict[str, Callable[[], None]]:
    """Return the parts of `prepare` by name: the methods of each family on problems of every kind, bounds, and others.

    A part may run in another process; families share few kernels, so that few are compiled twice.
    """
    families: dict[str, list[Method]] = {LONGEST: []}
    for method in sorted(registered().values(), key=lambda method: (method.turn, method.name)):
        if part(method) not in ("", BOUNDS, COARSENING):
            families.setdefault(part(method), []).append(method)
    result: dict[str, Callable[[], None]] = {
        family: partial(_prepare_family, [method.name for method in members]) for family, members in families.items()
    }
    others = {BOUNDS: prepare_bounds, "problems": _prepare_problems, COARSENING: _prepare_coarsening, "stages": _prepare_stages}
    return result | others | {name: partial(_prepare_above, where) for name, where in ABOVE.items()}


def prepare(jobs: int = 1) -> Iterator[tuple[str, float]]:
    """Compile the kernels of bounds and heuristics; yield the name and the seconds of each part.

    Parameters
    ----------
    jobs : int
        Number of processes; they share the cache of compiled kernels on disk.
    """
    if jobs == 1:
        for name in parts():
            yield name, _run(name)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:  # a fork is not safe in a process with threads
        running = {pool.submit(_run, name): name for name in parts()}
        for future in as_completed(running):
            yield running[future], future.result()


def serve(log: int) -> NoReturn:
    """Compile the kernels of methods by name, for `hetsched.search.compilation`."""
    channel = Channel(log)
    while True:
        name = channel.requests.get()
        method = registered()[name]
        common = {BOUNDS: prepare_bounds, COARSENING: _prepare_coarsening}.get(part(method))
        # A constructive method is here because its arguments are too large for the interpreter, which takes those of a tiny problem.
        with _compiling() if method.kind is Kind.CONSTRUCTIVE else nullcontext():
            if common is None:
                _prepare_family([name])
            else:
                common()
        channel.send(Ready())


def _compiling() -> AbstractContextManager[None]:
    """Return a context in which small arguments are no reason to interpret a kernel."""
    from hetsched.compiled import interpreter

    return interpreter(on=False)


def _run(name: str) -> float:
    start = time.perf_counter()
    with _compiling():
        parts()[name]()
    return time.perf_counter() - start


def _prepare_family(names: Sequence[str]) -> None:
    for problem in _kinds():
        able = [name for name in names if not registered()[name].supports.refusal(problem)]
        chosen = [name for name in ("best-device", "heft") if name not in able] if registered()[names[0]].kind is Kind.SEARCH else []
        prepare_methods([*chosen, *able], problem)
    for name in names:
        mark_prepared(name)


def _prepare_problems() -> None:
    """Compile what finds routes over several links, and devices without a path."""
    one_way = Cluster(["a", "b", "c"], bandwidth=[[math.inf, 1.0, 0.0], [0.0, math.inf, 1.0], [0.0, 0.0, math.inf]])
    assert one_way.route("a", "c") == ("a", "b", "c")
    Problem(TaskGraph(["s", "t"], [("s", "t", 1.0)]), one_way, durations=np.ones((2, 3))).arrays  # noqa: B018


def _prepare_coarsening() -> None:
    from hetsched.heuristics.local_search.clusters import ClusterSearch

    problem = tiny()
    for level in hierarchy(problem, tasks=2, largest=1.0, memory=1.0):
        settled(level.problem, level.cluster, most_claim=1.0)
    operation_fusion(problem)
    acyclic(problem, np.arange(problem.n_tasks) % 2)
    fuse(problem.replace(graph=problem.graph.replace(op="relu")), [("relu", "relu")])
    search = ClusterSearch(problem)  # of `multilevel`, for large graphs
    search.start(np.zeros(problem.n_tasks, np.int64))
    search.anneal(1, 1.0, np.random.default_rng(0))
    for name in ("split", "lns", "multilevel"):
        prepare_methods([name], problem)
        mark_prepared(name)


def _prepare_stages() -> None:
    graph = TaskGraph(["a", "b", "c", "d"], [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], flops=1e6, output_bytes=1e3)
    cost = Contention(graph, device("v100"))
    stages(graph, cost)
    stages(graph, cost, bound=cost.bound)
    assert counts(graph).schedules


def _prepare_above(where: str) -> None:
    module, name = where.split(":")
    getattr(importlib.import_module(module), name)()


def _kinds() -> Iterator[Problem]:
    """Yield tiny problems that cover all models of transfers, batches and memory."""
    one = tiny()
    yield one
    yield one.replace(communication=CONTENDED[0])
    yield one.replace(transfers=[[[0.0, 1.0], [1.0, 0.0]]] * one.graph.n_edges)
    yield one.replace(durations=one.durations * [1.0, 1.5], batch_sizes=[1, 2], inputs=2)


def tiny() -> Problem:
    """Return a problem of two modules, with devices between which schedules can be improved."""
    names = [f"t{i}" for i in range(9)]
    arcs = [(f"t{i}", f"t{j}") for i, j in ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (4, 5), (4, 6), (4, 7), (5, 8), (6, 8), (7, 8))]
    durations = [[1.0 + (3 * i) % 5, 2.0 + (2 * i) % 3] for i in range(9)]
    return Problem(TaskGraph(names, arcs, output_bytes=1.0), Cluster(["a", "b"], bandwidth=2.0), durations=durations)
