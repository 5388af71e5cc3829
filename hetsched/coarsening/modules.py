"""Clusters by the names of tasks in captured models."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from hetsched.arguments import check_count, checked, shown
from hetsched.coarsening.coarse import Coarsening, acyclic, contract, memory_share, settled
from hetsched.errors import UnsupportedFeature
from hetsched.problem.modules import ancestors, module_of
from hetsched.problem.problem import Problem


@checked(UnsupportedFeature)
def by_module(problem: Problem, depth: int | None = 1, *, whole: Collection[str] = (), memory: float = np.inf) -> Coarsening:
    """Merge the tasks of each module, given by the first `depth` parts of names like ``"layers.3.attention.query/linear"``.

    A cluster has the name of its module. A module that would be on a cycle, for paths leave and enter it again, becomes several
    tasks, ``layers/1`` and ``layers/2``.

    Parameters
    ----------
    depth : int, optional
        Number of parts: 1 for the outermost modules, 2 for their children, and so on; None for the innermost. Numbers
        (``layers.3``) belong to the part before them.
    whole : collection of str
        Modules that are merged whatever the depth; if one becomes several tasks for a cycle, they share a device.
    memory : float
        The most static memory of co-located clusters, as a share of the smallest device's.

    Raises
    ------
    UnsupportedFeature
        `whole` has what is no module of the graph, or a module on a cycle whose tasks have co-location labels.
    """
    depth = None if depth is None else check_count(depth, "depth", error=UnsupportedFeature)
    kept = frozenset(whole)
    paths = [module_of(name) for name in problem.graph.names]
    for name in sorted(kept.difference(*(ancestors(path) for path in set(paths)))):
        raise UnsupportedFeature(f"whole has {shown(name)}, which is no module of the graph; take the part of a task's name before its '/'")
    modules = [_module(path, depth, kept) or name for path, name in zip(paths, problem.graph.names, strict=True)]
    numbers: dict[str, int] = {}
    number = np.array([numbers.setdefault(module, len(numbers)) for module in modules], np.int64)
    cut = acyclic(problem, number)
    together = _together(problem, modules, np.asarray(cut), kept)
    made = contract(together, settled(together, cut, memory_share(problem, memory)), modules)
    return Coarsening(problem, made.coarse, made.cluster)


def _together(problem: Problem, modules: list[str], cut: np.ndarray[tuple[int], np.dtype[np.int64]], whole: frozenset[str]) -> Problem:
    """Return the problem with a co-location label for each module of `whole` that was cut."""
    pieces: dict[str, set[int]] = {}
    for module, piece in zip(modules, cut.tolist(), strict=True):
        if module in whole:
            pieces.setdefault(module, set()).add(piece)
    divided = {module for module, own in pieces.items() if len(own) > 1}
    if not divided:
        return problem
    labels = list(problem.graph.colocation)
    for i, module in enumerate(modules):
        if module in divided:
            if labels[i] is not None:
                raise UnsupportedFeature(
                    f"task {problem.graph.names[i]!r} has the co-location label {labels[i]!r}, but its module {module!r}, which is on a "
                    "cycle, needs one of its own; remove the label, or the module from whole"
                )
            labels[i] = f"module {module}"
    return problem.replace(graph=problem.graph.replace(colocation=labels))


def _module(path: str, depth: int | None, whole: frozenset[str]) -> str:
    """Return the module of a path: the outermost that stays whole, or its first parts."""
    for outer in ancestors(path):
        if outer in whole:
            return outer
    if depth is None:
        return path
    kept: list[str] = []
    count = 0
    for word in path.split("."):
        count += not word.isdigit() or not kept
        if count > depth:
            break
        kept.append(word)
    return ".".join(kept)
