"""Numba kernels of the contiguous dynamic program: every interval of ideals, on every class of devices.

A state encodes the numbers of devices in use, ``sum(used[c] * stride[c])`` over the classes c. The current interval grows
unit by unit along a path; `Path` has a row for each of its units.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.analysis.load_data import LoadData
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.compiled import inner, kernel

WORK, IN, OUT, IN_BELOW, OUT_BELOW, LOADS = 0, 1, 2, 3, 4, 5
"""Indices of the seconds of an interval on a device of each class, and their number: its units; its tensors in and out;
and the tensors exchanged with the ideal at which it begins, which remain when the interval grows."""
ROUNDING = 1e-12
SLACK = 1 + 1e-9


class Lattice(NamedTuple):
    """The ideals, see `Ideals`; elements are units, in topological order."""

    ptr: IntArray
    element: IntArray
    larger: IntArray
    parent: IntArray
    """[I]: an ideal with one element less, 0 for the empty one."""
    added: IntArray
    """[I]: that element."""


class DeviceClasses(NamedTuple):
    """C classes of interchangeable devices."""

    number: IntArray
    """[C]: number of devices of each class."""
    stride: IntArray
    """[C]"""
    capacity: FloatArray
    """[C]: bytes of one device."""
    need: FloatArray
    """[U]: bytes that each unit claims."""


class Prices(NamedTuple):
    """Work on devices whose loads are at most T is worth at most T times the prices of the devices."""

    free: FloatArray
    """[S]: sum of the prices of the devices not used in a state."""
    unit: FloatArray
    """[U]: value of the work of a unit at these prices."""
    ideal: FloatArray
    """[I]: value of the work of the units in an ideal."""


class Table(NamedTuple):
    """The dynamic program's table."""

    value: FloatArray
    """[I, S]: least possible largest load of an ideal, in seconds."""
    from_ideal: npt.NDArray[np.int32]
    from_class: npt.NDArray[np.int8]
    """[I, S]: the ideal at which the last interval begins, and the class of its device."""
    limit: FloatArray
    """[1]: loads of this value or more are pruned; it decreases to the best value of all units."""


class Path(NamedTuple):
    """Scratch: the current interval."""

    readers: IntArray
    """[H]: number of readers of each tensor in the interval."""
    within: BoolArray
    """[U]: whether a unit is in the interval."""
    below: BoolArray
    """[U]: whether a unit is in the ideal at which the interval begins."""
    later: FloatArray
    """[U + 1]: value of the units from each one on that are not in that ideal."""
    ideal: IntArray
    unit: IntArray
    place: IntArray
    """[U + 2]: ideal reached by a row, unit added, and next successor to try."""
    need: FloatArray
    """[U + 2] bytes"""
    load: FloatArray
    """[U + 2, C, LOADS] seconds"""


def new_path(n_tensors: int, n_units: int, n_classes: int) -> Path:
    """Return scratch for intervals."""
    rows = n_units + 2
    return Path(
        readers=np.zeros(n_tensors, np.int64),
        within=np.zeros(n_units, np.bool_),
        below=np.zeros(n_units, np.bool_),
        later=np.zeros(n_units + 1),
        ideal=np.zeros(rows, np.int64),
        unit=np.zeros(rows, np.int64),
        place=np.zeros(rows, np.int64),
        need=np.zeros(rows),
        load=np.zeros((rows, n_classes, LOADS)),
    )


@kernel
def extend(
    begin: int, end: int, lattice: Lattice, data: LoadData, classes: DeviceClasses, prices: Prices, table: Table, path: Path
) -> None:
    """Extend the ideals `begin` to `end` by every interval whose load is below ``table.limit[0]``.

    An interval is built element by element in ascending order, so each is visited once. Its load on a device
    of a class is the largest of its work, the seconds of its tensors in, and those of its tensors out, or with
    ``data.host`` their sum. ``data.cost`` [U, C] and ``data.time`` [H, 2, C] are those of one device of each class.
    """
    margin = ROUNDING * prices.ideal[-1]
    for c in range(begin, end):
        wanted = _least_worth(c, classes, prices, table)
        if wanted < np.inf:
            _begin_at(c, lattice, prices, path)
            _walk(lattice, data, classes, prices, table, path, wanted - margin)


@inner
def _least_worth(c: int, classes: DeviceClasses, prices: Prices, table: Table) -> float:
    """Return the least value of an interval from ideal c for which the rest can fit on the remaining devices; inf if none does."""
    number, stride, limit, whole = classes.number, classes.stride, table.limit[0], prices.ideal[-1]
    wanted = np.inf
    for s in range(table.value.shape[1]):
        if table.value[c, s] < limit:
            for k in range(len(number)):
                if (s // stride[k]) % (number[k] + 1) < number[k]:
                    after = prices.free[s + stride[k]]
                    rest = whole - prices.ideal[c] - (after * limit * SLACK if after > 0 else 0.0)
                    wanted = min(wanted, rest - ROUNDING * whole)
    return wanted


@inner
def _begin_at(c: int, lattice: Lattice, prices: Prices, path: Path) -> None:
    """Write the first row of the path: an empty interval at ideal c."""
    below, later = path.below, path.later
    for y in range(len(below)):
        below[y] = False
    smaller = c
    while smaller > 0:
        below[lattice.added[smaller]] = True
        smaller = lattice.parent[smaller]
    later[len(below)] = 0.0
    for y in range(len(below) - 1, -1, -1):
        later[y] = later[y + 1] + (0.0 if below[y] else prices.unit[y])
    path.ideal[0], path.unit[0], path.place[0], path.need[0] = c, -1, lattice.ptr[c], 0.0
    for k in range(path.load.shape[1]):
        for x in range(LOADS):
            path.load[0, k, x] = 0.0


@inner
def _walk(lattice: Lattice, data: LoadData, classes: DeviceClasses, prices: Prices, table: Table, path: Path, wanted: float) -> None:
    """Visit every interval from the ideal of the path's first row."""
    c, depth = path.ideal[0], 0
    while depth >= 0:
        step = path.place[depth]
        if step == lattice.ptr[path.ideal[depth] + 1]:
            if depth > 0:
                _leave_out(path.unit[depth], data, path)
            depth -= 1
            continue
        path.place[depth] += 1
        y, target = lattice.element[step], lattice.larger[step]
        if y <= path.unit[depth]:
            continue
        if prices.ideal[target] - prices.ideal[c] + path.later[y + 1] < wanted:
            continue  # units that were skipped are not added later
        _take_in(y, depth + 1, data, classes, path)
        if _put_on_devices(depth + 1, target, data, classes, prices, table, path):
            depth += 1
            path.ideal[depth], path.unit[depth], path.place[depth] = target, y, lattice.ptr[target]
        else:
            _leave_out(y, data, path)


@inner
def _take_in(y: int, row: int, data: LoadData, classes: DeviceClasses, path: Path) -> None:
    """Write the memory and loads of the path's `row`, in which unit y is added."""
    load, time, readers, below, within = path.load, data.time, path.readers, path.below, path.within
    n_classes = load.shape[1]
    path.need[row] = path.need[row - 1] + classes.need[y]
    for k in range(n_classes):
        for x in range(LOADS):
            load[row, k, x] = load[row - 1, k, x]
        load[row, k, WORK] += data.cost[y, k]
    within[y] = True
    for a in range(data.out_ptr[y], data.out_ptr[y + 1]):
        t = data.out[a]
        read_below = False
        for b in range(data.reader_ptr[t], data.reader_ptr[t + 1]):
            read_below = read_below or below[data.reader[b]]
        for k in range(n_classes):
            if readers[t] > 0:
                load[row, k, IN] -= time[t, 0, k]
            if readers[t] < data.reader_ptr[t + 1] - data.reader_ptr[t]:
                load[row, k, OUT] += time[t, 1, k]
            if read_below:
                load[row, k, OUT_BELOW] += time[t, 1, k]
    for a in range(data.read_ptr[y], data.read_ptr[y + 1]):
        t = data.read[a]
        readers[t] += 1
        if within[data.source[t]]:
            if readers[t] == data.reader_ptr[t + 1] - data.reader_ptr[t]:
                for k in range(n_classes):
                    load[row, k, OUT] -= time[t, 1, k]
        elif readers[t] == 1:
            for k in range(n_classes):
                load[row, k, IN] += time[t, 0, k]
                if below[data.source[t]]:
                    load[row, k, IN_BELOW] += time[t, 0, k]


@inner
def _leave_out(y: int, data: LoadData, path: Path) -> None:
    """Undo `_take_in` for unit y."""
    path.within[y] = False
    for a in range(data.read_ptr[y], data.read_ptr[y + 1]):
        path.readers[data.read[a]] -= 1


@inner
def _put_on_devices(row: int, target: int, data: LoadData, classes: DeviceClasses, prices: Prices, table: Table, path: Path) -> bool:
    """Put the interval of the path's `row`, which ends at ideal `target`, on a device of each class.

    Returns whether a longer interval may fit.
    """
    load, number, stride, value, limit = path.load, classes.number, classes.stride, table.value, table.limit
    c, full = path.ideal[0], len(value) - 1
    left, margin = prices.ideal[full] - prices.ideal[target], ROUNDING * prices.ideal[full]
    alive = False
    for k in range(load.shape[1]):
        if path.need[row] > classes.capacity[k]:
            continue
        if not _largest(data.host, load[row, k, WORK], load[row, k, IN_BELOW], load[row, k, OUT_BELOW]) * (1 - ROUNDING) < limit[0]:
            continue
        alive = True
        total = _largest(data.host, load[row, k, WORK], load[row, k, IN], load[row, k, OUT])
        if not total < limit[0]:
            continue
        for s in range(value.shape[1]):
            if not value[c, s] < limit[0] or (s // stride[k]) % (number[k] + 1) == number[k]:
                continue
            after = s + stride[k]
            if left > (prices.free[after] * limit[0] * SLACK if prices.free[after] > 0 else 0.0) + margin:
                continue
            largest = max(value[c, s], total)
            if largest < value[target, after]:
                value[target, after], table.from_ideal[target, after], table.from_class[target, after] = largest, c, k
                if target == full and largest < limit[0]:
                    limit[0] = largest
    return alive


@inner
def _largest(host: bool, work: float, coming: float, going: float) -> float:
    """Return the load of a device: the maximum of concurrent work and transfers, or with `host` their sum."""
    return work + coming + going if host else max(work, coming, going)
