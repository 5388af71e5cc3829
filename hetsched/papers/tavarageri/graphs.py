"""The training steps and clusters of the items: parameters in tasks of their own, costs by operations, what is measured of a placement."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from typing import Literal, NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.costs.devices import device
from hetsched.costs.roofline import Roofline
from hetsched.heuristics.placement.offers import listed
from hetsched.heuristics.placement.repartition import repartition
from hetsched.papers.tavarageri.names import CLUSTERS, EXPENSIVE, OPERATIONS, PASSES, ROOFLINE, SLACK
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.runtime.iterations import devices_of
from hetsched.schedule.decision import Decision
from hetsched.schedule.simulate import simulate
from hetsched.search import Monitor
from hetsched.workloads import clusters

UPDATE = "adam"
COPIES = 3
"""An update by Adam keeps a parameter and two moments of it."""


def with_variables(graph: TaskGraph) -> TaskGraph:
    """Return a captured training step with a task for each variable, which only its update by Adam must stay with.

    As in TensorFlow, the others have no state: where a co-location label held them, they read the variable over an edge of its bytes.
    """
    held: dict[str, list[int]] = defaultdict(list)
    for i, label in enumerate(graph.colocation):
        if label is not None:
            held[label].append(i)
    update = np.array([op == UPDATE for op in graph.op])
    size = np.where(update, graph.weight_bytes / COPIES, 0.0)
    sizes = np.array([size[members].sum() for members in held.values()])
    readers = [(v, i) for v, members in enumerate(held.values()) for i in members if not update[i]]
    edges = np.array([(graph.n_tasks + v, i) for v, i in readers], np.int64).reshape(-1, 2)
    nothing = np.zeros(len(held))
    columns = {name: np.concatenate([getattr(graph, name), nothing]) for name in ("weight_bytes", "input_bytes", "flops", "bytes_accessed")}
    return TaskGraph(
        [*graph.names, *(f"variable:{label}" for label in held)],
        np.concatenate([graph.edges, edges]),
        edge_bytes=np.concatenate([graph.edge_bytes, sizes[[v for v, _ in readers]]]),
        op=[*graph.op, *["input"] * len(held)],
        output_bytes=np.concatenate([graph.output_bytes, sizes]),
        shape=[*graph.shape, *[None] * len(held)],
        colocation=[*(label if update[i] else None for i, label in enumerate(graph.colocation)), *held],
        **columns,
    )


@functools.cache
def graph(name: str) -> TaskGraph:
    """Return the graph of a training step."""
    from hetsched.papers import models

    return with_variables(models.training()[name].capture())


@functools.cache
def problem(name: str, cluster: str, costs: str) -> Problem:
    """Return the problem of a training step: as it runs, by the "roofline", or as the compiler models it, by "operations"."""
    steps, place = graph(name), machines(cluster)
    if costs == ROOFLINE:
        return Problem(steps, place, costs=Roofline())
    peak = np.array([one.peak_flops["float32"] for one in place.devices])
    return Problem(steps, place, durations=np.nan_to_num(steps.flops)[:, None] / peak)


def expensive(problem: Problem) -> IntArray:
    """Return the fewest stateless tasks that have the share `EXPENSIVE` of the work of all stateless ones."""
    work = problem.whole_durations.mean(axis=1)
    able = np.flatnonzero([label is None for label in problem.graph.colocation])
    able = able[np.argsort(-work[able], kind="stable")]
    reached = work[able].cumsum()
    return np.asarray(able[: 1 + int(np.searchsorted(reached, EXPENSIVE * reached[-1]))])


class Placed(NamedTuple):
    """What is measured of a placement."""

    bytes: float
    """Of all edges between different devices."""
    by_operations: float
    """The largest deviation of a device's load of expensive tasks from the ideal, as a share of it, by the compiler's costs."""
    by_roofline: float
    """The same by the durations of the step as it runs."""
    seconds: float
    """Of a step as it runs."""


def placed(name: str, cluster: str, device: IntArray) -> Placed:
    """Measure the devices of tasks, [n], each device in order of the upward ranks."""
    actual = problem(name, cluster, ROOFLINE)
    return Placed(
        bytes=crossing(actual.graph, device),
        by_operations=_deviation(problem(name, cluster, OPERATIONS), device),
        by_roofline=_deviation(actual, device),
        seconds=simulate(actual, in_order(actual, device)).makespan,
    )


def _deviation(modelled: Problem, device: IntArray) -> float:
    counted, seconds = expensive(modelled), modelled.whole_durations
    load = np.bincount(device[counted], seconds[counted, device[counted]], modelled.n_devices).astype(np.float64)
    return _from_ideal(load, seconds[counted])


def _from_ideal(load: FloatArray, seconds: FloatArray) -> float:
    ideal = 1 / (1 / seconds.sum(axis=0)).sum()
    return float(np.abs(load / ideal - 1).max())


def balance_alone(modelled: Problem) -> float:
    """Return the deviation where nothing but balance counts: the longest expensive task first, each where it would end first."""
    seconds = modelled.whole_durations[expensive(modelled)]
    load = np.zeros(modelled.n_devices)
    for own in seconds[np.argsort(-seconds.mean(axis=1), kind="stable")]:
        k = int((load + own).argmin())
        load[k] += own[k]
    return _from_ideal(load, seconds)


def crossing(steps: TaskGraph, device: IntArray) -> float:
    """Return the bytes of all edges between different devices."""
    return float(steps.edge_bytes[device[steps.source] != device[steps.target]].sum())


def in_order(actual: Problem, device: IntArray) -> Decision:
    """Return the decision for devices of tasks, [n], in order of the upward ranks."""
    decision = listed(actual, device)
    assert decision is not None  # every two devices have a link
    return decision


class _Recorder(Monitor):
    """A monitor that keeps the devices of all offers."""

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed=seed)
        self.offered: list[IntArray] = []

    def offer(self, decision: Decision) -> float:
        self.offered.append(devices_of(decision))
        return super().offer(decision)


def repartitioned(modelled: Problem, start: Literal["block", "random"], seed: int = 0, passes: int = PASSES) -> list[IntArray]:
    """Return the devices of tasks, [n], in the first partition and after each pass, the last one being the paper's answer."""
    recorder = _Recorder(modelled, seed)
    repartition(modelled, recorder, start=start, expensive=EXPENSIVE, slack=SLACK, passes=passes)
    return recorder.offered


def machines(cluster: str) -> Cluster:
    """Return a cluster of GPUs on PCIe 3.0 (half of 4.0)."""
    gpus = [device(kind, f"gpu{k}", memory_bytes=math.inf) for k, kind in enumerate(CLUSTERS[cluster])]
    return Cluster(gpus, bandwidth=clusters.PCIE4_X16 / 2, latency=clusters.LATENCY)
