"""Records by case, kept in a file, so that a long run may be interrupted and continued."""

from __future__ import annotations

import datetime
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from hetsched.arguments import checked, shown
from hetsched.errors import InvalidArgument, InvalidProblem, MissingDependency

PACKAGES = ("pyscipopt", "highspy", "ortools", "torch", "numpy", "numba", "hetsched")
"""Packages whose versions are kept with each record."""
NAMES = ("instance", "family")
"""Fields that are not part of the identity of a case with the digest of a problem: the same problem may have several names."""
Case: TypeAlias = Mapping[str, Any]
"""The identity of a measurement, JSON values only."""
Row: TypeAlias = dict[str, Any]
"""A case together with what was measured, JSON values only."""
Chosen: TypeAlias = "Iterable[Case] | Callable[[Case], bool] | None"
"""Some cases: these, those for which a function is true, or None for all."""


class Results:
    """The records of cases, in a file of JSON lines, or without a file for this process only.

    The file is only appended to, a line for each case that ended; a later record of a case replaces an earlier one, so files may be
    joined with ``cat``. What a killed process has left of a last line is ignored, and removed before the next record.

    Parameters
    ----------
    path : path, optional
        The file; made with its folder when the first record is stored.

    Raises
    ------
    InvalidProblem
        A line of the file is not a record.
    """

    @checked
    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._records: dict[str, dict[str, Any]] = {}
        lines = self.path.read_bytes().split(b"\n") if self.path is not None and self.path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line) if line else None
                if record is not None:
                    self._keep(record)
            except (ValueError, KeyError, TypeError, AttributeError):
                if number < len(lines) or not _torn(line):
                    raise InvalidProblem(f"line {number} of {self.path} is not a record; remove it, or give another file") from None

    def _keep(self, record: dict[str, Any]) -> None:
        if "found" in record:  # of earlier versions
            record["result"] = record.pop("found")
        if "result" not in record and "failure" not in record:
            raise KeyError("result")
        identity = key(record["case"])
        self._records.pop(identity, None)  # the order is that of the records kept
        self._records[identity] = record

    def __contains__(self, case: object) -> bool:
        """Whether there is a result of a case; a failure is none."""
        return isinstance(case, Mapping) and "result" in self._records.get(key(case), {})

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<Results: {len(self)} records in {self.path or 'memory'}>"

    @checked
    def add(
        self,
        case: Mapping[str, Any],
        result: Mapping[str, Any] | None = None,
        *,
        failure: Mapping[str, Any] | None = None,
        where: str | None = None,
        host: str | None = None,
    ) -> None:
        """Store the result of a case, or its failure, a mapping with ``status`` and ``error``.

        `where` is the machine with its software, in a line, and `host` its name; by default those of this process.
        """
        if (result is None) == (failure is None):
            raise InvalidArgument("give either the result of a case or its failure, and not both")
        ended = {"failure": dict(failure)} if failure is not None else {"result": dict(result or {})}
        here = {"where": where or machine(), "host": host or platform.node()}
        record = {"case": dict(case), **ended, **here, "date": str(datetime.datetime.now(datetime.UTC).date()), "sources": sources()}
        try:
            line = json.dumps(record) + "\n"
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"the record of {dict(case)!r} cannot be written: {error}; give JSON values") from None
        self._keep(json.loads(line))  # as it will be read
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "ab+") as file:
                _end_line(file)
                file.write(line.encode())

    @checked
    def rows(self, chosen: Iterable[Mapping[str, Any]] | Callable[[Mapping[str, Any]], bool] | None = None) -> list[dict[str, Any]]:
        """Return the chosen cases that have a result, by default all, each with its result as one flat dictionary."""
        return [record["case"] | record["result"] for record in self._of(chosen) if "result" in record]

    @checked
    def failures(self, chosen: Iterable[Mapping[str, Any]] | Callable[[Mapping[str, Any]], bool] | None = None) -> list[dict[str, Any]]:
        """Return the chosen cases that failed, by default all, with ``status``, "failed" or "late", and ``error``."""
        return [record["case"] | record["failure"] for record in self._of(chosen) if "failure" in record]

    @checked
    def outdated(self, chosen: Iterable[Mapping[str, Any]] | Callable[[Mapping[str, Any]], bool] | None = None) -> int:
        """Return how many of the chosen cases were measured with other sources of hetsched."""
        return sum(record.get("sources") != sources() for record in self._of(chosen) if "result" in record)

    @checked
    def taken(self, chosen: Iterable[Mapping[str, Any]] | Callable[[Mapping[str, Any]], bool] | None = None) -> str:
        """Return the machines and dates of the measurements of the chosen cases."""
        dates: dict[str, set[str]] = {}
        for record in self._of(chosen):
            if "result" in record:
                dates.setdefault(record["where"], set()).add(record["date"])
        return "; ".join(f"{machine}, {' to '.join(sorted({min(days), max(days)}))}" for machine, days in dates.items())

    def frame(self) -> Any:
        """Return all records as a ``pandas.DataFrame``, a row a case; what failed has a ``status`` and an ``error``.

        Raises `MissingDependency` without pandas.
        """
        try:
            import pandas
        except ImportError:
            raise MissingDependency("pandas", "report") from None
        kept = ("where", "host", "date", "sources")
        return pandas.DataFrame(
            [
                {**record["case"], **record.get("result", record.get("failure", {})), **{name: record.get(name) for name in kept}}
                for record in self._records.values()
            ]
        )

    def _of(self, chosen: Chosen) -> Iterator[dict[str, Any]]:
        if chosen is None or callable(chosen):
            yield from (record for record in self._records.values() if chosen is None or chosen(record["case"]))
        else:
            for case in chosen:
                if not isinstance(case, Mapping):
                    raise InvalidArgument(f"a case is {shown(case)}; it must be a mapping")
                if key(case) in self._records:
                    yield self._records[key(case)]


BEGINNING = b'{"case": '
"""The first bytes of a record."""


def _torn(line: bytes) -> bool:
    """Return whether a line may be what a process had written of a record when it ended."""
    return line.startswith(BEGINNING) or BEGINNING.startswith(line)


def _end_line(file: Any) -> None:
    """Go to the end of a file of lines, whose last line is completed if it is a record, and else removed."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 1))
    if size and file.read(1) != b"\n":
        file.seek(0)
        lines = file.read().split(b"\n")
        try:
            json.loads(lines[-1])
            file.write(b"\n")
        except ValueError:
            file.truncate(size - len(lines[-1]))
    file.seek(0, os.SEEK_END)


@functools.cache
def machine() -> str:
    """Return one line with the machine and the versions of its software."""
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), name)
    versions = ", ".join(f"{package} {version}" for package in PACKAGES if (version := _version(package)))
    return f"{name}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {versions}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return ""


@functools.cache
def sources() -> str:
    """Return a digest of the sources of hetsched at the first call."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def key(case: Case) -> str:
    """Return a text that equal cases have in common; names do not count beside the digest of a problem."""
    left_out = NAMES if "digest" in case else ()
    try:
        return json.dumps({name: value for name, value in case.items() if name not in left_out}, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"a case is {shown(dict(case))}: {error}; give JSON values") from None
