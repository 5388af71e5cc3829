"""Recorded workflows in WfFormat 1.5 and 1.6, the format of WfCommons."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from hetsched.arguments import checked, number, shown
from hetsched.errors import InvalidArgument, InvalidProblem
from hetsched.frontends.exchange import Imported, decode, decode_all, naming, text_of
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem

__all__ = ["read"]

VERSIONS = ("1.5", "1.6")


class Task(msgspec.Struct, rename="camel"):
    """A task and its files."""

    id: str
    parents: list[str] = []
    children: list[str] = []
    input_files: list[str] = []
    output_files: list[str] = []


class File(msgspec.Struct, rename="camel"):
    """A file and its size."""

    id: str
    size_in_bytes: float


class Specification(msgspec.Struct):
    """What runs."""

    tasks: list[Task]
    files: list[File] = []


class Command(msgspec.Struct):
    """The program of a task."""

    program: str = ""


class Recorded(msgspec.Struct, rename="camel"):
    """A task as it ran."""

    id: str
    runtime_in_seconds: float
    command: Command | None = None
    machines: list[str] | None = None
    machine: str | None = None
    core_count: float | None = None

    @property
    def ran_on(self) -> str | None:
        """The first machine of the task."""
        return self.machine if self.machine is not None else self.machines[0] if self.machines else None


class Processor(msgspec.Struct):
    """A processor and its clock."""

    speed: float | None = msgspec.field(name="speedInMHz", default=None)


class Machine(msgspec.Struct, rename="camel"):
    """A machine of the run."""

    node_name: str
    cpu: Processor | None = None


class Execution(msgspec.Struct, rename="camel"):
    """The run."""

    tasks: list[Recorded]
    machines: list[Machine] = []


class Body(msgspec.Struct):
    """The parts of a workflow."""

    specification: Specification
    execution: Execution | None = None


class Workflow(msgspec.Struct, rename="camel"):
    """A file."""

    workflow: Body
    schema_version: str


class _Version(msgspec.Struct, rename="camel"):
    """The version of a file, whose layout may be another."""

    schema_version: str


@checked(bandwidth=number(above=0))
def read(path: str | os.PathLike[str], *, bandwidth: float | None = None, cluster: Cluster | None = None) -> Imported:
    """Read a recorded workflow, for the machines of the run or for a cluster.

    An edge carries the files that the parent writes and the child reads. On another machine than the recorded one a task takes its
    runtime times the quotient of the clocks, or the runtime if a clock is not known. The memory of a task is its own peak, which does not
    add up, so a device has no limit.

    Parameters
    ----------
    path : path
    bandwidth : float
        Bytes per second between each two machines of the run, which the format has not; inf if sending takes no time.
    cluster : Cluster, optional
        Devices in place of the machines of the run; those of the same name have their clocks. Then without `bandwidth`.

    Raises
    ------
    InvalidProblem
        The file breaks a rule of the format, has no runtimes, or another version than 1.5 and 1.6.
    InvalidArgument
        Neither `bandwidth` nor `cluster` is given, or both.
    """
    name, text = os.fspath(path), text_of(path)
    if (bandwidth is None) == (cluster is None):
        raise InvalidArgument(f"{name} states no bandwidth; give bandwidth= of its machines (inf if sending takes no time), or cluster=")
    version = decode(text, _Version, name).schema_version
    if version not in VERSIONS:
        raise InvalidProblem(
            f"{name} has version {version} of WfFormat; versions {' and '.join(VERSIONS)} are read (WfCommons migrates others)"
        )
    made, lost = decode_all(text, Workflow, name)
    body = made.workflow
    if body.execution is None:
        raise InvalidProblem(f"{name} has no execution, so no runtimes; give a recorded workflow")
    with naming(name):
        imported = _imported(body.specification, body.execution, bandwidth, cluster)
    return imported._replace(lost=(*imported.lost, *lost))


def _imported(tasks: Specification, run: Execution, bandwidth: float | None, cluster: Cluster | None) -> Imported:
    recorded = {one.id: one for one in run.tasks}
    if len(recorded) < len(run.tasks):
        raise InvalidProblem("a task has two runtimes in execution.tasks; give one for each")
    names = [task.id for task in tasks.tasks]
    for task in names:
        if task not in recorded:
            raise InvalidProblem(f"task {task!r} has no runtime in execution.tasks; give one for each")
    sizes = {file.id: file.size_in_bytes for file in tasks.files}
    if len(sizes) < len(tasks.files):
        raise InvalidProblem("a file has two sizes in specification.files; give one for each")
    for task_of_file in tasks.tasks:
        for file in (*task_of_file.input_files, *task_of_file.output_files):
            if file not in sizes:
                raise InvalidProblem(f"task {task_of_file.id!r} names the file {file!r}, which is not in specification.files")
    if cluster is None:
        if not run.machines:
            raise InvalidProblem("no machines are recorded; give cluster=")
        cluster = Cluster([Device(machine.node_name) for machine in run.machines], bandwidth=bandwidth)
    clocks = {machine.node_name: machine.cpu and machine.cpu.speed for machine in run.machines}
    runs = [recorded[task] for task in names]
    edges = _edges(tasks, sizes)
    graph = TaskGraph(names, edges, op=[one.command.program if one.command else "" for one in runs])
    seconds = np.empty((len(names), cluster.n_devices))
    for i, one in enumerate(runs):
        clock = clocks.get(one.ran_on or "")
        for k, device in enumerate(cluster.names):
            other = clocks.get(device)
            seconds[i, k] = one.runtime_in_seconds * (clock / other if clock and other else 1.0)
    problem = Problem(graph, cluster, durations=seconds)
    readers: dict[str, int] = {}
    for task_of_file in tasks.tasks:
        for file in set(task_of_file.input_files):
            readers[file] = readers.get(file, 0) + 1
    written = {file for task in tasks.tasks for file in task.output_files}
    several = sum((one.core_count or 1) > 1 for one in runs)
    apart = sum(len(one.machines or ()) > 1 for one in runs)
    said = {
        f"coreCount above 1 of {several} tasks: a device runs one task at a time": several > 0,
        f"all machines but the first of {apart} tasks": apart > 0,
        "runtimes of tasks that are not in specification.tasks": len(recorded) > len(names),
        "that a file is sent once: one read by several tasks counts for each": any(readers[file] > 1 for file in written & readers.keys()),
        "files that no task writes": any(file not in written for file in readers),
        "that a task reads what another writes that is not its parent": _reads_of_others(
            tasks, [(parent, child) for parent, child, _ in edges]
        ),
    }
    return Imported(problem, lost=tuple(line for line, there in said.items() if there))


def _edges(tasks: Specification, sizes: dict[str, float]) -> list[tuple[str, str, float]]:
    """Return the edges, task by task, of the parents and the children that tasks name."""
    of = {task.id: task for task in tasks.tasks}
    pairs = dict.fromkeys((parent, task.id) for task in tasks.tasks for parent in task.parents)
    pairs |= dict.fromkeys((task.id, child) for task in tasks.tasks for child in task.children)
    edges = []
    for parent, child in pairs:
        for end, other in ((parent, child), (child, parent)):
            if end not in of:
                raise InvalidProblem(f"task {other!r} names the task {shown(end)}, which is not there")
        moved: Any = set(of[parent].output_files) & set(of[child].input_files)
        edges.append((parent, child, sum(sizes[file] for file in sorted(moved))))
    return edges


def _reads_of_others(tasks: Specification, pairs: Iterable[tuple[str, str]]) -> bool:
    """Return whether a task reads a file that another task writes and none of its parents does; `pairs` are parents and children."""
    written = {task.id: set(task.output_files) for task in tasks.tasks}
    at_hand = {name: set(files) for name, files in written.items()}
    for parent, child in pairs:
        at_hand[child] |= written[parent]
    every = set().union(*written.values())
    return any(every & set(task.input_files) - at_hand[task.id] for task in tasks.tasks)
