"""The clusters of the papers, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hetsched.arguments import checked
from hetsched.costs.devices import device
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster, Device

PCIE4_X16 = 16e9 * 16 * 128 / 130 / 8
"""Bytes per second in each direction over 16 lanes of PCIe 4.0: 16 GT/s per lane, 128 of 130 bits are data."""

NETWORK = 100e9 / 8
"""Bytes per second in each direction between nodes: the data rate of 4x EDR InfiniBand, and of 100 Gbit/s Ethernet."""

LATENCY = 5e-6
"""Seconds before a transfer moves its first byte; an assumption, for the papers do not state it."""

NETWORK_LATENCY = 10e-6
"""The same between nodes; also an assumption."""


@checked
def diviml(*, bandwidth: float = PCIE4_X16, latency: float = LATENCY) -> Cluster:
    """Return DiviML's system: a 2.0 GHz Skylake server CPU, a T4 and an A100 on PCIe 4.0 x16.

    Parameters
    ----------
    bandwidth : float
        Bytes per second between any two devices, each way.
    latency : float
        Seconds per transfer.

    References
    ----------
    DiviML, section V.
    """
    return Cluster([device("skylake", "cpu", "host"), device("t4", node="host"), device("a100", node="host")], bandwidth, latency)


@checked
def diviml_nodes(
    *,
    nodes: int = 6,
    bandwidth: float = PCIE4_X16,
    latency: float = LATENCY,
    network: float = NETWORK,
    network_latency: float = NETWORK_LATENCY,
) -> Cluster:
    """Return DiviML's system for GPT-3: 6 equal nodes, each with two pairs of identical GPUs, on a network.

    The paper's text names neither the GPUs of its figure 8 nor the links. Here they are the two kinds of
    its other experiments, A100 and T4, on PCIe 4.0 x16 in a node, and a network of 100 Gbit/s.

    Parameters
    ----------
    nodes : int
        Number of nodes; the devices are ``"n0.a100.0"``, ``"n0.a100.1"``, ``"n0.t4.0"``, ``"n0.t4.1"``, ``"n1.a100.0"``, ...
    bandwidth, latency : float
        Bytes per second between any two devices of a node, each way, and seconds per transfer.
    network, network_latency : float
        The same between devices of different nodes.

    References
    ----------
    DiviML, section VI and figure 8.
    """
    devices = [device(kind, f"n{n}.{kind}.{i}", f"n{n}") for n in range(nodes) for kind in ("a100", "t4") for i in range(2)]
    host = np.array([n for n in range(nodes) for _ in range(4)])
    near = host[:, None] == host
    return Cluster(devices, np.where(near, bandwidth, network), np.where(near, latency, network_latency))


@checked
def moirai_inter(*, latency: float = LATENCY) -> Cluster:
    """Return Moirai's four servers on InfiniBand: RTX 2080 Ti, T4, P4, RTX 3060 Ti (Moirai, Table III)."""
    devices = [device("rtx2080ti", node="A"), device("t4", node="B"), device("p4", node="C"), device("rtx3060ti", node="D")]
    rows = [[0, 44.26, 32.92, 44.28], [42.39, 0, 35.32, 44.51], [33.2, 35.31, 0, 32.95], [42.08, 43.22, 33.28, 0]]
    return _gigabits(devices, rows, latency)


@checked
def moirai_intra(*, latency: float = LATENCY) -> Cluster:
    """Return Moirai's one server on NVLink: two V100 of 32 GB, two P100 of 16 GB (Moirai, Table III)."""
    devices = [device(kind, f"{kind}_{i}", "server") for kind in ("v100", "p100") for i in range(2)]
    rows = [[0, 1170.04, 626.10, 610.56], [1148.16, 0, 618.98, 581.09], [630.43, 609.82, 0, 571.96], [622.67, 575.08, 581.35, 0]]
    return _gigabits(devices, rows, latency)


def _gigabits(devices: Sequence[Device], rows: Sequence[Sequence[float]], latency: float) -> Cluster:
    """Return the cluster with links of `rows` Gbit/s, from each row's device to each column's."""
    return Cluster(devices, np.array(rows) * 1e9 / 8, latency)


CLUSTERS: Mapping[str, Callable[[], Cluster]] = {
    "diviml": diviml,
    "diviml_nodes": diviml_nodes,
    "moirai_inter": moirai_inter,
    "moirai_intra": moirai_intra,
}


def names() -> tuple[str, ...]:
    """Return the names of the clusters."""
    return tuple(CLUSTERS)


@checked
def load(name: str) -> Cluster:
    """Return a cluster by name; raise `InvalidProblem` for an unknown name."""
    if name not in CLUSTERS:
        raise InvalidProblem(f"no cluster is named {name!r}; choose one of {', '.join(CLUSTERS)}, or make a hetsched.Cluster")
    return CLUSTERS[name]()
