"""Schedules as traces for Perfetto (ui.perfetto.dev) and chrome://tracing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from os import PathLike
from typing import Any

import msgspec
import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.documents import TOGETHER, extend, write_bytes
from hetsched.errors import UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.report.tables import batch_table, schedule_of
from hetsched.schedule import memory
from hetsched.schedule.schedule import Schedule
from hetsched.search.solution import Solution

DEVICES, CHANNELS = 1, 2  # process numbers
FIRST_TRACK = 1000  # thread numbers, devices first: 0 and the numbers of processes have another meaning in viewers
LONGEST = 1e9  # seconds


@checked
def chrome_trace(problem: Problem, answer: Schedule | Solution) -> dict[str, Any]:
    """Return a schedule in the Trace Event Format, to be written as JSON.

    Devices are the tracks of one process, channels those of another; a channel without contention
    has several tracks of its name if its transfers overlap. Arrows connect producer, transfer and
    consumer; counters show the bytes held by each device over time. A second of the schedule is a
    second of the trace, rounded to nanoseconds, the resolution of viewers.

    Parameters
    ----------
    problem : Problem
    answer : Schedule or Solution
        It must have all transfers that its batches need.

    Raises
    ------
    InvalidSchedule
        The transfers are not those that its batches need.
    UnsupportedFeature
        The makespan, or a time, is beyond 1e9 s or not finite.
    """
    events, rest = _contents(problem, schedule_of(problem, answer))
    return {"traceEvents": list(events), **rest}


@checked
def write_trace(problem: Problem, answer: Schedule | Solution, path: str | PathLike[str]) -> None:
    """Write `chrome_trace` as JSON; open the file in ui.perfetto.dev or chrome://tracing."""
    events, rest = _contents(problem, schedule_of(problem, answer))
    text = bytearray(b'{"traceEvents":')
    extend(text, iter(lambda: list(itertools.islice(events, TOGETHER)), []))  # all events of a million tasks would take 8 GB
    text += b"," + msgspec.json.encode(rest)[1:]
    write_bytes(text, path)


def _contents(problem: Problem, schedule: Schedule) -> tuple[Iterator[dict[str, Any]], dict[str, Any]]:
    """Return the events of a trace, and its other fields."""
    batches, moves = schedule.batches, schedule.transfers
    times = np.concatenate([[schedule.makespan], batches.start, batches.finish, moves.start, moves.finish])
    beyond = times[~(np.abs(times) <= LONGEST)]
    if len(beyond):
        raise UnsupportedFeature(f"a trace holds at most {LONGEST:g} s, not {beyond[0]:g} s; give durations in a larger unit")
    events = itertools.chain(_tracks(schedule), _batches(problem, schedule), _transfers(problem, schedule), _memory(problem, schedule))
    return events, {"displayTimeUnit": "ns", "otherData": {"makespan_s": schedule.makespan}}


def _clock(times: FloatArray) -> list[int]:
    """Return times in whole nanoseconds, so that adjacent intervals do not overlap."""
    rounded: list[int] = np.round(np.asarray(times, np.float64) * 1e9).astype(np.int64).tolist()
    return rounded


def _microseconds(nanoseconds: int) -> float:
    """Return the number of microseconds that a viewer which truncates, such as Perfetto, reads as `nanoseconds`."""
    return (nanoseconds + 0.25) / 1e3


def _at(time: int) -> dict[str, float]:
    return {"ts": _microseconds(time)}


def _span(begin: int, end: int) -> dict[str, float]:
    return {"ts": _microseconds(begin), "dur": _microseconds(end - begin)}


def _name(process: int, what: str, name: str, thread: int = 0) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}}


def _tracks(schedule: Schedule) -> Iterator[dict[str, Any]]:
    yield _name(DEVICES, "process_name", "devices")
    for k, device in enumerate(schedule.devices):
        yield _name(DEVICES, "thread_name", device, FIRST_TRACK + k)


def _batches(problem: Problem, schedule: Schedule) -> Iterator[dict[str, Any]]:
    batches = schedule.batches
    times = zip(batches.device.tolist(), _clock(batches.start), _clock(batches.finish), strict=True)
    for row, (k, begin, end) in zip(batch_table(problem, schedule), times, strict=True):
        yield {
            "ph": "X",
            "pid": DEVICES,
            "tid": FIRST_TRACK + k,
            **_span(begin, end),
            "name": row["task"],
            "cat": row["op"] or "task",
            "args": {"op": row["op"], "module": row["module"], "inputs": row["inputs"], "batch": row["size"]},
        }


def _transfers(problem: Problem, schedule: Schedule) -> Iterator[dict[str, Any]]:
    moves, batches = schedule.transfers, schedule.batches
    if not len(moves):
        return
    yield _name(CHANNELS, "process_name", "channels")
    size, names = len(schedule.devices), schedule.tasks
    source, target = moves.source.astype(np.int64), moves.target.astype(np.int64)
    h, k = batches.device[source], batches.device[target]
    lane = lanes(h * size + k, moves.start, moves.finish)
    tracks, track = np.unique(np.column_stack([h, k, lane]), axis=0, return_inverse=True)
    for thread, (a, b, nth) in enumerate(tracks.tolist()):
        name = f"{schedule.devices[a]} -> {schedule.devices[b]}" + (f" ({nth + 1})" if nth else "")
        yield _name(CHANNELS, "thread_name", name, FIRST_TRACK + size + thread)
    amount = problem.graph.edge_bytes[moves.edge.astype(np.int64)].tolist()
    produced, begun, ended, consumed = map(_clock, (batches.finish[source], moves.start, moves.finish, batches.start[target]))
    tasks = [[names[i] for i in batches.task[end].tolist()] for end in (source, target)]
    for x, thread in enumerate(track.ravel().tolist()):
        where = {"pid": CHANNELS, "tid": FIRST_TRACK + size + thread}
        yield {
            "ph": "X",
            **where,
            **_span(begun[x], ended[x]),
            "name": tasks[0][x],
            "cat": "transfer",
            "args": {"to": tasks[1][x], "bytes for one input": amount[x]},
        }
        out = {"pid": DEVICES, "tid": FIRST_TRACK + int(h[x]), **_at(produced[x])}
        into = {"pid": DEVICES, "tid": FIRST_TRACK + int(k[x]), **_at(consumed[x])}
        for leg, (tail, head) in enumerate(((out, {**where, **_at(begun[x])}), ({**where, **_at(ended[x])}, into))):
            arrow = {"id": 2 * x + leg, "name": "data", "cat": "data"}
            yield {"ph": "s", **tail, **arrow}
            yield {"ph": "f", "bp": "e", **head, **arrow}


def _memory(problem: Problem, schedule: Schedule) -> Iterator[dict[str, Any]]:
    profile = memory.profile(problem, schedule)
    for row, time in zip(profile, _clock(profile.time), strict=True):
        name = f"memory of {schedule.devices[row['device']]}"
        yield {"ph": "C", "pid": DEVICES, **_at(time), "name": name, "args": {"bytes": row["bytes"]}}


def lanes(resource: IntArray, start: FloatArray, finish: FloatArray) -> IntArray:
    """Return a lane for each interval, the lowest in which it overlaps no other interval of its resource."""
    lane = np.zeros(len(start), np.int64)
    until: dict[int, list[float]] = {}
    for x in np.lexsort((finish, start)).tolist():
        ends = until.setdefault(int(resource[x]), [])
        free = next((n for n, end in enumerate(ends) if end <= start[x]), len(ends))
        ends[free : free + 1] = [float(finish[x])]
        lane[x] = free
    return lane
