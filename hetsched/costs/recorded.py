"""Measurements in a file: a profiler that works without the devices."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, Self, TypeVar

import msgspec
import numpy as np

from hetsched import documents
from hetsched.arguments import checked
from hetsched.arrays import FloatArray, readonly
from hetsched.costs.protocol import Measured, Placement, Profiler, devices_of
from hetsched.documents import VERSION, Document, Row, optional
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Device
from hetsched.problem.document import DeviceRow, GraphPart
from hetsched.problem.graph import TaskGraph

RunKey = tuple[int, tuple[str, ...]]
"""Number of inputs, and the device of each task."""
CopyKey = tuple[int, str, str]
"""Bytes, source and target."""
Key = TypeVar("Key", RunKey, CopyKey)
Answer = TypeVar("Answer")
Amount = Annotated[float, msgspec.Meta(ge=0)]


class Recorded:
    """A `Profiler` that returns the measurements of another one, from memory or from a JSON file.

    The n-th request for a measurement returns the n-th recorded one, so that a repeated program gets the same results. A
    missing measurement is made by `profiler`, if there is one, and recorded.

    Parameters
    ----------
    profiler : Profiler
        The source of measurements, graph and devices. `read` does not need one.
    """

    _format = "hetsched-measurements"

    @checked
    def __init__(self, profiler: Profiler) -> None:
        self.profiler: Profiler | None = profiler
        self._start(profiler.graph, tuple(profiler.devices))

    def _start(self, graph: TaskGraph, devices: tuple[Device, ...]) -> None:
        self.graph, self.devices = graph, devices
        self._runs: dict[RunKey, list[Measured]] = {}
        self._copies: dict[CopyKey, list[float]] = {}
        self._asked: Counter[RunKey | CopyKey] = Counter()

    def __repr__(self) -> str:
        runs, copies = (sum(map(len, kept.values())) for kept in (self._runs, self._copies))
        return f"<Recorded: {runs} runs of {self.graph.n_tasks} tasks and {copies} copies on {', '.join(d.name for d in self.devices)}>"

    @checked
    def measure(self, inputs: int, placement: Placement) -> Measured:
        """Return the measurements of each task, see `Profiler`.

        Raises
        ------
        InvalidProblem
            The recorded measurements are used up, and there is no profiler.
        """
        where = devices_of(self, placement)
        on = where[0] if len(set(where)) == 1 else "the devices of that placement"
        return self._answer(
            self._runs,
            (int(inputs), where),
            f"a run of {inputs} inputs on {on}",
            lambda profiler: Measured(*map(readonly, profiler.measure(inputs, placement))),
        )

    @checked
    def transfer(self, size: int, source: str, target: str) -> float:
        """Return the seconds of a copy, see `Profiler`; the errors are those of `measure`."""
        return self._answer(
            self._copies,
            (int(size), source, target),
            f"a copy of {size} bytes from {source!r} to {target!r}",
            lambda profiler: float(profiler.transfer(size, source, target)),
        )

    def _answer(self, kept: dict[Key, list[Answer]], key: Key, what: str, ask: Callable[[Profiler], Answer]) -> Answer:
        turn = self._asked[key]
        if turn == len(kept.get(key, ())):
            if self.profiler is None:
                raise InvalidProblem(f"{what} was recorded {turn} times, but is requested once more; give a profiler that can measure it")
            kept.setdefault(key, []).append(ask(self.profiler))
        self._asked[key] += 1
        return kept[key][turn]

    @checked
    def write(self, path: str | os.PathLike[str]) -> None:
        """Write all measurements as a JSON document; `read` restores them to the bit."""
        documents.write(self, path)

    @classmethod
    @checked
    def read(cls, path: str | os.PathLike[str], profiler: Profiler | None = None) -> Recorded:
        """Return the measurements in a file, all of them unused; `profiler` makes those that are missing.

        Raises
        ------
        InvalidProblem
            The file is not such a document, or has another graph or other devices than the profiler.
        OSError
            The file cannot be read.
        """
        recorded: Recorded = documents.load(path, documents.MEASUREMENTS)
        if profiler is not None:
            if recorded.graph != profiler.graph:
                raise InvalidProblem(f"{os.fspath(path)} has another graph than the profiler; record to another file")
            if recorded.devices != tuple(profiler.devices):
                raise InvalidProblem(f"{os.fspath(path)} has other devices than the profiler; record to another file")
            recorded.profiler = profiler
        return recorded


class RunRow(Row):
    """One measurement of all tasks: the device of each, or one device for all; null means not measured."""

    inputs: Annotated[int, msgspec.Meta(ge=1)]
    devices: str | list[str]
    seconds: list[Amount | None]
    memory_bytes: list[Amount | None]

    def where(self, graph: TaskGraph) -> Placement:
        """Check that all columns have one entry for each task, and return the placement."""
        for what in ("devices", "seconds", "memory_bytes"):
            column: str | list[Any] = getattr(self, what)
            if not isinstance(column, str) and len(column) != graph.n_tasks:
                raise InvalidProblem(f"{what} of a run has {len(column)} entries but there are {graph.n_tasks} tasks; give one each")
        return self.devices if isinstance(self.devices, str) else dict(zip(graph.names, self.devices, strict=True))


class CopyRow(Row):
    """One copy between two devices."""

    size: Annotated[int, msgspec.Meta(ge=0)]
    source: str
    target: str
    seconds: Amount


class MeasurementsDocument(Document[Recorded], kw_only=True, tag="hetsched-measurements"):
    """The measurements of a graph by a profiler, in order."""

    graph: GraphPart
    devices: list[DeviceRow]
    runs: list[RunRow] = []
    copies: list[CopyRow] = []

    @classmethod
    def of(cls, value: Recorded) -> Self:
        """Return the document of measurements."""
        runs = [
            RunRow(inputs, where[0] if len(set(where)) == 1 else list(where), *map(optional, measured))
            for (inputs, where), kept in value._runs.items()
            for measured in kept
        ]
        copies = [CopyRow(*key, seconds) for key, kept in value._copies.items() for seconds in kept]
        devices = [DeviceRow.of(device) for device in value.devices]
        return cls(version=VERSION, graph=GraphPart.of(value.graph), devices=devices, runs=runs, copies=copies)

    def value(self) -> Recorded:
        """Return the measurements."""
        recorded = Recorded.__new__(Recorded)
        recorded.profiler = None
        recorded._start(self.graph.value(), tuple(row.value() for row in self.devices))
        for row in self.runs:
            key = row.inputs, devices_of(recorded, row.where(recorded.graph))
            recorded._runs.setdefault(key, []).append(Measured(_column(row.seconds), _column(row.memory_bytes)))
        for copy in self.copies:
            recorded._copies.setdefault((copy.size, copy.source, copy.target), []).append(copy.seconds)
        return recorded


def _column(numbers: list[Amount | None]) -> FloatArray:
    return readonly(np.array(numbers, np.float64))  # None becomes NaN
