"""Results by case, kept in a file, so that a long run may be interrupted and continued."""

from __future__ import annotations

import datetime
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hetsched.errors import InvalidProblem
from hetsched.papers.items import Case, Row

PACKAGES = ("pyscipopt", "highspy", "ortools", "torch", "numpy", "numba", "hetsched")
"""Packages whose versions are kept with each result."""


class Results:
    """Results by case, in a file of JSON lines, or without a file for this run only.

    Parameters
    ----------
    path : Path, optional
        The file; made with its folder when the first result is stored.
    fresh : bool
        Remove the file first.

    Raises
    ------
    InvalidProblem
        A line of the file is not a result. A last line that was cut off is ignored.
    """

    def __init__(self, path: Path | None = None, *, fresh: bool = False) -> None:
        self.path = path
        self._by_case: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        if fresh:
            path.unlink(missing_ok=True)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text and not text.endswith("\n"):  # the process ended while it wrote
            text = text[: text.rfind("\n") + 1]
            path.write_text(text, encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            try:
                record = json.loads(line)
                self._by_case[key(record["case"])] = record
            except (ValueError, KeyError, TypeError):
                raise InvalidProblem(f"line {number} of {path} is not a result; remove it, or measure all again with fresh=True") from None

    def __contains__(self, case: Case) -> bool:
        return key(case) in self._by_case

    def add(self, case: Case, result: Row) -> None:
        """Store the result of a case."""
        date = str(datetime.datetime.now(datetime.UTC).date())
        record = {"case": case, "result": result, "where": where(), "date": date, "sources": sources()}
        self._by_case[key(case)] = record
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")

    def rows(self, cases: Iterable[Case]) -> list[Row]:
        """Return the measured ones of some cases with their results, each as one flat dictionary."""
        records = [self._by_case[key(case)] for case in cases if case in self]
        return [record["case"] | record["result"] for record in records]

    def outdated(self, cases: Iterable[Case]) -> int:
        """Return the number of cases that were measured with other sources of hetsched."""
        return sum(self._by_case[key(case)]["sources"] != sources() for case in cases if case in self)

    def taken(self, cases: Sequence[Case]) -> str:
        """Return the machines and dates of the measurements of some cases."""
        dates: dict[str, set[str]] = {}
        for case in cases:
            if case in self:
                record = self._by_case[key(case)]
                dates.setdefault(record["where"], set()).add(record["date"])
        return "; ".join(f"{machine}, {' to '.join(sorted({min(days), max(days)}))}" for machine, days in dates.items())


@functools.cache
def where() -> str:
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
    """Return a text that equal cases have in common."""
    return json.dumps(case, sort_keys=True)
