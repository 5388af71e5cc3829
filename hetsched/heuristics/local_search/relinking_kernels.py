"""Numba kernel of path relinking between two search states."""

from __future__ import annotations

import numpy as np

from hetsched.compiled import kernel
from hetsched.heuristics.local_search import edit_kernels, move_kernels, state_kernels
from hetsched.heuristics.local_search.edit_kernels import Log
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState


@kernel
def relink(t: SearchData, s: SearchState, goal: SearchState, child: SearchState, log: Log, stops: int) -> tuple[float, float]:
    """Transform `s` into `goal` node by node, in the order of `goal`, and evaluate it at `stops` points of the path.

    Each node moves to its device and place in `goal`, so the first part of the sequence is that of `goal`
    and the rest that of `s`. Changes of device that do not fit the memory are omitted, and so are nodes and
    inputs of slots that only one of the two states has.

    Returns
    -------
    lowest : float
        Least makespan at a stop before the last, whose state is copied to `child`; inf if there was none.
    makespan : float
        Makespan of `s` at the end.
    """
    lowest, makespan, place, stop = np.inf, np.inf, 0, 0
    length = goal.length[0]
    for x in range(length):
        v = goal.sequence[x]
        at, c = s.position[v], t.cell[v]
        if at >= 0:
            k = goal.device[c]
            if k != s.device[c]:
                edit_kernels.begin(s, log)
                if move_kernels.change_device(t, s, log, c, k) and not edit_kernels.fits(t, s, log):
                    edit_kernels.undo(s, log)
            edit_kernels.begin(s, log)
            if at != place:
                edit_kernels.move(s, log, at, place)
            place += 1
        if (x + 1) * stops >= (stop + 1) * length:
            stop += 1
            makespan, _ = state_kernels.evaluate(t, s, 0, np.inf)
            state_kernels.commit(t, s, 0)
            if makespan < lowest and x + 1 < length:
                lowest = makespan
                state_kernels.copy(s, child)
    return lowest, makespan
