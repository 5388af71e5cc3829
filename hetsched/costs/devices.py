"""Devices and machines of the catalogue."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hetsched.arguments import checked
from hetsched.arguments.amounts import Amount
from hetsched.chain.machine import Machine
from hetsched.errors import InvalidProblem
from hetsched.problem import catalogue, interconnects
from hetsched.problem.catalogue import CATALOGUE, REPORTED, find, plain
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.interconnects import Interconnect

MEMORY_TOLERANCE = 0.1
"""Relative difference of the memory that a driver reports and that of a kind: data sheets have gigabytes, often of 2^30 bytes."""


_REPORTED = {plain(name): kind for name, kind in REPORTED.items()}


def names() -> tuple[str, ...]:
    """Return the kinds of device in the catalogue."""
    return tuple(CATALOGUE)


@checked
def device(kind: str, name: str | None = None, node: str = "", **overrides: Any) -> Device:
    """Return a device of the catalogue.

    Parameters
    ----------
    kind : str
        One of `names`; case, spaces, hyphens and underscores are ignored (``"RTX 2080 Ti"``).
    name : str, optional
        Its name in the cluster; default: the kind.
    node : str
        The host of the device.
    **overrides
        Other arguments of `Device`, which replace the catalogue's figures.

    Raises
    ------
    InvalidProblem
        The kind is not in the catalogue.

    Examples
    --------
    >>> device("a100", "gpu0", memory_bytes=80e9).memory_bytes
    80000000000.0
    """
    key = _found(kind)
    return Device(name or key, **{"kind": key, "node": node, **CATALOGUE[key].figures, **overrides})


@checked
def sources(kind: str) -> dict[str, str]:
    """Return the source of each figure of a kind: data types of peaks, and other arguments of `Device`.

    Raises
    ------
    InvalidProblem
        The kind is not in the catalogue.

    Examples
    --------
    >>> sources("t4")["memory_bandwidth"]
    'NVIDIA T4 data sheet; bandwidth from its product brief'
    """
    return catalogue.sources(_found(kind))


def _found(kind: str) -> str:
    key = find(kind)
    if key is None:
        near = difflib.get_close_matches(kind.lower(), CATALOGUE, 4)
        like = f", which has {', '.join(near)}" if near else ""
        raise InvalidProblem(
            f"device kind {kind!r} is not in the catalogue{like}; choose one that hetsched devices lists, or make a hetsched.Device"
        )
    return key


@checked
def kind_of(name: str, memory_bytes: float | None = None) -> str | None:
    """Return the kind of a device that a driver or the system names; None if it is not in the catalogue.

    Only the names in `REPORTED` count: a laptop's GPU of a similar name has other figures.

    Parameters
    ----------
    name : str
        For instance ``"NVIDIA GeForce RTX 4090"``.
    memory_bytes : float, optional
        Memory that is reported. A GPU whose memory differs by more than a tenth is another one.

    Examples
    --------
    >>> kind_of("NVIDIA GeForce RTX 3060", 12288 * 2**20), kind_of("NVIDIA GeForce RTX 3060", 8192 * 2**20)
    ('rtx3060', None)
    """
    kind = _REPORTED.get(plain(name)) or _REPORTED.get(plain(name).removeprefix("nvidia"))
    if kind is None or memory_bytes is None or CATALOGUE[kind].family == "cpu":
        return kind
    expected = CATALOGUE[kind].memory_bytes
    return kind if abs(memory_bytes - expected) <= MEMORY_TOLERANCE * expected else None


@checked
def machine(
    devices: Iterable[str | Device],
    link: str | Interconnect = "pcie4-x16",
    *,
    network: str | Interconnect | None = None,
    reserved_bytes: Mapping[str, Amount] | None = None,
    tool_names: Mapping[str, Mapping[str, str | int]] | None = None,
    efficiency: Mapping[str, tuple[float, float]] | None = None,
) -> Machine:
    """Return a machine of devices of the catalogue, each two of which are linked.

    Parameters
    ----------
    devices : iterable of str or Device
        Kinds, whose devices are named ``gpu0``, ``gpu1``, .. and ``cpu`` (``cpu0``, ``cpu1``, .. if there are several), or devices.
    link : str or Interconnect
        Between devices of one node: a name of `hetsched.problem.interconnects.names`, or bandwidth and latency.
    network : str or Interconnect, optional
        The same between nodes; required if the devices are in several.
    reserved_bytes, tool_names, efficiency
        As of `hetsched.Machine`.

    Raises
    ------
    InvalidProblem
        A kind or a link is unknown, there is no network between nodes, or the machine's rules are broken.

    Examples
    --------
    >>> machine(["rtx4090", "rtx3060", "ryzen9950x"])
    <Machine with gpu0, gpu1, cpu>
    """
    given = list(devices)
    made = [one if isinstance(one, Device) else device(one) for one in given]
    for word in ("gpu", "cpu"):
        mine = [k for k, one in enumerate(given) if one is not made[k] and (made[k].family == "cpu") == (word == "cpu")]
        for i, k in enumerate(mine):
            made[k] = replace(made[k], name="cpu" if word == "cpu" and len(mine) == 1 else f"{word}{i}")
    nodes = np.array([one.node for one in made])
    near = nodes[:, None] == nodes
    if network is None and not near.all():
        raise InvalidProblem(
            f"network is None, but the devices are in {len(set(nodes))} nodes; choose from {', '.join(interconnects.LINKS)}, or give "
            "bandwidth and latency as an Interconnect"
        )
    within, between = (interconnects.link(one) if isinstance(one, str) else one for one in (link, link if network is None else network))
    bandwidth, latency = (np.where(near, getattr(within, name), getattr(between, name)) for name in ("bandwidth", "latency"))
    return Machine(Cluster(made, bandwidth, latency), reserved_bytes=reserved_bytes, tool_names=tool_names, efficiency=efficiency)
