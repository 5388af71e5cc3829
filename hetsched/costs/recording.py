"""Profiles made by profilers, and profilers that return what profiles have."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby

import numpy as np

from hetsched.arguments import check_count, checked, whole
from hetsched.arrays import FloatArray, readonly
from hetsched.costs.measurements import CopyTime, Network, Operator, ProfiledDevice, TaskTime, placement_digest
from hetsched.costs.profile import Profile, operators_of
from hetsched.costs.protocol import DescribedProfiler, Measured, Placement, Profiler, devices_of
from hetsched.errors import InvalidProblem
from hetsched.problem.graph import TaskGraph

RunKey = tuple[int, tuple[str, ...]]
"""Number of inputs, and the device of each task."""
CopyKey = tuple[str, str, int]
"""Source, target and bytes."""


def new_session() -> str:
    """Return a name for a session of measurements that begins now."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}-{secrets.token_hex(4)}"


class Recorder:
    """A `Profiler` that keeps measurements as a profile, made by another profiler or taken from a profile.

    Tasks of equal digest on one device are one row, the median over them, which is what `measure` returns for each. The n-th request
    for a measurement returns the n-th that the profile has, so that a repeated program gets the same results; one that it does not
    have is made by `profiler`, if there is one.

    Parameters
    ----------
    profiler : Profiler, optional
        The source of measurements, graph and devices.
    profile : Profile, optional
        Measurements to return. Without `profiler` its graph and devices are those of the recorder.
    graph : TaskGraph, optional
        Which of the profile's graphs; default: that of the profiler, or the only one.

    Attributes
    ----------
    graph : TaskGraph
    devices : tuple of Device
    operators : sequence of Operator
        What each task computes; without a `DescribedProfiler` its digest is the name of the task.
    session : str
        The name of the session of new measurements.

    Raises
    ------
    InvalidProblem
        Neither is given, or the profile has no such graph or devices.
    """

    @checked(InvalidProblem)
    def __init__(self, profiler: Profiler | None = None, profile: Profile | None = None, *, graph: TaskGraph | None = None) -> None:
        if profiler is None and profile is None:
            raise InvalidProblem("a recorder needs a profiler or a profile to take measurements from; give one")
        self.profiler, self.session = profiler, new_session()
        self._given = Profile() if profile is None else profile
        if profiler is not None:
            self.graph, self.devices = profiler.graph, tuple(profiler.devices)
            if profile is not None and self.graph not in [network.graph for network in profile.networks]:
                raise InvalidProblem("the profile has another graph than the profiler; record to another one, and merge both")
        else:
            self.graph = self._given.network(graph).graph
            self.devices = tuple(self._given.device(name).device for name in self._given.names)
        self.operators = self._own_operators()
        self._digests = tuple(operator.digest for operator in self.operators)
        self._times: list[TaskTime] = []
        self._copies: list[CopyTime] = []
        self._used: set[str] = set()
        self._asked: Counter[RunKey | CopyKey] = Counter()

    def _own_operators(self) -> Sequence[Operator]:
        """Return the operator of each task."""
        if isinstance(self.profiler, DescribedProfiler):
            return self.profiler.operators
        if self.profiler is not None:
            return operators_of(self.graph, self.graph.names)
        operators = {row.digest: row for row in self._given.operators}
        return [operators[digest] for digest in self._given.network(self.graph).digests]

    def __repr__(self) -> str:
        source = "no profiler" if self.profiler is None else type(self.profiler).__name__
        return f"<Recorder of {self.graph.n_tasks} tasks on {', '.join(device.name for device in self.devices)}, with {source}>"

    @property
    def profile(self) -> Profile:
        """All measurements: those that were given, and those made since."""
        described = [self.described(device.name) for device in self.devices if device.name in self._used]
        network = Network(self.graph, self._digests)
        return self._given.merge(Profile(described, self.operators, self._times, (), self._copies, [network]))

    @checked(inputs=whole(1))
    def measure(self, inputs: int, placement: Placement) -> Measured:
        """Return the measurements of each task, see `Profiler`.

        Raises
        ------
        InvalidProblem
            The profile does not have them, or not that often, and there is no profiler.
        """
        where = devices_of(self, placement)
        return self._read(self.times(inputs, placement), where)

    @checked
    def described(self, device: str) -> ProfiledDevice:
        """Return a device in this session."""
        devices_of(self, device)
        if isinstance(self.profiler, DescribedProfiler):
            return self.profiler.described(device, self.session)
        return next(ProfiledDevice(own, self.session) for own in self.devices if own.name == device)

    def times(self, inputs: int, placement: Placement) -> list[TaskTime]:
        """Return the rows of the next measurement of a placement."""
        where = devices_of(self, placement)
        key = int(inputs), where
        turn = self._asked[key]
        self._asked[key] += 1
        on = where[0] if len(set(where)) == 1 else "the devices of that placement"
        known = self._known_times(key)
        if turn < len(known):
            return known[turn]
        if self.profiler is None:
            raise _missing(f"a run of {inputs} inputs on {on}", len(known))
        made = self._rows(key, turn - len(known), self.profiler.measure(int(inputs), placement))
        self._times += made
        self._used.update(where)
        return made

    @checked(size=whole(0))
    def transfer(self, size: int, source: str, target: str) -> float:
        """Return the seconds of a copy, see `Profiler`; the errors are those of `measure`."""
        key = source, target, int(size)
        turn = self._asked[key]
        self._asked[key] += 1
        known = [row for row in self._given.copies if (row.source, row.target, row.size) == key]
        if turn < len(known):
            return known[turn].median
        if self.profiler is None:
            raise _missing(f"a copy of {size} bytes from {source!r} to {target!r}", len(known))
        seconds = float(self.profiler.transfer(int(size), source, target))
        self._copies.append(CopyTime(source, target, int(size), self.session, turn - len(known), median=seconds))
        self._used.update((source, target))
        return seconds

    def _known_times(self, key: RunKey) -> list[list[TaskTime]]:
        """Return the given measurements of a placement, in order."""
        inputs, where = key
        wanted = set(zip(self._digests, where, strict=True))
        placed = placement_digest(self.graph.names, where)
        own = [row for row in self._given.times if row.batch == inputs and row.placed == placed and (row.digest, row.device) in wanted]

        def when(row: TaskTime) -> tuple[str, int]:
            return row.session, row.turn

        return [list(rows) for _, rows in groupby(sorted(own, key=when), key=when)]

    def _rows(self, key: RunKey, turn: int, measured: Measured) -> list[TaskTime]:
        """Return the rows of a new measurement: one for each digest and device."""
        inputs, where = key
        placed = placement_digest(self.graph.names, where)
        tasks: dict[tuple[str, str], list[int]] = {}
        for i, place in enumerate(zip(self._digests, where, strict=True)):
            tasks.setdefault(place, []).append(i)
        rows = []
        for (digest, device), own in tasks.items():
            median, q25, q75, cpu = (
                None if column is None else _median(np.asarray(column, np.float64)[own])
                for column in (measured.seconds, measured.q25, measured.q75, measured.cpu)
            )
            held = np.asarray(measured.memory_bytes, np.float64)[own]
            memory = float(np.nanmax(held)) if np.isfinite(held).any() else None
            if median is not None or memory is not None:
                runs = measured.runs * len(own)
                rows.append(TaskTime(digest, device, inputs, self.session, placed, turn, runs, median, q25, q75, cpu, memory))
        return rows

    def _read(self, rows: Iterable[TaskTime], where: Sequence[str]) -> Measured:
        """Return the columns of a measurement."""
        found = {(row.digest, row.device): row for row in rows}
        own = [found.get(place) for place in zip(self._digests, where, strict=True)]

        def column(what: str) -> FloatArray:
            return readonly(np.array([None if row is None else getattr(row, what) for row in own], np.float64))  # None becomes NaN

        runs = min((row.runs for row in found.values()), default=1)
        return Measured(column("median"), column("memory_bytes"), column("q25"), column("q75"), column("cpu"), runs)


@checked
def measure(
    profiler: Profiler,
    batch_sizes: Iterable[int],
    *,
    devices: Iterable[str] | None = None,
    on_progress: Callable[[str, int], object] | None = None,
) -> Profile:
    """Return the measurements of a profiler with all tasks on one device, for each device and batch size.

    Parameters
    ----------
    profiler : Profiler
    batch_sizes : iterable of int
    devices : iterable of str
        Default: all devices of the profiler.
    on_progress : callable, optional
        Called with a device and a batch size before their measurement.
    """
    recorder = profiler if isinstance(profiler, Recorder) else Recorder(profiler)
    names = [device.name for device in profiler.devices] if devices is None else list(devices)
    sizes = [check_count(size, "batch size") for size in batch_sizes]
    rows: list[TaskTime] = []
    for size in sizes:
        for name in names:
            if on_progress is not None:
                on_progress(name, size)
            rows += recorder.times(size, name)
    whole = recorder.profile
    sessions = {row.session for row in rows}
    own = [row for row in whole.devices if row.name in names and row.session in sessions]
    return Profile(own, recorder.operators, rows, networks=[Network(recorder.graph, recorder._digests)])


def _median(values: FloatArray) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def _missing(what: str, count: int) -> InvalidProblem:
    return InvalidProblem(f"{what} was recorded {count} times, but is requested once more; give a profiler that can measure it")
