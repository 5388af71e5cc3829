"""Kernels of the stage problem: every ending of every state, walked over the lattice of ideals.

A state is an ideal (see `hetsched.analysis.ideals`). A stage leads from an ideal to a larger one; what it adds is an
ending of the larger. In topological order every prefix of a stage added to the smaller ideal is an ideal again, so the
walks that add ascending tasks meet each stage exactly once, and no set is ever compared: an ideal is its number.
Stages themselves are numbered as the nodes of a trie over their ascending tasks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hetsched.arrays import BoolArray, IntArray
from hetsched.compiled import builder, inner

_MIX = np.uint64(0x9E3779B97F4A7C15)


@builder
def rehash(keys, values, new_keys, new_values):  # type: ignore[no-untyped-def]
    """Copy a table of hashes into a larger one, all -1; the lengths are powers of two."""
    for at in range(len(keys)):
        if keys[at] >= 0:
            slot = np.int64((np.uint64(keys[at]) * _MIX) >> np.uint64(32)) & (len(new_keys) - 1)
            while new_keys[slot] >= 0:
                slot = (slot + 1) & (len(new_keys) - 1)
            new_keys[slot], new_values[slot] = keys[at], values[at]


@inner
def _join(
    depth: int,
    y: int,
    task: IntArray,
    position: IntArray,
    group: npt.NDArray[np.int32],
    pred_ptr: IntArray,
    pred: IntArray,
    touched: BoolArray,
) -> int:
    """Put the groups of a stage of `depth` tasks and y into row depth + 1; return the size of the group of y.

    Row d has the group of each of the first d tasks of the walk, named by the place of its last task.
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


@builder
def stages(  # type: ignore[no-untyped-def]
    first, used, known, ptr, element, larger, pred_ptr, pred, most_groups, most_tasks, tail, head, which, parent, last, groups, keys, values
):
    """Add the transitions (tail, head, stage) that begin at state `first` and later, until an array is full.

    Returns the state to go on from once there is more room, or the number of states; the numbers of transitions and of
    entries of the trie (parent, last task, groups), which begins with the empty stage. A stage of more groups than
    allowed may lead to one of fewer and so is in the trie; no transition has it. One with a group that is too large, which
    stays so in all that goes on from it, has no groups, and there the trie ends. `keys` and `values` find entries by
    parent and task.
    """
    n, states = len(pred_ptr) - 1, len(ptr) - 1
    state, place, node = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    task, position, touched = np.empty(n, np.int64), np.full(n, n), np.empty(n, np.bool_)
    group, grouped = np.empty((n + 1, n), np.int32), np.zeros(n + 1, np.bool_)  # rows of groups, and which of them are made
    grouped[0] = True
    mask = len(keys) - 1
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
                    return first, begin, known
                made = depth
                while not grouped[made]:
                    made -= 1
                for d in range(made, depth):
                    _join(d, task[d], task, position, group, pred_ptr, pred, touched)
                    grouped[d + 1] = True
                size = _join(depth, y, task, position, group, pred_ptr, pred, touched)
                keys[slot], values[slot] = key, known
                parent[known], last[known], groups[known] = node[depth], y, 0
                if size <= most_tasks:
                    for d in range(depth + 1):
                        groups[known] += group[depth + 1, d] == d
                known += 1
            child = np.int64(values[slot])
            number = groups[child]
            if number == 0:
                continue
            if number <= most_groups:
                if used == len(tail):
                    return first, begin, known
                tail[used], head[used], which[used] = first, larger[at], child
                used += 1
            task[depth], position[y] = y, depth
            depth += 1
            state[depth], place[depth], node[depth], grouped[depth] = larger[at], ptr[larger[at] + 1], child, new
        first += 1
    return first, used, known


@builder
def count(ptr, element, larger, digits):  # type: ignore[no-untyped-def]
    """Return the number of pairs of a state and a non-empty ending of it, and of schedules in digits of base 2^32, the lowest first."""
    states = len(ptr) - 1
    ways = np.zeros((states, digits), np.uint64)
    ways[0, 0] = 1
    pairs = 0
    most = 0
    for c in range(states):
        most = max(most, ptr[c + 1] - ptr[c])
    state, place, least = np.empty(states, np.int64), np.empty(states, np.int64), np.empty(states, np.int64)
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
            pairs += 1
            head = larger[at]
            for d in range(digits):
                ways[head, d] += ways[first, d]
            depth += 1
            state[depth], place[depth], least[depth] = head, ptr[head + 1], element[at]
    return pairs, ways[states - 1]
