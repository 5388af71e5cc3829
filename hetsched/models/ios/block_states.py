"""The states and stages of a part of a graph, enumerated by a kernel (`kernels`)."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.analysis.ideals import Ideals, ideals
from hetsched.arguments import COUNT, check_indices, checked
from hetsched.arrays import IntArray, readonly, row_starts
from hetsched.errors import UnsupportedFeature
from hetsched.problem.graph import TaskGraph, named, plural

MOST_STATES = 1 << 22
"""The most states of a block."""
MOST_TRANSITIONS = 1 << 23
"""The most transitions of a block, pairs of a state and an ending of it."""

OF_A_PART = 64
"""Divisor of these limits for the parts of a block that exceeds them, whose solution is not optimal and should be fast."""

MOST_OF_A_PART = 16
"""The most tasks of a part of a block that is begun after the search was stopped."""

MOST_KEPT = 1 << 21
"""The most transitions of a block that are cached for isomorphic blocks."""

_NO_LIMIT = 1 << 30
Indices = npt.NDArray[np.int32]


class _Walk(NamedTuple):
    """The states and transitions of a block, independent of the names of its tasks."""

    n_states: int
    tail: Indices
    head: Indices
    stage: Indices
    parent: Indices
    last: Indices


_walked: dict[tuple[bytes, bytes, int, int], _Walk] = {}
_lock = threading.Lock()


class Block:
    """The states and transitions of a part of a graph.

    Parameters
    ----------
    graph : TaskGraph
    tasks : int array
        The part, in topological order.
    groups, group_size : int or None
        The limits of a stage.
    share : int
        Divisor of the limits on states and transitions.

    Attributes
    ----------
    n_states : int
        State 0 is empty, the last one the entire block.
    names : tuple of str
        The tasks, in topological order.
    tail, head, stage : int32 arrays [T]
        Transitions, by ascending tail: a stage leads from state `tail` to state `head`.
    parent, last : int32 arrays [S]
        The tasks of each stage: those of stage `parent`, which has a lower number, and the task at position `last` of
        `names`. Stage 0 is empty; some others are in no transition.
    """

    @checked(share=COUNT)
    def __init__(self, graph: TaskGraph, tasks: IntArray, groups: int | None, group_size: int | None, share: int = 1) -> None:
        self.graph, self.tasks, self.share = graph, check_indices(tasks, "tasks", graph.n_tasks), share
        self.names = tuple(graph.names[i] for i in tasks.tolist())
        ptr, pred, pairs = within(graph, tasks)
        key = ptr.tobytes(), pred.tobytes(), unlimited(groups), unlimited(group_size)
        walk = _walked.get(key)
        if walk is None:
            walk = self._walk(ptr, pred, pairs, *key[2:])
            with _lock:
                while len(_walked) >= 4:  # the cells of a network are of a few kinds
                    del _walked[next(iter(_walked))]
                if len(walk.tail) <= MOST_KEPT:
                    _walked[key] = walk
        self.n_states, self.tail, self.head, self.stage, self.parent, self.last = walk

    @checked
    def members(self, stage: int) -> tuple[str, ...]:
        """Return the tasks of a stage, in topological order."""
        names: list[str] = []
        while stage:
            names.append(self.names[self.last[stage]])
            stage = self.parent[stage]
        return tuple(names[::-1])

    def _walk(self, ptr: IntArray, pred: IntArray, pairs: IntArray, groups: int, group_size: int) -> _Walk:
        from hetsched.models.ios import kernels

        states = lattice(self.graph, self.tasks, pairs, MOST_STATES // self.share)
        most = MOST_TRANSITIONS // self.share
        arcs, trie = kernels.transitions(1 << 12), kernels.trie(1 << 10)
        before, limits = kernels.Predecessors(ptr, pred), kernels.Limits(groups, group_size)
        reached = kernels.Reached(0, 0, 1)
        while True:
            reached = kernels.stages(reached, states, before, limits, arcs, trie)
            if reached.state == states.number:
                break
            if reached.nodes == len(trie.parent):
                smaller, trie = trie, kernels.trie(2 * len(trie.parent))
                kernels.copy(smaller, trie, reached.nodes)
            elif len(arcs.tail) < most:
                arcs = kernels.Transitions(*map(_doubled, arcs))
            else:
                raise UnsupportedFeature(
                    f"{described(self.graph, self.tasks)} has more than {most} transitions; lower groups or group_size"
                )
        tail, head, stage = (readonly(column[: reached.transitions]) for column in arcs)
        return _Walk(states.number, tail, head, stage, readonly(trie.parent[: reached.nodes]), readonly(trie.last[: reached.nodes]))


def unlimited(most: int | None) -> int:
    """Return a limit of stages as a number."""
    return _NO_LIMIT if most is None else most


def _doubled(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return np.concatenate([values, np.zeros_like(values)])


def within(graph: TaskGraph, tasks: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return the predecessors of each task within a part, (row starts, indices), and the edges [E, 2], by positions in the part."""
    place = np.full(graph.n_tasks, -1)
    place[tasks] = np.arange(len(tasks))
    pairs = place[graph.edges].reshape(-1, 2)
    pairs = pairs[(pairs >= 0).all(axis=1)]
    ptr = row_starts(np.bincount(pairs[:, 1], minlength=len(tasks)))
    return ptr, pairs[np.argsort(pairs[:, 1], kind="stable"), 0], pairs


def lattice(graph: TaskGraph, tasks: IntArray, pairs: IntArray, most: int | None = None) -> Ideals:
    """Return the ideals of a part of a graph, with edges by positions in the part."""
    most = MOST_STATES if most is None else most
    limit = 1 << 14
    while (states := ideals(len(tasks), pairs, limit=min(limit, most))) is None:
        if limit >= most:
            raise UnsupportedFeature(f"{described(graph, tasks)} has more than {most} states; it is too wide for this method")
        limit *= 4
    return states


def described(graph: TaskGraph, tasks: IntArray) -> str:
    """Return the description of a part of a graph in messages."""
    return f"the block of {plural(len(tasks), 'task')} {named(tasks, graph.names, 2)}"
