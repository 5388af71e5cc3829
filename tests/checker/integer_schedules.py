"""All schedules of a small relaxed instance, in whole units of time, by enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple


class IntegerSchedule(NamedTuple):
    """A device and a start for each task."""

    device: tuple[int, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]


def schedules(instance: Any, end: int) -> Iterator[IntegerSchedule]:
    """Yield every schedule in which all tasks end before `end`."""
    problem = instance.problem
    n, size = problem.tasks, problem.devices
    for own in itertools.product(*instance.devices):
        device = [own[u] for u in problem.unit]
        used = [sum(sum(instance.bits[i]) for i in range(n) if device[i] == k) for k in range(size)]
        if any(room is not None and bits > room for bits, room in zip(used, instance.capacity, strict=True)):
            continue
        lengths = [instance.p[i * size + device[i]] for i in range(n)]
        yield from _starts(instance, device, lengths, end)


def _starts(instance: Any, device: list[int], lengths: list[int], end: int) -> Iterator[IntegerSchedule]:
    order, start = instance.problem.order, [0] * len(device)

    def extend(x: int) -> Iterator[IntegerSchedule]:
        if x == len(order):
            yield IntegerSchedule(tuple(device), tuple(start), tuple(s + p for s, p in zip(start, lengths, strict=True)))
            return
        j = order[x]
        least = max((start[i] + lengths[i] + instance.c[e][device[i]][device[j]] for i, e in instance.parents[j]), default=0)
        for begin in range(least, end - lengths[j]):
            done = [i for i in order[:x] if device[i] == device[j] and lengths[i] and lengths[j]]
            if all(begin + lengths[j] <= start[i] or start[i] + lengths[i] <= begin for i in done):
                start[j] = begin
                yield from extend(x + 1)

    return extend(0)


def broken(state: Any, schedule: IntegerSchedule, begin: int = 0, horizon: int | None = None) -> str:
    """Return which constraint of a state a schedule does not satisfy, or ""; by default up to its own last end."""
    horizon = max(schedule.end, default=0) if horizon is None else horizon
    for i in state.tasks:
        k, x = schedule.device[i], i * state.size + schedule.device[i]
        if k not in state.devices[state.unit[i]]:
            return f"device {k} of task {i}"
        if schedule.start[i] - begin < state.head[x]:
            return f"head {state.head[x]} of task {i} on device {k}"
        if horizon - schedule.end[i] < state.tail[x]:
            return f"tail {state.tail[x]} of task {i} on device {k}"
        for j in state.tasks:
            if state.after[i] >> j & 1 and schedule.end[i] > schedule.start[j]:
                return f"the order of tasks {i} and {j}"
            if state.before[j] >> i & 1 and schedule.end[i] > schedule.start[j]:
                return f"the order of tasks {i} and {j}"
    return state.contradiction
