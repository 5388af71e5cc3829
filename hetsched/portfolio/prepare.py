"""Compilation of kernels in advance, by solving tiny problems; it takes milliseconds if they are compiled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context

from hetsched.analysis.modules import modules
from hetsched.bounds import best
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.links import CONTENDED
from hetsched.problem.problem import Problem
from hetsched.search import Budget, Kind, Method, Monitor, registered

EVALUATIONS = 50
"""Limit for each method."""


def prepare_methods(names: Sequence[str], problem: Problem | None = None) -> None:
    """Compile the kernels of methods by running them, one after another, on a problem, by default a tiny one.

    They share a monitor, so that a search starts from an earlier schedule and no start runs twice.
    """
    small = _pair() if problem is None else problem
    monitor = Monitor(small, Budget(evaluations=EVALUATIONS * len(names)))
    for name in names:
        monitor.attempt(name)


def prepare_bounds() -> None:
    """Compile the kernels of `best.every` by bounding a small problem."""
    names = [f"t{i}" for i in range(9)]
    arcs = [(f"t{i}", f"t{j}") for i, j in ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (4, 5), (4, 6), (4, 7), (5, 8), (6, 8), (7, 8))]
    durations = [[1.0 + (3 * i) % 5, 2.0 + (2 * i) % 3] for i in range(9)]
    problem = Problem(TaskGraph(names, arcs, output_bytes=1.0), Cluster(["a", "b"], bandwidth=2.0), durations=durations)
    for _ in best.every(problem):
        pass
    modules(problem.graph, channels=2, largest=2)  # as in `every`, for graphs without a boundary of one channel


def parts() -> dict[str, Callable[[], None]]:
    """Return the parts of `prepare` by name: bounds, and the methods of each family on problems of every kind.

    A part may run in another process; families share few kernels, so that few are compiled twice.
    """
    families: dict[str, list[Method]] = {}
    for method in sorted(registered().values(), key=lambda method: (method.turn, method.name)):
        module = method.function.__module__
        if module.startswith("hetsched.heuristics.") and method.available and method.name != "multilevel":
            families.setdefault(module.split(".")[2], []).append(method)
    result: dict[str, Callable[[], None]] = {"bounds": prepare_bounds}
    for family, members in families.items():
        result[family] = partial(_prepare_family, [method.name for method in members])
    return result


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


def _run(name: str) -> float:
    start = time.perf_counter()
    parts()[name]()
    return time.perf_counter() - start


def _prepare_family(names: Sequence[str]) -> None:
    for problem in _kinds():
        able = [name for name in names if not registered()[name].supports.refusal(problem)]
        chosen = [name for name in ("best-device", "heft") if name not in able] if registered()[names[0]].kind is Kind.SEARCH else []
        prepare_methods([*chosen, *able], problem)


def _kinds() -> Iterator[Problem]:
    """Yield tiny problems that cover all models of transfers, batches and memory."""
    one = _pair()
    yield one
    yield one.replace(communication=CONTENDED[0])
    yield one.replace(transfers=[[[0.0, 1.0], [1.0, 0.0]]])
    yield Problem(one.graph, one.cluster, durations=[[[1.0, 1.5], [2.0, 3.0]], [[2.0, 2.5], [1.0, 1.5]]], batch_sizes=[1, 2], inputs=2)


def _pair() -> Problem:
    graph, cluster = TaskGraph(["a", "b"], [("a", "b", 1.0)]), Cluster(["x", "y"], bandwidth=1.0)
    return Problem(graph, cluster, durations=[[1.0, 2.0], [2.0, 1.0]])
