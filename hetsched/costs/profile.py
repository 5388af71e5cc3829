"""Measurements of operators, stages and copies on devices, and what follows from them: durations, links, problems."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from os import PathLike
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from hetsched import documents
from hetsched.arguments import check_array, check_count, checked, shown
from hetsched.arrays import Columns, FloatArray, Frozen, texts
from hetsched.costs.communication import Links
from hetsched.costs.lines import rising
from hetsched.costs.machine import Machine
from hetsched.costs.measurements import CopyTime, Network, Operator, ProfiledDevice, StageTime, TaskTime
from hetsched.costs.memory import with_workspace
from hetsched.errors import InvalidArgument, InvalidProblem
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.document import GraphPart
from hetsched.problem.graph import TaskGraph, is_text, named, plural, unique_names
from hetsched.problem.problem import Problem

APART = 0.2
"""Medians of two sessions that differ by more than this part are listed by `Profile.apart`."""
Amount = Literal["seconds", "memory_bytes"]
Row = TypeVar("Row", ProfiledDevice, Operator, TaskTime, StageTime, CopyTime, Network)


class Pooled(NamedTuple):
    """An operator on a kind of device with one batch size, over all measurements with all tasks on one device; NaN if unknown."""

    runs: int
    seconds: float
    """The median over the measurements of their medians, weighted by their runs; quartiles and CPU time likewise."""
    q25: float
    q75: float
    cpu: float
    memory_bytes: float
    """The largest."""
    sessions: tuple[tuple[str, float], ...]
    """Median seconds by session."""


class Profile(Frozen):
    """Measurements in any number of sessions: a cost model, and the source of links, lines and problems.

    Measurements of equal digests on devices of one kind, number of threads and software with one batch size are pooled when they are
    read; those under a placement on several devices are left out, see `hetsched.costs.Recorder`. Where a name stands for other
    hardware in later sessions, it means the latest.

    Parameters
    ----------
    devices : iterable of ProfiledDevice
        Each device of each session.
    operators : iterable of Operator
    times : iterable of TaskTime
    stages : iterable of StageTime
    copies : iterable of CopyTime
    networks : iterable of Network
        Graphs whose tasks compute these operators.

    Attributes
    ----------
    devices, operators, times, stages, copies, networks : tuples
        Without repetitions, and sorted: devices by name, ``cpu2`` before ``cpu10``.

    Raises
    ------
    InvalidProblem
        A number is out of range, a row names an operator or a device of its session that is not there, or two rows are measurements
        of the same with different results.

    Examples
    --------
    >>> profile = Profile.from_arrays(["a", "b"], ["cpu"], [1, 2], [[[1, 2]], [[2, 4]]])
    >>> profile.problem(inputs=4).durations[:, :, 0].tolist()
    [[4.0], [8.0]]
    """

    _format = "hetsched-profile"
    devices: tuple[ProfiledDevice, ...]
    operators: tuple[Operator, ...]
    times: tuple[TaskTime, ...]
    stages: tuple[StageTime, ...]
    copies: tuple[CopyTime, ...]
    networks: tuple[Network, ...]

    @checked(InvalidProblem)
    def __init__(
        self,
        devices: Iterable[ProfiledDevice] = (),
        operators: Iterable[Operator] = (),
        times: Iterable[TaskTime] = (),
        stages: Iterable[StageTime] = (),
        copies: Iterable[CopyTime] = (),
        networks: Iterable[Network] = (),
    ) -> None:
        self._set(
            devices=_ordered(ProfiledDevice, devices, lambda row: (natural(row.name), row.session)),
            operators=_ordered(Operator, operators, lambda row: (row.digest,)),
            times=_ordered(TaskTime, times, lambda row: (row.session, row.digest, natural(row.device), row.batch, row.placed, row.turn)),
            stages=_ordered(StageTime, stages, lambda row: (row.session, row.groups, row.strategy, natural(row.device), row.batch)),
            copies=_ordered(CopyTime, copies, lambda row: (row.session, natural(row.source), natural(row.target), row.size, row.turn)),
            networks=_ordered(Network, networks, lambda row: (msgspec.json.encode(GraphPart.of(row.graph)), row.digests)),
        )
        self._check()

    def _check(self) -> None:
        """Check that rows fit to each other."""
        digests, devices = {row.digest for row in self.operators}, {(row.name, row.session) for row in self.devices}
        needed = [(row.digest, "times") for row in self.times]
        needed += [(digest, "stages") for row in self.stages for group in row.groups for digest in group]
        needed += [(digest, "networks") for row in self.networks for digest in row.digests]
        for digest, what in needed:
            if digest not in digests:
                raise InvalidProblem(f"{what} have the digest {digest!r}, which is none of the operators; add its operator")
        places = [(row.device, row.session) for row in self.times] + [(row.device, row.session) for row in self.stages]
        places += [(name, row.session) for row in self.copies for name in (row.source, row.target)]
        for name, session in places:
            if (name, session) not in devices:
                raise InvalidProblem(f"device {name!r} of session {session!r} is not one of the devices; add it")
        for network in self.networks:
            if len(network.digests) != network.graph.n_tasks:
                raise InvalidProblem(f"a network has {len(network.digests)} digests and {network.graph.n_tasks} tasks; give one for each")

    @classmethod
    @checked(InvalidProblem)
    def from_arrays(
        cls,
        tasks: Iterable[str],
        devices: Iterable[Device | str],
        batch_sizes: Iterable[int],
        seconds: npt.ArrayLike,
        memory_bytes: npt.ArrayLike | None = None,
        *,
        graph: TaskGraph | None = None,
        session: str = "",
    ) -> Profile:
        """Return the profile of measurements from elsewhere, in which each task's digest is its name.

        Parameters
        ----------
        tasks : iterable of str
        devices : iterable of Device (or of names)
        batch_sizes : iterable of int
            In any order; a size that was measured twice appears twice.
        seconds : array [n, K, B]
            NaN where the task cannot run on the device, or was not measured.
        memory_bytes : array [n, K, B], optional
            Peak of the bytes that a batch allocates; NaN if unknown.
        graph : TaskGraph, optional
            A graph with these tasks, in any order. Default: these tasks without edges.
        session : str
            A name for these measurements.

        Raises
        ------
        InvalidProblem
            Shapes do not fit, or a number is negative or infinite.
        """
        names, sizes = tuple(tasks), list(batch_sizes)
        members = [device if isinstance(device, Device) else Device(device) for device in devices]
        unique_names(names, "task")
        unique_names([device.name for device in members], "device")
        for size in sizes:
            check_count(size, "batch size", error=InvalidProblem)
        shape = (len(names), len(members), len(sizes))
        times = _cube(seconds, "seconds", shape, names, members)
        memory = np.full(shape, np.nan) if memory_bytes is None else _cube(memory_bytes, "memory_bytes", shape, names, members)
        graph = TaskGraph(names) if graph is None else graph
        if set(graph.names) != set(names):
            raise InvalidProblem(f"the graph has other tasks ({len(graph.names)}) than were measured ({len(names)}); give a graph of these")
        rows = []
        for b, size in enumerate(sizes):
            turn = sizes[:b].count(size)
            for i, k in np.argwhere(np.isfinite(times[:, :, b]) | np.isfinite(memory[:, :, b])).tolist():
                median, held = _known(times[i, k, b]), _known(memory[i, k, b])
                rows.append(TaskTime(names[i], members[k].name, int(size), session, turn=turn, median=median, memory_bytes=held))
        return cls(
            [ProfiledDevice(device, session) for device in members],
            operators_of(graph, graph.names),
            rows,
            networks=[Network(graph, graph.names)],
        )

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.batch_sizes)) or "no size"
        stages = f", {len(self.stages)} stages" if self.stages else ""
        return f"<Profile: {len(self.operators)} operators on {', '.join(self.names) or 'no device'}, batches of {sizes}{stages}>"

    # ------------------------------------------------------------------ parts and unions

    @checked
    def merge(self, other: Profile) -> Profile:
        """Return the profile of all measurements of both, in any order.

        Raises
        ------
        InvalidProblem
            Both have the same measurement with different results.
        """
        return Profile(*((*getattr(self, name), *getattr(other, name)) for name in self._fields))

    @checked
    def only(
        self, *, graph: TaskGraph | None = None, devices: Iterable[str] | None = None, batch_sizes: Sequence[int] | None = None
    ) -> Profile:
        """Return the part about one of its graphs, about some devices, and about some batch sizes.

        Raises
        ------
        InvalidProblem
            It has no such graph or device.
        """
        networks = self.networks if graph is None else (self.network(graph),)
        digests = {row.digest for row in self.operators} if graph is None else set(networks[0].digests)
        names = set(self.names) if devices is None else {self.device(name).name for name in devices}
        sizes = set(self.batch_sizes) | {row.batch for row in self.stages} if batch_sizes is None else set(batch_sizes)
        return Profile(
            (row for row in self.devices if row.name in names),
            (row for row in self.operators if row.digest in digests),
            (row for row in self.times if row.digest in digests and row.device in names and row.batch in sizes),
            (
                row
                for row in self.stages
                if row.device in names and row.batch in sizes and digests.issuperset(digest for group in row.groups for digest in group)
            ),
            (row for row in self.copies if row.source in names and row.target in names),
            networks,
        )

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the profile as a JSON document; ``hetsched.read`` reads it back to the bit."""
        documents.write(self, path)

    # ------------------------------------------------------------------ what was measured

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the devices."""
        return tuple(dict.fromkeys(row.name for row in self.devices))

    @cached_property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes of the measurements with all tasks on one device."""
        return tuple(sorted({row.batch for row in self.times if not row.placed}))

    @cached_property
    def sessions(self) -> tuple[str, ...]:
        """The names of the sessions; those that begin with a time are in its order."""
        return tuple(sorted({row.session for row in self.devices}))

    @property
    def latest(self) -> datetime | None:
        """When the latest session began; None if unknown."""
        for session in reversed(self.sessions):
            try:
                return datetime.strptime(session[:20], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            except ValueError:
                continue
        return None

    @checked
    def device(self, name: str) -> ProfiledDevice:
        """Return a device as of its latest session."""
        own = [row for row in self.devices if row.name == name]
        if not own:
            raise InvalidProblem(f"device {name!r} was not measured; the profile has {', '.join(self.names) or 'none'}")
        return own[-1]

    @checked
    def network(self, graph: TaskGraph | None = None) -> Network:
        """Return the only network of the profile, or that of a graph.

        Raises
        ------
        InvalidProblem
            There are none or several, or none is of that graph.
        """
        own = [row for row in self.networks if graph is None or row.graph == graph]
        if not own:
            what = "the profile has no graph" if graph is None else "the graph is none of the profile's"
            raise InvalidProblem(f"{what}; profile its module, or add a costs.Network with the digests of its tasks")
        if len(own) > 1:
            raise InvalidProblem(f"the profile has {len(own)} graphs ({', '.join(repr(row.graph) for row in own[:4])}); say which: graph=")
        return own[0]

    @checked
    def digests(self, tasks: TaskGraph | Iterable[str]) -> tuple[str, ...]:
        """Return the digests of the tasks of a graph, or of tasks by name, from the networks that have all of them.

        Raises
        ------
        InvalidProblem
            None has all of them; or several have, in which they compute different things, and none is of that graph.
        """
        names = tasks.names if isinstance(tasks, TaskGraph) else tuple(tasks)
        if not all(isinstance(name, str) for name in names):
            raise InvalidArgument(f"tasks is {shown(names)}; it must be a TaskGraph, or names of tasks")
        exact = [row for row in self.networks if isinstance(tasks, TaskGraph) and row.graph == tasks]
        found = {
            tuple(row.digests[row.graph.index[name]] for name in names)
            for row in exact or self.networks
            if all(name in row.graph.index for name in names)
        }
        if len(found) == 1:
            return found.pop()
        if found:
            raise InvalidProblem(
                f"{plural(len(names), 'task')} ({named(range(len(names)), names)}) are in several graphs of the profile, in which they "
                "compute different things; take the part about one: only(graph=...)"
            )
        known = [name for row in self.networks for name in row.graph.names]
        missing = next((name for name in names if name not in set(known)), None)
        if missing is None:
            raise InvalidProblem("the tasks were measured, but as parts of different graphs; measure them as one")
        some = ", ".join(known[:8])
        raise InvalidProblem(f"task {missing!r} was not measured; the profile has {some + ', ...' if some else 'none'}")

    @cached_property
    def _pools(self) -> dict[tuple[str, tuple[object, ...], int], Pooled]:
        pool = {(row.name, row.session): row.pool for row in self.devices}
        found: dict[tuple[str, tuple[object, ...], int], list[TaskTime]] = {}
        for row in self.times:
            if not row.placed:
                found.setdefault((row.digest, pool[row.device, row.session], row.batch), []).append(row)
        return {key: _pooled(rows) for key, rows in found.items()}

    @checked
    def pooled(self, digest: str, device: str, batch: int) -> Pooled | None:
        """Return the pooled measurements of an operator, or None if there are none."""
        return self._pools.get((digest, self.device(device).pool, batch))

    @checked
    def cube(self, what: Amount, tasks: TaskGraph | Sequence[str], devices: Sequence[str], batch_sizes: Sequence[int]) -> FloatArray:
        """Return pooled "seconds" or "memory_bytes", shape [task, device, size]; NaN where not measured."""
        return self.amounts(what, self.digests(tasks), devices, batch_sizes)

    @checked
    def amounts(self, what: Amount, digests: Sequence[str], devices: Sequence[str], batch_sizes: Sequence[int]) -> FloatArray:
        """Return pooled "seconds" or "memory_bytes" of operators, as `cube` does of tasks."""
        pools = [self.device(name).pool for name in devices]
        values = np.full((len(digests), len(pools), len(batch_sizes)), np.nan)
        for i, digest in enumerate(digests):
            for k, pool in enumerate(pools):
                for b, size in enumerate(batch_sizes):
                    found = self._pools.get((digest, pool, int(size)))
                    if found is not None:
                        values[i, k, b] = getattr(found, what)
        return values

    @checked
    def on_lines(self, what: Amount, digests: Sequence[str], devices: Sequence[str], batch_sizes: Sequence[int]) -> FloatArray:
        """Return the values on the lines through the measurements of operators, as `amounts`; NaN where there are not two sizes."""
        lines, _ = rising(self.batch_sizes, self.amounts(what, digests, devices, self.batch_sizes))
        return np.maximum(lines.at(batch_sizes), 0.0)

    @checked
    def stage(self, groups: tuple[tuple[str, ...], ...], strategy: str, device: ProfiledDevice, batch: int) -> float | None:
        """Return the pooled seconds of a stage on such a device, or None if it was not measured."""
        return self._stages.get((groups, strategy, device.pool, batch))

    @cached_property
    def _stages(self) -> dict[tuple[object, ...], float]:
        pool = {(row.name, row.session): row.pool for row in self.devices}
        found: dict[tuple[object, ...], list[StageTime]] = {}
        for row in self.stages:
            found.setdefault((row.groups, row.strategy, pool[row.device, row.session], row.batch), []).append(row)
        return {key: _weighted([row.median for row in rows], [row.runs for row in rows]) for key, rows in found.items()}

    @checked
    def stolen(self, device: str) -> float:
        """Return the part of the time of a device's tasks, in its latest session, in which their thread did not compute; NaN if unknown.

        It is known of CPU devices of one thread.
        """
        latest = self.device(device).session
        own = [row for row in self.times if (row.device, row.session) == (device, latest) and row.cpu is not None and row.median]
        wall = math.fsum(row.median or 0.0 for row in own)
        lost = math.fsum(max((row.median or 0.0) - (row.cpu or 0.0), 0.0) for row in own)
        return lost / wall if wall > 0 else math.nan

    @checked
    def apart(self, more: float = APART) -> Columns:
        """Return the operators whose median seconds in two sessions differ by more than a part of the shorter.

        Columns `digest`, `op`, `batch`, `shortest` and `longest` in seconds, `ratio`; the largest ratio first.
        """
        op = {row.digest: row.op for row in self.operators}
        rows = []
        for (digest, _, batch), found in self._pools.items():
            times = [seconds for _, seconds in found.sessions if seconds > 0]
            if len(times) > 1 and max(times) > (1 + more) * min(times):
                rows.append((digest, op[digest], batch, min(times), max(times), max(times) / min(times)))
        rows.sort(key=lambda row: (-row[-1], row))
        columns = list(zip(*rows, strict=True)) or [()] * 6
        return Columns(
            digest=texts(columns[0]),
            op=texts(columns[1]),
            batch=np.array(columns[2], np.int64),
            shortest=np.array(columns[3], np.float64),
            longest=np.array(columns[4], np.float64),
            ratio=np.array(columns[5], np.float64),
        )

    # ------------------------------------------------------------------ what follows

    @checked
    def durations(self, graph: TaskGraph, cluster: Cluster, batch_sizes: Sequence[int]) -> FloatArray:
        """Return seconds per batch, shape [task, device, size]; tasks and devices are matched by name.

        A batch size that was not measured is on the line through those that were, or NaN if there is one only.

        Raises
        ------
        InvalidProblem
            A task or a device was not measured.
        """
        return self.estimated("seconds", graph, cluster.names, batch_sizes)

    @checked
    def estimated(self, what: Amount, tasks: TaskGraph | Sequence[str], devices: Sequence[str], batch_sizes: Sequence[int]) -> FloatArray:
        """Return "seconds" or "memory_bytes" as `durations` does, for the tasks of a graph or by name."""
        digests = self.digests(tasks)
        exact = self.amounts(what, digests, devices, batch_sizes)
        return np.where(np.isnan(exact), self.on_lines(what, digests, devices, batch_sizes), exact) if np.isnan(exact).any() else exact

    @checked
    def links(self, *, relative: bool = True) -> Links:
        """Return the lines through the copies between its devices; see `Links` for errors."""
        now = {name: self.device(name).pool for name in self.names}
        pool = {(row.name, row.session): row.pool for row in self.devices}
        found: dict[tuple[str, str, int], list[CopyTime]] = {}
        for row in self.copies:
            if all(pool[name, row.session] == now[name] for name in (row.source, row.target)):
                found.setdefault((row.source, row.target, row.size), []).append(row)
        sizes = sorted({size for _, _, size in found})
        seconds = np.full((len(self.names), len(self.names), len(sizes)), np.nan)
        for (source, target, size), rows in found.items():
            place = self.names.index(source), self.names.index(target), sizes.index(size)
            seconds[place] = _weighted([row.median for row in rows], [row.runs for row in rows])
        return Links([self.device(name).device for name in self.names], sizes, seconds, relative=relative)

    @checked
    def cluster(self) -> Cluster:
        """Return its devices with the links between them.

        Raises
        ------
        InvalidProblem
            It has several devices, and no copies between them.
        """
        if len(self.names) > 1 and not self.copies:
            raise InvalidProblem("no copies between the devices were measured; give a cluster")
        return self.links().cluster()

    @checked
    def machine(self) -> Machine:
        """Return the overheads of its devices."""
        return Machine({name: self.device(name).overhead for name in self.names})

    @checked
    def problem(
        self,
        inputs: int | None = None,
        *,
        graph: TaskGraph | None = None,
        cluster: Cluster | None = None,
        batch_sizes: Iterable[int] | None = None,
        **rules: Any,
    ) -> Problem:
        """Return the problem of a graph with what was measured: durations, links, memory, and the time of dispatching tasks.

        Memory is entered after durations are known: see `hetsched.costs.memory`.

        Parameters
        ----------
        inputs : int, optional
            Default: the smallest batch size that was measured.
        graph : TaskGraph, optional
            Default: the only one.
        cluster : Cluster, optional
            With devices of the profile. Default: all of them, with the links that were measured.
        batch_sizes : iterable of int, optional
            Default: all inputs as one batch.
        **rules
            Further arguments of `Problem`.

        Raises
        ------
        InvalidProblem
            A task was not measured with that batch size, and not with two others; or an error of `Problem`.
        """
        network = self.network(graph)
        count = (min(self.batch_sizes, default=1)) if inputs is None else inputs
        sizes = [count] if batch_sizes is None else list(batch_sizes)
        cluster = self.cluster() if cluster is None else cluster
        times = self.durations(network.graph, cluster, sizes)
        for i, b in np.argwhere(~np.isfinite(times).any(axis=1))[:1].tolist():
            raise InvalidProblem(
                f"task {network.graph.names[i]!r} was not measured with batches of {sizes[b]}, nor with two other sizes; "
                f"the profile has {', '.join(map(str, self.batch_sizes)) or 'no sizes'}"
            )
        priced = Problem(network.graph, cluster, durations=times, batch_sizes=sizes, inputs=count, **rules)
        held = self.estimated("memory_bytes", network.graph, cluster.names, priced.batch_sizes.tolist())
        machine = Machine({name: self.device(name).overhead for name in cluster.names})
        return machine.problem(with_workspace(priced, held))


# ---------------------------------------------------------------------- rows


def operators_of(graph: TaskGraph, digests: Sequence[str]) -> tuple[Operator, ...]:
    """Return the operators of a graph's tasks, of which only the digests are known."""
    amounts = (column.tolist() for column in (graph.flops, graph.bytes_accessed, graph.weight_bytes))
    columns = zip(digests, graph.op, *amounts, graph.shape, strict=True)
    return tuple(
        Operator(digest, op, "", _known(flops), _known(accessed), weight, shape) for digest, op, flops, accessed, weight, shape in columns
    )


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts numbers within names by their value."""
    return tuple((0, int(part), part) if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part)


TEXTS = ("digest", "op", "text", "session", "strategy", "placed", "source", "target")
COUNTS = (("batch", 1), ("runs", 1), ("threads", 1), ("turn", 0), ("size", 0))
AMOUNTS = ("median", "q25", "q75", "cpu", "memory_bytes", "cpu_source", "cpu_target", "flops", "bytes_accessed", "weight_bytes", "clock_hz")


def _ordered(kind: type[Row], rows: Iterable[Row], key: Callable[[Row], tuple[Any, ...]]) -> tuple[Row, ...]:
    """Return the rows sorted by a key, each once; of operators with equal digests the one that says most."""
    kept: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        _check_row(kind, row)
        place = key(row)
        other = kept.setdefault(place, row)
        if other != row:
            if not isinstance(row, Operator):
                raise InvalidProblem(
                    f"two measurements of the same have different results: {other!r} and {row!r}; name their sessions apart"
                )
            kept[place] = max(other, row, key=repr)
    return tuple(kept[place] for place in sorted(kept))


def _check_row(kind: type[Row], row: Row) -> None:
    """Check the numbers and texts of a row."""
    if not isinstance(row, kind):
        raise InvalidProblem(f"a row is {shown(row)}; it must be a costs.{kind.__name__}")
    fields = row._asdict()
    if kind is TaskTime or kind is StageTime:
        fields["text"] = fields.pop("device")
    for what in TEXTS:
        if what in fields and not is_text(fields[what]):
            raise InvalidProblem(f"{what} of a {kind.__name__} is {shown(fields[what])}; it must be Unicode text")
    for what, least in COUNTS:
        if fields.get(what) is not None:
            check_count(fields[what], f"{what} of a {kind.__name__}", least, error=InvalidProblem)
    for what in AMOUNTS:
        value = fields.get(what)
        if value is not None and not (isinstance(value, int | float) and 0 <= value < math.inf):
            raise InvalidProblem(f"{what} of a {kind.__name__} is {shown(value)}; it must be a number >= 0, or None if unknown")


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _pooled(rows: Sequence[TaskTime]) -> Pooled:
    def over(what: str) -> float:
        own = [(getattr(row, what), row.runs) for row in rows if getattr(row, what) is not None]
        return _weighted(*zip(*own, strict=True)) if own else math.nan

    sessions: dict[str, list[TaskTime]] = {}
    for row in rows:
        if row.median is not None:
            sessions.setdefault(row.session, []).append(row)
    medians = tuple(
        (session, _weighted([row.median or 0.0 for row in own], [row.runs for row in own])) for session, own in sessions.items()
    )
    memory = max((row.memory_bytes for row in rows if row.memory_bytes is not None), default=math.nan)
    return Pooled(sum(row.runs for row in rows), over("median"), over("q25"), over("q75"), over("cpu"), memory, medians)


def _weighted(values: Sequence[float], weights: Sequence[int]) -> float:
    """Return the weighted median: of equal weights the middle one, or the mean of both."""
    order = np.argsort(values, kind="stable")
    ordered, total = np.asarray(values, np.float64)[order], np.cumsum(np.asarray(weights)[order])
    half = total[-1] / 2
    first = int(np.searchsorted(total, half))
    last = first + 1 if total[first] == half else first
    return float((ordered[first] + ordered[last]) / 2) if last != first else float(ordered[first])


def _cube(values: npt.ArrayLike, what: str, shape: tuple[int, ...], tasks: tuple[str, ...], devices: Sequence[Device]) -> FloatArray:
    amounts = np.array(check_array(values, what, text="an array [task, device, batch size]", absent=True, error=InvalidProblem))
    if amounts.shape != shape:
        raise InvalidProblem(f"{what} has shape {list(amounts.shape)} but [task, device, batch size] = {list(shape)} is needed")
    for i, k, b in np.argwhere((amounts < 0) | np.isinf(amounts)):
        where = f"task {tasks[i]!r} on {devices[k].name!r}"
        raise InvalidProblem(f"{what} of {where} is {amounts[i, k, b]}; it must be a number >= 0, or NaN where it cannot run")
    return amounts
