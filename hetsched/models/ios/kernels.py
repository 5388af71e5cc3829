"""Numba kernels of the stage problem: every ending of every state, enumerated along the lattice of ideals.

A state is an ideal (see `hetsched.analysis.ideals`). A stage leads from an ideal to a larger one; the tasks it adds are an
ending of the larger. In topological order, the smaller ideal with any prefix of a stage is an ideal again, so walks that
add tasks in ascending order visit each stage exactly once, and sets need not be compared: ideals are identified by number.
Stages are numbered as the nodes of a trie over their ascending tasks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.analysis.ideals import Ideals
from hetsched.arrays import BoolArray, IntArray
from hetsched.compiled import builder, inner, kernel

Indices = npt.NDArray[np.int32]
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Predecessors(NamedTuple):
    """The predecessors ``pred[ptr[i]:ptr[i + 1]]`` of each task i of a block."""

    ptr: IntArray
    pred: IntArray


class Limits(NamedTuple):
    """Limits on the size of stages."""

    groups: int
    group_size: int


class Reached(NamedTuple):
    """Progress of the enumeration."""

    state: int
    """The first state whose transitions are not complete."""
    transitions: int
    """Number of transitions."""
    nodes: int
    """Number of nodes of the trie."""


class Transitions(NamedTuple):
    """The states before and after each stage."""

    tail: Indices
    head: Indices
    stage: Indices


class Trie(NamedTuple):
    """Stages: node 0 is the empty stage, any other node is its parent with one more task; see `trie`."""

    parent: Indices
    last: Indices
    """The added task, -1 at node 0."""
    groups: Indices
    """Number of groups of the stage; 0 if a group is too large, which then holds for all descendants."""
    keys: IntArray
    """A hash table of the nodes by parent and task, -1 for an empty slot; the length is a power of two."""
    nodes: Indices


def transitions(most: int) -> Transitions:
    """Return uninitialised arrays for `most` transitions."""
    return Transitions(np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int32))


def trie(most: int) -> Trie:
    """Return a trie with capacity for `most` nodes, a power of two, that contains the empty stage."""
    parent, last, groups = np.zeros(most, np.int32), np.full(most, -1, np.int32), np.zeros(most, np.int32)
    return Trie(parent, last, groups, np.full(4 * most, -1), np.empty(4 * most, np.int32))


@kernel
def copy(old: Trie, new: Trie, count: int) -> None:
    """Copy the first `count` nodes into a larger trie that contains only the empty stage."""
    mask = len(new.keys) - 1
    for x in range(count):
        new.parent[x], new.last[x], new.groups[x] = old.parent[x], old.last[x], old.groups[x]
    for at in range(len(old.keys)):
        key = old.keys[at]
        if key >= 0:
            slot = np.int64((np.uint64(key) * _MIX) >> np.uint64(32)) & mask
            while new.keys[slot] >= 0:
                slot = (slot + 1) & mask
            new.keys[slot], new.nodes[slot] = key, old.nodes[at]


@inner
def _join(
    depth: int, y: int, task: IntArray, position: IntArray, group: Indices, pred_ptr: IntArray, pred: IntArray, touched: BoolArray
) -> int:
    """Write the groups of a stage of `depth` tasks and y into row depth + 1; return the size of the group of y.

    Row d holds the group of each of the first d tasks of the walk, identified by the position of its last task.
    """
    for d in range(depth):
        touched[d] = False
    for e in range(pred_ptr[y], pred_ptr[y + 1]):
        d = position[pred[e]]
        if d < depth and task[d] == pred[e]:
            touched[group[depth, d]] = True
    size = 1
    for d in range(depth):
        if touched[group[depth, d]]:
            group[depth + 1, d] = depth
            size += 1
        else:
            group[depth + 1, d] = group[depth, d]
    group[depth + 1, depth] = depth
    return size


# `stages` allocates its scratch: with arrays of the caller, which the compiler must assume to overlap, a block of three
# chains of 11 with limits took 1.3 times as long. Tuples are unpacked before the loops for the same reason.


@builder
def stages(reached: Reached, lattice: Ideals, before: Predecessors, limits: Limits, arcs: Transitions, trie: Trie) -> Reached:
    """Add the transitions from the state reached and later ones, until an array is full or no state is left.

    A stage with more groups than allowed is in the trie, because a descendant may have fewer groups, but is not a transition.
    A stage with a group that is too large has no descendants in the trie.
    """
    first, used, known = reached
    ptr, element, larger = lattice
    parent, last, groups, keys, nodes = trie
    tail, head, stage = arcs
    pred_ptr, pred = before
    most_groups, most_tasks = limits
    n, states, mask = len(pred_ptr) - 1, len(ptr) - 1, len(keys) - 1
    state, place, node = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    task, position, touched = np.empty(n, np.int64), np.full(n, n), np.empty(n, np.bool_)
    group, grouped = np.empty((n + 1, n), np.int32), np.zeros(n + 1, np.bool_)  # rows of groups, and whether they are written
    grouped[0] = True
    while first < states:
        begin = used
        depth = 0
        state[0], place[0], node[0] = first, ptr[first + 1], 0
        while depth >= 0:
            at = place[depth] - 1
            if at < ptr[state[depth]] or element[at] <= last[node[depth]]:
                depth -= 1
                continue
            place[depth] = at
            y = element[at]
            key = node[depth] * n + y
            slot = np.int64((np.uint64(key) * _MIX) >> np.uint64(32)) & mask
            while keys[slot] >= 0 and keys[slot] != key:
                slot = (slot + 1) & mask
            new = keys[slot] < 0
            if new:
                if known == len(parent) or 2 * known > mask:
                    return Reached(first, begin, known)
                made = depth
                while not grouped[made]:
                    made -= 1
                for d in range(made, depth):
                    _join(d, task[d], task, position, group, pred_ptr, pred, touched)
                    grouped[d + 1] = True
                size = _join(depth, y, task, position, group, pred_ptr, pred, touched)
                keys[slot], nodes[slot] = key, known
                parent[known], last[known], groups[known] = node[depth], y, 0
                if size <= most_tasks:
                    for d in range(depth + 1):
                        groups[known] += group[depth + 1, d] == d
                known += 1
            child = np.int64(nodes[slot])
            number = groups[child]
            if number == 0:
                continue
            if number <= most_groups:
                if used == len(tail):
                    return Reached(first, begin, known)
                tail[used], head[used], stage[used] = first, larger[at], child
                used += 1
            task[depth], position[y] = y, depth
            depth += 1
            state[depth], place[depth], node[depth], grouped[depth] = larger[at], ptr[larger[at] + 1], child, new
        first += 1
    return Reached(first, used, known)


@builder
def count(lattice: Ideals, before: Predecessors, limits: Limits, one_first: bool, digits: int) -> tuple[int, npt.NDArray[np.uint64]]:
    """Return the number of pairs of a state and a non-empty ending of it, and of schedules in digits of base 2^32, the lowest first.

    With `one_first` an ending counts only if each group has one task without predecessors in it. Until the groups of a stage
    are joined by a task, this holds, and from then on it does not, since a walk adds tasks in topological order.
    """
    ptr, element, larger = lattice
    pred_ptr, pred = before
    most_groups, most_tasks = limits
    n, states = len(pred_ptr) - 1, len(ptr) - 1
    grouped = one_first or min(most_groups, most_tasks) < n
    ways = np.zeros((states, digits), np.uint64)
    ways[0, 0] = 1
    pairs = 0
    state, place, least = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    task, position, touched = np.empty(n, np.int64), np.full(n, n), np.empty(n, np.bool_)
    group, groups = np.empty((n + 1, n), np.int32), np.zeros(n + 1, np.int64)
    for first in range(states):
        carry = np.uint64(0)
        for d in range(digits):
            total = ways[first, d] + carry
            ways[first, d] = total & np.uint64(0xFFFFFFFF)
            carry = total >> np.uint64(32)
        depth = 0
        state[0], place[0], least[0] = first, ptr[first + 1], -1
        while depth >= 0:
            at = place[depth] - 1
            if at < ptr[state[depth]] or element[at] <= least[depth]:
                depth -= 1
                continue
            place[depth] = at
            y, head = element[at], larger[at]
            if grouped:
                if _join(depth, y, task, position, group, pred_ptr, pred, touched) > most_tasks:
                    continue
                number = 0
                for d in range(depth + 1):
                    number += group[depth + 1, d] == d
                if one_first and (number < groups[depth] or number > most_groups):
                    continue
                task[depth], position[y], groups[depth + 1] = y, depth, number
            else:
                number = 0
            if number <= most_groups:
                pairs += 1
                for d in range(digits):
                    ways[head, d] += ways[first, d]
            depth += 1
            state[depth], place[depth], least[depth] = head, ptr[head + 1], y
    return pairs, ways[states - 1]
