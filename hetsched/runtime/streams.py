"""Steps of devices whose work is enqueued on streams, and of hand-offs between them and threads of the CPU.

A value that is handed on carries an event. The thread of its producer records it before it releases the lock of the hand-off, and that
of its consumer lets its stream wait for it after it has taken the lock: a wait for an event that has not been recorded has no effect.
"""

from __future__ import annotations

import threading
import time
from _thread import LockType
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hetsched.errors import UnsupportedFeature
from hetsched.runtime import accelerator as accelerators
from hetsched.runtime.accelerator import WARM_UPS, Accelerator, Event, captured
from hetsched.runtime.code import Compiled, Function
from hetsched.runtime.places import Place

if TYPE_CHECKING:
    from hetsched.runtime.team import Turn

Until = Callable[[], bool] | None
"""Returns whether a device of a stream of inputs should look for other work; None: it waits."""
WAITED = 5e-6
"""Seconds between two events around a wait of a stream from which on it has waited."""


class Stopped(Exception):
    """The run has been aborted."""


class Queues:
    """The streams of a device in an executor: one for its tasks, one for copies in each direction, and one of the calling thread.

    Parameters
    ----------
    accelerator : Accelerator
    buffers : Buffers
        Pinned memory for copies between its memory and the host's.
    """

    def __init__(self, accelerator: Accelerator, buffers: Buffers) -> None:
        self.accelerator, self.buffers = accelerator, buffers
        self.compute, self.incoming, self.outgoing, self.calling = (accelerator.stream() for _ in range(4))
        self.functions: Mapping[int, Function] = {}
        """The tasks of the device, whose constants are on it."""
        self.graphs = False
        """Whether consecutive tasks are enqueued as graphs."""
        self.segments: dict[tuple[int, ...], Segment] = {}
        """Graphs of consecutive tasks, by their batches."""
        self.pool: Any = None
        """Memory of the graphs."""

    def load(self, compiled: Compiled, tasks: Iterable[int]) -> None:
        """Copy the constants of tasks to the device; raise `UnsupportedFeature` if it lacks an operator."""
        tasks = list(tasks)
        for i in tasks:
            lacking = next((step.target for step in compiled.steps[i] if self.accelerator.lacks(step.target)), None)
            if lacking is not None:
                raise UnsupportedFeature(
                    f"task {compiled.program.graph.names[i]!r} calls {lacking}, which {self.accelerator.device} cannot; place it on the CPU"
                )
        self.functions = compiled.copied(tasks, self.put, self.accelerator.device)

    def follow(self) -> None:
        """Let the tasks wait for the work of the calling thread's current stream, such as making weights."""
        event = self.accelerator.event()
        event.record(None)
        self.compute.wait_event(event)

    def synchronise(self) -> None:
        """Wait until the tasks so far are done."""
        event = self.accelerator.event()
        event.record(self.compute)
        event.synchronize()

    def put(self, value: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor on the device for its tasks, in the calling thread."""
        with self.accelerator.on(self.calling):
            made = self.accelerator.put(value)
        self.accelerator.record_stream(made, self.compute)
        return made

    def get(self, value: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor in memory of the host, in the calling thread after the device's work."""
        with self.accelerator.on(self.calling):
            return self.accelerator.get(value)


class Buffers:
    """Pinned memory by size; a buffer is used again when the copy from it is done.

    Parameters
    ----------
    make : callable
        Returns a new buffer of so many bytes.
    """

    def __init__(self, make: Callable[[int], torch.Tensor]) -> None:
        self._make, self._guard = make, threading.Lock()
        self._free: dict[int, deque[tuple[torch.Tensor, Event | None]]] = defaultdict(deque)

    def fill(self, sizes: Iterable[int]) -> None:
        """Make buffers of these numbers of bytes."""
        for size in sizes:
            self._free[size].append((self._make(size), None))

    def take(self, size: int) -> torch.Tensor:
        """Return a buffer that no copy uses.

        If there is none it makes one: a copy that is not done may be behind a wait for what the calling thread does next.
        """
        with self._guard:
            free = self._free[size]
            if free and (free[0][1] is None or free[0][1].query()):
                return free.popleft()[0]
        return self._make(size)

    def give(self, buffer: torch.Tensor, event: Event) -> None:
        """Put back a buffer that is in use until an event."""
        with self._guard:
            self._free[buffer.numel()].append((buffer, event))


def size_of(value: torch.Tensor) -> int:
    """Return the bytes of a tensor's numbers."""
    return value.numel() * value.element_size()


def shaped(buffer: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return a buffer as a tensor of the type and shape of another one, and with its strides if they leave no gaps."""
    return buffer.view(value.dtype).as_strided(value.shape, torch.empty_like(value, device="meta").stride())


class Timer:
    """Events of one run on a device that keep times, and the clock of the host at its begin and end, by which they are converted.

    Attributes
    ----------
    error : float
        Seconds by which the two clocks may differ.
    """

    def __init__(self, queues: Queues) -> None:
        self._queues, self.error = queues, 0.0
        self._ends: list[tuple[Event, int]] = []
        self._marks: list[tuple[list[int], int, Event]] = []
        self._spans: list[tuple[list[int], int, Event, Event]] = []
        self._seen: list[tuple[list[int], int, Event, Event]] = []
        self._waits: list[tuple[Event, Event]] = []

    def synchronise(self) -> None:
        """Read both clocks, at the begin and at the end of a run."""
        before = time.perf_counter_ns()
        event = self.event()
        event.synchronize()
        now = time.perf_counter_ns()
        self.error = max(self.error, (now - before) / 1e9)
        self._ends.append((event, now))

    def event(self) -> Event:
        """Return an event behind the tasks so far."""
        made = self._queues.accelerator.event(timing=True)
        made.record(self._queues.compute)
        return made

    def mark(self, column: list[int], row: int, event: Event | None = None) -> None:
        """Enter the time of an event, by default behind the tasks so far, in a column of the run's times."""
        self._marks.append((column, row, event or self.event()))

    def span(self, column: list[int], row: int, begin: Event) -> None:
        """Add the time from an event until the end of the tasks so far to a row of a column."""
        self._spans.append((column, row, begin, self.event()))

    def wait(self, column: list[int], row: int, begin: Event) -> None:
        """Enter the time behind a wait of the device that began at an event, if it did wait."""
        end = self.event()
        self._seen.append((column, row, begin, end))
        self._waits.append((begin, end))

    def waits(self, column: list[int], row: int) -> None:
        """Add the waits since the last call to a row of a column."""
        self._spans += [(column, row, begin, end) for begin, end in self._waits]
        self._waits.clear()

    def resolve(self) -> None:
        """Enter all times, after the second `synchronise`."""
        if len(self._ends) < 2:
            return
        (first, begin), (last, end) = self._ends
        length = first.elapsed_time(last)
        scale = (end - begin) / length if length > 0 else 1e6

        def at(event: Event) -> int:
            return begin + round(scale * first.elapsed_time(event))

        for column, row, event in self._marks:
            column[row] = at(event)
        for column, row, since, event in self._spans:
            column[row] = max(column[row], 0) + at(event) - at(since)
        for column, row, since, event in self._seen:
            if at(event) - at(since) > 1e9 * WAITED:
                column[row] = at(event)


# ---------------------------------------------------------------------- steps
# Each is called with the turn and `until`, and returns the nanoseconds that its device has waited, or None if it has to be called again.


@dataclass
class Begin:
    """Read the clocks of a device."""

    k: int

    def __call__(self, turn: Turn, until: Until) -> int | None:
        timer = turn.timers[self.k]
        if timer is not None:
            timer.synchronise()
        return 0


@dataclass
class Enqueue:
    """Enqueue a task, and release values before."""

    function: Function
    works: bool
    k: int
    batch: int
    dead: tuple[tuple[int, int], ...]
    group: int

    def __call__(self, turn: Turn, until: Until) -> int | None:
        if turn.stop:
            raise Stopped
        if until is not None and until():
            return None
        own, timer = turn.registers[self.k], turn.timers[self.k]
        if timer is not None:
            turn.waited[self.batch] = 0
            timer.waits(turn.waited, self.batch)
            timer.mark(turn.start, self.batch)
        for value, group in self.dead:
            own[group][value] = None
        self.function(own[self.group])
        if timer is not None:
            timer.mark(turn.finish, self.batch)
        return 0


@dataclass
class Join:
    """Enqueue putting a value together from those of several batches."""

    function: Callable[[Any], torch.Tensor]
    k: int
    value: int
    batch: int
    group: int

    def __call__(self, turn: Turn, until: Until) -> int | None:
        timer = turn.timers[self.k]
        begin = None if timer is None else timer.event()
        turn.registers[self.k][self.group][self.value] = self.function(turn.registers)
        if timer is not None and begin is not None:
            timer.span(turn.gathered, self.batch, begin)
        return 0


class Segment:
    """Tasks of a device between two hand-offs, enqueued as one graph. Their values have memory of their own, the same in each run."""

    def __init__(self, steps: Sequence[Enqueue | Join], k: int, queues: Queues) -> None:
        self.steps, self.k, self.queues = tuple(steps), k, queues
        self._replay: Callable[[], None] | None = None
        self._given: list[tuple[int, int, torch.Tensor]] = []
        self._made: list[tuple[int, int, Any]] = []

    def capture(self, turn: Turn) -> None:
        """Capture the tasks; the registers of the turn have the memory that they are to read, and get that which they write."""
        own, k = turn.registers[self.k], self.k
        self._given = [(g, r, value) for g, box in enumerate(own) for r, value in enumerate(box) if isinstance(value, torch.Tensor)]

        def run() -> list[list[Any]]:
            turn.registers[k] = [list(box) for box in own]
            for step in self.steps:
                step(turn, None)
            return turn.registers[k]

        try:
            self._replay, boxes = captured(self.queues.accelerator, run, WARM_UPS, self.queues.pool, self.queues.calling)
        finally:
            turn.registers[k] = own
        self._made = [
            (g, r, value) for g, box in enumerate(boxes) for r, value in enumerate(box) if value is not None and own[g][r] is None
        ]
        for g, r, value in self._made:
            own[g][r] = value

    def __call__(self, turn: Turn, until: Until) -> int | None:
        if turn.stop:
            raise Stopped
        if until is not None and until():
            return None
        assert self._replay is not None
        own = turn.registers[self.k]
        for g, r, there in self._given:
            value = own[g][r]
            if value is not None and value is not there:
                self.queues.accelerator.copy(there, value)
                own[g][r] = there
        self._replay()
        for g, r, value in self._made:
            own[g][r] = value
        return 0


def segmented(steps: Sequence[Any], call: int, k: int, queues: Queues) -> list[Any]:
    """Return the steps of a device with consecutive tasks as one step of kind `call`."""
    made: list[Any] = []
    tasks: list[Enqueue | Join] = []

    def end() -> None:
        if any(isinstance(task, Join) or task.works for task in tasks):
            key = tuple(task.batch if isinstance(task, Enqueue) else -1 - task.value for task in tasks)
            segment = queues.segments.setdefault(key, Segment(tasks, k, queues))
            made.append((call, segment, 0, 0, 0, 0))
        tasks.clear()

    for step in steps:
        if isinstance(step[1], Enqueue | Join):
            tasks.append(step[1])
        else:
            end()
            made.append(step)
    end()
    return made


@dataclass
class Finish:
    """Wait until a device has done its tasks."""

    k: int
    queues: Queues

    def __call__(self, turn: Turn, until: Until) -> int | None:
        end, timer = turn.ends[self.k], turn.timers[self.k]
        if end is None:
            end = turn.ends[self.k] = self.queues.accelerator.event()
            end.record(self.queues.compute)
        if until is None:
            end.synchronize()
        elif not end.query():
            turn.polls[self.k] = True
            return None
        if timer is not None:
            timer.synchronise()
        return 0


@dataclass
class Synchronise:
    """Wait until a device has done its tasks so far."""

    queues: Queues

    def __call__(self, turn: Turn, until: Until) -> int | None:
        self.queues.synchronise()
        return 0


@dataclass
class Handoff:
    """What becomes of a value between two devices, at least one of which has streams: k and `to`, with the queues of each or None.

    On its way the register of its receiver has the tensor that is copied there or read, and the event from which on that is possible;
    where the host has written it, its pinned buffer.
    """

    value: int
    group: int
    k: int
    to: int
    source: Queues | None
    target: Queues | None
    _own: torch.Tensor | None = None
    """The pinned buffer for copies to the host. The value stays in it until the end of the run, whose results are copied."""

    def send(self, turn: Turn) -> Event | None:
        """Begin to send the value; return the event behind its producer if that has streams."""
        value: torch.Tensor = turn.registers[self.k][self.group][self.value]
        box = turn.registers[self.to][self.group]
        if self.source is None:
            assert self.target is not None
            buffer = self.target.buffers.take(size_of(value))
            written = shaped(buffer, value)
            written.copy_(value)
            box[self.value] = written, buffer
            return None
        accelerator, timer = self.source.accelerator, turn.timers[self.k]
        ready = accelerator.event() if timer is None else accelerator.event(timing=True)
        ready.record(self.source.compute)
        if self.target is not None:
            box[self.value] = value, ready
            return ready
        if self._own is None or self._own.numel() != size_of(value):
            self._own = self.source.buffers.take(size_of(value))
        there = shaped(self._own, value)
        with accelerator.on(self.source.outgoing):
            self.source.outgoing.wait_event(ready)
            accelerator.copy(there, value)
        accelerator.record_stream(value, self.source.outgoing)
        done = accelerator.event()
        done.record(self.source.outgoing)
        box[self.value] = there, done
        return ready

    def receive(self, turn: Turn) -> None:
        """Let the receiver go on with the value: a device when it has been copied, the host at once."""
        box = turn.registers[self.to][self.group]
        given, other = box[self.value]
        if self.target is None:
            other.synchronize()
            box[self.value] = given.clone() if turn.copies else given
            return
        accelerator, streams = self.target.accelerator, self.target
        if self.source is None:
            with accelerator.on(streams.incoming):
                made = accelerator.empty_like(given)
                accelerator.copy(made, given)
        else:
            same = self.source.accelerator.device == accelerator.device
            reader = streams.incoming if same else self.source.outgoing
            reader.wait_event(other)
            with self.source.accelerator.on(reader), accelerator.on(streams.incoming):
                made = accelerator.empty_like(given)
                accelerator.copy(made, given)
            self.source.accelerator.record_stream(given, reader)
        done = accelerator.event()
        done.record(streams.incoming)
        if self.source is None:
            streams.buffers.give(other, done)
        streams.compute.wait_event(done)
        accelerator.record_stream(made, streams.compute)
        box[self.value] = made


@dataclass
class Post:
    """Send a value and release the lock of its receiver."""

    handoff: Handoff
    send: int
    lock: LockType

    def __call__(self, turn: Turn, until: Until) -> int | None:
        handoff, timer = self.handoff, turn.timers[self.handoff.k]
        now = time.perf_counter_ns()
        ready = handoff.send(turn)
        if ready is None:
            turn.posted[self.send] = now
        elif timer is not None:
            timer.mark(turn.posted, self.send, ready)
        turn.release(self.lock)
        if turn.posting is not None:
            turn.posting(handoff.to)
        return 0


@dataclass
class Fetch:
    """Take the lock of a hand-off, then its value."""

    handoff: Handoff
    send: int
    lock: LockType

    def __call__(self, turn: Turn, until: Until) -> int | None:
        k, handoff, timer = self.handoff.to, self.handoff, turn.timers[self.handoff.to]
        before, begin = time.perf_counter_ns(), None if timer is None else timer.event()
        there = turn.held[k] == turn.at[k] or self.lock.acquire(False)
        if not there:
            if until is not None:
                return None
            self.lock.acquire()
        if turn.stop:
            raise Stopped
        turn.held[k] = turn.at[k]
        if handoff.target is not None:
            handoff.receive(turn)
            if timer is not None and begin is not None:
                timer.wait(turn.seen, self.send, begin)
            return 0
        _, done = turn.registers[k][handoff.group][handoff.value]
        here = done.query()
        if not here and until is not None:
            turn.polls[k] = True
            return None
        handoff.receive(turn)
        if there and here:
            return 0
        turn.seen[self.send] = time.perf_counter_ns()
        return turn.seen[self.send] - before


def queues_of(places: Sequence[Place], graphs: bool = False) -> list[Queues | None]:
    """Return the queues of each device that has streams, with one pool of buffers for all; None for the others."""
    found = [accelerators.accelerator(place.device) for place in places]
    first = next((own for own in found if own is not None), None)
    if first is None:
        return [None] * len(found)
    buffers = Buffers(first.pinned)
    made = [None if own is None else Queues(own, buffers) for own in found]
    for queues in made:
        if queues is not None:
            queues.graphs = graphs
    return made
