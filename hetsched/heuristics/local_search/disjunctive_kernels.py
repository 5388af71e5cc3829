"""Numba kernels that evaluate moves of one node from heads and tails.

The *disjunctive graph* of a state has the nodes by their position in its sequence, an arc with a lag for every
pair of batches that exchange inputs, and arcs between neighbours on a device. After a node is removed, the
longest path that ends at each other node (its finish) and the longest path that begins after it (its tail)
give the longest path through the node at every place on every device:
``max(arrival, finish of the node before) + duration + max(tail over the consumers, tail of the node after)``.
The maximum of this and of the longest path without the node is the makespan, up to rounding, because no node
before the place depends on the node and no node after the place leads to it (Mastrolilli and Gambardella 2000,
"Effective neighbourhood functions for the flexible job shop problem"; transfers are lags here). Under
contention, the waits of the other nodes remain as they are, and that of the node at its new place is 0; if
co-located tasks change the device too, only the node itself is evaluated. The value is then an estimate,
neither a bound nor exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import inner, kernel
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState, overlap
from hetsched.problem.link_kernels import link_seconds, multiplier

TIE = 1e-3
"""Weight of the path through the node itself, which breaks ties between places of equal makespan."""
BALANCE = 0.01
"""Weight of the change of the squared loads of devices, which breaks ties where no transfer takes time."""
NOTHING = -1


class DisjunctiveGraph(NamedTuple):
    """A state's nodes by position; M = tasks times slots, `length` of them in use."""

    device: IntArray
    """[M]"""
    duration: FloatArray
    """[M] seconds."""
    wait: FloatArray
    """[M] seconds from the time at which its device and all data are ready without contention, to its start."""
    before: IntArray
    """[M]: position of the previous node on its device, -1 if there is none or the duration is 0."""
    after: IntArray
    """[M]: position of the next node on its device, likewise."""
    head: IntArray
    """[K]: position of the first node of each device, -1 if there is none."""
    last: IntArray
    """[K]: position of the last node of each device, likewise."""
    pred_ptr: IntArray
    """[M + 1]"""
    pred: IntArray
    lag: FloatArray
    """Seconds from the producer's finish to the arrival of its data."""
    pred_edge: IntArray
    pred_factor: FloatArray
    """Factor of the bytes or seconds of one input."""
    succ_ptr: IntArray
    succ: IntArray
    succ_lag: FloatArray
    succ_edge: IntArray
    succ_factor: FloatArray
    peak: FloatArray
    """[M + 1]: latest finish of the nodes before a position; the last is the makespan."""
    finish: FloatArray
    """[M] seconds."""
    tail: FloatArray
    """[M] seconds from its finish to the last finish of the nodes that depend on it."""
    early: FloatArray
    """[M]: `finish` in the graph without the removed node."""
    late: FloatArray
    """[M]: `tail` in the graph without the removed node."""
    above: BoolArray
    """[M]: whether the removed node depends on it."""
    below: BoolArray
    """[M]: whether it depends on the removed node."""
    saved: IntArray
    """[M]: previous nodes of the part of the sequence that `reorder` changed last."""
    marked: BoolArray
    """[M] scratch."""
    reached: BoolArray
    """[K] scratch."""
    ready: FloatArray
    """[K]: seconds at which the data of the removed node are on each device."""
    behind: FloatArray
    """[K]: the longest path after its finish on each device."""
    load: FloatArray
    """[K]: seconds of work on each device."""
    balance: float
    """Weight of the change of squared loads in the value of a place: `BALANCE`, or 0 if transfers take time."""


class Candidates(NamedTuple):
    """At most B places, by ascending value."""

    size: IntArray
    """[1]: number of places."""
    value: FloatArray
    """[B] seconds."""
    places: IntArray
    """[B, 3]: node, device, position of the node before which it is inserted, or -1 for the end of the device."""


def new_graph(t: SearchData) -> DisjunctiveGraph:
    """Return uninitialised arrays for the graph of any state."""
    nodes, size = len(t.task), len(t.capacity)
    arcs = len(t.arrays.pred) * (2 * t.slots - 1)  # maximum number of overlaps between the intervals of two tasks
    integers = [np.zeros(nodes, np.int64) for _ in range(4)]
    floats = [np.zeros(nodes) for _ in range(6)]
    flags = [np.zeros(nodes, np.bool_) for _ in range(3)]
    device, before, after, saved = integers
    duration, wait, finish, tail, early, late = floats
    above, below, marked = flags
    return DisjunctiveGraph(
        device=device,
        duration=duration,
        wait=wait,
        before=before,
        after=after,
        head=np.zeros(size, np.int64),
        last=np.zeros(size, np.int64),
        pred_ptr=np.zeros(nodes + 1, np.int64),
        pred=np.zeros(arcs, np.int64),
        lag=np.zeros(arcs),
        pred_edge=np.zeros(arcs, np.int64),
        pred_factor=np.zeros(arcs),
        succ_ptr=np.zeros(nodes + 1, np.int64),
        succ=np.zeros(arcs, np.int64),
        succ_lag=np.zeros(arcs),
        succ_edge=np.zeros(arcs, np.int64),
        succ_factor=np.zeros(arcs),
        peak=np.zeros(nodes + 1),
        finish=finish,
        tail=tail,
        early=early,
        late=late,
        above=above,
        below=below,
        saved=saved,
        marked=marked,
        reached=np.zeros(size, np.bool_),
        ready=np.zeros(size),
        behind=np.zeros(size),
        load=np.zeros(size),
        balance=0.0 if _takes_time(t) else BALANCE,
    )


@kernel
def _takes_time(t: SearchData) -> bool:
    """Return whether any transfer between devices takes time."""
    size = len(t.capacity)
    for e in range(len(t.arrays.pred)):
        for h in range(size):
            for k in range(size):
                if h != k and link_seconds(t.arrays.links, e, h, k, 1.0) > 0.0:
                    return True
    return False


def new_candidates(room: int) -> Candidates:
    """Return an empty list for `room` places."""
    return Candidates(np.zeros(1, np.int64), np.zeros(room), np.zeros((room, 3), np.int64))


@kernel
def build(t: SearchData, s: SearchState, net: DisjunctiveGraph) -> None:
    """Build the graph of a state as last committed."""
    _build_nodes(t, s, net)
    _build_arcs(t, s, net)
    duration, wait, before, finish = net.duration, net.wait, net.before, net.finish
    net.peak[0] = 0.0
    for q in range(s.length[0]):
        net.peak[q + 1] = max(net.peak[q], finish[q])
        if t.arrays.links.contended:
            ready = 0.0
            for x in range(net.pred_ptr[q], net.pred_ptr[q + 1]):
                ready = max(ready, finish[net.pred[x]] + net.lag[x])
            if before[q] >= 0:
                ready = max(ready, finish[before[q]])
            wait[q] = max(0.0, finish[q] - duration[q] - ready)
    net.peak[-1] = net.peak[s.length[0]]
    _tails(net, s.length[0] - 1, NOTHING, net.tail)


@inner
def _build_nodes(t: SearchData, s: SearchState, net: DisjunctiveGraph) -> None:
    task, cell, durations, size_of = t.task, t.cell, t.durations, t.size_of
    sequence, on, low, high, finished = s.sequence, s.device, s.low, s.high, s.finish
    device, duration, before, after, head, finish, last = net.device, net.duration, net.before, net.after, net.head, net.finish, net.last
    last[:], head[:] = NOTHING, NOTHING
    net.wait[:], net.load[:] = 0.0, 0.0
    for q in range(s.length[0]):
        v = sequence[q]
        c = cell[v]
        k = on[c]
        device[q], finish[q] = k, finished[v]
        duration[q] = durations[task[v], k, size_of[high[c] - low[c]]]
        before[q], after[q] = NOTHING, NOTHING
        if duration[q] > 0.0:
            net.load[k] += duration[q]
            before[q] = last[k]
            if last[k] >= 0:
                after[last[k]] = q
            else:
                head[k] = q
            last[k] = q


@inner
def _build_arcs(t: SearchData, s: SearchState, net: DisjunctiveGraph) -> None:
    slots, length, links = t.slots, s.length[0], t.arrays.links
    task, cell, unit, pred_ptr, preds, edges = t.task, t.cell, t.unit, t.arrays.pred_ptr, t.arrays.pred, t.arrays.pred_edge
    sequence, position, counts, on, low, high = s.sequence, s.position, s.count, s.device, s.low, s.high
    first, pred, lag, edge, factor = net.pred_ptr, net.pred, net.lag, net.pred_edge, net.pred_factor
    found = 0
    for q in range(length):
        v = sequence[q]
        i, c = task[v], cell[v]
        k = on[c]
        first[q] = found
        for x in range(pred_ptr[i], pred_ptr[i + 1]):
            p = preds[x]
            for slot in range(counts[unit[p]]):
                b = unit[p] * slots + slot
                count = overlap(low, high, b, c)
                if count > 0:
                    pred[found], edge[found], factor[found] = position[p * slots + slot], edges[x], multiplier(links, count)
                    lag[found] = link_seconds(links, edges[x], on[b], k, factor[found])
                    found += 1
    first[length] = found
    _transpose(net, length)


@inner
def _transpose(net: DisjunctiveGraph, length: int) -> None:
    """Write the arcs grouped by producer."""
    ptr, succ = net.succ_ptr, net.succ
    ptr[: length + 1] = 0
    for x in range(net.pred_ptr[length]):
        ptr[net.pred[x] + 1] += 1
    for q in range(length):
        ptr[q + 1] += ptr[q]
    pred_ptr, pred, lag, edge, factor = net.pred_ptr, net.pred, net.lag, net.pred_edge, net.pred_factor
    succ_lag, succ_edge, succ_factor = net.succ_lag, net.succ_edge, net.succ_factor
    for q in range(length):
        for x in range(pred_ptr[q], pred_ptr[q + 1]):
            y = ptr[pred[x]]
            succ[y], succ_lag[y], succ_edge[y], succ_factor[y] = q, lag[x], edge[x], factor[x]
            ptr[pred[x]] += 1
    for q in range(length, 0, -1):
        ptr[q] = ptr[q - 1]
    ptr[0] = 0


@inner
def _tails(net: DisjunctiveGraph, start: int, out: int, tail: FloatArray) -> None:
    """Write tails from position `start` down, without node `out`; the tails after `start` must be valid."""
    succ_ptr, succ, lag, after, duration, wait, above = net.succ_ptr, net.succ, net.succ_lag, net.after, net.duration, net.wait, net.above
    behind = after[out] if out >= 0 else NOTHING
    for q in range(start, -1, -1):
        longest, leads = 0.0, False
        for x in range(succ_ptr[q], succ_ptr[q + 1]):
            w = succ[x]
            if w == out:
                leads = True
            else:
                longest = max(longest, lag[x] + wait[w] + duration[w] + tail[w])
                leads = leads or above[w]
        w = after[q]
        if w == out:
            w = behind
        if w >= 0:
            longest = max(longest, wait[w] + duration[w] + tail[w])
            leads = leads or above[w]
        tail[q], above[q] = longest, leads


@inner
def take_out(t: SearchData, net: DisjunctiveGraph, length: int, out: int, limit: float) -> float:
    """Remove the node at position `out`: write heads, tails and dependencies of the graph without it.

    Returns the longest path without the node, or inf, with incomplete results, if that is above `limit`.
    """
    pred_ptr, pred, lag, before, duration, wait, below = net.pred_ptr, net.pred, net.lag, net.before, net.duration, net.wait, net.below
    early, late = net.early, net.late
    ahead, longest = before[out], net.peak[out]
    for position in range(out):
        early[position] = net.finish[position]
    below[: out + 1] = False
    for q in range(out + 1, length):
        start, depends = 0.0, False
        for x in range(pred_ptr[q], pred_ptr[q + 1]):
            p = pred[x]
            if p == out:
                depends = True
            else:
                start = max(start, early[p] + lag[x])
                depends = depends or below[p]
        p = before[q]
        if p == out:
            p = ahead
        if p >= 0:
            start = max(start, early[p])
            depends = depends or below[p]
        early[q], below[q] = start + wait[q] + duration[q], depends
        longest = max(longest, early[q])
        if longest > limit:
            return np.inf
    for position in range(out + 1, length):
        late[position] = net.tail[position]
    net.above[out:length] = False
    _tails(net, out - 1, out, late)
    _arrivals(t, net, out)
    return float(longest)


@inner
def _arrivals(t: SearchData, net: DisjunctiveGraph, out: int) -> None:
    """Write `ready` and `behind` of the removed node."""
    ready, behind, device, size, links = net.ready, net.behind, net.device, len(net.ready), t.arrays.links
    ready[:], behind[:] = 0.0, 0.0
    for x in range(net.pred_ptr[out], net.pred_ptr[out + 1]):
        p, e, factor = net.pred[x], net.pred_edge[x], net.pred_factor[x]
        done, h = net.early[p], device[p]
        for k in range(size):
            ready[k] = max(ready[k], done + link_seconds(links, e, h, k, factor))
    for x in range(net.succ_ptr[out], net.succ_ptr[out + 1]):
        p, e, factor = net.succ[x], net.succ_edge[x], net.succ_factor[x]
        left, h = net.wait[p] + net.duration[p] + net.late[p], device[p]
        for k in range(size):
            behind[k] = max(behind[k], left + link_seconds(links, e, k, h, factor))


@kernel
def critical_chain(net: DisjunctiveGraph, length: int, chain: IntArray, rng: np.random.Generator) -> int:
    """Write the positions of a critical chain into `chain`, from a last node to finish back to time 0; return their number.

    Each position waits for the next one; if it waits for several, one of them is drawn. A node that waits
    for transfers under contention is followed by its latest producer or the previous node of its device,
    whichever is later.
    """
    finish, duration, before, pred_ptr, pred, lag = net.finish, net.duration, net.before, net.pred_ptr, net.pred, net.lag
    makespan, q, ties = net.peak[length], NOTHING, 0
    slack = 1e-12 * makespan
    for x in range(length):
        if finish[x] >= makespan - slack:
            ties += 1
            q = x if rng.random() * ties < 1.0 else q
    links = 0
    while q >= 0:
        chain[links] = q
        links += 1
        if finish[q] - duration[q] <= slack:
            break
        chosen, ties, latest = before[q], 1, finish[before[q]] if before[q] >= 0 else -1.0
        for x in range(pred_ptr[q], pred_ptr[q + 1]):
            there = finish[pred[x]] + lag[x]
            if there > latest + slack:
                chosen, ties, latest = pred[x], 1, there
            elif there >= latest - slack:
                ties += 1
                chosen = pred[x] if rng.random() * ties < 1.0 else chosen
        q = chosen
    return links


@inner
def _add(found: Candidates, value: float, v: int, k: int, behind: int) -> float:
    """Insert a place into the candidates; return the value below which another place is kept."""
    x, room = found.size[0], len(found.value)
    if x < room:
        found.size[0] += 1
    elif value < found.value[room - 1]:
        x -= 1
    else:
        return float(found.value[room - 1])
    while x > 0 and found.value[x - 1] > value:
        found.value[x] = found.value[x - 1]
        for column in range(3):
            found.places[x, column] = found.places[x - 1, column]
        x -= 1
    found.value[x] = value
    found.places[x, 0], found.places[x, 1], found.places[x, 2] = v, k, behind
    return worst(found)


@inner
def worst(found: Candidates) -> float:
    """Return the value below which a place is kept; inf while the list is not full."""
    return float(found.value[-1]) if found.size[0] == len(found.value) else np.inf


class Removed(NamedTuple):
    """The node removed by `take_out`."""

    node: int
    position: int
    left: float
    """The longest path without it, in seconds."""


@inner
def _imbalance(net: DisjunctiveGraph, out: int, k: int, duration: float) -> float:
    """Return the weighted change of half the sum of squared loads over the makespan by a move to device k, in seconds."""
    own, before = net.duration[out], net.load[net.device[out]]
    change = net.load[k] * duration - before * own + 0.5 * (duration * duration + own * own)
    return float(net.balance * change / net.peak[-1])


@inner
def find_places(
    net: DisjunctiveGraph, removed: Removed, k: int, duration: float, limit: float, candidates: Candidates, rng: np.random.Generator
) -> None:
    """Insert the places of the removed node on device k into the candidates if their makespan is below `limit`.

    `duration` is that of the node on device k.
    """
    v, out, left = removed
    early, late, wait, length, above, below, after = net.early, net.late, net.wait, net.duration, net.above, net.below, net.after
    here = k == net.device[out]
    own = net.before[out]
    ready, behind = net.ready[k], net.behind[k]
    worst = candidates.value[-1] if candidates.size[0] == len(candidates.value) else np.inf
    tie = 0.0 if here or net.balance == 0.0 or net.peak[-1] == 0.0 else _imbalance(net, out, k, duration)
    x, y = NOTHING, net.head[k]
    if duration == 0.0:
        y = NOTHING
    while True:
        if y == out:
            y = after[y]
        if (y < 0 or not above[y]) and not (here and x == own):
            path = (ready if x < 0 else max(ready, early[x])) + duration + (behind if y < 0 else max(behind, wait[y] + length[y] + late[y]))
            makespan = max(left, path)
            value = makespan + TIE * path + tie
            if value < worst and makespan < limit:
                worst = _add(candidates, value + TIE * TIE * path * rng.random(), v, k, y)
        if y < 0 or below[y]:
            return
        x, y = y, after[y]


@inner
def reorder(t: SearchData, s: SearchState, net: DisjunctiveGraph, v: int, k: int, y: int) -> tuple[int, int]:
    """Move node v in the sequence to right before position y of device k, or after the device's last node if y is -1.

    Nodes that depend on v, or that wait for the node at y, come after v and the others before it, both in their
    previous order. `net` is the graph of the state before the move.

    Returns
    -------
    first, last : int
        The part of the sequence that changed, for `restore`; -1 if the node at y leads to v.
    """
    at = s.position[v]
    first, last = at, at
    if y >= 0:
        first, last = min(at, y), max(at, net.before[y])
    else:
        for q in range(s.length[0] - 1, at, -1):
            if net.device[q] == k and net.duration[q] > 0.0:
                last = q
                break
    if not _mark(net, at, y, first, last):
        return NOTHING, NOTHING
    for position in range(first, last + 1):
        net.saved[position] = s.sequence[position]
    place = first
    for marked in range(2):
        for q in range(first, last + 1):
            if q != at and net.marked[q] == (marked == 1):
                _put(s, net.saved[q], place)
                place += 1
        if marked == 0:
            _put(s, v, place)
            place += 1
    return first, last


@inner
def _mark(net: DisjunctiveGraph, at: int, edge: int, first: int, last: int) -> bool:
    """Mark the positions that have to come after the node; return False if one of them leads to it."""
    net.reached[:] = False
    net.marked[at] = False
    for q in range(first, last + 1):
        if q == at:
            continue
        takes = net.duration[q] > 0.0
        marked = q == edge or (takes and net.reached[net.device[q]])
        for x in range(net.pred_ptr[q], net.pred_ptr[q + 1]):
            p = net.pred[x]
            marked = marked or p == at or (p >= first and net.marked[p])
        net.marked[q] = marked
        if marked and takes:
            net.reached[net.device[q]] = True
    for x in range(net.pred_ptr[at], net.pred_ptr[at + 1]):
        if net.pred[x] >= first and net.marked[net.pred[x]]:
            return False
    return True


@inner
def restore(s: SearchState, net: DisjunctiveGraph, first: int, last: int) -> None:
    """Restore the sequence before `reorder`."""
    for q in range(first, last + 1):
        _put(s, net.saved[q], q)


@inner
def _put(s: SearchState, v: int, place: int) -> None:
    s.sequence[place] = v
    s.position[v] = place
