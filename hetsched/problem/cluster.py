"""Devices, the directed links between them, and routes for pairs without a direct link."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from hetsched import documents
from hetsched.arguments import check_array, checked
from hetsched.arguments.amounts import Amount, hint
from hetsched.arrays import FloatArray, Frozen, readonly
from hetsched.errors import InvalidProblem
from hetsched.lazy import later
from hetsched.problem import catalogue, interconnects
from hetsched.problem.graph import is_text, plural, unique_names
from hetsched.problem.labels import Axis, Numbers, in_order
from hetsched.problem.ranges import RANGE, in_range, number

MOST_DEVICES = 4096
MOST_ROUTING = 400_000_000
"""Limit on the work of routing: K^2 steps for each device and each bottleneck bandwidth among its missing links."""


@dataclass(frozen=True)
class Device:
    """One device of a cluster. Amounts are numbers, or text with a unit: ``"24 GiB"``, ``"900 GB/s"``, ``"5 us"``, ``"312 TFLOP/s"``.

    Parameters
    ----------
    name : str
        Unique within the cluster.
    kind : str
        Free text shown in reports, for instance ``"a100"``.
    node : str
        Name of its host; with ``communication="node"`` the devices of a node share one network port in each direction.
    memory_bytes : float
        Capacity in bytes; infinite means unlimited.
    peak_flops : mapping of str to float
        Peak FLOP/s per dtype name, for instance ``{"float16": 312e12}`` (for cost models only).
    memory_bandwidth : float, optional
        Bytes per second between the device and its memory (for cost models only).
    launch_overhead : float
        Seconds to launch one operator (for cost models only).
    family : str
        Kind of hardware, ``"cuda"`` or ``"cpu"``, whose constants `hetsched.costs.Analytic` takes.
    units : int, optional
        Multiprocessors of a GPU, threads of a CPU (for cost models only).
    cache_bytes : float, optional
        Size of the last cache before memory (for cost models only).
    """

    name: str
    kind: str = ""
    node: str = ""
    memory_bytes: Amount = math.inf
    peak_flops: Mapping[str, Amount] = field(default_factory=dict)
    memory_bandwidth: Amount | None = None
    launch_overhead: Amount = 0.0
    family: str = ""
    units: int | None = None
    cache_bytes: Amount | None = None

    def __post_init__(self) -> None:
        def check(what: str, value: object, rule: str, valid: bool) -> None:
            if not valid:
                raise InvalidProblem(f"{what} of device {self.name!r} is {value!r}; it must be {rule}")

        unique_names([self.name], "device")
        for what, label in (("kind", self.kind), ("node", self.node), ("family", self.family)):
            check(what, label, "a string", is_text(label))
        memory, bandwidth = number(self.memory_bytes, "B"), number(self.memory_bandwidth, "B/s")
        overhead, absent = number(self.launch_overhead, "s"), ", or None if it is not known"
        fitting = bool(in_range(np.array(memory))) or memory == math.inf
        check("memory_bytes", self.memory_bytes, f"{RANGE} (inf for unlimited){hint('B')}", fitting)
        unknown = self.memory_bandwidth is None
        positive = 0 < bandwidth < math.inf
        check("memory_bandwidth", self.memory_bandwidth, f"a finite number > 0{hint('B/s')}{absent}", unknown or positive)
        check("launch_overhead", self.launch_overhead, f"a finite number >= 0{hint('s')}", 0 <= overhead < math.inf)
        count, cache = self.units, number(self.cache_bytes, "B")
        whole = count is None or (isinstance(count, int | np.integer) and not isinstance(count, bool) and count >= 1)
        check("units", count, f"a whole number, at least 1{absent}", whole)
        check("cache_bytes", self.cache_bytes, f"a finite number > 0{hint('B')}{absent}", self.cache_bytes is None or 0 < cache < math.inf)
        check("peak_flops", self.peak_flops, "a mapping of dtype names to FLOP/s", isinstance(self.peak_flops, Mapping))
        peaks = {dtype: number(peak, "FLOP/s") for dtype, peak in self.peak_flops.items()}
        for dtype, peak in peaks.items():
            valid = is_text(dtype) and 0 < peak < math.inf
            check(f"peak_flops[{dtype!r}]", self.peak_flops[dtype], f"a finite number > 0{hint('FLOP/s')}, by dtype", valid)
        plain: dict[str, object] = {"name": str(self.name), "kind": str(self.kind), "node": str(self.node), "peak_flops": peaks}
        plain |= {"family": str(self.family), "units": None if count is None else int(count)}
        plain["cache_bytes"] = None if self.cache_bytes is None else cache
        plain |= {"memory_bytes": memory, "memory_bandwidth": None if unknown else bandwidth, "launch_overhead": overhead}
        for field_name, value in plain.items():
            object.__setattr__(self, field_name, value)


class Cluster(Frozen):
    """Devices and the directed channels between them.

    Parameters
    ----------
    devices : iterable of Device (or of names)
        If all names are kinds of the catalogue (`hetsched.costs.devices.names`), as in ``Cluster(["t4", "t4", "a100"])``, the devices
        have its figures; they are named by their kinds, several of a kind ``t4-0``, ``t4-1``.
    bandwidth : float or array [K, K]
        Bytes per second from device h to device k: a scalar for every ordered pair, or a matrix
        where 0 means that there is no direct link. Infinite means that transfers take only the
        latency. The diagonal is ignored. Required for two or more devices, unless all are named by kinds and each two have a GPU
        among them: they are then joined by PCI Express, as the slower of both data sheets has it.
    latency : float or array [K, K], optional
        Seconds before the first byte arrives, in the same form. Default: 0, or that of PCI Express.

        Both also accept text with a unit, ``"16 GB/s"``, ``"10 Gbit/s"``, ``"5 us"``, and a mapping of mappings or a pandas
        data frame, indexed by the names of the sending and the receiving device.

    Attributes
    ----------
    names : tuple of str
    bandwidth, latency : float64 arrays [K, K]
        The direct links as given.
    route_bandwidth, route_latency : float64 arrays [K, K]
        Those of the route of a transfer: the direct link, else the widest path (largest bottleneck bandwidth,
        then lowest total latency, then fewest hops; Moirai III-C). 0 and inf where no path exists,
        inf and 0 on the diagonal.
    """

    _format = "hetsched-cluster"
    devices: tuple[Device, ...]
    bandwidth: FloatArray
    latency: FloatArray

    @checked(InvalidProblem)
    def __init__(self, devices: Iterable[Device | str], bandwidth: Numbers | None = None, latency: Numbers | None = None) -> None:
        members, links = _members(devices)
        for member in members:
            if not isinstance(member, Device):
                raise InvalidProblem(f"{member!r} is not a Device; pass hetsched.Device(name, ...)")
        if not members:
            raise InvalidProblem("a cluster needs at least one device")
        if len(members) > MOST_DEVICES:
            raise InvalidProblem(f"the cluster has {len(members)} devices; at most {MOST_DEVICES} are allowed")
        unique_names((member.name for member in members), "device")
        if bandwidth is None:
            if len(members) > 1 and links is None:
                raise InvalidProblem("bandwidth is missing: give bytes per second (inf if bytes cost nothing)")
            bandwidth, usual = (np.inf, 0.0) if links is None else links
            latency = usual if latency is None else latency
        beta = self._matrix(bandwidth, "bandwidth", "B/s", members)
        alpha = self._matrix(0.0 if latency is None else latency, "latency", "s", members)
        np.fill_diagonal(beta, np.inf)
        np.fill_diagonal(alpha, 0.0)
        alpha[beta == 0] = 0.0  # no link, so no latency
        names = [member.name for member in members]
        for what, matrix, allowed, special in (
            ("latency", alpha, in_range(alpha), "for no link, give bandwidth 0"),
            ("bandwidth", beta, in_range(beta) | np.isinf(beta), "0 for no link, inf if bytes cost nothing"),
        ):
            for h, k in np.argwhere(~allowed):
                raise InvalidProblem(f"{what} from {names[h]!r} to {names[k]!r} is {matrix[h, k]}; it must be {RANGE} ({special})")
        self._set(devices=members, bandwidth=beta, latency=alpha)

    @staticmethod
    def _matrix(values: Numbers, what: str, unit: str, devices: tuple[Device, ...]) -> FloatArray:
        size = len(devices)
        axis = Axis("device", [device.name for device in devices])
        if isinstance(values, Mapping):  # the diagonal may be left out
            values = {name: {name: 0.0, **row} if isinstance(row, Mapping) else row for name, row in values.items()}
        text = f"a number or a {size} x {size} matrix of numbers"
        given = check_array(in_order(values, what, axis, axis), what, text=text, unit=unit, error=InvalidProblem)
        matrix = np.array(given, order="C") + 0.0  # -0.0 makes NaN
        if matrix.ndim == 0:
            matrix = np.full((size, size), matrix)
        if matrix.shape != (size, size):
            raise InvalidProblem(
                f"{what} has shape {matrix.shape} but there are {plural(size, 'device')}; give a number or a {size} x {size} matrix"
            )
        off_diagonal = ~np.eye(size, dtype=bool)
        for h, k in np.argwhere(off_diagonal & ~(matrix >= 0)):
            raise InvalidProblem(f"{what} from {devices[h].name!r} to {devices[k].name!r} is {matrix[h, k]}; it must be >= 0")
        return matrix

    def __repr__(self) -> str:
        return f"<Cluster of {', '.join(self.names)}>"

    _repr_html_ = later("hetsched.report.notebook:cluster_html")

    def __len__(self) -> int:
        return len(self.devices)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, device: object) -> bool:
        return isinstance(device, str) and device in self.index

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the cluster as a JSON document; ``hetsched.read`` reads it back to the bit."""
        documents.write(self, path)

    def replace(self, **changes: Any) -> Cluster:
        """Return a copy with some constructor arguments replaced."""
        return Cluster(**{**{name: self.__dict__[name] for name in self._fields}, **changes})

    @property
    def n_devices(self) -> int:
        """Number of devices K."""
        return len(self.devices)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The device names, in index order."""
        return tuple(device.name for device in self.devices)

    @cached_property
    def index(self) -> dict[str, int]:
        """The index of each device by name."""
        return {name: k for k, name in enumerate(self.names)}

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the devices, each once, in order."""
        return tuple(dict.fromkeys(device.kind for device in self.devices))

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """Capacity of each device in bytes, shape [K]."""
        return readonly([device.memory_bytes for device in self.devices], np.float64)

    @cached_property
    def _routes(self) -> tuple[FloatArray, FloatArray]:
        return _widest_routes(self.bandwidth, self.latency)

    @property
    def route_bandwidth(self) -> FloatArray:
        """Bottleneck bandwidth from h to k in bytes per second, shape [K, K]."""
        return self._routes[0]

    @property
    def route_latency(self) -> FloatArray:
        """Total latency from h to k in seconds, shape [K, K]."""
        return self._routes[1]

    @cached_property
    def connected(self) -> bool:
        """Whether there is a route for every ordered pair of devices."""
        return bool((self.route_bandwidth > 0).all())

    @checked(InvalidProblem)
    def route(self, source: str, target: str) -> tuple[str, ...]:
        """Return the device names along the route from `source` to `target`; empty if there is none."""
        try:
            h, k = self.index[source], self.index[target]
        except KeyError as error:
            raise InvalidProblem(f"device {error.args[0]!r} is not in the cluster; it has {', '.join(self.names)}") from None
        if h == k or self.bandwidth[h, k] > 0:
            return (source, target)[: 1 + (h != k)]
        if self.route_bandwidth[h, k] == 0:
            return ()
        from hetsched.problem import topology_kernels

        before = topology_kernels.shortest(self.latency, self.bandwidth, self.route_bandwidth[h, k], h)[1]
        path = [k]
        while path[-1] != h:
            path.append(int(before[path[-1]]))
        return tuple(self.names[i] for i in reversed(path))


def _members(devices: Iterable[Device | str]) -> tuple[tuple[Device, ...], tuple[FloatArray, FloatArray] | None]:
    """Return the devices, and the bandwidths and latencies of PCI Express between them if the catalogue has them."""
    given = tuple(devices)
    kinds = [catalogue.find(one) for one in given if isinstance(one, str)]
    if None in kinds or not kinds:
        return tuple(Device(one) if isinstance(one, str) else one for one in given), None
    number, made = Counter[str | None](), []
    for one in given:
        if isinstance(one, str):
            kind = str(catalogue.find(one))
            name = kind if kinds.count(kind) == 1 else f"{kind}-{number[kind]}"
            number[kind] += 1
            made.append(Device(name, kind, **catalogue.CATALOGUE[kind].figures))
        else:
            made.append(one)
    entries = [catalogue.CATALOGUE[str(kind)] for kind in kinds]
    links = [interconnects.LINKS.get(entry.link) for entry in entries]
    if len(kinds) < len(given) or None in links or sum(entry.family == "cpu" for entry in entries) > 1:
        return tuple(made), None
    bandwidth, latency = (np.array([getattr(link, name) for link in links]) for name in ("bandwidth", "latency"))
    return tuple(made), (np.minimum.outer(bandwidth, bandwidth), np.maximum.outer(latency, latency))


def _widest_routes(beta: FloatArray, alpha: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return (bottleneck bandwidth, total latency) of the route of every ordered pair."""
    missing = beta == 0
    if not missing.any():
        return beta, alpha
    bandwidth, latency = beta.copy(), np.where(missing, np.inf, alpha)
    from hetsched.problem import topology_kernels

    effort = 0
    for h in np.flatnonzero(missing.any(axis=1)):
        width = topology_kernels.widths(beta, int(h))
        for bottleneck in np.unique(width[missing[h] & (width > 0)]):
            chosen = missing[h] & (width == bottleneck)
            bandwidth[h, chosen] = bottleneck
            latency[h, chosen] = topology_kernels.shortest(alpha, beta, bottleneck, int(h))[0][chosen]
            effort += beta.size
            if effort > MOST_ROUTING:
                raise InvalidProblem(
                    f"{len(beta)} devices have too many routes over links of different bandwidths for pairs without a direct link; "
                    "give the missing links (bandwidth[h, k] > 0), or round the bandwidths to a few values"
                )
    return readonly(bandwidth), readonly(latency)
