"""Files of instances: found, fetched, read."""

from __future__ import annotations

import hashlib
import os
from importlib.resources import as_file
from pathlib import Path

from hetsched import checker, documents
from hetsched.arguments import checked
from hetsched.errors import InvalidProblem, MissingDependency, UnsupportedFeature
from hetsched.frontends.formats import read
from hetsched.instances.registry import SHIPPED, Instance, entry
from hetsched.problem.problem import Problem

FOLDERS = "HETSCHED_INSTANCES"
"""The variable with folders that have files of instances, separated like those of PATH."""


def cache() -> Path:
    """Return the folder of fetched files."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hetsched" / "instances"


@checked
def load(name: str) -> Problem:
    """Return the problem of an instance; its file is fetched unless it is there.

    Files are looked for in the folders that the variable ``HETSCHED_INSTANCES`` names, then in the cache of the user.

    Raises
    ------
    InvalidArgument
        There is no such instance.
    InvalidProblem
        A file is not the one that the registry means.
    UnsupportedFeature
        The file has no address: its licence does not allow to pass it on.
    MissingDependency
        The file has to be fetched, and ``pooch`` is not installed.
    OSError
        The file cannot be fetched.
    """
    return problem_of(entry(name))


def problem_of(instance: Instance) -> Problem:
    """Return the problem of an instance of any registry."""
    problem = read(fetch(instance), instance.reader, **instance.options).problem
    if digest(problem) != instance.digest:
        raise InvalidProblem(f"{instance.file} is read as another problem than the one of instance {instance.name!r}: the digests differ")
    if (problem.n_tasks, problem.n_devices) != (instance.tasks, instance.devices):
        raise InvalidProblem(
            f"instance {instance.name!r} has {problem.n_tasks} tasks and {problem.n_devices} devices, "
            f"but the registry states {instance.tasks} and {instance.devices}"
        )
    return problem


def digest(problem: Problem) -> str:
    """Return the digest of a problem: of its numbers, not of its names."""
    return checker.Problem(documents.encode(problem)).digest()


def fetch(instance: Instance) -> Path:
    """Return the file of an instance; see `load`."""
    if Path(instance.file).is_absolute() or ".." in Path(instance.file).parts:
        raise InvalidProblem(f"{instance.file!r} of instance {instance.name!r} is no name of a file within a folder; give a relative one")
    shipped = SHIPPED / instance.file
    if shipped.is_file():
        with as_file(shipped) as path:
            return _meant(path, instance, "install hetsched again")
    own = [Path(folder) for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]
    flat = instance.file.replace("/", "-")
    for path in (folder / name for folder in (*own, cache()) for name in (instance.file, flat)):
        if path.is_file():
            return _meant(path, instance)
    if not instance.source:
        raise UnsupportedFeature(
            f"{instance.file} of instance {instance.name!r} may not be passed on; put a copy of yours into a folder, "
            f"and name the folder in {FOLDERS}"
        )
    try:
        import pooch
    except ImportError:
        raise MissingDependency("pooch", "instances") from None
    try:
        return Path(pooch.retrieve(instance.source, f"sha256:{instance.sha256}", fname=flat, path=cache()))
    except OSError as error:
        raise OSError(f"{instance.source} cannot be fetched: {error}; put the file into a folder that {FOLDERS} names") from None
    except ValueError:  # of the hash
        raise InvalidProblem(f"{instance.source} is no longer the file of instance {instance.name!r}: its SHA-256 differs") from None


def _meant(path: Path, instance: Instance, remedy: str = "remove it") -> Path:
    """Return the path of a file if it is the one that the registry means."""
    if hashlib.sha256(path.read_bytes()).hexdigest() != instance.sha256:
        raise InvalidProblem(f"{path} is not the file of instance {instance.name!r}: its SHA-256 differs; {remedy}")
    return path
