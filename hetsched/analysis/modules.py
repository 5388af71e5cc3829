"""Division of a task graph into modules: parts with few tensors across their boundaries."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hetsched.analysis.channel_cuts import CUTTING, narrowest_order
from hetsched.analysis.cuts import clean_cuts
from hetsched.arguments import check_count, checked
from hetsched.arrays import IntArray
from hetsched.errors import UnsupportedFeature
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.stopping import NEVER, Deadline

LARGEST = 40
"""Number of tasks of a module up to which exact methods are likely to solve it."""

MOST_CHANNELS = 4
"""Maximum number of channels tried by default; a split has to choose devices for all of them."""

_WORTH = 1.1  # more channels are used if the largest module shrinks by this factor


class Modules(NamedTuple):
    """An ordered partition of the tasks: every edge stays in its module or goes to a later one."""

    graph: TaskGraph
    of_task: IntArray
    """[n]: the module of each task, from 0."""
    channels: int
    """Maximum number of tasks before a boundary that are read after it."""
    cuts: IntArray
    """[number - 1]: the clean cut (`clean_cuts`) that ends each module but the last; -1 if it does not end with one."""

    @property
    def number(self) -> int:
        """Number of modules."""
        return len(self.cuts) + 1 if len(self.of_task) else 0

    @property
    def sizes(self) -> IntArray:
        """Number of tasks of each module."""
        return np.bincount(self.of_task, minlength=self.number)

    def tasks(self) -> list[IntArray]:
        """Return the tasks of each module, in topological order; a clean cut comes last."""
        order = self.graph.topological_order
        order = order[np.argsort(self.of_task[order], kind="stable")]
        return np.split(order, np.cumsum(self.sizes)[:-1]) if self.number else []

    def boundaries(self) -> list[IntArray]:
        """Return the edges over the boundary after each module but the last; an edge may cross several.

        The channels of a boundary are the sources of its edges.
        """
        source, target = self.of_task[self.graph.source], self.of_task[self.graph.target]
        crossing = np.flatnonzero(source < target)
        crossing = crossing[np.argsort(source[crossing], kind="stable")]
        begin = np.searchsorted(source[crossing], np.arange(self.number))
        across, boundaries = np.empty(0, np.int64), []
        for t in range(self.number - 1):
            across = np.concatenate([across[target[across] > t], crossing[begin[t] : begin[t + 1]]])
            boundaries.append(np.sort(across))
        return boundaries


@checked(UnsupportedFeature)
def modules(
    graph: TaskGraph, *, channels: int | None = None, largest: int = LARGEST, smallest: int = 1, deadline: Deadline = NEVER
) -> Modules:
    """Divide a graph into modules joined by few channels.

    A boundary divides the tasks into those before and those after it, and no edge leads back. Its
    channels are the tasks before it whose output is read after it, however many tasks read it: a
    split has to choose the devices of these tasks.

    One channel: the boundaries are the `clean_cuts`, where a split is exact, and each cut belongs to
    the module that it ends. The time is proportional to the number of edges.

    Several channels: a part between two clean cuts that is larger than `largest` is divided further, at
    boundaries of at most `channels` channels. The paper's modules are the k-edge-connected components
    of the undirected graph, k = channels + 1. No boundary of fewer than k edges divides such a component,
    but in sparse graphs many tasks belong to none, and the balance of the modules depends on their
    assignment. Therefore this function searches for boundaries, not for components. The method, described
    in `hetsched.analysis.channel_cuts`, is a heuristic that may miss boundaries; 50,000 tasks take it about
    ten seconds.

    Parameters
    ----------
    graph : TaskGraph
        It may have several sources, sinks and connected components. With one channel no boundary
        separates components, or a dangling end from the tasks parallel to it.
    channels : int, optional
        Maximum number of channels of a boundary. Default: the smallest of 1 to 4 for which no module is
        larger than `largest`; if there is none, the smallest for which the largest module is within a
        tenth of the best of the four.
    largest : int
        Maximum number of tasks of a module, as far as the channels allow.
    smallest : int
        Modules of fewer tasks are merged with a neighbour, across the boundary of more edges, if
        the two have at most `largest` tasks together. 1 disables merging.
    deadline : Deadline, optional
        Time limit of the search for narrow boundaries.

    Raises
    ------
    OutOfTime
        The deadline has passed.
    UnsupportedFeature
        A number is not an integer >= 1, or `smallest` exceeds `largest`.

    References
    ----------
    DiviML, section IV.
    """
    for what, value in (("channels", channels), ("largest", largest), ("smallest", smallest)):
        if value is not None:
            check_count(value, what, error=UnsupportedFeature)
    if smallest > largest:
        raise UnsupportedFeature(f"smallest is {smallest} but largest is {largest}; smallest must not exceed largest")
    clean = clean_cuts(graph)
    if not graph.n_tasks:
        return Modules(graph, np.empty(0, np.int64), channels or 1, np.empty(0, np.int64))
    tried = []
    for cutting in _cuttings(graph, clean, channels, largest, deadline):
        tried.append(cutting)
        if _most(cutting[2]) <= largest:
            break
    enough = max(largest, _WORTH * min(_most(ends) for *_, ends in tried))
    count, order, ends = next(cutting for cutting in tried if _most(cutting[2]) <= enough)
    ends = _merged(graph, order, ends, smallest, largest)
    of_task = np.empty(graph.n_tasks, np.int64)
    of_task[order] = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    last = order[ends[:-1] - 1]
    return Modules(graph, of_task, count, np.where(np.isin(last, clean), last, -1))


@checked
def falls_apart(problem: Problem, largest: int = LARGEST) -> bool:
    """Return whether a split can prove optimality module by module: one input, and clean cuts into modules of at most `largest` tasks."""
    return problem.inputs == 1 and has_modules(problem, largest)


@checked
def has_modules(problem: Problem, largest: int = LARGEST) -> bool:
    """Return whether clean cuts divide a graph into modules of at most `largest` tasks."""
    split = modules(problem.graph, channels=1)
    return split.number > 1 and int(split.sizes.max()) <= largest


def _most(ends: IntArray) -> int:
    """Return the size of the largest module."""
    return int(np.diff(ends, prepend=0).max(initial=0))


def _cuttings(
    graph: TaskGraph, clean: IntArray, channels: int | None, largest: int, deadline: Deadline
) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Yield (channels, an order of the tasks, the ends of the modules in it) for the given or an increasing number of channels."""
    order = graph.topological_order
    ends = np.union1d(graph.rank[clean] + 1, [graph.n_tasks])
    if channels is None or channels == 1:
        yield 1, order, ends
    if channels == 1:
        return
    spans = list(pairwise([0, *ends.tolist()]))
    large = {
        a: narrowest_order(graph, order[a:b], int(order[a - 1]) if a else None, largest, deadline) for a, b in spans if b - a > largest
    }
    for count in range(2, MOST_CHANNELS + 1) if channels is None else (channels,):
        deadline.check(CUTTING)
        cut = [large[a].cut(count) if a in large else (order[a:b], np.array([b - a])) for a, b in spans]
        inner = [a + own for (a, _), (_, own) in zip(spans, cut, strict=True)]
        yield count, np.concatenate([tasks for tasks, _ in cut]), np.concatenate(inner)


def _merged(graph: TaskGraph, order: IntArray, ends: IntArray, smallest: int, largest: int) -> IntArray:
    """Return the ends of the modules after merging tiny ones, smallest first, with a neighbour."""
    n = graph.n_tasks
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    steps = np.bincount(place[graph.source] + 1, minlength=n + 1) - np.bincount(place[graph.target] + 1, minlength=n + 1)
    edges = np.cumsum(steps).tolist()  # number across the boundary after each number of tasks
    start_of: dict[int, int] = dict(zip(ends.tolist(), [0, *ends[:-1].tolist()], strict=True))  # the remaining modules, by their ends
    end_of = {start: end for end, start in start_of.items()}
    tiny = [(end - start, end) for end, start in start_of.items() if end - start < smallest]
    heapq.heapify(tiny)
    while tiny:
        size, end = heapq.heappop(tiny)
        start = start_of.get(end, end)
        if end - start != size:
            continue  # it has been merged since
        before, after = start - start_of.get(start, start), end_of.get(end, end) - end  # sizes of the neighbours
        fitting = [(-edges[at], other, at) for at, other in ((start, before), (end, after)) if 0 < other <= largest - size]
        if fitting:
            at = min(fitting)[2]  # the boundary to remove
            first, last = start_of.pop(at), end_of.pop(at)
            start_of[last], end_of[first] = first, last
            if last - first < smallest:
                heapq.heappush(tiny, (last - first, last))
    return np.array(sorted(start_of), np.int64)
