"""What a machine adds to a problem's durations and transfers when an engine runs a decision on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray, Frozen
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import is_text, unique_names
from hetsched.problem.problem import Problem
from hetsched.problem.ranges import number


@dataclass(frozen=True)
class Overhead:
    """What one device adds. Batches of zero length pay nothing.

    Parameters
    ----------
    dispatch : float
        Seconds of the engine before each batch.
    host : str, optional
        The interpreter that dispatches the device. It dispatches one batch at a time, `dispatch_python` seconds each, while
        the device waits.
    dispatch_python : float
        Seconds; counts only with a `host`.
    send, receive : tuple of float
        Seconds, and seconds per byte, during which the device computes nothing: of each value that it sends, right behind
        the batch that made it, and of each that it receives, right before the first batch that reads it.
    busy : float
        At least 1. While c other devices of the same node (`Device.node`, not empty), or of the same `host`, compute, batches
        take ``1 + c (busy - 1)`` times as long; without such a neighbour it has no effect.
    gather : tuple of float
        Seconds, and seconds per byte, of each value that the device puts together from several batches, right before the first
        batch that reads it.
    """

    dispatch: float = 0.0
    host: str | None = None
    dispatch_python: float = 0.0
    send: tuple[float, float] = (0.0, 0.0)
    receive: tuple[float, float] = (0.0, 0.0)
    busy: float = 1.0
    gather: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        given: tuple[tuple[str, Any, float], ...] = (
            ("dispatch", (self.dispatch,), 0.0),
            ("dispatch_python", (self.dispatch_python,), 0.0),
            ("send", self.send, 0.0),
            ("receive", self.receive, 0.0),
            ("busy", (self.busy,), 1.0),
            ("gather", self.gather, 0.0),
        )
        for name, values, least in given:
            if name in ("send", "receive", "gather") and (not isinstance(values, tuple) or len(values) != 2):
                raise InvalidProblem(f"{name} is {values!r}; give seconds and seconds per byte")
            for value in values:
                if isinstance(value, bool) or not least <= number(value) < math.inf:
                    raise InvalidProblem(f"{name} is {value!r}; it must be a finite number, at least {least:g}")
        if self.host is not None and not is_text(self.host):
            raise InvalidProblem(f"host is {self.host!r}; it must be the name of an interpreter, or None")


class Machine(Frozen):
    """The overheads of a machine by device.

    Parameters
    ----------
    devices : mapping of str to Overhead
        Devices that are not named have no overhead.
    once : bool
        Whether a value crosses to a device once, however many tasks there read it. The model of a `Problem` has a transfer for
        each edge.
    """

    devices: tuple[tuple[str, Overhead], ...]
    once: bool

    @checked(InvalidProblem)
    def __init__(self, devices: Mapping[str, Overhead] | None = None, *, once: bool = False) -> None:
        unique_names(devices or {}, "device")
        self._set(devices=tuple(sorted((devices or {}).items())), once=once)

    def __repr__(self) -> str:
        names = ", ".join(name for name, _ in self.devices) or "no device"
        return f"<Machine with overheads of {names}{', values cross once' if self.once else ''}>"

    @checked
    def of(self, device: str) -> Overhead:
        """Return the overhead of a device, by name."""
        return dict(self.devices).get(device, Overhead())

    @checked
    def overheads(self, cluster: Cluster) -> list[Overhead]:
        """Return the overhead of each device of a cluster; raise `InvalidProblem` for one of a device that it does not have."""
        for name, _ in self.devices:
            if name not in cluster.names:
                raise InvalidProblem(
                    f"the machine has an overhead of device {name!r}, which the problem does not have; its devices are "
                    f"{', '.join(map(repr, cluster.names))}"
                )
        return [self.of(name) for name in cluster.names]

    @checked
    def problem(self, problem: Problem) -> Problem:
        """Return the problem with these overheads as far as a problem has them.

        `dispatch` and `dispatch_python` are added to durations above 0; `send` and `receive` to the latency and to the time
        per byte of each link, or to explicit transfers. `busy`, the exclusion of batches by their host and `once` are left
        out. For batches of all inputs on machines without `host`, `busy` and `once`, the result differs from `forecast` only in
        that devices compute while they send and receive, and that with ``communication="per-input"`` the bytes of one input
        count.
        """
        own = self.overheads(problem.cluster)
        dispatch = np.array([x.dispatch + (x.dispatch_python if x.host is not None else 0.0) for x in own])
        durations = problem.durations + np.where(problem.durations > 0, dispatch[:, None], 0.0)
        send, receive = np.array([x.send for x in own]).reshape(-1, 2), np.array([x.receive for x in own]).reshape(-1, 2)
        extra = send[:, None, :] + receive[None, :, :]  # [K, K, 2]
        extra[np.eye(len(own), dtype=bool)] = 0.0
        if problem.transfers is not None:
            count = 1 if problem.links.per_input else problem.inputs
            added = extra[..., 0] / count + problem.graph.edge_bytes[:, None, None] * extra[..., 1]
            return problem.replace(durations=durations, batch_sizes=problem.batch_sizes, transfers=problem.transfers + added)
        return problem.replace(
            durations=durations, batch_sizes=problem.batch_sizes, cluster=_slower(problem.cluster, extra[..., 0], extra[..., 1])
        )


def _slower(cluster: Cluster, seconds: FloatArray, per_byte: FloatArray) -> Cluster:
    """Return a cluster with seconds and seconds per byte [K, K] added to every route, which becomes a link of its own."""
    if not seconds.any() and not per_byte.any():
        return cluster
    bandwidth = cluster.route_bandwidth
    reached = bandwidth > 0
    with np.errstate(divide="ignore"):
        slower = np.where(reached, 1.0 / (1.0 / bandwidth + per_byte), 0.0)
    slower = np.where(per_byte > 0, slower, bandwidth)
    return Cluster(cluster.devices, slower, np.where(reached, cluster.route_latency + seconds, 0.0))
