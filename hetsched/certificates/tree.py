"""The tree of a proof: a refutation of the kernels replayed in the checker's own state, with hints where its leaves need them.

The kernels infer more in a node than the checker does by itself, and the checker knows that times are whole numbers. So a branching of
the kernels may be decided already in the checker's state, a leaf of theirs may be open, and an open node contradictory. Open leaves are
given hints, and branched on if no hint helps.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hetsched import checker
from hetsched.arrays import BoolArray
from hetsched.certificates import hints
from hetsched.certificates.certificate import Token
from hetsched.certificates.hints import View
from hetsched.certificates.relaxation import Log, Window
from hetsched.stopping import Deadline

LEAF: Token = (".",)
JOINS: Token = ("j",)
UNKNOWN = -1
"""Node of the log of a branch that the kernels did not have."""
ROUNDS = 6
"""Rounds of hints that raise heads and tails in one leaf."""
MOST_ORDERED = 300
"""The most tasks for which such hints are tried."""


def prove(window: Window, end: int, deadline: Deadline) -> list[Token] | None:
    """Return a tree that refutes all schedules of a window shorter than `end` units, or None by the deadline, or if there is one.

    `end` is `checker.INFINITE` for a proof that there is no schedule.
    """
    root = window.root(end)
    found = closing(window, root, deadline, root=True)
    if found is not None:
        return [*found, LEAF]
    if len(window.tasks) > MOST_ORDERED:
        return None
    log = window.refutation(end, deadline)
    return None if log is None else _replayed(window, root, log, deadline)


def _replayed(window: Window, root: checker.State, log: Log, deadline: Deadline) -> list[Token] | None:
    """Return the tree along a log, or None by the deadline, or if an open leaf has nothing left to branch on."""
    second = _second(log)
    tree: list[Token] = []
    waiting = [(root, 0)]
    while waiting:
        if deadline.over or len(tree) > checker.MOST_NODES:
            return None
        state, x = waiting.pop()
        state.propagate()
        branching, x = (None, x) if state.contradiction else _branching(state, log, second, x)
        if branching is None:
            found = closing(window, state, deadline)
            if found is not None:
                tree += [*found, LEAF]
                continue
            branching, x = _chosen(window, state), UNKNOWN
            if branching is None:
                return None
        tree.append(branching)
        nodes = (x + 1, second[x]) if x != UNKNOWN and branching == _token(log[x]) else (x, UNKNOWN)
        waiting += [(state.branch(branching), nodes[1]), (state, nodes[0])]
    return tree


def _second(log: Log) -> list[int]:
    """Return for each node of a log its second branch; the first is the next node."""
    second, done = [UNKNOWN] * len(log), list[int]()
    for x in range(len(log) - 1, -1, -1):
        if log[x][0]:
            done.pop()
            second[x] = done.pop()
        done.append(x)
    return second


def _token(node: tuple[int, int, int, int]) -> Token:
    """Return the branching of a node of a log."""
    from hetsched.analysis import branch_and_bound_kernels as kernels

    return "d" if node[0] == kernels.DEVICE else "o", node[1], node[2]


def _branching(state: checker.State, log: Log, second: list[int], x: int) -> tuple[Token | None, int]:
    """Return the branching of the first node of the log, from x on, that is open in the state, or what it waits for, and the node."""
    from hetsched.analysis import branch_and_bound_kernels as kernels

    while x != UNKNOWN:
        kind, i, other, k = log[x]
        if kind == kernels.NOTHING:
            break
        if kind == kernels.DEVICE:
            own = state.devices[state.unit[i]]
            if other in own and len(own) > 1:
                return _token(log[x]), x
            x = x + 1 if other in own else second[x]
        elif state.after[i] >> other & 1:
            x += 1
        elif state.before[i] >> other & 1:
            x = second[x]
        else:
            open_ = [j for j in (i, other) if state.devices[state.unit[j]] != (k,)]
            if not open_:
                return _token(log[x]), x
            if k in state.devices[state.unit[open_[0]]]:
                return ("d", open_[0], k), x
            x = UNKNOWN
    return None, UNKNOWN


def _chosen(window: Window, state: checker.State) -> Token | None:
    """Return the branching that the kernels would choose in a state, or None if nothing is open."""
    from hetsched.analysis import branch_and_bound_kernels as kernels

    view = view_of(window, state)
    kind, task, other = kernels.choose(view.before, view.least, view.place, view.start, view.tail, window.subset.weight)
    if kind == kernels.DEVICE:
        return "d", int(view.tasks[task]), int(other)
    return ("o", int(view.tasks[task]), int(view.tasks[other])) if kind == kernels.ORDER else None


def view_of(window: Window, state: checker.State) -> View:
    """Return the levels of a propagated state."""
    whole, tasks = window.relaxation, window.tasks
    possible = np.zeros((len(tasks), whole.size), bool)
    for x, i in enumerate(state.tasks):
        possible[x, list(state.devices[state.unit[i]])] = True
    start, tail = (
        np.where(possible, np.array(levels, np.float64).reshape(-1, whole.size)[tasks], np.inf) for levels in (state.head, state.tail)
    )
    horizon = np.inf if state.end >= checker.INFINITE else float(state.end - 1)
    before = np.ascontiguousarray(_bits([state.after[i] for i in state.tasks], whole.n)[:, tasks])
    return View(tasks, np.where(possible, whole.least[tasks], np.inf), start, tail, before, horizon)


def _bits(sets: list[int], n: int) -> BoolArray:
    """Return sets of tasks, given as bits, as a matrix with a row for each, [len(sets), n]."""
    width = (n + 7) // 8
    rows = np.frombuffer(b"".join(found.to_bytes(width, "little") for found in sets), np.uint8).reshape(len(sets), width)
    return np.unpackbits(rows, axis=1, bitorder="little")[:, :n].astype(bool)


def closing(window: Window, state: checker.State, deadline: Deadline, *, root: bool = False) -> list[Token] | None:
    """Return hints after which a propagated state is contradictory, none of them in vain, or None.

    At the root, where it pays, the prices of linear programs are tried too.
    """
    if state.contradiction:
        return []
    trial, used = state.copy(), list[Token]()
    for _ in range(ROUNDS):
        view = view_of(window, trial)
        for hint in _final(window, trial, view, root):
            trial.hint(hint)
            if trial.contradiction:
                return needed(state, [*used, hint])
        new = [JOINS, *hints.rises(view)] if len(window.tasks) <= MOST_ORDERED and np.isfinite(view.horizon) else []
        before = trial.head[:], trial.tail[:], trial.devices[:]
        for hint in new:
            if deadline.over:
                return None
            trial.hint(hint)
            trial.propagate()
            used.append(hint)
            if trial.contradiction:
                return needed(state, used)
        if before == (trial.head, trial.tail, trial.devices):
            break
    return None


def _final(window: Window, state: checker.State, view: View, root: bool) -> Iterator[Token]:
    """Yield hints of R3, R6, R8 and R9 that may contradict a state."""
    whole, tasks = window.relaxation, window.tasks
    bits = whole.bits(whole.problem.inputs if state.every_input else 1)[tasks]
    cost = (whole.every if state.every_input else whole.least)[tasks]
    yield from hints.overfull(view, bits, whole.room)
    if np.isfinite(view.horizon):
        yield from hints.between(view, cost)
    if root:
        yield from hints.shortage(view, whole.units[tasks], bits, whole.room, cost)


def needed(state: checker.State, found: list[Token]) -> list[Token]:
    """Return some of the hints that contradict a state without any of which, and with the others, they do not."""
    size = len(found)
    while size:
        at = 0
        while at < len(found):
            fewer = found[:at] + found[at + size :]
            used = _used(state, fewer)
            if used is None:
                at += size
            else:
                found = fewer[:used]
        size //= 2
    return found


def _used(state: checker.State, found: list[Token]) -> int | None:
    """Return after how many of the hints the state is contradictory, or None."""
    trial = state.copy()
    for count, hint in enumerate(found, 1):
        trial.hint(hint)
        trial.propagate()
        if trial.contradiction:
            return count
    return None
