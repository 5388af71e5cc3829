"""Cases measured in separate processes, with each result stored, so that a long run may be interrupted and continued."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from typing import Any

import figures

from hetsched.modeling.backends import in_process
from hetsched.papers import measuring
from hetsched.papers.results import key, sources

KEPT = Path(__file__).resolve().parent / "results"
SOLVERS = ("pyscipopt", "highspy", "ortools")
"""Packages whose versions are kept with each result."""
Case = dict[str, Any]
"""The identity of a measurement: an instance, a method, limits."""
Work = Callable[[Case], dict[str, Any]]
"""Measures a case; a function that another process can import."""


def options(parser: argparse.ArgumentParser, region: str) -> None:
    """Add the options of a benchmark that is run case by case."""
    parser.add_argument("--results", type=Path, help=f"file of results to go on with (default: {KEPT / region}.jsonl; with --quick none)")
    parser.add_argument("--fresh", action="store_true", help="discard stored results and measure again")
    parser.add_argument("--jobs", type=int, default=1, help="cases measured at once (default: %(default)s)")


def parse(parser: argparse.ArgumentParser, words: Sequence[str] | None, *, region: str, plot: bool = False) -> argparse.Namespace:
    """Parse as `figures.parse` does, and check the solvers and the folder of the results."""
    arguments = figures.parse(parser, words, region=region, plot=plot)
    if any(importlib.util.find_spec(module) is None for module in ("highspy", "ortools")):
        parser.error("a solver is not installed; install it with: pip install 'hetsched[solvers]'")
    if arguments.jobs < 1:
        parser.error(f"--jobs is {arguments.jobs}; it must be 1 or more")
    if arguments.results is None and not arguments.quick:
        arguments.results = KEPT / f"{region}.jsonl"
    return arguments


class Results:
    """Results by case, in a file of JSON lines, or without a file for this run only."""

    def __init__(self, path: Path | None, *, fresh: bool = False) -> None:
        self.path = path
        self._by_case: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
            try:
                record = json.loads(line)
                self._by_case[key(record["case"])] = record
            except (ValueError, KeyError, TypeError):
                raise SystemExit(f"line {number} of {path} is not a result; remove it, or measure again with --fresh") from None

    def __contains__(self, case: Case) -> bool:
        return key(case) in self._by_case

    def __len__(self) -> int:
        return len(self._by_case)

    def add(self, case: Case, result: dict[str, Any]) -> None:
        """Store the result of a case."""
        date = str(datetime.datetime.now(datetime.UTC).date())
        record = {"case": case, "found": result, "where": figures.where(*SOLVERS), "date": date, "sources": sources()}
        self._by_case[key(case)] = record
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps(record) + "\n")

    def rows(self, chosen: Callable[[Case], bool]) -> list[dict[str, Any]]:
        """Return the chosen cases with their results, each as one flat dictionary."""
        return [record["case"] | record["found"] for record in self._by_case.values() if chosen(record["case"])]

    def outdated(self, cases: Iterable[Case]) -> int:
        """Return the number of cases that were measured with other sources of hetsched."""
        records = [self._by_case[key(case)] for case in cases if case in self]
        return sum(record.get("sources") != sources() for record in records)

    def taken(self, chosen: Callable[[Case], bool]) -> str:
        """Return the machines and dates of the measurements of the chosen cases."""
        dates: dict[str, set[str]] = {}
        for record in self._by_case.values():
            if chosen(record["case"]):
                dates.setdefault(record["where"], set()).add(record["date"])
        return "; ".join(f"{where}, {' to '.join(sorted({min(days), max(days)}))}" for where, days in dates.items())


def measure(cases: Sequence[Case], work: Work, results: Results, *, jobs: int = 1, done: Callable[[Case], object] | None = None) -> None:
    """Measure the cases without a result, `jobs` at a time; `done` is called after each.

    Ctrl-C exits with finished results stored; so does a case that fails, with its error.
    """
    left = [case for case in cases if case not in results]
    kept = f" in {results.path}" if results.path is not None else ""
    print(f"{len(cases) - len(left)} of {len(cases)} cases are measured already{kept}", flush=True)
    if outdated := results.outdated(cases):
        print(f"{outdated} of them with an older version of hetsched; --fresh measures all again", flush=True)
    started, total = time.monotonic(), len(left)
    waiting = left[::-1]
    workers = [_Worker(work) for _ in range(min(jobs, total))]
    try:
        for worker in workers:
            worker.take(waiting.pop())
        while busy := {worker.connection: worker for worker in workers if worker.case is not None}:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                case, result = worker.result()
                results.add(case, result)
                finished = total - len(waiting) - sum(busy_worker.case is not None for busy_worker in workers)
                print(f"{finished} of {total}, {time.monotonic() - started:.0f} s: {measuring.title(case)}: {result['says']}", flush=True)
                if done is not None:
                    done(case)
                if waiting:
                    worker.take(waiting.pop())
    except KeyboardInterrupt:
        print(f"\ninterrupted; {sum(case in results for case in cases)} of {len(cases)} cases are measured{kept}; run again to continue")
        raise SystemExit(130) from None
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.process.join()


class _Worker:
    """A process that measures case after case."""

    def __init__(self, work: Work) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would share the threads of solvers
        self.case: Case | None = None
        self.connection, child_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(work, child_end), daemon=True)
        self.process.start()
        child_end.close()  # so that this end is closed when the process dies

    def take(self, case: Case) -> None:
        """Begin to measure a case."""
        self.case = case
        self.connection.send(case)

    def result(self) -> tuple[Case, dict[str, Any]]:
        """Return the case and its result; raise `SystemExit` if it failed."""
        case, self.case = self.case, None
        assert case is not None
        try:
            message = self.connection.recv()
        except EOFError:
            self.process.join()
            raise SystemExit(f"the process that measured {measuring.title(case)} died with exit code {self.process.exitcode}") from None
        if isinstance(message, str):
            raise SystemExit(f"{measuring.title(case)} failed:\n{message}")
        return case, message


def _serve(work: Work, connection: Connection) -> None:
    signal(SIGINT, SIG_IGN)  # Ctrl-C is handled by the parent, which ends this process
    while True:
        try:
            case = connection.recv()
        except EOFError:
            return
        try:
            result: object = work(case)
        except Exception:
            result = traceback.format_exc()
        connection.send(result)


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return the result of a call, its wall-clock seconds and the CPU seconds of all threads."""
    before = in_process.set(True)  # solvers too: the CPU time is this process's
    try:
        return measuring.timed(call)
    finally:
        in_process.reset(before)


def spans(numbers: Iterable[int]) -> str:
    """Return whole numbers as text, consecutive ones joined: ``0 to 3, 7``."""
    groups: list[list[int]] = []
    for number in sorted(set(numbers)):
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(f"{group[0]} to {group[-1]}" if len(group) > 2 else ", ".join(map(str, group)) for group in groups)
