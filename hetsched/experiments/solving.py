"""Cases that solve a problem by a method: named, parsed, and measured."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetsched.arguments import checked
from hetsched.bounds.best import quick
from hetsched.certificates.certificate import Certificate
from hetsched.certificates.certifying import certify
from hetsched.compiled import interpreter
from hetsched.errors import InvalidArgument, InvalidSchedule, UnsupportedFeature
from hetsched.experiments.results import Case, Row
from hetsched.experiments.runner import Job, improvements, timed
from hetsched.experiments.sources import Instance, value
from hetsched.portfolio.prepare import prepare_bounds, prepare_methods, tiny
from hetsched.problem.problem import Problem
from hetsched.search import Budget, Kind, Monitor, compilation, find_method, select
from hetsched.search.solution import OPTIMALITY_GAP, Solution
from hetsched.solving import solve
from hetsched.verification.verify import verify


@checked
@dataclass(frozen=True)
class Configuration:
    """A method with options.

    Attributes
    ----------
    method : str
        A name of `hetsched.methods`.
    options : mapping
        Options of the method that differ from their defaults. A solver and a method that uses several processes get one thread
        unless they say otherwise, so that CPU times compare.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        find_method(self.method).check_options(self.options)

    def __str__(self) -> str:
        return label(self.method, self.options)

    @classmethod
    @checked
    def parse(cls, text: str) -> tuple[Configuration, ...]:
        """Return the configurations in a text such as ``heft,cpsat{cuts=false,gap=0.01}``.

        Raises `InvalidArgument` if braces do not match, and `UnsupportedFeature` for an unknown method or option.
        """
        return tuple(cls._one(part) for part in _split(text) if part)

    @classmethod
    def _one(cls, text: str) -> Configuration:
        name, brace, rest = text.partition("{")
        options: dict[str, Any] = {}
        for part in _split(rest.removesuffix("}")) if brace else ():
            key, equals, given = (word.strip() for word in part.partition("="))
            if not (key and equals):
                raise InvalidArgument(f"{part!r} in {text!r} is not of the form OPTION=VALUE; write for instance cpsat{{cuts=false}}")
            options[key] = value(given)
        return cls(name.strip(), options)


def _split(text: str) -> list[str]:
    """Return the parts of a text between commas that are not in braces or brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "{[(") - (letter in "}])")
        if depth < 0:
            break
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise InvalidArgument(f"the brackets of {text!r} do not match; write for instance heft,cpsat{{cuts=false}}")
    return [part.strip() for part in parts]


def label(method: str, options: Mapping[str, Any]) -> str:
    """Return a method with its options as it is written in a command."""
    inside = ",".join(f"{name}={given}" for name, given in options.items())
    return f"{method}{{{inside}}}" if inside else method


@checked
@dataclass(frozen=True)
class SolveCase:
    """A problem to be solved by a method with a seed within limits.

    Attributes
    ----------
    instance : Instance
    configuration : Configuration
    seed : int
    time_limit, cpu_limit : float, optional
        Seconds of wall-clock time; of CPU time, which hardly depends on other load of the machine.
    evaluations : int, optional
        The most schedules evaluated.
    certify : float, optional
        Seconds in which a certificate of the bound is looked for afterwards, see `hetsched.certify`; by default none is.
    """

    instance: Instance
    configuration: Configuration
    seed: int = 0
    time_limit: float | None = None
    cpu_limit: float | None = None
    evaluations: int | None = None
    certify: float | None = None

    def __post_init__(self) -> None:
        if self.certify is not None and not 0 < self.certify < math.inf:
            raise InvalidArgument(f"certify is {self.certify}; it must be a number of seconds, above 0, or None for no certificate")
        if self.cpu_limit is not None and not 0 <= self.cpu_limit < math.inf:
            raise InvalidArgument(f"cpu_limit is {self.cpu_limit}; it must be a number of seconds, at least 0, or None for no limit")
        if self.cpu_limit is not None and self.time_limit is not None:
            raise InvalidArgument(f"time_limit={self.time_limit:g} and cpu_limit={self.cpu_limit:g} are both given; choose one clock")

    @property
    def key(self) -> dict[str, Any]:
        """The identity of the case in the records, with the names of its problem."""
        seconds = {"time": self.time_limit, "cpu": self.cpu_limit, "certify": self.certify}
        limits = {name: float(limit) for name, limit in seconds.items() if limit is not None}
        return {
            "instance": self.instance.name,
            "family": self.instance.family,
            "digest": digest(self.instance.problem),
            "method": self.configuration.method,
            "options": dict(self.configuration.options),
            "seed": self.seed,
            "limits": limits if self.evaluations is None else {**limits, "evaluations": self.evaluations},
        }

    @property
    def job(self) -> Job:
        """What `hetsched.experiments.run` measures."""
        work = functools.partial(solve_case, self.instance.problem)
        limit = self.time_limit if self.cpu_limit is None else 4 * self.cpu_limit  # the CPU is shared
        limit = None if limit is None else limit + (self.certify or 0.0)
        return Job(self.key, work, functools.partial(prepare, self.instance.problem), limit)


@checked
def cases(
    problems: Iterable[Instance],
    methods: str | Iterable[str | Configuration],
    *,
    seeds: Iterable[int] = (0,),
    time_limit: float | None = None,
    cpu_limit: float | None = None,
    evaluations: int | None = None,
    certify: float | None = None,
) -> list[SolveCase]:
    """Return a case for each problem, method and seed.

    Seeds change slowest, so that a run that is interrupted has compared all methods on all problems.

    Parameters
    ----------
    problems : iterable of Instance
        As from `hetsched.experiments.problems`.
    methods : str, or iterable of str or Configuration
        For instance ``"heft,cpsat{cuts=false}"``, or ``["heft", "cpsat{cuts=false}"]``.
    seeds : iterable of int
    time_limit, cpu_limit, evaluations, certify : optional
        Limits of each case, see `SolveCase`.

    Raises
    ------
    UnsupportedFeature
        A method or an option is unknown.
    InvalidArgument
        No problem, method or seed is given, or two clocks are.
    """
    every = list(problems)
    named = [methods] if isinstance(methods, str) else list(methods)
    configurations = [one for part in named for one in (Configuration.parse(part) if isinstance(part, str) else [part])]
    numbers = list(seeds)
    for what, given in (("problems", every), ("methods", configurations), ("seeds", numbers)):
        if not given:
            raise InvalidArgument(f"{what} is empty; give at least one")
    limits = {"time_limit": time_limit, "cpu_limit": cpu_limit, "evaluations": evaluations, "certify": certify}
    return [
        SolveCase(instance, configuration, seed, **limits)  # type: ignore[arg-type]
        for seed in numbers
        for instance in every
        for configuration in configurations
    ]


def solve_case(problem: Problem, case: Case) -> Row:
    """Solve a problem as a case says, verify the schedule, and return what was found."""
    limits, name = case["limits"], case["method"]
    try:
        solution, spent = timed(lambda: _solved(problem, name, case["options"], case["seed"], limits))
    except UnsupportedFeature as refusal:
        return {"status": "refused", "says": f"refused: {refusal}"}
    schedule = solution.schedule
    if schedule is not None and (violations := verify(problem, schedule)):
        raise InvalidSchedule(f"{name} made a schedule that breaks {len(violations)} rules, first: {violations[0].message}")
    proof, certificate = solution.proof, None
    if "certify" in limits:
        certificate = _certificate(problem, solution, limits["certify"])
        proof = proof if certificate is None or certificate.value < proof.value * (1 - OPTIMALITY_GAP) else certificate.check(problem)
    made = "no schedule" if schedule is None else f"makespan {solution.makespan:.6g}, gap {100 * solution.gap:.2f} %"
    return {
        "status": str(solution.status),
        "makespan": None if schedule is None else solution.makespan,
        "bound": max(proof.value, solution.bound),
        "proof": proof.name,
        "trust": proof.trust,
        **({} if certificate is None else {"certificate": {"digest": certificate.digest, "claim": certificate.value}}),
        "history": improvements(solution),
        **spent,
        "stopped": str(solution.stopped),
        "says": f"{solution.status}, {made}, {spent['cpu_s']:.2f} s of CPU time",
    }


def _certificate(problem: Problem, solution: Solution, seconds: float) -> Certificate | None:
    """Return a certificate that a solution is optimal, or of its bound; None if none is found, or the checker does not take the problem."""
    claim = solution.makespan if solution.status == "optimal" else solution.bound
    try:
        return certify(problem, claim, time_limit=seconds)
    except UnsupportedFeature:
        return None


def _solved(problem: Problem, name: str, options: Mapping[str, Any], seed: int, limits: Mapping[str, Any]) -> Solution:
    given = {**_single(name), **options}
    if "cpu" not in limits:
        time_limit, evaluations = limits.get("time"), limits.get("evaluations")
        return solve(problem, name, time_limit=time_limit, evaluations=evaluations, seed=seed, options=given, in_process=True)
    budget = Budget(limits["cpu"], limits.get("evaluations"))
    monitor = Monitor(problem, budget, seed=seed, clock=time.process_time)
    if find_method(name).at_once:  # as `solve` does, which leaves the bounds until they are read
        monitor.deferred = quick(problem)
    else:
        for bound in quick(problem):
            monitor.raise_bound(bound)
    if not monitor.should_stop:
        monitor.run(name, given)
    return monitor.solution(name)


def _single(name: str) -> dict[str, Any]:
    """Return the options by which a method works in one thread of this process."""
    method = find_method(name)
    usual = {"threads": 1, "workers": 0 if method.kind is Kind.PORTFOLIO else 1}
    return {option: number for option, number in usual.items() if option in method.options}


def prepare(problem: Problem, case: Case) -> None:
    """Import what a method needs, and compile its kernels for the rules of a problem, which have kernels of their own."""
    batching = problem.batching if problem.inputs > 1 else ""
    _warm_up(case["method"], problem.communication, problem.memory, batching, problem.transfers is not None)


@functools.cache
def _warm_up(method: str, communication: str, memory: str, batching: str, given_transfers: bool) -> None:
    """Run a method, or the members of `auto`, and the bounds on a tiny problem, compiling what its size would leave to the interpreter.

    `solve` would not do: its bounds prove the tiny problem, and a method that does not begin compiles nothing.
    """
    small = tiny()
    roomy = [dataclasses.replace(device, memory_bytes=99.0) for device in small.cluster.devices]
    rules: dict[str, Any] = {"communication": communication, "memory": memory, "cluster": small.cluster.replace(devices=roomy)}
    rules["graph"] = small.graph.replace(weight_bytes=1.0)
    if batching:
        rules |= {"inputs": 2, "batching": batching, "batch_sizes": [1, 2], "durations": small.durations * [1.0, 1.5]}
    if given_transfers:
        rules["transfers"] = [[[0.0, 1.0], [1.0, 0.0]]] * small.graph.n_edges
    problem = small.replace(**rules)
    chosen = find_method(method)
    members = select(auto=True) if chosen.kind is Kind.PORTFOLIO else [chosen]
    parts = {compilation.part(member) for member in members}
    if parts & {compilation.BOUNDS, compilation.COARSENING}:  # they begin with searches, or solve windows with them
        members = [*select(kind=Kind.SEARCH, objective="makespan", auto=True), *members]
    with interpreter(on=False):
        for _ in quick(problem):
            pass
        if compilation.BOUNDS in parts:
            prepare_bounds()
        prepare_methods(["best-device", "heft", *(member.name for member in members)], problem)


def digest(problem: Problem) -> str:
    """Return a digest of a problem without its names: equal for a renamed problem, and different if any number or rule differs."""
    graph, cluster = problem.graph, problem.cluster
    numbers = {name: node for node, name in enumerate(dict.fromkeys(device.node for device in cluster.devices))}
    parts = [
        problem.table,
        problem.column,
        problem.batch_sizes,
        graph.edges,
        graph.edge_bytes,
        graph.weight_bytes,
        graph.input_bytes,
        graph.output_bytes,
        problem.unit,
        problem.pinned,
        cluster.memory_bytes,
        cluster.bandwidth,
        cluster.latency,
        np.array([numbers[device.node] for device in cluster.devices]),
        np.empty(0) if problem.transfers is None else problem.transfers,
    ]
    made = hashlib.sha256(f"{problem.inputs} {problem.batching} {problem.communication} {problem.memory}".encode())
    for part in parts:
        plain = np.where(np.isnan(part), np.nan, part + 0.0) if part.dtype.kind == "f" else part.astype(np.int64)
        made.update(f"{plain.shape}".encode() + np.ascontiguousarray(plain).astype(plain.dtype.newbyteorder("<")).tobytes())
    return made.hexdigest()[:16]
