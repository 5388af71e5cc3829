"""What the engine needs of a device that computes apart from its host thread: streams, events, copies and memory; and CUDA's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import torch

Made = TypeVar("Made")
WARM_UPS = 3
"""Runs before the capture of a graph."""


class Event(Protocol):
    """A point in the work of a stream."""

    def record(self, stream: Any) -> None:
        """Set the event behind the work that the stream has so far."""

    def query(self) -> bool:
        """Return whether the work before the event is done."""

    def synchronize(self) -> None:
        """Let the calling thread wait until the work before the event is done, without the lock of the interpreter."""

    def elapsed_time(self, end_event: Any) -> float:
        """Return the milliseconds from this event to another; both keep times, and are done."""


class Stream(Protocol):
    """A queue of work that a device does in order."""

    def wait_event(self, event: Any) -> None:
        """Let later work of the stream wait for an event; one that has not been recorded has no effect."""


class Accelerator(Protocol):
    """A device whose work is enqueued on streams.

    Memory that is allocated belongs to the current stream of the calling thread. Once released it may be used again by later work
    of that stream; other streams that use it have to be recorded.
    """

    device: torch.device

    def stream(self) -> Stream:
        """Return a new stream."""

    def event(self, timing: bool = False) -> Event:
        """Return a new event. One that keeps times spins in `synchronize`; another lets the processor do other work."""

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        """Make a stream the current one of the calling thread, and the device its current device."""

    def put(self, value: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor of the host on this device, when it is done."""

    def get(self, value: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor of this device in memory of the host, when it is done."""

    def empty_like(self, value: torch.Tensor) -> torch.Tensor:
        """Return a tensor on this device, without numbers, of the shape of another."""

    def pinned(self, size: int) -> torch.Tensor:
        """Return so many bytes of memory of the host that can be copied from and to while the host goes on."""

    def is_pinned(self, value: torch.Tensor) -> bool:
        """Return whether a tensor is in such memory."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Enqueue a copy on the current stream.

        Between two devices it is on the current streams of both, each of which waits for the other before and after it.
        """

    def record_stream(self, value: torch.Tensor, stream: Stream) -> None:
        """Let the memory of a tensor not be used again before the work that a stream has when the tensor is released."""

    def pool(self) -> Any:
        """Return memory for graphs that are always enqueued in the order in which they were captured."""

    def capture(self, run: Callable[[], Made], pool: Any = None) -> tuple[Callable[[], None], Made]:
        """Let a function enqueue work on the current stream without doing it; return what enqueues it as one graph, and its result.

        Each time the work is done, it reads and writes the same memory.
        """

    def allocated(self, run: Callable[[], object]) -> int:
        """Return the most bytes that a function allocates at a time, in addition to those already in use."""

    def lacks(self, operator: Any) -> bool:
        """Return whether an operator of torch has no kernel for this device."""

    def free_bytes(self) -> float:
        """Return the bytes that can be allocated."""

    def properties(self) -> tuple[str, int, float]:
        """Return the vendor's name, the number of multiprocessors, and the bytes of memory."""

    def release(self) -> None:
        """Return memory without tensors to the system."""


class Cuda:
    """A CUDA device, by `torch.cuda`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def stream(self) -> Stream:
        made: Stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        return made

    def event(self, timing: bool = False) -> Event:
        made: Event = torch.cuda.Event(enable_timing=timing, blocking=not timing)  # type: ignore[no-untyped-call]
        return made

    def on(self, stream: Any) -> AbstractContextManager[object]:
        return torch.cuda.stream(stream)

    def put(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.device)

    def get(self, value: torch.Tensor) -> torch.Tensor:
        return value.to("cpu")

    def empty_like(self, value: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(value, device=self.device)

    def pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def is_pinned(self, value: torch.Tensor) -> bool:
        return value.is_pinned()

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def record_stream(self, value: torch.Tensor, stream: Any) -> None:
        value.record_stream(stream)

    def pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def capture(self, run: Callable[[], Made], pool: Any = None) -> tuple[Callable[[], None], Made]:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            made = run()
        return graph.replay, made

    def allocated(self, run: Callable[[], object]) -> int:
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        run()
        return int(torch.cuda.max_memory_allocated(self.device)) - int(before)

    def lacks(self, operator: Any) -> bool:
        if not isinstance(operator, torch._ops.OpOverload):
            return False
        name: str = operator.name()  # type: ignore[no-untyped-call]
        return not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CUDA")

    def free_bytes(self) -> float:
        free, _ = torch.cuda.mem_get_info(self.device)
        return float(free + torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device))

    def properties(self) -> tuple[str, int, float]:
        facts = torch.cuda.get_device_properties(self.device)
        return str(facts.name), int(facts.multi_processor_count), float(facts.total_memory)

    def release(self) -> None:
        torch.cuda.empty_cache()


def accelerator(device: torch.device) -> Accelerator | None:
    """Return the operations of a device; None for the CPU, whose threads compute themselves."""
    return Cuda(device) if device.type == "cuda" else None


def timed(own: Accelerator, run: Callable[[], Any], stream: Stream | None = None) -> Callable[[], float]:
    """Enqueue work between two events; return the function that waits for its end and returns its seconds.

    The stream is the current one by default. The time includes waits of kernels for their launch.
    """
    begin, end = own.event(timing=True), own.event(timing=True)
    begin.record(stream)
    run()
    end.record(stream)

    def elapsed() -> float:
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    return elapsed


def captured(
    own: Accelerator, run: Callable[[], Made], warmup: int, pool: Any = None, stream: Stream | None = None
) -> tuple[Callable[[], None], Made]:
    """Return what enqueues the work of a function as one graph, and the function's result, which that writes each time.

    The work is done `warmup` times before, on a stream that has no other, for libraries to choose kernels and allocate workspaces.
    """
    stream, ready = stream or own.stream(), own.event()
    ready.record(None)
    stream.wait_event(ready)
    with own.on(stream):
        for _ in range(warmup):
            run()
        return own.capture(run, pool)


# ---------------------------------------------------------------------- precision

_exact = threading.Lock()
_users = 0
_before: tuple[tuple[bool, bool] | None, tuple[str, ...]] = (None, ())


def precisions() -> tuple[tuple[bool, bool] | None, tuple[str, ...]]:
    """Return how float32 is computed on CUDA.

    These are the flags of TF32 for products of matrices and for cuDNN, or None if torch cannot tell them because the others were set
    otherwise; and, where torch has these, the precisions of products, convolutions and recurrent networks.
    """
    flags = None
    with contextlib.suppress(RuntimeError):
        flags = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    return flags, tuple(own.fp32_precision for own in _operators())


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Let CUDA compute float32 without TF32; settings are those of the process, restored when the last user leaves."""
    global _users, _before
    with _exact:
        if not _users:
            _before = precisions()
            _set_precisions((False, False), ())  # after these flags torch can tell both, which `torch.export` needs
        _users += 1
    try:
        yield
    finally:
        with _exact:
            _users -= 1
            if not _users:
                _set_precisions(*_before)


def _operators() -> tuple[Any, ...]:
    backends = torch.backends
    return (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn) if _BY_OPERATOR else ()  # type: ignore[attr-defined]


def _set_precisions(flags: tuple[bool, bool] | None, by_operator: tuple[str, ...]) -> None:
    if flags is not None:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = flags
    for own, value in zip(_operators(), by_operator, strict=False):
        own.fp32_precision = value


_BY_OPERATOR = hasattr(torch.backends, "fp32_precision")
"""Whether torch has a setting for each kind of operator, as from 2.9 on; reading the older ones is then an error if these differ."""
