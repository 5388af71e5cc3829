"""Numba kernels of the bytes by which a search state exceeds the memory.

Static memory follows from the claims of the units. Under ``peak`` memory the sequence is decoded once more, with a trace of all times;
from it follow the spans of time in which each device holds outputs, transferred tensors and inputs, as in ``hetsched.schedule.memory``.
"""

from __future__ import annotations

import numpy as np

from hetsched import heap_kernels
from hetsched.compiled import inner, kernel
from hetsched.heuristics.local_search import edit_kernels, state_kernels
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState, Trace, overlap


@kernel
def excess(t: SearchData, s: SearchState) -> float:
    """Return the bytes over capacity of a state as last evaluated, summed over devices."""
    if not t.timed:
        return edit_kernels.excess(t, s)
    if _always_fits(t, s):
        return 0.0
    _sweep(s.trace, _outputs(t, s, _exchanges(t, s, state_kernels.record(t, s))))
    total = 0.0
    for k in range(len(s.used)):
        total += max(0.0, s.used[k] + s.trace.most[k] - t.capacity[k])
    return total


@inner
def _always_fits(t: SearchData, s: SearchState) -> bool:
    """Return whether every device could hold all its data at the same time."""
    most = s.trace.most
    for k in range(len(most)):
        most[k] = s.used[k]
    for u in range(len(s.count)):
        for c in range(u * t.slots, u * t.slots + s.count[u]):
            most[s.device[c]] += t.resident[u] * (s.high[c] - s.low[c])
    for k in range(len(most)):
        if most[k] > t.capacity[k]:
            return False
    return True


@inner
def cost(t: SearchData, s: SearchState, makespan: float, pressure: float) -> float:
    """Return the makespan, under ``peak`` memory plus `pressure` seconds for each byte over capacity."""
    return makespan + pressure * excess(t, s) if t.timed and makespan < np.inf else makespan


@inner
def _hold(trace: Trace, count: int, k: int, begin: float, end: float, size: float) -> int:
    """Append a span unless it is empty; return the number of spans."""
    if end <= begin or size <= 0.0:
        return count
    trace.where[count] = k
    trace.spans[count, 0], trace.spans[count, 1], trace.spans[count, 2] = begin, end, size
    return count + 1


@inner
def _exchanges(t: SearchData, s: SearchState, arcs: int) -> int:
    """Write when outputs are released, and the spans of transferred tensors; return their number."""
    trace, finish, device, low, high, release = s.trace, s.trial, s.device, s.low, s.high, s.trace.release
    succ_ptr, width, edge_bytes = t.arrays.succ_ptr, len(release) // len(t.unit), t.arrays.links.edge_bytes
    makespan, count = s.now[len(s.now) - 1], 0
    for position in range(s.length[0]):
        v = s.sequence[position]
        i, c = t.task[v], t.cell[v]
        for item in range(low[c] if width > 1 else 0, high[c] if width > 1 else 1):
            release[i * width + item] = finish[v] if succ_ptr[i + 1] > succ_ptr[i] else makespan
    for x in range(arcs):
        e, a, v = trace.arcs[x, 0], trace.arcs[x, 1], trace.arcs[x, 2]
        b, c = t.cell[a], t.cell[v]
        until = finish[v]
        if device[b] != device[c]:
            count = _hold(trace, count, device[c], trace.sent[x, 0], until, edge_bytes[e] * overlap(low, high, b, c))
            until = trace.sent[x, 1]
        first, last = (max(low[b], low[c]), min(high[b], high[c])) if width > 1 else (0, 1)
        for item in range(t.task[a] * width + first, t.task[a] * width + last):
            release[item] = max(release[item], until)
    return count


@inner
def _outputs(t: SearchData, s: SearchState, count: int) -> int:
    """Append the spans of outputs, and of the inputs of tasks without producers, to `count` spans; return their number."""
    trace, low, high = s.trace, s.low, s.high
    width = len(trace.release) // len(t.unit)
    for position in range(s.length[0]):
        v = s.sequence[position]
        i, c = t.task[v], t.cell[v]
        k, size = s.device[c], high[c] - low[c]
        count = _hold(trace, count, k, 0.0, s.trial[v], t.inputs[i] * size)
        if width == 1:
            count = _hold(trace, count, k, trace.begin[v], trace.release[i], t.outputs[i] * size)
        else:
            for item in range(low[c], high[c]):
                count = _hold(trace, count, k, trace.begin[v], trace.release[i * width + item], t.outputs[i])
    return count


@inner
def _sweep(trace: Trace, count: int) -> None:
    """Write the most bytes that each device holds at a time; what ends at a time is released before what begins then."""
    spans, where, held, most, keys, items = trace.spans, trace.where, trace.held, trace.most, trace.keys, trace.items
    held[:], most[:] = 0.0, 0.0
    future, present, base = 0, 0, len(where)
    for x in range(count):
        future = heap_kernels.push(keys, items, 0, future, spans[x, 0], x)
    while future > 0:
        x, now = items[0], keys[0]
        future = heap_kernels.pop(keys, items, 0, future)
        while present > 0 and keys[base] <= now:
            held[where[items[base]]] -= spans[items[base], 2]
            present = heap_kernels.pop(keys, items, base, present)
        present = heap_kernels.push(keys, items, base, present, spans[x, 1], x)
        held[where[x]] += spans[x, 2]
        most[where[x]] = max(most[where[x]], held[where[x]])
