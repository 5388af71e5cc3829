"""Measurements kept in a file: a profiler that answers without the devices."""

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
"""Inputs, and the device of each task."""
CopyKey = tuple[int, str, str]
"""Bytes, from where, to where."""
Key = TypeVar("Key", RunKey, CopyKey)
Answer = TypeVar("Answer")
Amount = Annotated[float, msgspec.Meta(ge=0)]


class Recorded:
    """A `Profiler` that answers with what another one has measured, from memory or from a JSON file.

    The n-th time that something is asked it answers with the n-th measurement of it, so that a program run again sees what it
    saw. One that it lacks it asks of `profiler`, if it has one, and keeps.

    Parameters
    ----------
    profiler : Profiler
        What measures; it tells the graph and the devices. `read` does without.
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
        """Return what each task took, see `Profiler`.

        Raises
        ------
        InvalidProblem
            It was not recorded so often, and there is no profiler to ask.
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
        """Return the seconds of a copy, see `Profiler`; raises as `measure` does."""
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
                raise InvalidProblem(f"{what} was recorded {turn} times and is asked for once more; give a profiler that can measure it")
            kept.setdefault(key, []).append(ask(self.profiler))
        self._asked[key] += 1
        return kept[key][turn]

    @checked
    def write(self, path: str | os.PathLike[str]) -> None:
        """Write all that was measured as a JSON document; `read` reads it back to the bit."""
        documents.write(self, path)

    @classmethod
    @checked
    def read(cls, path: str | os.PathLike[str], profiler: Profiler | None = None) -> Recorded:
        """Return what a file holds, to be asked from its beginning; `profiler` measures what it lacks.

        Raises
        ------
        InvalidProblem
            The file is no such document, or it is not of the profiler's graph and devices.
        OSError
            The file cannot be read.
        """
        found: Recorded = documents.load(path, documents.MEASUREMENTS)
        if profiler is not None:
            if found.graph != profiler.graph:
                raise InvalidProblem(f"{os.fspath(path)} is of another graph than the profiler's; record to another file")
            if found.devices != tuple(profiler.devices):
                raise InvalidProblem(f"{os.fspath(path)} is of other devices than the profiler's; record to another file")
            found.profiler = profiler
        return found


class RunRow(Row):
    """One measurement of all tasks: the device of each, or the one of all; null is not measured."""

    inputs: Annotated[int, msgspec.Meta(ge=1)]
    devices: str | list[str]
    seconds: list[Amount | None]
    memory_bytes: list[Amount | None]

    def where(self, graph: TaskGraph) -> Placement:
        """Return the placement, once all columns have one entry a task."""
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
    """What a profiler measured of a graph, in order."""

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
        found = Recorded.__new__(Recorded)
        found.profiler = None
        found._start(self.graph.value(), tuple(row.value() for row in self.devices))
        for row in self.runs:
            key = row.inputs, devices_of(found, row.where(found.graph))
            found._runs.setdefault(key, []).append(Measured(_column(row.seconds), _column(row.memory_bytes)))
        for copy in self.copies:
            found._copies.setdefault((copy.size, copy.source, copy.target), []).append(copy.seconds)
        return found


def _column(numbers: list[Amount | None]) -> FloatArray:
    return readonly(np.array(numbers, np.float64))  # None becomes NaN
