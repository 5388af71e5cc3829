"""Compiling what a solve runs, on small problems; takes milliseconds where that has been done before."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.analysis.modules import modules
from hetsched.bounds import best
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.search import Budget, Monitor


def prepare_methods(names: Sequence[str]) -> None:
    """Compile what methods need, by running them one after another."""
    small = Problem(TaskGraph(["a", "b"], [("a", "b", 1.0)]), Cluster(["x", "y"], bandwidth=1.0), durations=[[1.0, 2.0], [2.0, 1.0]])
    monitor = Monitor(small, Budget(evaluations=50 * len(names)))  # one for all: the search begins at what is there
    for name in names:
        monitor.run(name)


def prepare_bounds() -> None:
    """Compile what `best.every` needs, by bounding a small problem."""
    names = [f"t{i}" for i in range(9)]
    arcs = [(f"t{i}", f"t{j}") for i, j in ((0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (4, 5), (4, 6), (4, 7), (5, 8), (6, 8), (7, 8))]
    durations = [[1.0 + (3 * i) % 5, 2.0 + (2 * i) % 3] for i in range(9)]
    problem = Problem(TaskGraph(names, arcs, output_bytes=1.0), Cluster(["a", "b"], bandwidth=2.0), durations=durations)
    for _ in best.every(problem):
        pass
    modules(problem.graph, channels=2, largest=2)  # what `every` asks of graphs that no single task cuts
