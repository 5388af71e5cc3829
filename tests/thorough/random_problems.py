"""Random problems of every kind for all methods and bounds, and the properties of valid answers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import hetsched as hs
from hetsched.search import Kind, select
from hetsched.search.solution import Status
from hetsched.testing import brute_force, problems

EVALUATIONS = 100
"""Evaluation limit of each search."""
ENUMERATED = 4000
"""Limit of `brute_force`; above it answers are only verified."""
SECONDS = 20.0
"""Time limit of each solver, which such problems do not reach."""
TOLERANCE = 1e-9
CLOSE = 1e-6
EXACT = tuple(method.name for method in select(kind=Kind.EXACT))
PROVING = tuple(name for name in EXACT if name != "split")
"""Methods that run until they have a proof; `split` continues with a search."""
PROVEN = (Status.OPTIMAL, Status.INFEASIBLE)
EXACT_FOR_ONE = ("milp", "milp:highs", "cpsat", "moirai", "pesto")
"""Methods that end with a proof for one input, unless they are stopped."""
ALONE = ("auto",)
"""Methods that start processes, which takes seconds."""
AUTO = 48
"""Number of problems of which one is given to them."""
MAGNITUDES = st.sampled_from([1e-99, 1e-30, 1e-12, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e12, 1e15, 1e30, 1e99])


# ---------------------------------------------------------------------- problems


@st.composite
def cases(draw: DrawFn) -> hs.Problem:
    """Draw a problem of `problems`, sometimes with equal devices, with several inputs, or with numbers of different magnitudes."""
    problem: hs.Problem = draw(problems(n_tasks=st.integers(1, 5), inputs=st.sampled_from([1, 1, 1, 2, 3])))
    with contextlib.suppress(hs.InvalidProblem):
        match draw(st.sampled_from(["as it is", "as it is", "alike", "rooms", "scaled", "apart"])):
            case "alike":
                return _alike(problem)
            case "rooms":
                return _with_rooms(draw, problem)
            case "scaled":
                return _scaled(problem, draw(MAGNITUDES), draw(MAGNITUDES))
            case "apart":
                return _apart(draw, problem)
    return problem


def _alike(problem: hs.Problem) -> hs.Problem:
    """Return the problem with all devices and channels equal to the first."""
    cluster, size = problem.cluster, problem.n_devices
    first = cluster.devices[0]
    transfers = problem.transfers
    if transfers is not None and size > 1:
        transfers = np.where(np.eye(size, dtype=bool), 0.0, transfers[:, :1, 1:2])
    return problem.replace(
        cluster=hs.Cluster(
            [replace(first, name=name) for name in cluster.names], float(cluster.bandwidth[0, -1]), float(cluster.latency[0, -1])
        ),
        durations=np.repeat(problem.durations[:, :1], size, axis=1),
        transfers=transfers,
    )


def _with_rooms(draw: DrawFn, problem: hs.Problem) -> hs.Problem:
    """Return the problem with devices that have no memory, memory for exactly some tasks, or no limit."""
    claims = (problem.static_bytes @ [1.0, float(problem.inputs)]).tolist()
    sums = [sum(claims[:n]) for n in range(len(claims) + 1)]
    rooms = draw(st.lists(st.sampled_from([0.0, math.inf, *sums]), min_size=problem.n_devices, max_size=problem.n_devices))
    devices = [replace(device, memory_bytes=room) for device, room in zip(problem.cluster.devices, rooms, strict=True)]
    return problem.replace(cluster=hs.Cluster(devices, problem.cluster.bandwidth, problem.cluster.latency))


def _scaled(problem: hs.Problem, time: float, size: float) -> hs.Problem:
    """Return the problem with all times, and all bytes, multiplied."""
    graph, cluster = problem.graph, problem.cluster
    devices = [replace(device, memory_bytes=device.memory_bytes * size) for device in cluster.devices]
    with np.errstate(all="ignore"):
        return problem.replace(
            graph=graph.replace(
                weight_bytes=graph.weight_bytes * size,
                input_bytes=graph.input_bytes * size,
                output_bytes=graph.output_bytes * size,
                edge_bytes=graph.edge_bytes * size,
            ),
            cluster=hs.Cluster(devices, cluster.bandwidth / time * size, cluster.latency * time),
            durations=problem.durations * time,
            transfers=None if problem.transfers is None else problem.transfers * time,
        )


def _apart(draw: DrawFn, problem: hs.Problem) -> hs.Problem:
    """Return the problem with each duration, transfer and channel multiplied by one of a few magnitudes."""
    few = draw(st.lists(MAGNITUDES, min_size=1, max_size=3))

    def factors(shape: tuple[int, ...]) -> Any:
        count = math.prod(shape)
        return np.array(draw(st.lists(st.sampled_from(few), min_size=count, max_size=count))).reshape(shape)

    cluster = problem.cluster
    with np.errstate(all="ignore"):
        return problem.replace(
            cluster=hs.Cluster(
                cluster.devices, cluster.bandwidth / factors(cluster.bandwidth.shape), cluster.latency * factors(cluster.latency.shape)
            ),
            durations=problem.durations * factors(problem.durations.shape),
            transfers=None if problem.transfers is None else problem.transfers * factors(problem.transfers.shape),
        )


# ---------------------------------------------------------------------- properties of answers


def names(*, alone: bool = False) -> list[str]:
    """Return the methods of the package; with `alone` also those that start processes."""
    own = [name for name, method in hs.methods().items() if method.function.__module__.startswith("hetsched.")]
    return [name for name in own if alone or name not in ALONE]


class Broken(AssertionError):
    """A property violated on a problem, and the method that violates it, ``""`` for the bounds."""

    def __init__(self, method: str, what: str) -> None:
        self.method = method
        super().__init__(f"{method or 'bound'}: {what}")


def check(problem: hs.Problem, methods: Iterable[str]) -> None:
    """Raise `Broken` unless the bounds and the answers of all methods to a problem are valid."""
    try:
        optimum = brute_force(problem, limit=ENUMERATED)
        length = math.inf if optimum is None else optimum.makespan
    except hs.UnsupportedFeature:
        length = math.nan
    for name in ("", *methods):
        try:
            for what in _faults_of_bound(problem, length) if name == "" else _faults_of_method(problem, name, length):
                raise Broken(name, what)
        except Broken:
            raise
        except Exception as error:
            raise Broken(name, f"{type(error).__name__}: {error}") from error


def _faults_of_bound(problem: hs.Problem, length: float) -> Iterator[str]:
    bound = hs.bound(problem)
    if bound.value > length * (1 + TOLERANCE):
        yield f"{bound} is above the optimum {length!r}"


def _faults_of_method(problem: hs.Problem, name: str, length: float) -> Iterator[str]:
    """Yield the faults of a method's answer; `length` is the optimal makespan: inf if there is no schedule, NaN if unknown."""
    method = hs.methods()[name]
    limits: dict[str, Any] = {"time_limit": SECONDS} if name in PROVING or name in ALONE else {"evaluations": EVALUATIONS}
    try:
        solution = hs.solve(problem, name, threads=1 if "threads" in method.options else None, **limits)
    except hs.UnsupportedFeature:
        return
    yield from (message for message in solution.messages if " failed: " in message and "UnsupportedFeature" not in message)
    if solution.schedule is not None:
        yield from map(str, hs.verify(problem, solution.schedule))
        if hs.simulate(problem, solution.schedule.decision) != solution.schedule:
            yield "simulate makes another schedule of its decision"
    elif solution.stopped == "finished" and not solution.methods.evaluations.sum() and not solution.messages and name != "bounds":
        yield "finished without an evaluation and without a message"
    if solution.bound > length * (1 + TOLERANCE):
        yield f"its bound {solution.proof} is above the optimum {length!r}"
    if solution.makespan < length * (1 - TOLERANCE):
        yield f"{solution.makespan!r} s is better than the optimum {length!r}"
    if solution.status is Status.OPTIMAL and solution.makespan > length * (1 + CLOSE):
        yield f"{solution.makespan!r} s is called optimal, but the optimum is {length!r}"
    if solution.status is Status.INFEASIBLE and math.isfinite(length):
        yield f"called infeasible, but there is a schedule of {length!r} s"
    if name in EXACT_FOR_ONE and problem.inputs == 1 and solution.status not in PROVEN and solution.stopped == "finished":
        yield f"finished with {solution}, without a proof"


# ---------------------------------------------------------------------- search for a fault


def rounds() -> list[list[str]]:
    """Return lists of methods, one of which is used for each problem: quick methods are in all, a solver is in one of four."""
    own = names(alone=True)
    rare = {name: number for number, name in enumerate(method for method in own if method in EXACT)}
    return [[name for name in own if rare.get(name, turn) % 4 == turn % 4 and (name not in ALONE or turn == 0)] for turn in range(AUTO)]


def first_find(number: int, count: int) -> tuple[hs.Problem, Broken] | None:
    """Return the first of `count` problems of a seed that raises `Broken`, shrunk, and the error; None if none does."""
    last: list[hs.Problem] = []
    culprits: list[str] = []

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink],
    )
    @given(cases(), st.sampled_from(rounds()))
    def every_rule_is_kept(problem: hs.Problem, methods: list[str]) -> None:
        last[:] = [problem]
        try:
            check(problem, methods if not culprits else [name for name in culprits if name])
        except Broken as broken:
            culprits[:] = [broken.method]
            raise

    try:
        every_rule_is_kept()
    except Broken as broken:
        return last[0], broken
    return None
