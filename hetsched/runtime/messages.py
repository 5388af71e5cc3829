"""What messages between ranks cost: the time of a link, and that of the processors at both ends."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from hetsched.arrays import FloatArray, IntArray
from hetsched.costs import machine as overheads
from hetsched.costs.lines import fit
from hetsched.costs.machine import Machine, Overhead
from hetsched.problem.cluster import Cluster
from hetsched.runtime.checking import HAND_OFF

if TYPE_CHECKING:
    from hetsched.runtime.gloo import Group

SIZES = (1, *(4**x for x in range(4, 12)))
"""Bytes of the messages, up to 4 MiB."""
ROUNDS, WARM_UP = 20, 3
MESSAGE = 2**30 + 1
"""The tag of these messages."""


class MessageCosts(NamedTuple):
    """What messages between devices in several processes cost."""

    cluster: Cluster
    """The devices with links of which the time of the processors is left out: ``machine.problem`` adds it."""
    machine: overheads.Machine
    """`send` and `receive` of each device; values cross once."""


def message_times(group: Group, timeout: float) -> IntArray:
    """Return the nanoseconds of messages from each rank to each other one, [R, R, sizes, 3]; every rank has to call this.

    These are medians: of the way there, by round trips of which the way back has one byte, and of the CPU time of sender and receiver.
    """
    table = np.zeros((group.size, group.size, len(SIZES), 3), np.int64)
    for source in range(group.size):
        for target in range(group.size):
            if source != target and group.rank in (source, target):
                for s, size in enumerate(SIZES):
                    wall, cpu = _round_trips(group, source, target, size, timeout)
                    table[source, target, s, 1 if group.rank == source else 2] = cpu
                    table[source, target, s, 0] = wall if group.rank == source else 0
            group.largest(np.zeros(1, np.int64), timeout)  # one pair at a time
    return group.largest(table.ravel(), timeout).reshape(table.shape)


def _round_trips(group: Group, source: int, target: int, size: int, timeout: float) -> tuple[int, int]:
    """Return the median nanoseconds of a round trip, and those of this process's CPU time."""
    there, back = torch.zeros(size, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)
    walls, cpus = [], []
    for _ in range(WARM_UP + ROUNDS):
        begin, spent = time.perf_counter_ns(), time.process_time_ns()
        if group.rank == source:
            arrived = group.receive(back, target, MESSAGE)
            group.send(there, target, MESSAGE)(timeout)
            arrived(timeout)
        else:
            group.receive(there, source, MESSAGE)(timeout)
            group.send(back, source, MESSAGE)(timeout)
        walls.append(time.perf_counter_ns() - begin)
        cpus.append(time.process_time_ns() - spent)
    return int(np.median(walls[WARM_UP:])), int(np.median(cpus[WARM_UP:]))


def message_costs(times: IntArray, ranks: Mapping[str, int]) -> MessageCosts:
    """Return the costs of messages between devices, from `message_times` and the rank of each device.

    Half of a round trip of single bytes is taken from each one for the way back, of the time and of the CPU time.
    """
    seconds = times / 1e9
    seconds = np.maximum(seconds - seconds[:, :, :1] / 2, 1e-9)
    lines = [fit(SIZES, seconds[..., what], seconds[..., what] ** -2.0) for what in range(3)]
    fixed = np.stack([np.maximum(line.intercept, 0.0) for line in lines], -1)  # [R, R, 3]
    slope = np.stack([np.maximum(line.slope, 0.0) for line in lines], -1)
    own = [ranks[name] for name in ranks]
    others = ~np.eye(len(times), dtype=bool)
    ends = {}
    for name, r in ranks.items():
        send = tuple(float(column[r][others[r]][:, 1].mean()) for column in (fixed, slope)) if len(times) > 1 else (0.0, 0.0)
        receive = tuple(float(column[:, r][others[r]][:, 2].mean()) for column in (fixed, slope)) if len(times) > 1 else (0.0, 0.0)
        ends[name] = Overhead(send=(send[0], send[1]), receive=(receive[0], receive[1]))
    latency, per_byte = (np.full((len(own), len(own)), value) for value in (HAND_OFF, 0.0))
    for h, (giver, source) in enumerate(ranks.items()):
        for k, (taker, target) in enumerate(ranks.items()):
            if source != target:
                latency[h, k] = _left(fixed[source, target, 0], ends[giver].send[0] + ends[taker].receive[0])
                per_byte[h, k] = _left(slope[source, target, 0], ends[giver].send[1] + ends[taker].receive[1])
    bandwidth: FloatArray = np.where(per_byte > 0, 1.0 / np.where(per_byte > 0, per_byte, 1.0), math.inf)
    return MessageCosts(Cluster(list(ranks), bandwidth=bandwidth, latency=latency), Machine(ends, once=True))


def _left(whole: float, ends: float) -> float:
    return max(float(whole) - ends, 0.0)
