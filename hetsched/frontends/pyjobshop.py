"""Problems of PyJobShop: machines, modes, precedence, memory as consumables, co-location as identical resources."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from hetsched.arguments import checked, number, shown
from hetsched.errors import InvalidArgument, InvalidProblem, MissingDependency, UnsupportedFeature
from hetsched.frontends.exchange import ROUNDING, Imported, Reference, check_same
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem

__all__ = ["read", "to_pyjobshop"]

UNIT = number(above=0)


@checked(unit=UNIT)
def read(data: Any, *, unit: float = 1.0) -> Imported:
    """Read a ``ProblemData`` of PyJobShop whose modes need one machine each.

    A machine becomes a device; a consumable that only modes of one machine demand is the memory of that device, and the demands, which
    must be equal on all machines, are the weight bytes of tasks. ``EndBeforeStart`` without delay is an edge without bytes,
    ``IdenticalResources`` co-location. The job of a task is kept as its ``op``, such as ``"job 3"``.

    Parameters
    ----------
    data : pyjobshop.ProblemData
    unit : float
        Seconds of one unit of time.

    Raises
    ------
    InvalidArgument
        `data` is no ``ProblemData``.
    InvalidProblem
        It has features that a problem has not; the message lists all of them.
    """
    try:
        resources, tasks, jobs, constraints = data.resources, data.tasks, data.jobs, data.constraints
        kinds = [type(resource).__name__ for resource in resources]
        before, together = constraints.end_before_start, constraints.identical_resources
        refused = _refused(data, kinds)
    except (AttributeError, TypeError) as error:
        raise InvalidArgument(f"data is {shown(data)}, no problem of PyJobShop ({error}); give a pyjobshop.ProblemData") from None
    if refused:
        raise InvalidProblem(f"the data has what a problem cannot state: {', '.join(refused)}; remove it, or solve it with PyJobShop")
    machines = [place for place, kind in enumerate(kinds) if kind == "Machine"]
    device = {place: k for k, place in enumerate(machines)}
    durations, weights = np.full((len(tasks), len(machines)), np.nan), np.zeros(len(tasks))
    memory = np.full(len(machines), np.inf)
    slower = 0
    for mode in data.modes:
        (place,) = (one for one in mode.resources if one in device)
        k = device[place]
        for resource, demand in zip(mode.resources, mode.demands, strict=True):
            if resource not in device:
                weights[mode.task], memory[k] = demand, resources[resource].capacity
        known = durations[mode.task, k]
        slower += not np.isnan(known)
        durations[mode.task, k] = np.fmin(known, mode.duration * unit)
    names, unnamed = _names([task.name for task in tasks], "t")
    devices, unnamed_machines = _names([resources[place].name for place in machines], "m")
    cluster = Cluster([Device(name, memory_bytes=size) for name, size in zip(devices, memory.tolist(), strict=True)], bandwidth=np.inf)
    graph = TaskGraph(
        names,
        [(names[one.task1], names[one.task2]) for one in before],
        op=["" if task.job is None else f"job {task.job}" for task in tasks],
        weight_bytes=weights,
        colocation=_labels(len(tasks), [(one.task1, one.task2) for one in together]),
    )
    said = {
        "names of tasks, which are empty or not unique": unnamed and any(task.name for task in tasks),
        "names of machines, which are empty or not unique": unnamed_machines and any(resources[place].name for place in machines),
        "names of jobs": any(job.name for job in jobs),
        "weights and due dates of jobs, which the makespan does not depend on": any(
            job.weight != 1 or job.due_date is not None for job in jobs
        ),
        f"{slower} slower of two modes of a task on one machine": slower > 0,
    }
    return Imported(
        Problem(graph, cluster, durations=durations),
        reference=Reference(unit=f"{unit:g} for each unit of time"),
        lost=tuple(line for line, there in said.items() if there),
    )


@checked(unit=UNIT)
def to_pyjobshop(problem: Problem, *, unit: float = 1.0) -> Any:
    """Return a problem without communication as a ``ProblemData`` of PyJobShop.

    Labels of co-location are read back as ``"group 0"`` and so on, by the first task of each group.

    Parameters
    ----------
    problem : Problem
    unit : float
        Seconds of one unit of time, of which each duration must be a multiple.

    Raises
    ------
    UnsupportedFeature
        A transfer takes time, a duration is no multiple of `unit`, there are several inputs, or the problem has what PyJobShop does not;
        the message names it.
    MissingDependency
        The package ``pyjobshop`` is not installed.
    """
    try:
        import pyjobshop as jobs
        from pyjobshop import ProblemData as made
    except ImportError:
        raise MissingDependency("pyjobshop", "") from None
    graph, cluster = problem.graph, problem.cluster
    limited = np.flatnonzero(np.isfinite(cluster.memory_bytes)).tolist()
    pool = {k: cluster.n_devices + place for place, k in enumerate(limited)}
    what = "PyJobShop"
    modes = []
    for i, row in enumerate(problem.table[:, problem.column, 0].tolist()):
        for k, seconds in enumerate(row):
            if seconds == seconds:
                count = _whole(seconds / unit, f"the duration of {graph.names[i]!r} on {cluster.names[k]!r} in units of {unit:g} s")
                demand = [_whole(float(graph.weight_bytes[i]), f"weight_bytes of {graph.names[i]!r}")] if k in pool else []
                modes.append(jobs.Mode(i, [k, pool[k]] if k in pool else [k], count, [0, *demand]))
    owners: dict[int, list[int]] = {}
    for i, op in enumerate(graph.op):
        if op.startswith("job ") and op[4:].isascii() and op[4:].isdigit():
            owners.setdefault(int(op[4:]), []).append(i)
    of = {i: job for job, members in owners.items() for i in members}
    units: dict[int, int] = {}
    pairs = [(units.setdefault(unit_of, i), i) for i, unit_of in enumerate(problem.unit.tolist())]
    together = [(first, i) for first, i in pairs if first != i]
    try:
        data = made(
            [jobs.Job(tasks=owners[job]) for job in range(len(owners))] if set(owners) == set(range(len(owners))) else [],
            [jobs.Machine(name=name) for name in cluster.names]
            + [jobs.Consumable(_whole(float(cluster.memory_bytes[k]), f"memory_bytes of {cluster.names[k]!r}")) for k in limited],
            [jobs.Task(job=of.get(i), name=name) for i, name in enumerate(graph.names)],
            modes,
            jobs.Constraints(
                end_before_start=[jobs.EndBeforeStart(i, j) for i, j in graph.edges.tolist()],
                identical_resources=[jobs.IdenticalResources(first, i) for first, i in together],
            ),
        )
    except (TypeError, ValueError) as error:
        raise UnsupportedFeature(
            f"{what} refuses the problem: {error}; change that, or keep the problem as a document (problem.write)"
        ) from None
    relabelled = problem.replace(graph=graph.replace(colocation=_labels(problem.n_tasks, together)))
    check_same(relabelled, lambda: read(data, unit=unit).problem, what, ROUNDING)
    return data


def _whole(value: float, what: str) -> int:
    if abs(value - round(value)) > 1e-9 * max(1.0, abs(value)):
        raise UnsupportedFeature(f"PyJobShop has whole numbers only: {what} is {value:g}; scale or round it")
    return round(value)


def _refused(data: Any, kinds: list[str]) -> list[str]:
    """Return every feature of the data that a problem cannot state."""
    refused = []
    rows = [("tasks", data.tasks, {"job", "name"}), ("jobs", data.jobs, {"tasks", "name", "weight", "due_date"})]
    rows += [
        ("resources", data.resources, {"name", "capacity"}),
        ("constraints", [data.constraints], {"end_before_start", "identical_resources"}),
    ]
    rows += [("the objective", [data.objective], {"weight_makespan"})]
    for what, objects, known in rows:
        refused += [f"{name} of {what}" for name in dict.fromkeys(name for one in objects for name in _changed(one) if name not in known)]
    if not data.objective.weight_makespan:
        refused.append("an objective without the makespan")
    refused += [f"{kind} resources" for kind in dict.fromkeys(kinds) if kind not in ("Machine", "Consumable")]
    if any(one.delay for one in data.constraints.end_before_start):
        refused.append("delays of end_before_start")
    if any([kinds[place] for place in mode.resources].count("Machine") != 1 for mode in data.modes):
        return [*refused, "modes that need no machine or several"]
    pools: dict[int, set[int]] = {}
    of_machine: dict[int, set[tuple[int, ...]]] = {}
    weights: dict[int, set[int]] = {}
    for mode in data.modes:
        machine = next(place for place in mode.resources if kinds[place] == "Machine")
        others = tuple(sorted(place for place in mode.resources if place != machine))
        of_machine.setdefault(machine, set()).add(others)
        for place, demand in zip(mode.resources, mode.demands, strict=True):
            if place != machine:
                pools.setdefault(place, set()).add(machine)
                weights.setdefault(mode.task, set()).add(demand)
    if any(len(sets) > 1 or any(len(one) > 1 for one in sets) for sets in of_machine.values()):
        refused.append("modes of one machine with different other resources, or with several")
    if any(len(machines) > 1 for machines in pools.values()):
        refused.append("consumables of several machines")
    if any(len(demands) > 1 for demands in weights.values()):
        refused.append("demands of a task that differ between modes")
    return refused


def _changed(one: Any) -> Iterable[str]:
    """Yield the fields of a data class that differ from their default."""
    for field in dataclasses.fields(one):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if default is not dataclasses.MISSING and getattr(one, field.name) != default:
            yield field.name


def _names(given: list[str], letter: str) -> tuple[list[str], bool]:
    """Return the names, or numbered ones and True where they are empty or not unique."""
    replaced = "" in given or len(set(given)) < len(given)
    return ([f"{letter}{i}" for i in range(len(given))] if replaced else list(given)), replaced


def _labels(n: int, pairs: Iterable[tuple[int, int]]) -> list[str | None]:
    """Return a label for each task that a pair joins with another: the number of the group, by first member."""
    first = list(range(n))

    def root(i: int) -> int:
        while first[i] != i:
            first[i] = i = first[first[i]]
        return i

    for one, two in pairs:
        low, high = sorted((root(one), root(two)))
        first[high] = low
    members = Counter(map(root, range(n)))
    groups = {place: f"group {g}" for g, place in enumerate(place for place, count in members.items() if count > 1)}
    return [groups.get(root(i)) for i in range(n)]
