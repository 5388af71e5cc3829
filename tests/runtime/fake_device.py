"""Accelerators without hardware, which find each use of memory that the engine's synchronisation does not order.

Operators run at once, on the CPU; what a real device would do later is followed by vector clocks. Streams and threads of the host each
count what they do. An event has the counts of its stream when it is recorded, locks those of the threads that released them. Work may
use memory if the counts of its stream, with those of the thread that enqueues it, include what was done with the memory before; so
every order in which a real device may work is judged in one run, not only those that random delays would show.

Violations are: a read or write of memory that is not ordered behind another stream's, or behind the host's; an event that is used by a
thread which is not ordered behind its record, which would have no effect if the thread came first; memory that is released, so that its
own stream may use it again, while another stream may still use it, unless that was recorded; pinned memory that the host reads or
writes during a copy; memory of a device in an operator of the host, or of another device, and the other way round.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from _thread import allocate_lock
from types import SimpleNamespace
from unittest import mock

import torch
from torch.utils._pytree import tree_flatten, tree_map

from hetsched.runtime import accelerator, placed, profiler, steps, streams, team


def join(clock, other):
    for actor, count in other.items():
        if clock.get(actor, 0) < count:
            clock[actor] = count


class World:
    """Fake devices, the counts of their streams, and the violations so far."""

    def __init__(self, count=1, capacity=float("inf"), seed=0):
        self.guard = threading.RLock()
        self.local = threading.local()
        self.actors = 0
        self.violations = []
        self.random = random.Random(seed)
        self.live = 0
        self.pinned_made = 0
        self.devices = [FakeDevice(self, k, capacity) for k in range(count)]

    def actor(self):
        with self.guard:
            self.actors += 1
            return self.actors

    @property
    def clock(self):
        """The counts that the calling thread is ordered behind."""
        if not hasattr(self.local, "clock"):
            self.local.clock, self.local.actor, self.local.streams, self.local.graph = {}, self.actor(), {}, None
        return self.local.clock

    def tick(self):
        """Count what the calling thread does next; return its actor and number."""
        clock = self.clock
        clock[self.local.actor] = clock.get(self.local.actor, 0) + 1
        return self.local.actor, clock[self.local.actor]

    def current(self, device):
        self.clock  # noqa: B018
        return self.local.streams.get(device)

    def fail(self, text):
        self.violations.append(f"{threading.current_thread().name}: {text}")

    def find(self, device):
        return self.devices[device.index or 0] if device.type == "cuda" else None

    def work(self, stream, reads, writes, what):
        """Enqueue work on a stream."""
        with self.guard:
            self.tick()
            join(stream.clock, self.clock)
            stream.clock[stream.actor] = stream.clock.get(stream.actor, 0) + 1
            self._access(stream.actor, stream.clock, reads, writes, f"{what} on {stream}")
            for block in (*reads, *writes):
                block.uses[stream] = stream.clock[stream.actor]

    def touch(self, reads, writes, what):
        """Let the calling thread use pinned memory."""
        with self.guard:
            actor, _ = self.tick()
            self._access(actor, self.clock, reads, writes, f"{what} on the host")

    def _access(self, actor, clock, reads, writes, what):
        for block in (*reads, *writes):
            writer, number = block.written
            if writer != actor and clock.get(writer, 0) < number:
                self.fail(f"{what} uses {block} before it is written")
        for block in writes:
            for reader, number in block.read.items():
                if reader != actor and clock.get(reader, 0) < number:
                    self.fail(f"{what} writes {block} while it is read")
            block.written, block.read = (actor, clock[actor]), {}
        for block in reads:
            block.read[actor] = clock[actor]

    def freed(self, block):
        with self.guard:
            if block.device is None:
                return
            self.live -= block.size
            block.device.live -= block.size
            clock = dict(block.stream.clock)
            join(clock, self.clock)
            for stream, number in block.uses.items():
                if stream is not block.stream and stream not in block.recorded and clock.get(stream.actor, 0) < number:
                    self.fail(f"{block} is released, and {stream} may still use it")

    @contextlib.contextmanager
    def engine(self):
        """Let the engine use these devices, and its locks order its threads."""
        post_init = team.Turn.__post_init__

        def begun(turn):
            post_init(turn)
            turn.guard = TrackedLock(self, turn.guard)

        class Turns:
            """The turns of a stream of inputs, which its devices read without a lock."""

            def __get__(_, own, kind=None):
                join(self.clock, own.__dict__.setdefault("clock", {}))
                return own.__dict__["_turns"]

            def __set__(_, own, turns):
                own.__dict__["_turns"] = turns
                self.tick()
                join(own.__dict__.setdefault("clock", {}), self.clock)

        start = placed.Worker.begin

        class Ended:
            """What a thread returns, behind which the one that asks for it is ordered."""

            def __init__(_, future, after):
                _.future, _.after = future, after

            def result(_):
                try:
                    return _.future.result()
                finally:
                    join(self.clock, _.after)

        def begun_by(worker, function, *args):
            before, after = dict(self.clock), {}

            def inside(*given):
                join(self.clock, before)
                try:
                    return function(*given)
                finally:
                    after.update(self.clock)

            return Ended(start(worker, inside, *args), after)

        with contextlib.ExitStack() as stack:
            for where, name, new in (
                (accelerator, "accelerator", self.find),
                (torch.cuda, "device_count", lambda: len(self.devices)),
                (steps, "allocate_lock", lambda: TrackedLock(self, allocate_lock())),
                (team.Turn, "__post_init__", begun),
                (profiler, "allocate_lock", lambda: TrackedLock(self, allocate_lock())),
                (placed.Worker, "begin", begun_by),
                (streams, "threading", SimpleNamespace(Lock=lambda: TrackedLock(self, threading.Lock()))),
            ):
                stack.enter_context(mock.patch.object(where, name, new))
            stack.enter_context(mock.patch.object(team.Stream, "turns", Turns(), create=True))
            yield self

    def within(self, function, seconds=20.0):
        """Return the result of a function, called on a thread that is ordered behind and before the calling one."""
        result, before = [], dict(self.clock)

        def call():
            join(self.clock, before)
            try:
                result.append((True, function(), self.clock))
            except BaseException as error:
                result.append((False, error, self.clock))

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(seconds)
        assert result, f"it took longer than {seconds} s"
        good, value, clock = result[0]
        join(self.clock, clock)
        if not good:
            raise value
        return value


class TrackedLock:
    """A lock that orders the threads that take it behind those that released it."""

    def __init__(self, world, lock):
        self.world, self.lock, self.clock = world, lock, {}

    def acquire(self, *args, **kwargs):
        taken = self.lock.acquire(*args, **kwargs)
        if taken:
            with self.world.guard:
                join(self.world.clock, self.clock)
        return taken

    def release(self):
        with self.world.guard:
            self.world.tick()
            join(self.clock, self.world.clock)
        self.lock.release()

    __enter__ = acquire

    def __exit__(self, *_):
        self.release()


class FakeStream:
    def __init__(self, device, number):
        self.device, self.number, self.actor, self.clock = device, number, device.world.actor(), {}

    def __repr__(self):
        return f"stream {self.number} of {self.device.device}"

    def wait_event(self, event):
        with self.device.world.guard:
            if event.used():
                join(self.clock, event.clock)


class FakeEvent:
    def __init__(self, world, timing):
        self.world, self.timing, self.clock, self.time = world, timing, None, None

    def record(self, stream):
        stream = stream or next(reversed([own for own in self.world.local.streams.values() if own is not None]))
        with self.world.guard:
            self.stream = stream
            self.by = self.world.tick()
            self.clock = dict(stream.clock)
            join(self.clock, self.world.clock)
            self.time = time.perf_counter()

    def used(self):
        """Return whether the event has been recorded; note if that is a matter of luck."""
        if self.clock is None:
            return False
        actor, number = self.by
        if self.world.clock.get(actor, 0) < number:
            self.world.fail(f"an event of {self.stream} is used by a thread that may be earlier than its record")
        return True

    def query(self):
        with self.world.guard:
            if self.used():
                if self.world.random.random() < 0.5:
                    return False
                join(self.world.clock, self.clock)
            return True

    def synchronize(self):
        with self.world.guard:
            if self.used():
                join(self.world.clock, self.clock)

    def elapsed_time(self, end):
        assert self.timing, "an event without times"
        assert end.timing, "an event without times"
        return 1e3 * (end.time - self.time)


class Block:
    """Memory of a device, or pinned memory (device None), and what was last done with it."""

    def __init__(self, world, device, stream, size):
        self.world, self.device, self.stream, self.size = world, device, stream, size
        self.written, self.read, self.uses, self.recorded = (0, 0), {}, {}, set()
        if device is not None:
            with world.guard:
                if device.live + size > device.capacity:
                    self.device = None  # there is nothing to release
                    raise torch.OutOfMemoryError(f"{device.device} has no {size} bytes")
                device.live += size
                world.live += size

    def __repr__(self):
        return f"{self.size} bytes of {'pinned memory' if self.device is None else self.device.device}"

    def __del__(self):
        self.world.freed(self)


class FakeTensor(torch.Tensor):
    """A tensor in a block, with its numbers in a tensor of the CPU."""

    @staticmethod
    def __new__(cls, numbers, block):
        made = torch.Tensor._make_wrapper_subclass(
            cls, numbers.size(), strides=numbers.stride(), storage_offset=numbers.storage_offset(), dtype=numbers.dtype
        )
        made.numbers, made.block = numbers, block
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given, _ = tree_flatten((args, kwargs))
        fakes = [value for value in given if isinstance(value, FakeTensor)]
        world = fakes[0].block.world
        made = func(*tree_map(numbers, args), **tree_map(numbers, kwargs))
        outs = [out for out in tree_flatten(made)[0] if isinstance(out, torch.Tensor)]
        if all(out.is_meta for out in outs):
            return made
        owners = {value.numbers.untyped_storage()._cdata: value.block for value in fakes}
        changed = [
            value
            for value, argument in zip(args, func._schema.arguments, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, torch.Tensor)
        ]
        views = not changed and all(out.untyped_storage()._cdata in owners for out in outs)
        on_device = [value.block.device for value in fakes if value.block.device is not None]
        if not on_device:
            if not views:
                written = [value.block for value in changed if isinstance(value, FakeTensor)]
                world.touch([value.block for value in fakes if value.block not in written], written, str(func))
            return args[0] if changed else wrapped(made, owners, None)
        stream = world.current(on_device[0])
        if stream is None:
            world.fail(f"{func} on {on_device[0].device} is called by a thread of the host")
            return made
        for value in given:
            if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and value.dim():
                world.fail(f"{func} on {stream} has a tensor of the host")
        if any(value.block.device is not on_device[0] for value in fakes):
            world.fail(f"{func} on {stream} has a tensor of other memory")
        if views:
            return wrapped(made, owners, None)

        def new(out):
            return Block(world, on_device[0], stream, out.numel() * out.element_size())

        result = args[0] if changed else wrapped(made, owners, new)
        if world.local.graph is not None:
            world.local.graph.append((func, args, kwargs, result))
        results = [out.block for out in tree_flatten(result)[0] if isinstance(out, FakeTensor)]
        world.work(stream, {value.block for value in fakes} - set(results), set(results), str(func))
        return result


def numbers(value):
    return value.numbers if isinstance(value, FakeTensor) else value


def wrapped(made, owners, new):
    """Return results in their blocks: those of arguments of which they are views, new ones, or the host's."""

    def wrap(out):
        if not isinstance(out, torch.Tensor):
            return out
        key = out.untyped_storage()._cdata
        if key not in owners:
            if new is None:
                return out
            owners[key] = new(out)
        return FakeTensor(out, owners[key])

    return tree_map(wrap, made)


class FakeDevice:
    """An `Accelerator`."""

    def __init__(self, world, index, capacity):
        self.world, self.capacity, self.live = world, capacity, 0
        self.device = torch.device("cuda", index)
        self.streams = []

    def stream(self):
        self.streams.append(FakeStream(self, len(self.streams) + 1))
        return self.streams[-1]

    def event(self, timing=False):
        return FakeEvent(self.world, timing)

    @contextlib.contextmanager
    def on(self, stream):
        self.world.clock  # noqa: B018
        current = self.world.local.streams
        before = current.get(self)
        current[self] = stream
        try:
            yield
        finally:
            current[self] = before

    def _new(self, value):
        stream = self.world.current(self)
        return FakeTensor(value, Block(self.world, self, stream, value.numel() * value.element_size()))

    def put(self, value):
        assert not isinstance(value, FakeTensor)
        made = self._new(value.clone())
        stream = self.world.current(self)
        self.world.work(stream, (), (made.block,), "a blocking copy")
        join(self.world.clock, stream.clock)
        return made

    def get(self, value):
        stream = self.world.current(self)
        with self.world.guard:
            before = value.block.uses.get(stream)
            self.world.work(stream, (value.block,), (), "a blocking copy")
            join(self.world.clock, stream.clock)
            value.block.uses[stream] = before or 0  # it is over before the caller can release the tensor
        return value.numbers.clone()

    def empty_like(self, value):
        made = torch.empty_like(numbers(value))
        return self._new(made.fill_(float("nan") if made.dtype.is_floating_point else 77))

    def pinned(self, size):
        self.world.pinned_made += 1
        return FakeTensor(torch.zeros(size, dtype=torch.uint8), Block(self.world, None, None, size))

    def is_pinned(self, value):
        return isinstance(value, FakeTensor) and value.block.device is None

    def copy(self, target, source):
        ends = [value.block.device for value in (source, target) if value.block.device is not None]
        target.numbers.copy_(source.numbers)
        first = self.world.current(ends[0])
        last = self.world.current(ends[-1])
        with self.world.guard:
            join(first.clock, last.clock)
            self.world.work(first, (source.block,), (target.block,), "a copy")
            if first is not last:
                join(last.clock, first.clock)
                target.block.uses[last] = last.clock.get(last.actor, 0)

    def record_stream(self, value, stream):
        value.block.recorded.add(stream)

    def pool(self):
        return None

    def capture(self, run, pool=None):
        """Synchronise the device, and do the work without leaving any on a stream."""
        for stream in self.streams:
            join(self.world.clock, stream.clock)
        self.world.local.graph = calls = []
        try:
            made = run()
        finally:
            self.world.local.graph = None
        join(self.world.clock, self.world.current(self).clock)

        def replay():
            for func, args, kwargs, result in calls:
                again = func(*tree_map(numbers, args), **tree_map(numbers, kwargs))
                fakes = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, FakeTensor)]
                results = [out for out in tree_flatten(result)[0] if isinstance(out, torch.Tensor)]
                for out, value in zip(results, [v for v in tree_flatten(again)[0] if isinstance(v, torch.Tensor)], strict=True):
                    if out.numbers is not value:
                        out.numbers.copy_(value)
                blocks = {out.block for out in results}
                self.world.work(self.world.current(self), {value.block for value in fakes} - blocks, blocks, f"{func} of a graph")

        return replay, made

    def allocated(self, run):
        before = self.live
        run()
        return self.live - before

    def lacks(self, operator):
        return False

    def free_bytes(self):
        return self.capacity - self.live

    def properties(self):
        return "fake", 7, self.capacity

    def release(self):
        pass
