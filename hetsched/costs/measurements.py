"""What a profile has: devices in sessions of measurements, operators, and the seconds of tasks, stages and copies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from hetsched.costs.machine import Overhead
from hetsched.problem.cluster import Device
from hetsched.problem.graph import Shape, TaskGraph


class ProfiledDevice(NamedTuple):
    """A device in one session of measurements."""

    device: Device
    session: str = ""
    """Begins with the time of its start in UTC, as ISO 8601; empty if unknown."""
    threads: int | None = None
    """Of a CPU; None if unknown or not a CPU."""
    cores: tuple[int, ...] = ()
    """Those to which its threads are pinned."""
    clock_hz: float | None = None
    software: tuple[tuple[str, str], ...] = ()
    """Names and versions, and settings that change times."""
    overhead: Overhead = Overhead()

    @property
    def name(self) -> str:
        """The name of the device."""
        return self.device.name

    @property
    def pool(self) -> tuple[object, ...]:
        """What devices whose measurements count as those of one device have in common; without a kind that is the name."""
        return (self.device.kind, self.threads, self.software) if self.device.kind else ("", self.name)


class Operator(NamedTuple):
    """What a task computes; amounts are for one input, None if unknown."""

    digest: str
    """Of all that decides its time; or any other name for it."""
    op: str = ""
    text: str = ""
    """For readers: its operators and the shapes and types of their tensors."""
    flops: float | None = None
    bytes_accessed: float | None = None
    weight_bytes: float = 0.0
    shape: Shape | None = None


class TaskTime(NamedTuple):
    """Seconds of one batch of an operator, over some runs; None if unknown."""

    digest: str
    device: str
    batch: int
    session: str = ""
    placed: str = ""
    """`placement_digest` of the placement of all tasks in these runs; empty if they were on one device."""
    turn: int = 0
    """Number of the measurement among those of its session that are otherwise the same."""
    runs: int = 1
    median: float | None = None
    q25: float | None = None
    q75: float | None = None
    cpu: float | None = None
    """Median CPU time of the thread."""
    memory_bytes: float | None = None
    """Peak of the bytes allocated during the batch, in addition to those allocated before."""


class StageTime(NamedTuple):
    """Seconds of a stage, over some runs."""

    groups: tuple[tuple[str, ...], ...]
    """Digests of the tasks of each group, in order."""
    strategy: str
    device: str
    batch: int
    session: str = ""
    runs: int = 1
    median: float = 0.0
    q25: float | None = None
    q75: float | None = None


class CopyTime(NamedTuple):
    """Seconds of a transfer, over some runs; of 0 bytes a hand-off between devices that share their memory."""

    source: str
    target: str
    size: int
    """Bytes."""
    session: str = ""
    turn: int = 0
    runs: int = 1
    median: float = 0.0
    q25: float | None = None
    q75: float | None = None
    cpu_source: float | None = None
    """CPU seconds of the sender's end."""
    cpu_target: float | None = None


class Network(NamedTuple):
    """A graph, and the digest of what each of its tasks computes."""

    graph: TaskGraph
    digests: tuple[str, ...]


def placement_digest(tasks: Iterable[str], devices: Iterable[str]) -> str:
    """Return a digest of the device of each task, by names; empty if there is one device."""
    where = list(devices)
    if len(set(where)) <= 1:
        return ""
    text = "\n".join(f"{task!r} {device!r}" for task, device in zip(tasks, where, strict=True))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
