"""Numba kernels for stages of a chain whose items may be offloaded, by number of items of each kind and holder.

A choice is how many items of each kind are offloaded to each holder, `chosen` [T * H]; which of them are is no matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner, kernel


class Moves(NamedTuple):
    """T kinds of items that may be offloaded, H holders and G groups of devices.

    Attributes
    ----------
    weight, workspace : float64 [T]
        Bytes that are moved, and the workspace of an item.
    extra : float64 [G, T, H]
        Seconds that an item of a stage on a group takes more; inf where it is impossible.
    before : int64 [T, n + 1]
        Items of each kind before each item.
    holder : int64 [G]
        Number of the holder that is the group; -1 if it is none.
    room, capacity : float64 [G], [H]
        Memory of a device of each group, and of each holder.
    only_first, slower : bool
        Whether only a stage with the first item may have offloaded ones, and whether no `extra` is negative.
    """

    weight: FloatArray
    workspace: FloatArray
    extra: FloatArray
    before: IntArray
    holder: IntArray
    room: FloatArray
    capacity: FloatArray
    only_first: bool
    slower: bool


class Spans(NamedTuple):
    """What stages take without offloaded items: seconds [group, start, end], then bytes [start, end]: weights, these and the cache,
    and workspace."""

    seconds: FloatArray
    weights: FloatArray
    held: FloatArray
    workspace: FloatArray


class Aim(NamedTuple):
    """The cost of a choice: a sum of seconds, bytes that are missing and bytes on holders; inf where `strict` and bytes are missing."""

    seconds: float
    missing: float
    held: float
    strict: bool


@kernel
def least_costs(moves: Moves, spans: Spans, aim: Aim, g: int, cost: FloatArray, chosen: IntArray, row: FloatArray) -> None:
    """Fill `cost` [start, end] with that of the best choice of a stage on group `g`; inf where there is none.

    `chosen` [T * H] and `row` [2 + H] are working memory.
    """
    for start in range(len(cost)):
        for end in range(len(cost)):
            cost[start, end] = np.inf
            if not spans.seconds[g, start, end] < np.inf:
                continue
            chosen[:] = 0
            while True:
                if weigh(moves, spans, g, start, end, chosen, row):
                    value = valued(moves, g, aim, row)
                    if value < cost[start, end]:
                        cost[start, end] = value
                    if value == 0.0 or (value < np.inf and moves.slower and (moves.holder[g] < 0 or aim.held == 0.0) and aim.strict):
                        break  # the first choice offloads nothing, so that it is the best if it fits
                if not following(moves, start, end, chosen):
                    break


@kernel
def list_choices(moves: Moves, spans: Spans, g: int, start: int, end: int, chosen: IntArray, rows: FloatArray, choices: IntArray) -> int:
    """Fill `rows` and `choices` with all choices of a stage, a row each, and return their number."""
    count = 0
    chosen[:] = 0
    while True:
        if weigh(moves, spans, g, start, end, chosen, rows[count]):
            for d in range(len(chosen)):
                choices[count, d] = chosen[d]
            count += 1
        if not following(moves, start, end, chosen):
            return count


@inner
def weigh(moves: Moves, spans: Spans, g: int, start: int, end: int, chosen: IntArray, row: FloatArray) -> bool:
    """Fill `row` with the seconds of a choice, the bytes that it needs, and those on each holder; return whether it is possible."""
    n_holders = len(moves.capacity)
    seconds, workspace, away = spans.seconds[g, start, end], spans.workspace[start, end], 0.0
    row[2:] = 0.0
    for d in range(len(chosen)):
        if chosen[d] > 0:
            t, h = d // n_holders, d % n_holders
            seconds += chosen[d] * moves.extra[g, t, h]
            row[2 + h] += chosen[d] * moves.weight[t]
            away += chosen[d] * moves.weight[t]
            workspace = max(workspace, moves.workspace[t] + moves.weight[t])
    row[0], row[1] = seconds, spans.held[start, end] - away + workspace
    return bool(seconds < np.inf and (away == 0.0 or away < spans.weights[start, end]))


@inner
def valued(moves: Moves, g: int, aim: Aim, row: FloatArray) -> float:
    """Return the cost of a choice; what a stage on a holder needs is on that holder, and not missing."""
    held = 0.0
    for h in range(len(moves.capacity)):
        held += row[2 + h]
        if aim.strict and row[2 + h] > moves.capacity[h]:
            return np.inf
    if aim.strict and row[1] > moves.room[g]:
        return np.inf
    missing = max(row[1] - moves.room[g], 0.0) if moves.holder[g] < 0 else 0.0
    if moves.holder[g] >= 0:
        held += row[1]
    return float(aim.seconds * row[0] + aim.missing * missing + aim.held * held)


@inner
def following(moves: Moves, start: int, end: int, chosen: IntArray) -> bool:
    """Make `chosen` the next choice, with at most the items of each kind; return whether there is one."""
    n_holders = len(moves.capacity)
    if moves.only_first and start > 0:
        return False
    for d in range(len(chosen)):
        t, count = d // n_holders, 0
        for h in range(n_holders):
            count += chosen[t * n_holders + h]
        if count < moves.before[t, end] - moves.before[t, start]:
            chosen[d] += 1
            return True
        chosen[d] = 0
    return False
