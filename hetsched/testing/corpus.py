"""A corpus of 240 small problems with their optima: 30 problems of each of 8 features.

The problems were drawn by `derive` and are stored with the optima of `brute_force` in ``corpus.json``, so that a test
compares a method with optima in milliseconds, on the same problems every time. Half of them have numbers whose sums
are exact (multiples of 1/8, bandwidths that are powers of two), half have decimals, whose sums are rounded.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, get_args

import msgspec
import numpy as np
from hypothesis import settings

from hetsched.arguments import checked
from hetsched.arrays import BoolArray, FloatArray
from hetsched.documents import decode, encode
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.links import Communication
from hetsched.problem.problem import Batching, Problem
from hetsched.testing.brute_force import brute_force
from hetsched.testing.profiles import USUAL

__all__ = ["FEATURES", "Case", "derive", "problems", "sample"]

T = TypeVar("T")
Feature = Literal["plain", "static memory", "peak memory", "channel", "port", "several inputs", "constraints", "links"]
FEATURES: tuple[Feature, ...] = get_args(Feature)
"""The feature that the problems of a group share.

plain
    One input, transfers that do not contend, unlimited memory, every task on any device.
static memory, peak memory
    Memory limits that increase the optimum or exclude every schedule.
channel, port
    Contention that increases the optimum.
several inputs
    Two or three inputs, durations of several batch sizes for some problems, both batching rules.
constraints
    Pins, co-location and missing durations; pins and co-location increase the optimum.
links
    Missing links, or explicit transfer times, some of them NaN.

A problem of any group except the first may have further features.
"""

PATH = Path(__file__).with_name("corpus.json")
COUNT = 30
"""Problems of each feature."""
_MOST_INFEASIBLE = 3
"""The most problems of one feature without a schedule."""
_LIMIT = 10_000
"""The limit of `brute_force`; larger problems are drawn again."""
_ANOTHER = 0.15
"""Probability of each further feature."""
_EXCLUSIVE: tuple[set[Feature], ...] = ({"static memory", "peak memory"}, {"channel", "port"})
_CONTENDED: tuple[Literal["channel", "port"], ...] = ("channel", "port")
_FREE: tuple[Communication, ...] = ("delay", "per-input")
_BATCHINGS: tuple[Batching, ...] = ("once", "free")


@checked
@dataclass(frozen=True, eq=False)
class Case:
    """A problem of the corpus.

    Attributes
    ----------
    name : str
        The feature and a number.
    feature : str
        One of `FEATURES`.
    problem : Problem
    optimum : float or None
        The least makespan in seconds, up to a relative 1e-12; None where no schedule exists.
    """

    name: str
    feature: Feature
    problem: Problem
    optimum: float | None


class _Row(msgspec.Struct):
    """A line of the file."""

    name: str
    feature: Feature
    optimum: float | None
    problem: msgspec.Raw


@checked
def problems(feature: Feature | None = None) -> tuple[Case, ...]:
    """Return the corpus, read once: all problems, or those of one feature.

    Parameters
    ----------
    feature : str, optional
        One of `FEATURES`.
    """
    return tuple(case for case in _corpus() if feature in (None, case.feature))


@checked
def sample(feature: Feature | None = None) -> tuple[Case, ...]:
    """Return the part of the corpus for the active profile of hypothesis, always the same.

    A profile with fewer than 100 examples has a share: ``dev``, with 25, every fourth problem. Others have all problems.

    Parameters
    ----------
    feature : str, optional
        One of `FEATURES`.
    """
    step = max(1, USUAL // settings().max_examples)
    return tuple(case for case in _corpus()[::step] if feature in (None, case.feature))


@functools.cache
def _corpus() -> tuple[Case, ...]:
    rows = msgspec.json.decode(PATH.read_bytes(), type=list[_Row])
    return tuple(Case(row.name, row.feature, decode(bytes(row.problem), name=row.name), row.optimum) for row in rows)


def text(cases: Sequence[Case]) -> bytes:
    """Return the text of ``corpus.json``: a JSON array with one line for each case."""
    rows = [_Row(case.name, case.feature, case.optimum, msgspec.Raw(encode(case.problem).strip())) for case in cases]
    return b"[\n" + b",\n".join(map(msgspec.json.encode, rows)) + b"\n]\n"


# ---------------------------------------------------------------------- the draw


@checked
def derive(feature: Feature) -> tuple[Case, ...]:
    """Draw the problems of one feature again and enumerate their optima; the result is that of `problems`.

    Problems are drawn until there are `COUNT` for which no single device is optimal and, where `FEATURES` claims it, the
    feature changes the optimum. At most three have no schedule. The only source of randomness is
    `random.Random.random`, which draws the same numbers in every version of Python.

    Parameters
    ----------
    feature : str
        One of `FEATURES`.
    """
    cases: list[Case] = []
    infeasible = 0
    for problem in _drawn(feature):
        try:
            optimum = _optimum(problem)
            simpler = _without(problem, feature)
            if simpler is not None and _same(optimum, _optimum(simpler)):
                continue
        except UnsupportedFeature:
            continue
        if optimum is None:
            infeasible += 1
            if infeasible > _MOST_INFEASIBLE:
                continue
        elif _same(optimum, _alone(problem)):
            continue
        cases.append(Case(f"{feature} {len(cases)}", feature, problem, optimum))
        if len(cases) == COUNT:
            break
    return tuple(cases)


def _optimum(problem: Problem) -> float | None:
    """Return the least makespan, or None without a schedule; raise `UnsupportedFeature` for a large problem."""
    best = brute_force(problem, limit=_LIMIT)
    return None if best is None else best.makespan


def _same(first: float | None, second: float | None) -> bool:
    """Return whether two optima agree up to rounding."""
    return first == second or (first is not None and second is not None and math.isclose(first, second))


def _alone(problem: Problem) -> float:
    """Return the least makespan of one device that runs every task in one batch; inf if no device can."""
    seconds = problem.whole_durations.sum(axis=0)
    return float(np.where(np.isnan(seconds), math.inf, seconds).min())


def _without(problem: Problem, feature: Feature) -> Problem | None:
    """Return the problem without the restriction of a feature; None for a feature that is not a restriction."""
    if feature in ("static memory", "peak memory"):
        names, cluster = problem.cluster.names, problem.cluster
        return problem.replace(cluster=Cluster(names, bandwidth=cluster.bandwidth, latency=cluster.latency))
    if feature in ("channel", "port"):
        return problem.replace(communication="delay")
    if feature == "constraints":
        free = [None] * problem.n_tasks
        return problem.replace(graph=problem.graph.replace(colocation=free, devices=free))
    return None


def _drawn(feature: Feature) -> Iterator[Problem]:
    """Yield the problems drawn for a feature, without end, except those that the rules of a problem exclude."""
    for seed in range(2**31):
        try:
            yield _Draw(f"{feature} {seed}").problem(feature)
        except InvalidProblem:
            continue


class _Draw:
    """The random choices of one problem, with exact or decimal numbers."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed).random
        self.exact = self.likely(0.5)

    def likely(self, probability: float) -> bool:
        return self.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.random() * len(options))]

    def amount(self, largest: int = 4) -> float:
        """Draw 0 with probability 1/8, else a number up to `largest`."""
        if self.likely(1 / 8):
            return 0.0
        steps = 8 if self.exact else 100
        return (1 + int(self.random() * largest * steps)) / steps

    def amounts(self, *shape: int, largest: int = 4) -> FloatArray:
        return np.array([self.amount(largest) for _ in range(math.prod(shape))], np.float64).reshape(shape)

    def flags(self, probability: float, *shape: int) -> BoolArray:
        return np.array([self.likely(probability) for _ in range(math.prod(shape))], np.bool_).reshape(shape)

    def problem(self, feature: Feature) -> Problem:
        """Draw a problem with a feature and, unless it is plain, possibly with others."""
        features = {feature}
        if feature != "plain":
            features |= {other for other in FEATURES[1:] if self.likely(_ANOTHER)}
            for pair in _EXCLUSIVE:
                if features >= pair:
                    features.remove(max(pair - {feature}))
        contended: Communication | None = next((name for name in _CONTENDED if name in features), None)
        several = "several inputs" in features
        inputs = self.pick((2, 2, 3)) if several else 1
        n = self.pick((3, 4)) if several else 5 if contended else self.pick((4, 5, 6))
        names = [f"d{k}" for k in range(self.pick((2, 2, 3)))]
        graph = self.graph(n, 0.7 if contended else 0.5, names if "constraints" in features else [])
        alike = self.likely(1 / 8)
        sizes = sorted({self.pick(range(1, inputs + 1)) for _ in range(2)})
        durations = self.durations(n, len(names), sizes, alike)
        if "constraints" in features:
            durations[self.flags(0.15, *durations.shape)] = np.nan
        rooms = [math.inf] * len(names)
        if features & {"static memory", "peak memory"}:
            needed = float((graph.weight_bytes + inputs * (graph.input_bytes + graph.output_bytes)).sum())
            rooms = [needed * self.pick((0.25, 0.375, 0.5, 0.75)) for _ in names]
        given, missing = self.pick(((True, False), (False, True), (True, True))) if "links" in features else (False, False)
        return Problem(
            graph,
            self.cluster(names, rooms, alike or self.likely(0.5), missing),
            durations=durations,
            batch_sizes=sizes,
            inputs=inputs,
            batching=self.pick(_BATCHINGS),
            communication=self.pick(_FREE if contended is None else (contended,)),
            memory="peak" if "peak memory" in features else "static",
            transfers=self.transfers(graph.n_edges, len(names)) if given else None,
        )

    def graph(self, n: int, density: float, devices: Sequence[str]) -> TaskGraph:
        """Draw a graph of n tasks in no particular order; with devices, some tasks are pinned or co-located."""
        place = list(range(n))
        for i in range(n - 1, 0, -1):
            j = int(self.random() * (i + 1))
            place[i], place[j] = place[j], place[i]
        edges = [(place[i], place[j]) for j in range(n) for i in range(j) if self.likely(density)]
        labels = [self.pick((None, None, "red", "blue")) if devices else None for _ in range(n)]
        pins = [[name for name in devices if self.likely(0.5)] or None if self.likely(0.3) else None for _ in range(n)]
        return TaskGraph(
            [f"t{i}" for i in range(n)],
            np.array(edges, np.int64).reshape(-1, 2),
            edge_bytes=self.amounts(len(edges)),
            weight_bytes=self.amounts(n),
            input_bytes=self.amounts(n),
            output_bytes=self.amounts(n),
            colocation=labels,
            devices=pins,
        )

    def durations(self, n: int, n_devices: int, sizes: Sequence[int], alike: bool) -> FloatArray:
        """Draw the seconds [n, K, sizes] of batches, a constant and a part proportional to the size."""
        inputs = np.array(sizes, np.float64)
        if alike:
            return np.repeat(self.amounts(n, 1, 1) + self.amounts(n, 1, 1) * inputs, n_devices, axis=1)
        if self.likely(0.25):
            speeds = np.array([self.pick((1.0, 2.0, 4.0)) for _ in range(n_devices)])[:, None]
            related: FloatArray = (self.amounts(n, 1, 1) + self.amounts(n, 1, 1) * inputs) / speeds
            return related
        unrelated: FloatArray = self.amounts(n, n_devices, 1, largest=2) + self.amounts(n, n_devices, 1) * inputs
        return unrelated

    def cluster(self, names: Sequence[str], rooms: Sequence[float], uniform: bool, missing: bool) -> Cluster:
        """Draw the links of devices, the same for all pairs if `uniform`, and remove one or more if `missing`."""
        size = 1 if uniform else len(names)
        options = (0.5, 1.0, 2.0, 4.0) if self.exact else (0.7, 1.1, 3.0, 4.9)
        bandwidth = np.array([self.pick(options) for _ in range(size * size)]).reshape(size, size) * np.ones((len(names), len(names)))
        if missing:
            bandwidth[self.flags(0.3, len(names), len(names))] = 0.0
            bandwidth[self.pick([(h, k) for h in range(len(names)) for k in range(len(names)) if h != k])] = 0.0
        latency = self.amounts(size, size, largest=1) * self.pick((0.0, 1.0))
        devices = [Device(name, memory_bytes=room) for name, room in zip(names, rooms, strict=True)]
        return Cluster(devices, bandwidth, latency * np.ones((len(names), len(names))))

    def transfers(self, n_edges: int, n_devices: int) -> FloatArray:
        """Draw the seconds [E, K, K] of transfers for one input; NaN where a transfer is impossible."""
        seconds = self.amounts(n_edges, n_devices, n_devices, largest=2)
        seconds[self.flags(1 / 8, n_edges, n_devices, n_devices)] = np.nan
        seconds[:, np.arange(n_devices), np.arange(n_devices)] = 0.0
        return seconds
