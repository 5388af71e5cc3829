"""Numba kernels that pair tasks without making a cycle."""

from __future__ import annotations

import numpy as np

from hetsched.compiled import builder


@builder
def levels(order, pred_ptr, pred):  # type: ignore[no-untyped-def]
    """Return the most edges of a path to each task, [n]."""
    level = np.zeros(len(order), np.int64)
    for i in order:
        for x in range(pred_ptr[i], pred_ptr[i + 1]):
            level[i] = max(level[i], level[pred[x]] + 1)
    return level


@builder
def _joined(i, ptr, near, step, level, partner):  # type: ignore[no-untyped-def]
    """Whether task i has a neighbour one level on that is paired with one of its own level."""
    for x in range(ptr[i], ptr[i + 1]):
        j = near[x]
        if level[j] == level[i] + step and partner[j] >= 0 and level[partner[j]] == level[i]:
            return True
    return False


@builder
def match(  # type: ignore[no-untyped-def]
    order, part, level, pred_ptr, pred, pred_edge, succ_ptr, succ, succ_edge, cost, work, claim, able, most_work, most_claim
):
    """Return the partner of each task, or -1, [n].

    Tasks are asked in `order` for the heaviest edge to a free neighbour that is one level on or back. Those left
    over are paired with tasks of their level that read the same task, or are read by the same.
    """
    n = len(order)
    partner = np.full(n, -1)
    for i in order:
        if partner[i] >= 0:
            continue
        best, heaviest, least = -1, -1.0, 0.0
        for forward in (True, False):
            ptr, near, edge = (succ_ptr, succ, succ_edge) if forward else (pred_ptr, pred, pred_edge)
            for x in range(ptr[i], ptr[i + 1]):
                j = near[x]
                if partner[j] >= 0 or part[j] != part[i] or level[j] != level[i] + (1 if forward else -1):
                    continue
                if work[i] + work[j] > most_work or claim[i] + claim[j] > most_claim or able[i] & able[j] == 0:
                    continue
                if cost[edge[x]] > heaviest or (cost[edge[x]] == heaviest and work[j] < least):
                    low, high = (i, j) if forward else (j, i)
                    if not _joined(low, succ_ptr, succ, 1, level, partner) and not _joined(high, pred_ptr, pred, -1, level, partner):
                        best, heaviest, least = j, cost[edge[x]], work[j]
        if best >= 0:
            partner[i], partner[best] = best, i
    for forward in (True, False):
        ptr, near = (succ_ptr, succ) if forward else (pred_ptr, pred)
        for parent in range(n):
            waiting = -1
            for x in range(ptr[parent], ptr[parent + 1]):
                i = near[x]
                if partner[i] >= 0:
                    continue
                fits = waiting >= 0 and level[i] == level[waiting] and part[i] == part[waiting]
                if (
                    fits
                    and work[i] + work[waiting] <= most_work
                    and claim[i] + claim[waiting] <= most_claim
                    and able[i] & able[waiting] != 0
                ):
                    partner[i], partner[waiting] = waiting, i
                    waiting = -1
                else:
                    waiting = i
    return partner
