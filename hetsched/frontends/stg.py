"""Files of the Standard Task Graph set (.stg): tasks and precedence for identical processors, also with costs of communication."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from hetsched.arguments import checked, whole
from hetsched.errors import InvalidArgument, InvalidProblem
from hetsched.frontends.exchange import UNIT, Imported, Reference, bytes_of, naming, number, renamed, save, sorted_edges
from hetsched.problem.cluster import MOST_DEVICES, Cluster
from hetsched.problem.edges import Edge
from hetsched.problem.graph import TaskGraph, plural
from hetsched.problem.problem import Problem

__all__ = ["read", "write"]

Line = tuple[str, list[str]]
"""Where a line is, for messages, and its words."""


@checked(processors=whole(1, MOST_DEVICES))
def read(path: str | os.PathLike[str], *, processors: int | None = None) -> Imported:
    """Read a Standard Task Graph file for identical processors.

    Each row has the number of a task, its time, the number of its predecessors, and these. In the variant with costs a cost follows
    each predecessor, on the same line or on a line for each. The time of a task is its duration in seconds, and a cost the seconds of a
    transfer between two processors: bytes at a bandwidth of 1. The dummy entry and exit are kept as tasks of no time.

    Parameters
    ----------
    path : path
    processors : int
        Number of identical processors, which the file does not state.

    Raises
    ------
    InvalidProblem
        The file breaks a rule of the format; the message has the line.
    InvalidArgument
        `processors` is missing.
    """
    name = os.fspath(path)
    if processors is None:
        raise InvalidArgument(f"{name} does not state how many processors there are; give processors=8, for instance")
    return _parse(bytes_of(path).decode("utf-8-sig", "backslashreplace"), name, processors)  # comments may be in any encoding


@checked
def write(problem: Problem, path: str | os.PathLike[str], *, rename: bool = False) -> None:
    """Write a problem on identical processors p0, p1, ... as a Standard Task Graph file, with costs if its edges carry bytes.

    The edges are written task by task, so that they are read back sorted by target.

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
        problem = renamed(problem, "t", "p")
    graph, n = problem.graph, problem.n_tasks
    off_diagonal = ~np.eye(problem.n_devices, dtype=bool)
    costs = bool(graph.edge_bytes.any()) or bool(np.isfinite(problem.cluster.bandwidth[off_diagonal]).any())
    source, size = graph.source.tolist(), graph.edge_bytes.tolist()
    rows = []
    for i in range(n):
        edges = graph.pred_edge[graph.pred_ptr[i] : graph.pred_ptr[i + 1]].tolist()
        row = [str(i), number(float(problem.table[i, 0, 0])), str(len(edges)), *(str(source[e]) for e in edges if not costs)]
        rows += [" ".join(row), *(f"  {source[e]} {number(size[e])}" for e in edges if costs)]
    text = "\n".join([str(n - 2 if _has_dummies(problem) else n), *rows]) + "\n"
    save(text, sorted_edges(problem, "target"), path, lambda text, name: _parse(text, name, problem.n_devices), "an STG file")


def _has_dummies(problem: Problem) -> bool:
    """Return whether the first task is the only entry, the last the only exit, and both take no time; a file's head does not count them."""
    entries, exits = (np.flatnonzero(np.diff(ptr) == 0).tolist() for ptr in (problem.graph.pred_ptr, problem.graph.succ_ptr))
    n = problem.n_tasks
    return n >= 2 and (entries, exits) == ([0], [n - 1]) and not problem.table[[0, n - 1]].any()


def _parse(text: str, name: str, processors: int) -> Imported:
    comments = [line.strip(" \t#") for line in text.splitlines() if line.lstrip().startswith("#")]
    lines = iter(
        [
            (f"{name}, line {place}", line.split("#")[0].split())
            for place, line in enumerate(text.splitlines(), 1)
            if line.split("#")[0].strip()
        ]
    )
    head = next(lines, None)
    if head is None:
        raise InvalidProblem(f"{name} has no tasks; its first line is their number")
    n = _whole(head, 0, "the number of tasks")
    if len(head[1]) > 1:
        raise InvalidProblem(f"{head[0]} has {len(head[1])} words; the first line is the number of tasks alone")
    times: list[float] = []
    edges: list[tuple[str, int, int, float]] = []
    variants = set()
    for line in lines:
        where = line[0]
        task, count = _whole(line, 0, "the number of a task"), _whole(line, 2, "a number of predecessors")
        if task != len(times):
            raise InvalidProblem(f"{where}: task {task} stands where task {len(times)} is due; tasks are numbered 0, 1, 2, ... in order")
        times.append(_number(line, 1, "a time"))
        for source, cost in _predecessors(line, lines, count):
            edges.append((where, source, task, cost or 0.0))
            variants.add(cost is not None)
    if len(times) not in (n, n + 2):
        raise InvalidProblem(
            f"{name} has {plural(len(times), 'task')}, but its first line states {n}, with or without an entry and an exit"
        )
    if len(variants) > 1:
        raise InvalidProblem(f"{name}: some tasks have costs after their predecessors, others have none; give a cost to all or to none")
    for where, source, task, _ in edges:
        if not source < len(times):
            raise InvalidProblem(f"{where}: task {task} names predecessor {source}, but there are {len(times)} tasks")
    with_costs = True in variants
    arcs: list[Edge] = [(f"t{source}", f"t{task}", cost) for _, source, task, cost in edges]
    with naming(name):
        graph = TaskGraph([f"t{i}" for i in range(len(times))], arcs)
        cluster = Cluster([f"p{k}" for k in range(processors)], bandwidth=1.0 if with_costs else np.inf)
        problem = Problem(graph, cluster, durations=np.repeat(np.array(times)[:, None], processors, axis=1))
    lost = (f"comments: {'; '.join(comments)}",) if comments else ()
    return Imported(problem, reference=Reference(unit=UNIT), lost=lost)


def _predecessors(line: Line, lines: Iterator[Line], count: int) -> Iterator[tuple[int, float | None]]:
    """Yield the predecessors of a row, each with its cost, None in the variant without; those with costs may be on lines of their own."""
    where, words = line
    if len(words) == 3:
        for _ in range(count):
            pair = next(lines, (f"{where}, after which the file ends", []))
            yield _whole(pair, 0, "a predecessor"), _number(pair, 1, "a cost")
    elif len(words) == 3 + count:
        yield from ((_whole(line, place, "a predecessor"), None) for place in range(3, 3 + count))
    elif len(words) == 3 + 2 * count:
        yield from ((_whole(line, place, "a predecessor"), _number(line, place + 1, "a cost")) for place in range(3, 3 + 2 * count, 2))
    else:
        raise InvalidProblem(f"{where} has {len(words)} words; {count} predecessors need {3 + count}, or {3 + 2 * count} with costs")


def _word(line: Line, place: int, what: str) -> str:
    where, words = line
    if place >= len(words):
        raise InvalidProblem(f"{where}: {what} is missing; a row is: task, time, number of predecessors, predecessors")
    return words[place]


def _whole(line: Line, place: int, what: str) -> int:
    word = _word(line, place, what)
    if not (word.isascii() and word.isdigit() and len(word) < 16):
        raise InvalidProblem(f"{line[0]}: {what} is {word!r}; it must be a whole number, at least 0")
    return int(word)


def _number(line: Line, place: int, what: str) -> float:
    word = _word(line, place, what)
    try:
        value = float(word)
    except ValueError:
        value = np.nan
    if not 0 <= value < np.inf:
        raise InvalidProblem(f"{line[0]}: {what} is {word!r}; it must be a number, at least 0")
    return value
