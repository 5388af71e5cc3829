"""Links, the ordered pairs of devices: transfer times, and the resources that transfers hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray, readonly
from hetsched.problem.cluster import Cluster

Communication = Literal["delay", "per-input", "channel", "port", "node"]


class LinkTable(NamedTuple):
    """The links of one problem, in a form numba accepts.

    A transfer of one input along edge e from device h to device k takes ``transfers[e, h, k]`` seconds if `given`,
    else ``latency[h, k] + edge_bytes[e] / bandwidth[h, k]``. Unless `per_input`, the given seconds and the bytes are
    multiplied by the number of inputs that it carries.
    """

    per_input: bool
    """Whether a transfer's time does not grow with the number of inputs it carries."""
    given: bool
    """Whether `transfers` replaces bytes over bandwidth."""
    contended: bool
    """Whether transfers that hold the same resource exclude one another."""
    edge_bytes: FloatArray
    """[E], for one input."""
    latency: FloatArray
    """[K, K]; inf without a path."""
    bandwidth: FloatArray
    """[K, K]; inf on the diagonal, and where there is no path (there the latency is inf)."""
    transfers: FloatArray
    """[E, K, K], inf = impossible; or [0, 0, 0]."""
    resource: IntArray
    """[K, K, 2]: the two resources that a transfer from h to k holds; a single one is listed twice; -1, -1 if it holds none."""
    n_resources: int

    @property
    def users(self) -> IntArray:
        """Return a device whose transfers hold each resource, [n_resources]: a sender if it is first in `resource`, else a receiver."""
        users = np.zeros(self.n_resources, np.int64)
        for side in (1, 0):
            held = self.resource[:, :, side] >= 0
            users[self.resource[held, side]] = np.nonzero(held)[side]
        return users


class Resources(NamedTuple):
    """The resources that transfers hold: channels or ports."""

    table: IntArray
    """[K, K, 2], see `LinkTable`."""
    n_resources: int
    name: Callable[[int], str]
    """Returns the name of the resource with a given number."""


class CommunicationModel(NamedTuple):
    """The rules of one value of `communication`."""

    per_input: bool
    contended: bool
    resources: Callable[[Cluster], Resources]
    """Defined without contention too: the period is at least the busy time of each resource."""


def channels(cluster: Cluster) -> Resources:
    """Return one channel for each ordered pair of devices."""
    size, names = cluster.n_devices, cluster.names
    channel = np.arange(size * size).reshape(size, size)
    table = np.stack([channel, channel], axis=2)
    table[np.eye(size, dtype=bool)] = -1  # there are no transfers within a device
    return Resources(readonly(table), size * size, lambda number: f"{names[number // size]} -> {names[number % size]}")


def device_ports(cluster: Cluster) -> Resources:
    """Return a sending and a receiving port for each device."""
    return _ports(cluster.names, np.arange(cluster.n_devices))


def node_ports(cluster: Cluster) -> Resources:
    """Return a sending and a receiving port for each node; a device without a node is its own node."""
    hosts = [("node", device.node) if device.node else ("device", device.name) for device in cluster.devices]
    number = {host: position for position, host in enumerate(dict.fromkeys(hosts))}
    return _ports([name for _, name in number], np.array([number[host] for host in hosts], np.int64))


def _ports(names: Sequence[str], owner: IntArray) -> Resources:
    """Return a sending and a receiving port for each owner, `owner` [K] per device; transfers within an owner hold none."""
    count = len(names)
    table = np.stack(np.broadcast_arrays(owner[:, None], count + owner), axis=2)
    table[owner[:, None] == owner] = -1
    return Resources(readonly(table), 2 * count, lambda number: f"{names[number % count]} {('sends', 'receives')[number // count]}")


MODELS: dict[Communication, CommunicationModel] = {
    "delay": CommunicationModel(per_input=False, contended=False, resources=channels),
    "per-input": CommunicationModel(per_input=True, contended=False, resources=channels),
    "channel": CommunicationModel(per_input=False, contended=True, resources=channels),
    "port": CommunicationModel(per_input=False, contended=True, resources=device_ports),
    "node": CommunicationModel(per_input=False, contended=True, resources=node_ports),
}
CONTENDED = tuple(name for name, model in MODELS.items() if model.contended)
UNCONTENDED = tuple(name for name, model in MODELS.items() if not model.contended)


def link_table(communication: Communication, cluster: Cluster, edge_bytes: FloatArray, transfers: FloatArray | None) -> LinkTable:
    """Return the links of a problem; `transfers` [E, K, K] has NaN for impossible transfers."""
    model = MODELS[communication]
    resources, bandwidth = model.resources(cluster), cluster.route_bandwidth
    return LinkTable(
        per_input=model.per_input,
        given=transfers is not None,
        contended=model.contended,
        edge_bytes=edge_bytes,
        latency=cluster.route_latency,
        bandwidth=bandwidth if bandwidth.all() else readonly(np.where(bandwidth > 0, bandwidth, np.inf)),
        transfers=readonly(np.empty((0, 0, 0)) if transfers is None else np.nan_to_num(transfers, nan=np.inf)),
        resource=resources.table,
        n_resources=resources.n_resources,
    )
