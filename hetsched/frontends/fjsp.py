"""Flexible job shops: the JSON files of ScheduleOpt's benchmarks, and .fjs text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from hetsched.arguments import checked
from hetsched.errors import InvalidProblem, MissingDependency
from hetsched.frontends.exchange import UNIT, Imported, Reference, decode_all, naming, number, renamed, save, text_of
from hetsched.problem.cluster import MOST_DEVICES, Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem

__all__ = ["read", "write"]

Index = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


class Operation(msgspec.Struct):
    """One way to run an operation."""

    operation: Index
    machine: Annotated[int, msgspec.Meta(ge=0, lt=MOST_DEVICES)]
    duration: float
    option: int | None = None
    """The number of the way, which its place in the list states."""


class Precedence(msgspec.Struct):
    """An operation that precedes another."""

    before: Index
    after: Index
    job: int | None = None


class Shop(msgspec.Struct):
    """A file of ScheduleOpt's benchmarks."""

    operations: list[Operation]
    precedences: list[Precedence]


@checked
def read(path: str | os.PathLike[str], *, syntax: Literal["json", "fjs"] | None = None) -> Imported:
    """Read a flexible job shop: the JSON of ScheduleOpt's benchmarks, or text as of .fjs files.

    Operations become the tasks o0, o1, ..., machines the devices m0, m1, ...; an operation cannot run on a machine for which it has no
    option. Nothing is sent between machines. The number of the job of an operation is kept as its ``op``, such as ``"job 3"``.

    Parameters
    ----------
    path : path
    syntax : "json" or "fjs", optional
        Default: by the ending of the name, ``.json`` or ``.fjs``; of another name by the contents.

    Raises
    ------
    InvalidProblem
        The file breaks a rule of the format.
    MissingDependency
        Text needs the package ``fjsplib``.
    """
    name = os.fspath(path)
    text = text_of(path)
    if syntax is None:
        suffix = Path(path).suffix.lower()
        syntax = "fjs" if suffix == ".fjs" or (suffix != ".json" and not text.lstrip().startswith("{")) else "json"
    return _read_text(name) if syntax == "fjs" else _parse(text, name)


@checked
def write(problem: Problem, path: str | os.PathLike[str], *, rename: bool = False) -> None:
    """Write a problem without communication, with tasks o0, o1, ... and devices m0, m1, ..., as JSON of ScheduleOpt's benchmarks.

    Parameters
    ----------
    problem : Problem
    path : path
    rename : bool
        Whether to name tasks and devices as `read` does. Otherwise others are refused.

    Raises
    ------
    UnsupportedFeature
        The format cannot state the problem; the message has what it cannot.
    """
    if rename:
        problem = renamed(problem, "o", "m")
    operations, precedences = [], []
    for i, row in enumerate(problem.table[:, problem.column, 0].tolist()):
        ways = [(k, seconds) for k, seconds in enumerate(row) if seconds == seconds]
        operations += [
            f'{{"operation":{i},"option":{option},"machine":{k},"duration":{number(seconds)}}}' for option, (k, seconds) in enumerate(ways)
        ]
    for i, j in problem.graph.edges.tolist():
        word, _, job = problem.graph.op[i].partition(" ")
        stated = f',"job":{job}' if word == "job" and job.isascii() and job.isdigit() else ""
        precedences.append(f'{{"before":{i},"after":{j}{stated}}}')
    text = "\n".join(["{", '"operations" : [', ",\n".join(operations), "],", '"precedences" : [', ",\n".join(precedences), "]", "}", ""])
    save(text, problem, path, _parse, "a flexible job shop")


def _parse(text: str, name: str) -> Imported:
    shop, lost = decode_all(text, Shop, name)
    made = _shop(name, shop.operations, [(one.before, one.after, one.job) for one in shop.precedences])
    return made._replace(lost=(*made.lost, *lost))


def _read_text(name: str) -> Imported:
    try:
        import fjsplib
    except ImportError:
        raise MissingDependency("fjsplib", "formats") from None
    lines = [line.split() for line in text_of(name).splitlines() if line.strip()]
    for place, row in enumerate(lines[1:], 2):
        if row[0].isdecimal() and len(row) != _words(row):
            raise InvalidProblem(f"{name}, line {place}: its {row[0]} operations do not end with the line; correct or remove the line")
    if lines and lines[0][0].isdecimal() and int(lines[0][0]) != len(lines) - 1:
        raise InvalidProblem(f"{name} says that it has {lines[0][0]} jobs, but there are {len(lines) - 1} lines of jobs; it may be cut off")
    try:
        instance = fjsplib.read(name)
        ways = [way for job in instance.jobs for way in job]
        operations = [Operation(i, machine, float(seconds)) for i, way in enumerate(ways) for machine, seconds in way]
        idle = next((i for i, way in enumerate(ways) if not way), None)
    except (IndexError, TypeError, ValueError) as error:
        raise InvalidProblem(
            f"{name} is no flexible job shop ({error}); a line is a job: operations, each with its machines and times"
        ) from None
    if idle is not None:
        raise InvalidProblem(f"{name}: operation {idle} has no machine; give each one at least")
    numbers = [job for job, row in enumerate(instance.jobs) for _ in row]
    if any(not 0 <= one.machine < min(instance.num_machines, MOST_DEVICES) for one in operations):
        raise InvalidProblem(f"{name} names a machine outside 1 to {instance.num_machines}")
    return _shop(name, operations, [(i, j, numbers[i]) for i, j in instance.precedences], instance.num_machines)


def _words(row: list[str]) -> int:
    """Return how many words the operations of a job take: their number, and for each the number of its ways, and two words a way."""
    place = 1
    for _ in range(int(row[0])):
        if place >= len(row) or not row[place].isdecimal():
            return -1
        place += 1 + 2 * int(row[place])
    return place


def _shop(name: str, operations: Iterable[Operation], precedences: Iterable[tuple[int, int, int | None]], machines: int = 0) -> Imported:
    """Return the problem of operations and precedences, on at least as many machines."""
    ways: dict[tuple[int, int], float] = {}
    twice = 0
    for one in operations:
        place = one.operation, one.machine
        twice += place in ways
        ways[place] = min(one.duration, ways.get(place, np.inf))
    run = {i for i, _ in ways}
    n, n_machines = len(run), max([machines, *(k + 1 for _, k in ways)])
    for i in range(n):
        if i not in run:
            raise InvalidProblem(f"{name}: operation {i} has no option; operations are numbered 0, 1, 2, ..., each with a machine at least")
    jobs: dict[int, int] = {}
    several = False
    arcs = []
    for before, after, job in precedences:
        for i in (before, after):
            if i >= n:
                raise InvalidProblem(f"{name}: precedence {before} -> {after} names operation {i}, but there are {n}, numbered from 0")
            if job is not None:
                several |= jobs.setdefault(i, job) != job
        arcs.append((f"o{before}", f"o{after}"))
    durations = np.full((n, n_machines), np.nan)
    for place, seconds in ways.items():
        durations[place] = seconds
    lost = [f"{twice} slower of two options of an operation on one machine"] if twice else []
    lost += ["further jobs of operations that are in several"] if several else []
    with naming(name):
        graph = TaskGraph([f"o{i}" for i in range(n)], arcs, op=[f"job {jobs[i]}" if i in jobs else "" for i in range(n)])
        cluster = Cluster([f"m{k}" for k in range(n_machines)], bandwidth=np.inf)
        problem = Problem(graph, cluster, durations=durations)
    return Imported(problem, reference=Reference(unit=UNIT), lost=tuple(lost))
