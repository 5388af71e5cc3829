"""What the benchmarks that are run case by case share: their options, and the progress of their runs."""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import figures

from hetsched.experiments import Progress, Results, run
from hetsched.experiments.results import Case

KEPT = Path(__file__).resolve().parent / "results"
Work = Callable[[Case], dict[str, Any]]
"""Measures a case; a function that another process can import."""


def options(parser: argparse.ArgumentParser, region: str) -> None:
    """Add the options of a benchmark that is run case by case."""
    parser.add_argument("--results", type=Path, help=f"file of results to go on with (default: {KEPT / region}.jsonl; with --quick none)")
    parser.add_argument("--fresh", action="store_true", help="measure again what is stored")
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


def measure(
    cases: Sequence[Case],
    work: Work,
    results: Results,
    *,
    jobs: int = 1,
    fresh: bool = False,
    limit: Callable[[Case], float | None] | None = None,
    done: Callable[[Case], object] | None = None,
) -> None:
    """Measure the cases without a result as `hetsched.experiments.run` does, and print each; `done` is called after each result.

    Ctrl-C exits with finished results stored.
    """
    kept = f" in {results.path}" if results.path is not None else ""
    ready = 0 if fresh else sum(case in results for case in cases)
    print(f"{ready} of {len(cases)} cases are measured already{kept}", flush=True)
    if outdated := 0 if fresh else results.outdated(cases):
        print(f"{outdated} of them with an older version of hetsched; --fresh measures all again", flush=True)
    started = time.monotonic()

    def told(progress: Progress) -> None:
        print(f"{time.monotonic() - started:.0f} s: {progress}", flush=True)
        if done is not None and not progress.failed:
            done(progress.case)

    try:
        run(cases, work, results=results, jobs=jobs, fresh=fresh, limit=limit, on_progress=told)
    except KeyboardInterrupt:
        print(f"\ninterrupted; {sum(case in results for case in cases)} of {len(cases)} cases are measured{kept}; run again to continue")
        raise SystemExit(130) from None
    if failed := results.failures(cases):
        print(f"{len(failed)} of {len(cases)} cases failed and are left out; run again to try them once more", flush=True)


def spans(numbers: Iterable[int]) -> str:
    """Return whole numbers as text, consecutive ones joined: ``0 to 3, 7``."""
    groups: list[list[int]] = []
    for number in sorted(set(numbers)):
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(f"{group[0]} to {group[-1]}" if len(group) > 2 else ", ".join(map(str, group)) for group in groups)
