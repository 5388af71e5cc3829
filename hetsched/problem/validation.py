"""The checks of a problem: shapes and ranges of its columns, and that every task can process all inputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from hetsched.arguments import check_array, check_count, shown
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.errors import InvalidProblem, warn
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph, named
from hetsched.problem.labels import Axis, edge_axis, in_order
from hetsched.problem.ranges import RANGE, in_range

MOST_INPUTS = 1_000_000
SLOW, SMALL, LONG = 1e6, 1e6, 3600.0
"""Bytes per second, bytes and seconds beyond which an amount beside real tensors looks like one of another unit."""


class Checked(Protocol):
    """The attributes of a `Problem` that the checks read."""

    graph: TaskGraph
    cluster: Cluster
    batch_sizes: IntArray
    inputs: int
    transfers: FloatArray | None

    @property
    def batching(self) -> str: ...
    @property
    def device_class(self) -> IntArray: ...
    @property
    def class_durations(self) -> FloatArray: ...
    @property
    def class_pinned(self) -> BoolArray: ...
    @property
    def unit(self) -> IntArray: ...
    @property
    def class_eligible(self) -> BoolArray: ...
    @property
    def paths(self) -> BoolArray: ...
    def _united(self, usable: BoolArray) -> BoolArray: ...


def check_eligibility(problem: Checked) -> None:
    """Raise `InvalidProblem` if some task, label or edge has no possible device."""
    names, devices, classes = problem.graph.names, problem.cluster.names, problem.device_class
    finite = np.isfinite(problem.class_durations)
    stuck = np.flatnonzero(~finite.any(axis=(1, 2)))
    if len(stuck):
        name = names[stuck[0]]
        raise InvalidProblem(f"task {name!r} runs on no device: durations[{name}] are all absent; give at least one")
    fitting = np.any(finite[:, :, problem.batch_sizes <= problem.inputs], axis=2)
    stuck = np.flatnonzero(~fitting.any(axis=1))
    if len(stuck):
        raise InvalidProblem(
            f"task {names[stuck[0]]!r} supports no batch size up to inputs={problem.inputs}: its sizes are "
            f"{problem.batch_sizes[finite[stuck[0]].any(axis=0)].tolist()}; give durations for a smaller size"
        )
    own = fitting & problem.class_pinned
    stuck = np.flatnonzero(~own.any(axis=1))
    if len(stuck):
        i = int(stuck[0])
        raise InvalidProblem(
            f"task {names[i]!r} is pinned to {named(np.flatnonzero(problem.class_pinned[i][classes]), devices)} but has durations only on "
            f"{named(np.flatnonzero(fitting[i][classes]), devices)}; widen the pin or give a duration"
        )
    united = problem._united(np.asarray(own))
    stuck = np.flatnonzero(~united.any(axis=1))
    if len(stuck):
        members = np.flatnonzero(problem.unit == problem.unit[stuck[0]])
        raise InvalidProblem(
            f"co-location label {problem.graph.colocation[stuck[0]]!r} leaves no device on which all of "
            f"{named(members, names)} can run; relax their pins or durations, or split the label"
        )
    stuck = np.flatnonzero(~problem.class_eligible.any(axis=1))
    if len(stuck):  # where paths are missing, each device is a class
        _refuse_paths(problem, united, int(stuck[0]))


def warn_of_units(problem: Checked) -> None:
    """Warn of amounts that look like gigabytes or milliseconds, if tasks have the sizes of operators on real tensors."""
    if not problem.graph.has_shapes:
        return
    names, devices = problem.graph.names, problem.cluster.names
    bandwidth, memory, times = problem.cluster.bandwidth, problem.cluster.memory_bytes, problem.class_durations
    found: list[tuple[str, str, str]] = []
    for h, k in np.argwhere((bandwidth > 0) & (bandwidth < SLOW))[:1].tolist():
        given = f"{bandwidth[h, k]:g}"
        found += [(f"bandwidth from {devices[h]!r} to {devices[k]!r} is {given} bytes per second", "below 1 MB/s", f"{given} GB/s")]
    for k in np.flatnonzero((memory > 0) & (memory < SMALL))[:1].tolist():
        found += [(f"memory_bytes of device {devices[k]!r} is {memory[k]:g}", "below 1 MB", f"{memory[k]:g} GB")]
    for i, c, b in np.argwhere(times > LONG)[:1].tolist():
        where, given = devices[problem.device_class.tolist().index(c)], f"{times[i, c, b]:g}"
        found += [(f"the duration of task {names[i]!r} on {where!r} is {given} s", "above an hour", f"{given} us")]
    for fact, limit, text in found:
        warn(f"{fact}, {limit}, though tasks have the sizes of real tensors; give it with its unit, as in {text!r}", UserWarning)


def _refuse_paths(problem: Checked, usable: BoolArray, stuck: int) -> None:
    names, devices = problem.graph.names, problem.cluster.names
    from_source, to_target = usable[problem.graph.source], usable[problem.graph.target]
    if problem.transfers is None:
        reached = (usable.astype(np.float32) @ problem.paths[0].astype(np.float32) > 0)[problem.graph.source]
    else:
        reached = (problem.paths & from_source[:, :, None]).any(axis=1)
    for e in np.flatnonzero(~(reached & to_target).any(axis=1)):
        i, j = problem.graph.edges[e].tolist()
        raise InvalidProblem(
            f"no path between devices for edge {names[i]!r} -> {names[j]!r}: the first can run on "
            f"{named(np.flatnonzero(from_source[e]), devices)}, the second on {named(np.flatnonzero(to_target[e]), devices)}; "
            "add a channel or let them share a device"
        )
    raise InvalidProblem(
        f"no path between the devices of task {names[stuck]!r} and those possible for its neighbours; add a channel or relax pins"
    )


def check_coverage(problem: Checked) -> None:
    """Raise `InvalidProblem` if some task cannot process all inputs with its batch sizes."""
    usable = problem.class_eligible[:, :, None] & np.isfinite(problem.class_durations)
    one_batch = problem._united(np.any(usable[:, :, problem.batch_sizes == problem.inputs], axis=2)).any(axis=1)
    done: set[int] = set()
    cache: dict[bytes, bool] = {}
    for i in np.flatnonzero(~one_batch).tolist():
        if int(problem.unit[i]) in done:
            continue
        done.add(int(problem.unit[i]))
        members = np.flatnonzero(problem.unit == problem.unit[i]) if problem.graph.colocation[i] is not None else np.array([i])
        key = usable[members].tobytes()
        if key not in cache:
            cache[key] = _covers(problem, usable[members][:, problem.device_class])
        if not cache[key]:
            what = f"task {problem.graph.names[i]!r}" if len(members) == 1 else f"co-location label {problem.graph.colocation[i]!r}"
            raise InvalidProblem(
                f"{what} has no way to process all {problem.inputs} inputs with batch sizes "
                f"{problem.batch_sizes[usable[members].any(axis=(0, 1))].tolist()} under batching={problem.batching!r}; "
                "give durations for more sizes" + (" or use batching='free'" if problem.batching == "once" else "")
            )


def _covers(problem: Checked, usable: BoolArray) -> bool:
    """Return whether the L inputs can be divided among the devices with the batch sizes `usable` [m, K, B] of a unit.

    A set of numbers of inputs is a bit mask: bit q is set if q inputs are possible.
    """
    everything = (1 << (problem.inputs + 1)) - 1
    total = 1
    if problem.batching == "once":  # a device runs none of a unit's inputs, or one size that all members have
        for row in np.logical_and.reduce(usable):
            before = total
            for size in problem.batch_sizes[row].tolist():
                total |= before << size & everything
        return bool(total >> problem.inputs & 1)
    if len(usable) == 1:  # the device of a batch does not matter
        usable = np.logical_or.reduce(usable, axis=1, keepdims=True)
    numbers: dict[bytes, int] = {}
    for rows in np.unique(usable.swapaxes(0, 1), axis=0):
        common = everything
        for row in rows:
            if row.tobytes() not in numbers:
                numbers[row.tobytes()] = _sums(problem.batch_sizes[row].tolist(), everything)
            common &= numbers[row.tobytes()]
        total |= common
    return _is_sum(total, problem.inputs)


def _sums(sizes: list[int], everything: int) -> int:
    """Return the bit mask of all sums of `sizes`, which ascend, each used any number of times."""
    counts = 1
    for size in sizes:
        if not counts >> size & 1:
            times = size
            while times < everything.bit_length():
                counts |= counts << times & everything
                times *= 2
    return counts


def _is_sum(counts: int, total: int) -> bool:
    """Return whether `total` is a sum of numbers in the bit mask `counts`, each used any number of times; 0 is in the mask."""
    size = total + 1
    length = 1 << (2 * size).bit_length()
    possible = np.unpackbits(np.frombuffer(counts.to_bytes(size // 8 + 1, "little"), np.uint8), bitorder="little")[:size] > 0
    while not possible[total]:
        spectrum = np.fft.rfft(possible, length)
        twice = np.fft.irfft(spectrum * spectrum, length)[:size] > 0.5  # whether some pair has each sum; exact for lengths up to a million
        if np.array_equal(twice, possible):
            return False
        possible = twice
    return True


def checked_sizes(sizes: Iterable[int] | None, inputs: int, from_costs: bool) -> IntArray:
    """Return the batch sizes of a problem as an array, by default quarters of the inputs with a cost model, else 1."""
    if sizes is None:
        if not from_costs:
            return np.array([1])
        return np.array(sorted({max(1, inputs * quarter // 4) for quarter in (1, 2, 3, 4)}))
    values = list(sizes)
    if set(map(type, values)) != {int} or not 1 <= min(values) <= max(values) <= MOST_INPUTS:  # one by one a million would take a second
        for value in values:
            check_count(value, "batch size", most=MOST_INPUTS, error=InvalidProblem)
    if not values or len(set(values)) < len(values):
        raise InvalidProblem(f"batch_sizes is {shown(values)}; give one or more distinct sizes")
    return np.array(values, dtype=np.int64)


def checked_kinds(kinds: Iterable[str], cluster: Cluster) -> tuple[str, ...]:
    """Return the kinds of devices along the second axis of durations."""
    names = tuple(kinds)
    if len(names) != len(cluster.kinds) or not all(kind in names for kind in cluster.kinds):
        raise InvalidProblem(
            f"kinds is {shown(list(names))} but the devices have the kinds {shown(list(cluster.kinds))}; name each of these once, "
            "in the order of the second axis of durations"
        )
    return names


def checked_durations(values: Any, graph: TaskGraph, devices: Axis, sizes: IntArray, implied: bool) -> FloatArray:
    """Return durations as an array of seconds, [n, K, B] for K devices or kinds; `implied` if the sizes are the default."""
    n, size, what = graph.n_tasks, len(devices.names), f"{devices.what}s"
    values = in_order(values, "durations", Axis("task", graph.names), devices, Axis("batch size", sizes.tolist()))
    text = f"an array of {n} tasks x {size} {what} of seconds"
    times = np.array(check_array(values, "durations", text=text, absent=True, unit="s", error=InvalidProblem), order="C")
    shape = times.shape
    if times.ndim == 2 and len(sizes) == 1:
        times = times[:, :, None]
    if times.shape != (n, size, len(sizes)):
        wanted = f"[{n} tasks, {size} {what}]" if implied else f"[{n} tasks, {size} {what}, {len(sizes)} batch sizes]"
        remedy = "; a third axis needs batch_sizes" if implied and times.ndim == 3 else ""
        raise InvalidProblem(f"durations has shape {list(shape)} but {wanted} is needed{remedy}")
    bad = ~(np.isnan(times) | in_range(times))
    if bad.any():
        i, k, b = np.argwhere(bad)[0]
        raise InvalidProblem(
            f"duration of task {graph.names[i]!r} on {devices.names[k]!r} is {times[i, k, b]}; "
            f"it must be {RANGE}, or NaN where the task cannot run"
        )
    return times


def checked_transfers(values: Any, graph: TaskGraph, cluster: Cluster) -> FloatArray:
    """Return the transfer times of a problem as an array of seconds, [E, K, K]."""
    shape = (graph.n_edges, cluster.n_devices, cluster.n_devices)
    devices = Axis("device", cluster.names)
    values = in_order(values, "transfers", edge_axis(graph.edges, graph.names), devices, devices)
    given = check_array(values, "transfers", text=f"an array of shape {list(shape)}", absent=True, unit="s", error=InvalidProblem)
    times = np.array(given, order="C")
    if times.shape != shape and not (times.size == 0 and graph.n_edges == 0):
        raise InvalidProblem(
            f"transfers has shape {list(times.shape)} but [edge, device, device] = {list(shape)} is needed, in the order of graph.edges"
        )
    times = times.reshape(shape)
    bad = ~(np.isnan(times) | in_range(times))
    diagonal = np.arange(cluster.n_devices)
    bad[:, diagonal, diagonal] |= times[:, diagonal, diagonal] != 0
    if bad.any():
        e, h, k = np.argwhere(bad)[0]
        i, j = graph.edges[e]
        rule = "it must be 0 within a device" if h == k else f"it must be {RANGE}, or NaN where impossible"
        raise InvalidProblem(
            f"transfer time of edge {graph.names[i]!r} -> {graph.names[j]!r} from {cluster.names[h]!r} to "
            f"{cluster.names[k]!r} is {times[e, h, k]}; {rule}"
        )
    return times
