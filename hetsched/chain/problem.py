"""A chain of items and the devices that may run intervals of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hetsched.arguments import COUNT, amount, check_array, checked, number, shown
from hetsched.arguments.amounts import Amount
from hetsched.arrays import BoolArray, FloatArray, Frozen, IntArray
from hetsched.chain.amounts import IMPOSSIBLE, UNLIMITED, amounts
from hetsched.chain.offloading import Offloading
from hetsched.errors import InvalidProblem
from hetsched.problem.graph import plural, unique_names

MOST_DEVICES = 64
OVERLAPPED = {"overlapped_seconds": "seconds", "overlapped_hops": "hops"}
"""Times that overlap, and those of which they are a part."""
TIMES = ("seconds", "stage_seconds", "hops", "closing", *OVERLAPPED)
"""All columns of seconds."""


class ChainProblem(Frozen):
    """Times and bytes of a chain of n items on m devices.

    A placement cuts the chain into stages, intervals of items, and gives each stage a device of its own. Items run in order, so a
    request passes through the stages one after the other.

    Amounts of seconds and bytes are numbers, or text with a unit: ``"2 ms"``, ``"24 GiB"``.

    Parameters
    ----------
    items, devices : iterables of str
        Unique names; the items in order of execution.
    seconds : array_like [n, m]
        Time of an item on a device for one request. inf: impossible.
    weight_bytes, cache_bytes : array_like [n], optional
        What an item holds on its device all the time. Default: 0.
    workspace_bytes : array_like [n], optional
        What an item needs while it runs; a stage needs that of its largest. Default: 0.
    memory_bytes : array_like [m], optional
        What a device has for its stage. Default: unlimited.
    stage_seconds : array_like [m], optional
        Time that a stage on a device takes beside its items. inf: impossible. Default: 0.
    hops : array_like [m, m], optional
        Time from a stage on one device (row) to the next stage on another (column). inf: impossible. Default: 0.
    closing : array_like [m, m], optional
        Time from the last stage (row) back to the first (column), if they are two. inf: impossible. Default: 0.
    overlapped_seconds : array_like [n, m], optional
        The part of ``seconds`` during which the other stages compute parts of the same request, see the notes. Default: 0.
    overlapped_hops : array_like [m, m], optional
        The same of ``hops``. Default: 0.
    most_in_progress : int, optional
        Most requests that are in progress at a time. Default: as many as there are stages.
    shared_bytes : float
        Bytes of weights that the first and the last item have in common, as a table of words: a stage of all items holds them once.
    offloading : Offloading, optional
        Which weights another device may hold than that of the stage, and what the items take then. Default: none.
    nodes : array_like of int [m], optional
        Number of the node of each device, from 0: the stages on the devices of a node follow one another, and there are as many on each
        node that has any. Default: no such rule.

    Raises
    ------
    InvalidProblem
        A shape does not fit, an amount is negative, NaN or out of range, more than all of a time is overlapped, or there is no item
        or device; or weights may be offloaded that an item does not have or shares, or where times overlap.

    Notes
    -----
    With M the bytes of a stage of items [i, j), that is all of ``weight_bytes`` and ``cache_bytes``, the largest of
    ``workspace_bytes``, and ``shared_bytes`` less if it is the whole chain, a stage fits if M is at most ``memory_bytes``. M never
    falls when an interval grows. An item that is offloaded keeps the rest of its weights, and its workspace has room for the others,
    which pass through; a stage keeps some weights at least, and the holder needs what it holds beside its own stage, if it has one. An
    item that is impossible on a device is so when it is offloaded too. Bytes are whole numbers, so that their sums are exact: needs are
    rounded up, memory and ``shared_bytes`` down.

    A request takes the sum of all times, but of the overlapped ones of its stages and hops only the largest: a prompt of q chunks
    that pass through the stages one behind the other takes the sum of the times of one chunk, and q - 1 times the largest of them. So
    ``overlapped_seconds`` is q - 1 times the time of a chunk; chunks are taken as alike, each with the mean of their times.
    A device or link is busy for all of its time with a request nonetheless, which bounds the period.
    """

    items: tuple[str, ...]
    devices: tuple[str, ...]
    seconds: FloatArray
    weight_bytes: FloatArray
    cache_bytes: FloatArray
    workspace_bytes: FloatArray
    memory_bytes: FloatArray
    stage_seconds: FloatArray
    hops: FloatArray
    closing: FloatArray
    overlapped_seconds: FloatArray
    overlapped_hops: FloatArray
    shared_bytes: int
    most_in_progress: int | None
    offloading: Offloading | None
    nodes: IntArray | None

    @checked(InvalidProblem, most_in_progress=COUNT, shared_bytes=amount("B"))
    def __init__(
        self,
        items: Iterable[str],
        devices: Iterable[str],
        seconds: npt.ArrayLike,
        *,
        weight_bytes: npt.ArrayLike | None = None,
        cache_bytes: npt.ArrayLike | None = None,
        workspace_bytes: npt.ArrayLike | None = None,
        memory_bytes: npt.ArrayLike | None = None,
        stage_seconds: npt.ArrayLike | None = None,
        hops: npt.ArrayLike | None = None,
        closing: npt.ArrayLike | None = None,
        overlapped_seconds: npt.ArrayLike | None = None,
        overlapped_hops: npt.ArrayLike | None = None,
        shared_bytes: Amount = 0.0,
        most_in_progress: int | None = None,
        offloading: Offloading | None = None,
        nodes: npt.ArrayLike | None = None,
    ) -> None:
        items, devices = unique_names(items, "item"), unique_names(devices, "device")
        n, m = len(items), len(devices)
        if not n or not 1 <= m <= MOST_DEVICES:
            raise InvalidProblem(
                f"there are {plural(n, 'item')} and {plural(m, 'device')}; give at least one item, and 1 to {MOST_DEVICES} devices"
            )
        columns = {
            "seconds": amounts("seconds", seconds, (n, m), IMPOSSIBLE),
            "weight_bytes": np.ceil(amounts("weight_bytes", weight_bytes, (n,))),
            "cache_bytes": np.ceil(amounts("cache_bytes", cache_bytes, (n,))),
            "workspace_bytes": np.ceil(amounts("workspace_bytes", workspace_bytes, (n,))),
            "memory_bytes": np.floor(
                amounts("memory_bytes", np.full(m, np.inf) if memory_bytes is None else memory_bytes, (m,), UNLIMITED)
            ),
            "stage_seconds": amounts("stage_seconds", stage_seconds, (m,), IMPOSSIBLE),
            "hops": _pairs("hops", hops, m),
            "closing": _pairs("closing", closing, m),
            "overlapped_seconds": amounts("overlapped_seconds", overlapped_seconds, (n, m), IMPOSSIBLE),
            "overlapped_hops": _pairs("overlapped_hops", overlapped_hops, m),
        }
        for overlapped, whole in OVERLAPPED.items():
            columns[overlapped] = _within(overlapped, columns[overlapped], whole, columns[whole])
        if not 0 <= shared_bytes <= min(columns["weight_bytes"][[0, -1]]):
            raise InvalidProblem(
                f"shared_bytes is {shared_bytes!r}; it must be at least 0 and at most the weights of the first and of the last item, "
                f"{columns['weight_bytes'][0]:g} and {columns['weight_bytes'][-1]:g} bytes"
            )
        if shared_bytes and n == 1:
            raise InvalidProblem(f"shared_bytes is {shared_bytes!r}, but one item shares nothing with another; give 0")
        if offloading is not None and nodes is not None:
            raise InvalidProblem("items may be offloaded and stages keep to nodes, of which one is possible; leave out offloading or nodes")
        if offloading is not None:
            _check_offloading(offloading, columns, items, bool(shared_bytes))
        self._set(
            items=items,
            devices=devices,
            shared_bytes=math.floor(shared_bytes),
            most_in_progress=most_in_progress,
            offloading=offloading,
            nodes=None if nodes is None else _nodes(nodes, m),
            **columns,
        )

    def __repr__(self) -> str:
        return f"<ChainProblem of {plural(self.n_items, 'item')} on {plural(self.n_devices, 'device')}>"

    @checked(InvalidProblem)
    def replace(self, **changes: Any) -> ChainProblem:
        """Return a copy with other arguments, by name."""
        strange = [name for name in changes if name not in self._fields]
        if strange:
            raise InvalidProblem(f"{strange[0]!r} is no argument of ChainProblem; choose from {', '.join(self._fields)}")
        given = {name: getattr(self, name) for name in self._fields} | changes
        return ChainProblem(given.pop("items"), given.pop("devices"), given.pop("seconds"), **given)

    @checked(InvalidProblem, n_stages=COUNT)
    def in_progress(self, n_stages: int) -> int:
        """Return how many requests are in progress with a number of stages."""
        return n_stages if self.most_in_progress is None else min(n_stages, self.most_in_progress)

    @checked(InvalidProblem, factor=number(0))
    def scaled(self, factor: float) -> ChainProblem:
        """Return a copy whose times are multiplied by a finite factor from 0."""
        offloading = None if self.offloading is None else self.offloading.scaled(factor, factor)
        return self.replace(**{name: getattr(self, name) * factor for name in TIMES}, offloading=offloading)

    @checked(InvalidProblem)
    def merged(self, starts: Sequence[int]) -> ChainProblem:
        """Return the chain whose items are those from each start to before the next, as one; stages begin at a start only.

        Parameters
        ----------
        starts : sequence of int
            Numbers of items, rising from 0.

        Raises
        ------
        InvalidProblem
            The starts do not rise from 0 to items of the chain, or an item that may be offloaded would be one with another.
        """
        edges = [*starts, self.n_items]
        if not starts or edges[0] != 0 or any(a >= b for a, b in itertools.pairwise(edges)):
            raise InvalidProblem(f"starts is {shown(list(starts))}; they must rise from 0 to at most {self.n_items - 1}, the last item")
        if len(starts) == self.n_items:
            return self
        names = [self.items[a] if b - a == 1 else f"{self.items[a]} to {self.items[b - 1]}" for a, b in itertools.pairwise(edges)]
        weights, whole = np.add.reduceat(self.weight_bytes, starts), len(starts) == 1
        return self.replace(
            items=names,
            seconds=np.add.reduceat(self.seconds, starts),
            overlapped_seconds=np.add.reduceat(self.overlapped_seconds, starts),
            weight_bytes=weights - self.shared_bytes if whole else weights,
            cache_bytes=np.add.reduceat(self.cache_bytes, starts),
            workspace_bytes=np.maximum.reduceat(self.workspace_bytes, starts),
            shared_bytes=0 if whole else self.shared_bytes,
            offloading=None if self.offloading is None else self.offloading.merged(starts),
        )

    def without_times(self) -> ChainProblem:
        """Return a copy that takes no time; what is impossible stays so."""
        times = {name: np.where(np.isfinite(getattr(self, name)), 0.0, np.inf) for name in ("seconds", "stage_seconds", "hops", "closing")}
        offloading = None if self.offloading is None else self.offloading.without_times()
        return self.replace(**times, overlapped_seconds=None, overlapped_hops=None, offloading=offloading)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.items)

    @property
    def n_devices(self) -> int:
        """Number of devices."""
        return len(self.devices)

    @cached_property
    def groups(self) -> IntArray:
        """Group of each device [m]: devices of a group may change places in any placement. Groups are numbered by first device."""
        own = [self.seconds, self.overlapped_seconds, self.memory_bytes[None], self.stage_seconds[None]]
        if self.offloading is not None:
            holds, links = self.offloading.holds, self.offloading.link_seconds[:, :, self.offloading.holds]
            number = np.where(holds, np.arange(self.n_devices), -1.0)  # one that holds weights is like no other
            own += [self.offloading.kept_seconds, links.swapaxes(1, 2).reshape(-1, self.n_devices), number[None]]
        if self.nodes is not None:
            own.append(self.nodes[None].astype(float))
        columns = np.concatenate(own)
        alike = (columns[:, :, None] == columns[:, None, :]).all(axis=0)
        for pairs in (self.hops, self.overlapped_hops, self.closing):
            others = pairs[~np.eye(self.n_devices, dtype=bool)]
            if (others != others[:1]).any():
                alike &= _interchangeable(pairs)
        groups: IntArray = np.unique(alike.argmax(axis=1), return_inverse=True)[1]
        groups.setflags(write=False)
        return groups


def _interchangeable(pairs: FloatArray) -> BoolArray:
    """Return which two devices may change places in numbers of pairs [m, m], 0 on the diagonal."""
    places = np.arange(len(pairs))
    same: BoolArray = pairs == pairs.T
    for table in (pairs, pairs.T):
        differ = table[:, None, :] != table[None, :, :]
        differ[places, :, places] = differ[:, places, places] = False
        same &= ~differ.any(axis=2)
    return same


def _nodes(nodes: npt.ArrayLike, m: int) -> IntArray:
    """Return the nodes of devices."""
    array: IntArray = np.array(check_array(nodes, "nodes", (m,), np.int64, error=InvalidProblem))
    if (array < 0).any():
        raise InvalidProblem(f"nodes is {shown(array.tolist())}; the numbers of nodes are at least 0")
    return array


def _pairs(name: str, values: npt.ArrayLike | None, m: int) -> FloatArray:
    """Return amounts of pairs of devices, 0 on the diagonal, which no placement uses."""
    array = amounts(name, values, (m, m), IMPOSSIBLE)
    np.fill_diagonal(array, 0.0)
    return array


def _within(name: str, part: FloatArray, whole_name: str, whole: FloatArray) -> FloatArray:
    """Return a part of amounts, 0 where the whole is impossible."""
    if (part > whole).any():
        first = tuple(int(k) for k in np.argwhere(part > whole)[0])
        raise InvalidProblem(f"{name}{list(first)} is {part[first]}; it must be at most {whole_name}{list(first)}, {whole[first]}")
    return np.where(np.isinf(whole), 0.0, part)


def _check_offloading(offloading: Offloading, columns: dict[str, FloatArray], items: Sequence[str], shared: bool) -> None:
    """Raise `InvalidProblem` unless the weights that may be offloaded are those of the items, which share none and do not overlap."""
    weights, moved = columns["weight_bytes"], offloading.weight_bytes
    if offloading.kept_seconds.shape != columns["seconds"].shape:
        raise InvalidProblem(
            f"offloading is for {offloading.kept_seconds.shape} items and devices; those of seconds are {columns['seconds'].shape}"
        )
    if (moved > weights).any():
        i = int(np.argmax(moved > weights))
        raise InvalidProblem(
            f"offloading moves {moved[i]:g} bytes of item {items[i]!r}, which has {weights[i]:g}; it must be at most those"
        )
    if shared and moved[[0, -1]].any():
        raise InvalidProblem("the first and the last item share weights, so neither may be offloaded; give weight_bytes 0 for them")
    if columns["overlapped_seconds"].any() or columns["overlapped_hops"].any():
        raise InvalidProblem("times overlap, which those of offloaded items never do; give a problem without overlapped times")
