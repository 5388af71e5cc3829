"""The files commands read and write: the kind they need, and a refusal before the work, not after it."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetsched.cli.terminal import Working
from hetsched.errors import InvalidProblem

if TYPE_CHECKING:
    from hetsched.problem.cluster import Cluster
    from hetsched.problem.problem import Problem
    from hetsched.schedule.schedule import Schedule
    from hetsched.solution import Solution


def _read(path: Path, *kinds: type) -> Any:
    """Return the value in a document if it is of one of the kinds."""
    from hetsched.documents import read

    with Working(f"reading {path}"):
        value = read(path)
    if not isinstance(value, kinds):
        wanted = " or ".join(f"a {kind.__name__.lower()}" for kind in kinds)
        raise InvalidProblem(f"{path} holds a {type(value).__name__.lower()}, but {wanted} is needed here")
    return value


def read_problem(path: Path) -> Problem:
    """Return the problem in the document at `path`."""
    from hetsched.problem.problem import Problem

    problem: Problem = _read(path, Problem)
    return problem


def read_answer(path: Path) -> Schedule | Solution:
    """Return the schedule or the solution in the document at `path`."""
    from hetsched.schedule.schedule import Schedule
    from hetsched.solution import Solution

    answer: Schedule | Solution = _read(path, Schedule, Solution)
    return answer


def find_cluster(name: str) -> Cluster:
    """Return a named cluster, or the one in a document."""
    from hetsched.problem.cluster import Cluster
    from hetsched.workloads import clusters

    if name in clusters.names():
        return clusters.load(name)
    if not Path(name).exists():
        raise InvalidProblem(f"cluster {name!r} is neither a file nor one of {', '.join(clusters.names())}")
    cluster: Cluster = _read(Path(name), Cluster)
    return cluster


def check_writable(*paths: Path | None, sources: Sequence[Path | None] = ()) -> None:
    """Raise an error for a file that cannot be written, before hours are spent on what goes in.

    Nor may a file be written that is read as one of the `sources`, or written twice.
    """
    taken = [path.resolve() for path in sources if path is not None]
    for path in paths:
        if path is None:
            continue
        if path.is_file() or not path.exists():
            if path.resolve() in taken:
                raise InvalidProblem(f"{path} would be overwritten by the answer; give the output another name")
            taken.append(path.resolve())
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder to write into", str(path.parent))
        if not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
