"""Numba kernels of search states and their evaluation: one sequence of batches over all devices.

The inputs of each co-location unit (a label's tasks, or one task) are cut into intervals, the
*slots*, each on a device; all members of a unit share its slots. A *node* is a task's batch for one
slot, number ``task * slots + slot``. The sequence lists all nodes, producers before consumers, and
is decoded by appending: each node starts as soon as its data have arrived and its device has
finished the nodes before it. Under contention, the transfers to a node are appended to their channel
or ports when the node is decoded, the earliest ready first. Every order of every device, and so every
semi-active schedule of such batches, is represented by some sequence.

A change is tried from the first position that it affects, with a limit on the makespan: `evaluate`,
then `commit` or `rollback`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import inner, kernel
from hetsched.problem.link_kernels import bytes_seconds, link_seconds, multiplier
from hetsched.problem.problem import ProblemArrays


class SearchData(NamedTuple):
    """Constants of a search."""

    arrays: ProblemArrays
    slots: int
    """S, the maximum number of batches of a task; if it is 1, the batch holds all inputs."""
    task: IntArray
    """[n * S]: the task of a node."""
    cell: IntArray
    """[n * S]: ``unit * S + slot`` of a node."""
    unit: IntArray
    """[n]"""
    member_ptr: IntArray
    members: IntArray
    """Tasks of each unit."""
    durations: FloatArray
    """[n, K, sizes]; inf where a batch cannot run."""
    whole: FloatArray
    """[n, K]: `durations` where there is one size, else [0, 0]."""
    size_of: IntArray
    """[L + 1]: index of a batch size on the last axis of `durations`, -1 if it is not supported."""
    pred_bytes: FloatArray
    """Bytes of an edge for all inputs, in the order of ``arrays.pred``."""
    succ_bytes: FloatArray
    """The same in the order of ``arrays.succ``."""
    tail: FloatArray
    """[n, K]: least seconds from a task's finish on a device to the makespan."""
    stride: int
    """Positions between two rows of ``SearchState.clock``."""
    choice_ptr: IntArray
    choices: IntArray
    """Devices on which each unit may run."""
    once: bool
    """Whether a device may run only one batch of a task."""
    timed: bool
    """Whether memory is limited and what a device holds depends on times."""
    resident: FloatArray
    """[units]: the most bytes held for each input, besides weights."""
    outputs: FloatArray
    """[n]: bytes of a task's output for one input."""
    inputs: FloatArray
    """[n]: bytes of the data that a task without producers reads for one input; 0 for others."""
    weight: FloatArray
    """[units]: bytes claimed once on each device of a unit."""
    activation: FloatArray
    """[units]: bytes claimed for each input."""
    capacity: FloatArray
    """[K] bytes, with a margin for rounding."""


class Trace(NamedTuple):
    """Times of a state's batches and of what devices exchange, as `record` writes them, and room for what devices hold."""

    begin: FloatArray
    """[M]: start of each node, in seconds."""
    arcs: IntArray
    """[T, 3]: edge, source node and target node of each pair of batches with common inputs, of which those on two devices are
    transfers; under contention in the order in which they are sent."""
    sent: FloatArray
    """[T, 2]: start and end of the transfer in seconds; the producer's finish twice if there is none."""
    release: FloatArray
    """[n * inputs], or [n] if a batch holds all inputs: seconds at which a device no longer needs a task's output."""
    spans: FloatArray
    """[X, 3]: the seconds from and to which bytes are held, and the bytes."""
    where: IntArray
    """[X]: the device that holds them."""
    keys: FloatArray
    items: IntArray
    """[2 X]: heaps of the spans by begin and by end."""
    held: FloatArray
    """[K] bytes at a time."""
    most: FloatArray
    """[K] bytes at any time."""


class SearchState(NamedTuple):
    """A sequence of at most M = n * S nodes and its times; changed in place."""

    sequence: IntArray
    """[M]"""
    position: IntArray
    """[M]: position of each node in the sequence, -1 for none."""
    length: IntArray
    """[2]: number of nodes in the sequence, and the position at which the last evaluation ended."""
    count: IntArray  # type: ignore[assignment]  # hides the method of tuples, which is not used
    """[units]: slots in use."""
    device: IntArray
    """[units * S]"""
    low: IntArray
    """[units * S]: first input of a slot."""
    high: IntArray
    """[units * S]: last input of a slot + 1."""
    used: FloatArray
    """[K]: bytes claimed."""
    finish: FloatArray
    """[M] seconds, as last committed."""
    trial: FloatArray
    """[M] seconds, as last evaluated."""
    tail: FloatArray
    """[M]: seconds from a node's start to the last finish of the nodes that wait for it, as last written by `tails`."""
    makespan: FloatArray
    """[2] seconds, as last committed, and as last evaluated."""
    clock: FloatArray
    """[rows, resources]: seconds at which each resource is free before every stride-th position: devices, under contention the
    resources of links, and in the last column the makespan so far."""
    trial_clock: FloatArray
    ready: FloatArray
    seconds: FloatArray
    producer: IntArray
    """Scratch: finish of the producers of one node, seconds of their transfers, and their
    (edge, node, device) rows."""
    now: FloatArray
    """Scratch: [resources]."""
    behind: FloatArray
    """Scratch: [K], tail of the next node on each device."""
    stale: BoolArray
    """Scratch: [K], whether this tail has changed."""
    marked: BoolArray
    """[M]: whether the tail of a node has to be computed; False between calls."""
    chain: IntArray
    """Scratch: [M] nodes."""
    trace: Trace
    """Scratch, shared by all states; empty unless transfers contend or memory is timed."""


@inner
def overlap(low: IntArray, high: IntArray, a: int, b: int) -> int:
    """Return the number of inputs that two cells have in common; 0 or less if there are none."""
    return int(min(high[a], high[b]) - max(low[a], low[b]))


@inner
def batch_duration(t: SearchData, i: int, k: int, count: int) -> float:
    """Return the seconds of a batch of task i on device k; inf if it cannot run."""
    place = t.size_of[count]
    return t.durations[i, k, place] if place >= 0 else np.inf


@inner
def _append_transfers(t: SearchData, s: SearchState, count: int, v: int, k: int, row: int) -> float:
    """Append the transfers to node v on device k, the earliest ready first; return the end of the last one in seconds.

    They are the first `count` rows of `ready`, `seconds` and `producer`, and are recorded from row `row` on unless it is negative.
    """
    resource, clock, ready, seconds, producer = t.arrays.links.resource, s.now, s.ready, s.seconds, s.producer
    last, size, target = 0.0, len(resource), np.uint64(k)
    for x in range(count):
        first = x  # selection sort, because there are few
        for y in range(x + 1, count):
            if ready[y] < ready[first]:
                first = y
        ready[x], ready[first] = ready[first], ready[x]
        seconds[x], seconds[first] = seconds[first], seconds[x]
        for z in range(3):
            producer[x, z], producer[first, z] = producer[first, z], producer[x, z]
        begin, source = ready[x], np.uint64(producer[x, 2])
        if seconds[x] > 0.0 and resource[source, target, 0] >= 0:
            one, other = np.uint64(size + resource[source, target, 0]), np.uint64(size + resource[source, target, 1])
            begin = max(ready[x], clock[one], clock[other])
            clock[one], clock[other] = begin + seconds[x], begin + seconds[x]
        if row >= 0:
            _record(s.trace, row + x, producer[x, 0], producer[x, 1], v, begin, begin + seconds[x])
        last = max(last, begin + seconds[x])
    return last


@inner
def _record(trace: Trace, row: int, edge: int, source: int, target: int, begin: float, end: float) -> None:
    trace.arcs[row, 0], trace.arcs[row, 1], trace.arcs[row, 2] = edge, source, target
    trace.sent[row, 0], trace.sent[row, 1] = begin, end


@inner
def _one_batch_each(t: SearchData, s: SearchState, row: int, touched: int, limit: float) -> tuple[float, int, int]:
    """Evaluate as `update` does if each task has one batch of all inputs and there is no contention.

    Within a device the latency is 0 and the bandwidth inf, so no branch for transfers is needed.
    """
    pred_ptr, pred, pred_bytes, succ_ptr, succ = t.arrays.pred_ptr, t.arrays.pred, t.pred_bytes, t.arrays.succ_ptr, t.arrays.succ
    latency, bandwidth, unit, durations, tail, stride = t.arrays.links.latency, t.arrays.links.bandwidth, t.unit, t.whole, t.tail, t.stride
    sequence, at, device, finish_before, known_tail, trial = s.sequence, s.position, s.device, s.finish, s.tail, s.trial
    clock, clock_before, trial_clock = s.now, s.clock, s.trial_clock
    last = len(clock) - 1
    makespan, before, length = clock[last], s.makespan[0], s.length[0]
    position, until_row = np.uint64(row * stride), 0
    one = np.uint64(1)
    end, settled, changed = np.uint64(length), np.uint64(touched + 1), np.uint64(touched + 1)
    while position < end:
        if until_row == 0:
            clock[last] = makespan
            if position >= settled and same(clock, clock_before[row]):
                return before, int(position), 0
            for r in range(last + 1):
                trial_clock[row, r] = clock[r]
            row += 1
            until_row = stride
        until_row -= 1
        i = np.uint64(sequence[position])
        position += one
        k = np.uint64(device[np.uint64(unit[i])])
        start = 0.0
        x, after = np.uint64(pred_ptr[i]), np.uint64(pred_ptr[i + one])
        while x < after:
            p = np.uint64(pred[x])
            h = np.uint64(device[np.uint64(unit[p])])
            start = max(start, trial[p] + (latency[h, k] + pred_bytes[x] / bandwidth[h, k]))
            x += one
        duration = durations[i, k]
        if duration > 0.0:
            start = max(start, clock[k])
            clock[k] = start + duration
        finish = start + duration
        if position <= changed or finish != finish_before[i]:
            x, after = np.uint64(succ_ptr[i]), np.uint64(succ_ptr[i + one])
            while x < after:
                settled = max(settled, np.uint64(at[succ[x]] + 1))
                x += one
        trial[i] = finish
        if not (finish + tail[i, k] if position <= changed else start + known_tail[i]) <= limit:
            return np.inf, int(position), 0
        makespan = max(makespan, finish)
    return makespan, length, 0


@inner
def same(clock: FloatArray, other: FloatArray) -> bool:
    """Return whether all resources are free at the same times."""
    for r in range(len(clock) - 1, -1, -1):
        if clock[r] != other[r]:
            return False
    return True


@inner
def _walk(t: SearchData, s: SearchState, first: int, touched: int, limit: float, records: bool) -> tuple[float, int, int]:
    """Evaluate as `update` does, and write the trace if `records`; also return the number of arcs written."""
    pred_ptr, pred, pred_edge = t.arrays.pred_ptr, t.arrays.pred, t.arrays.pred_edge
    links, contended = t.arrays.links, t.arrays.links.contended
    task, cell, unit, durations, size_of, tail = t.task, t.cell, t.unit, t.durations, t.size_of, t.tail
    slots, stride = t.slots, t.stride
    sequence, at, counts, device, low, high, trial = s.sequence, s.position, s.count, s.device, s.low, s.high, s.trial
    clock, trial_clock, length = s.now, s.trial_clock, s.length[0]
    row, last = first // stride, len(clock) - 1
    for r in range(last + 1):
        clock[r] = s.clock[row, r]
    if slots == 1 and not contended and not links.given and not records:
        return _one_batch_each(t, s, row, touched, limit)
    position, until_row, arcs = row * stride, 0, 0
    succ_ptr, succ, finish_before, clock_before, settled = t.arrays.succ_ptr, t.arrays.succ, s.finish, s.clock, touched + 1
    while position < length:
        if until_row == 0:
            if position >= settled and same(clock, clock_before[row]):
                return s.makespan[0], position, arcs
            for r in range(last + 1):
                trial_clock[row, r] = clock[r]
            row += 1
            until_row = stride
        until_row -= 1
        v = sequence[position]
        position += 1
        i, c = task[v], cell[v]
        k = device[c]
        start, found = 0.0, 0
        for x in range(pred_ptr[i], pred_ptr[i + 1]):
            p, e = pred[x], pred_edge[x]
            base = unit[p] * slots
            for slot in range(counts[unit[p]]):
                b, a = base + slot, p * slots + slot
                count = overlap(low, high, b, c)
                if count <= 0:
                    continue
                if at[a] >= position:
                    return np.inf, position, arcs
                h, done = device[b], trial[a]
                took = 0.0 if h == k else link_seconds(links, e, h, k, multiplier(links, count))
                if h == k or not contended:
                    start = max(start, done + took)
                    if records:
                        _record(s.trace, arcs, e, a, v, done, done + took)
                        arcs += 1
                else:
                    s.ready[found], s.seconds[found] = done, took
                    s.producer[found, 0], s.producer[found, 1], s.producer[found, 2] = e, a, h
                    found += 1
        if found > 0:
            end = _append_transfers(t, s, found, v, k, arcs if records else -1)
            start = max(start, end)
            arcs += found
        place = size_of[high[c] - low[c]]
        duration = durations[i, k, place] if place >= 0 else np.inf
        if duration > 0.0:
            start = max(start, clock[k])
            clock[k] = start + duration
        finish = start + duration
        if records:
            s.trace.begin[v] = start
        if position <= touched + 1 or finish != finish_before[v]:
            for x in range(succ_ptr[i], succ_ptr[i + 1]):
                for slot in range(counts[unit[succ[x]]]):
                    settled = max(settled, at[succ[x] * slots + slot] + 1)
        trial[v] = finish
        if not (finish + tail[i, k] if position <= touched + 1 or slots > 1 else start + s.tail[v]) <= limit:  # also for NaN
            return np.inf, position, arcs
        clock[last] = max(clock[last], finish)
    return clock[last], position, arcs


@kernel
def update(t: SearchData, s: SearchState, first: int, touched: int, limit: float) -> tuple[float, int]:
    """Evaluate the current sequence, which is unchanged before position `first` and after `touched`.

    Ends as soon as all times are equal to those before the change. Unless `touched` is after the last position, the
    tails have to be those of the sequence as last committed; they detect early that the limit will be exceeded.

    Returns
    -------
    makespan : float
        inf if it exceeds `limit`, or if a node precedes a producer, has no finite duration, or no path
        for its data.
    end : int
        The position at which the evaluation ended, an argument of `rollback`.
    """
    makespan, end, _ = _walk(t, s, first, touched, limit, False)
    s.makespan[1], s.length[1] = makespan, end
    return makespan, end


@kernel
def evaluate(t: SearchData, s: SearchState, first: int, limit: float) -> tuple[float, int]:
    """Evaluate the current sequence from position `first` to the end, see `update`."""
    return update(t, s, first, s.length[0], limit)


@kernel
def record(t: SearchData, s: SearchState) -> int:
    """Write the trace of the current sequence as last evaluated; return the number of arcs."""
    _, _, arcs = _walk(t, s, 0, s.length[0], np.inf, True)
    return arcs


@kernel
def commit(t: SearchData, s: SearchState, first: int) -> None:
    """Make the last evaluation, from position `first` on, the committed one."""
    sequence, finish, trial, clock, trial_clock, end = s.sequence, s.finish, s.trial, s.clock, s.trial_clock, s.length[1]
    row = first // t.stride
    for position in range(row * t.stride, end):
        v = sequence[position]
        finish[v] = trial[v]
    for x in range(row + 1, (end + t.stride - 1) // t.stride):
        for r in range(clock.shape[1]):
            clock[x, r] = trial_clock[x, r]
    s.makespan[0] = s.makespan[1]


@inner
def tails(t: SearchData, s: SearchState, first: int, last: int) -> None:
    """Write the tails of the current sequence, which is unchanged before position `first` and after `last`.

    The next node on a device waits for the previous one; waits for contended transfers are ignored. Nothing is written if
    tasks may have several batches.
    """
    if t.slots == 1:
        _tails_of_one_batch_each(t, s, first, min(last + 1, s.length[0]))


@inner
def _tails_of_one_batch_each(t: SearchData, s: SearchState, first: int, above: int) -> None:
    """Write tails from position `above` - 1 down until no further tail changes."""
    succ_ptr, succ, succ_edge, succ_bytes = t.arrays.succ_ptr, t.arrays.succ, t.arrays.succ_edge, t.succ_bytes
    pred_ptr, pred, links, unit, durations = t.arrays.pred_ptr, t.arrays.pred, t.arrays.links, t.unit, t.whole
    sequence, device, tail, behind, stale, marked, length = s.sequence, s.device, s.tail, s.behind, s.stale, s.marked, s.length[0]
    one, waiting = np.uint64(1), len(stale)
    behind[:] = 0.0
    stale[:] = True
    position = np.uint64(above)
    while waiting > 0 and position < np.uint64(length):
        i = np.uint64(sequence[position])
        k = np.uint64(device[np.uint64(unit[i])])
        if stale[k] and durations[i, k] > 0.0:
            behind[k], stale[k] = tail[i], False
            waiting -= 1
        position += one
    stale[:] = True
    waiting = len(stale)
    position, unchanged = np.uint64(above), np.uint64(first)
    while position > 0 and (waiting > 0 or position > unchanged):
        position -= one
        i = np.uint64(sequence[position])
        k = np.uint64(device[np.uint64(unit[i])])
        duration = durations[i, k]
        takes = duration > 0.0
        if position < unchanged and not marked[i] and not (takes and stale[k]):
            if takes:
                behind[k] = tail[i]
            continue
        longest = behind[k] if takes else 0.0
        x, after = np.uint64(succ_ptr[i]), np.uint64(succ_ptr[i + one])
        while x < after:
            j = np.uint64(succ[x])
            h = np.uint64(device[np.uint64(unit[j])])
            if links.given:
                took = links.transfers[np.uint64(succ_edge[x]), k, h]
            else:
                took = bytes_seconds(links, succ_bytes[x], np.int64(k), np.int64(h))  # type: ignore[arg-type]  # one signature
            longest = max(longest, took + tail[j])
            x += one
        if marked[i]:
            marked[i] = False
            waiting -= 1
        longest += duration
        changed = longest != tail[i]
        tail[i] = longest
        if takes:
            behind[k] = longest
        if position < unchanged:
            if takes and stale[k] != changed:
                stale[k] = changed
                waiting += 1 if changed else -1
            if not changed:
                continue
        x, after = np.uint64(pred_ptr[i]), np.uint64(pred_ptr[i + one])
        while x < after:
            p = np.uint64(pred[x])
            waiting += 0 if marked[p] else 1
            marked[p] = True
            x += one


@kernel
def rollback(t: SearchData, s: SearchState, first: int, end: int) -> None:
    """Discard the last evaluation; to be called before the change of the sequence is undone."""
    sequence, finish, trial = s.sequence, s.finish, s.trial
    for position in range(first // t.stride * t.stride, end):
        v = sequence[position]
        trial[v] = finish[v]


@kernel
def copy(source: SearchState, target: SearchState) -> None:
    """Copy the decision of a state without its times."""
    target.length[0] = source.length[0]
    for x in range(len(source.sequence)):  # slice assignments would create arrays
        target.sequence[x], target.position[x] = source.sequence[x], source.position[x]
    for x in range(len(source.device)):
        target.device[x], target.low[x], target.high[x] = source.device[x], source.low[x], source.high[x]
    for x in range(len(source.count)):
        target.count[x] = source.count[x]
    for x in range(len(source.used)):
        target.used[x] = source.used[x]


@inner
def window(t: SearchData, s: SearchState, v: int) -> tuple[int, int]:
    """Return the first and last position to which node v can move without crossing a producer or consumer."""
    unit, slots, at, counts, low, high = t.unit, t.slots, s.position, s.count, s.low, s.high
    i, c = t.task[v], t.cell[v]
    first, last = 0, s.length[0] - 1
    pred_ptr, pred, succ_ptr, succ = t.arrays.pred_ptr, t.arrays.pred, t.arrays.succ_ptr, t.arrays.succ
    for x in range(pred_ptr[i], pred_ptr[i + 1]):
        p = pred[x]
        for slot in range(counts[unit[p]]):
            if overlap(low, high, unit[p] * slots + slot, c) > 0:
                first = max(first, at[p * slots + slot] + 1)
    for x in range(succ_ptr[i], succ_ptr[i + 1]):
        p = succ[x]
        for slot in range(counts[unit[p]]):
            if overlap(low, high, unit[p] * slots + slot, c) > 0:
                last = min(last, at[p * slots + slot] - 1)
    return first, last
