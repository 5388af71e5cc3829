"""Clusters by the names of tasks in captured models."""

from __future__ import annotations

import numpy as np

from hetsched.arguments import check_count, checked
from hetsched.coarsening.coarse import Coarsening, acyclic, contract, memory_share, settled
from hetsched.errors import UnsupportedFeature
from hetsched.problem.problem import Problem


@checked(UnsupportedFeature)
def by_module(problem: Problem, depth: int = 1, *, memory: float = np.inf) -> Coarsening:
    """Merge the tasks of each module, given by the first `depth` parts of names like ``"layers.3.attention.query/linear"``.

    A module that would be on a cycle, for paths leave and enter it again, becomes several tasks.

    Parameters
    ----------
    depth : int
        Number of parts: 1 for the outermost modules, 2 for their children, and so on. Numbers (``layers.3``) belong to the part
        before them.
    memory : float
        The most static memory of co-located clusters, as a share of the smallest device's.
    """
    depth = check_count(depth, "depth", error=UnsupportedFeature)
    numbers: dict[str, int] = {}
    modules = [_module(name, depth) for name in problem.graph.names]
    number = np.array([numbers.setdefault(module, len(numbers)) for module in modules], np.int64)
    most = memory_share(problem, memory)
    return contract(problem, settled(problem, acyclic(problem, number), most))


def _module(name: str, depth: int) -> str:
    """Return the module of a task, or its own name if it is in none."""
    path, slash, _ = name.rpartition("/")
    if not slash:
        return name
    kept: list[str] = []
    count = 0
    for word in path.split("."):
        count += not word.isdigit() or not kept
        if count > depth:
            break
        kept.append(word)
    return ".".join(kept) + "/"
