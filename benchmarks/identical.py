"""Graphs of 10 to 30 tasks on 2 to 16 identical processors: optima proven, and certified, within a time limit.

    python benchmarks/identical.py [--quick] [--seeds 0 1] [--methods auto branch]

Graphs are cut from the Standard Task Graphs, or random: layered, Erdos-Renyi, fork-join and trees, each without communication and with
transfers as long as tasks, and independent tasks. Results are stored, so that a run may be interrupted and continued. Ends with 1 if a
bound of one method is above a schedule of another.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cases
import figures
import instances
import numpy as np

import hetsched as hs
from hetsched.experiments import Results
from hetsched.experiments.results import Case
from hetsched.experiments.runner import timed

REGION = "identical"
SIZES, PROCESSORS, RATIOS = (10, 20, 30), (2, 4, 8, 16), (0, 1)
METHODS = ("auto", "branch")
TARGET = 0.98
Row = dict[str, Any]


def solve(data: Path, case: Case) -> Row:
    """Measure one case: solve it, then certify the makespan."""
    prepare()
    problem = instances.identical(case["kind"], case["n"], case["processors"], ccr=case["ccr"], seed=case["seed"], data=data)
    solution, spent = timed(
        lambda: hs.solve(problem, case["method"], time_limit=case["limit"], threads=1 if case["method"] == "auto" else None)
    )
    row = {"makespan": solution.makespan, "bound": solution.bound, "proven": solution.status == hs.Status.OPTIMAL, **spent}
    started = time.process_time()
    made = hs.certify(problem, solution.makespan, time_limit=case["limit"]) if row["proven"] else None
    row |= {"certified": made is not None, "made_cpu_s": time.process_time() - started, "nodes": 0 if made is None else made.nodes}
    return {**row, "says": f"{solution.makespan:g}, bound {solution.bound:g}{', certified' * row['certified']}, {spent['wall_s']:.2f} s"}


@functools.cache
def prepare() -> None:
    """Import modules and compile kernels before the first measurement."""
    for method in METHODS:
        hs.solve(instances.topcuoglu(), method)
    hs.certify(instances.topcuoglu())


def table(rows: Sequence[Row]) -> str:
    """Return a line for each kind of graph, with and without communication, and one for all."""
    head = ["graphs", "communication"]
    for method in METHODS:
        head += [f"`{method}`: cases", "proven", "certified", "median, s", "longest, s"]
    lines = [
        _line(kind, ccr, [row for row in rows if (row["kind"], row["ccr"]) == (kind, ccr)]) for kind in instances.KINDS for ccr in RATIOS
    ]
    return figures.table(head, [line for line in [*lines, _line("all", None, rows)] if line])


def _line(kind: str, ccr: int | None, rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    line = [kind, "" if ccr is None else "yes" if ccr else "no"]
    for method in METHODS:
        own = [row for row in rows if row["method"] == method]
        if not own:
            line += [""] * 5
            continue
        share = sum(row["proven"] for row in own) / len(own)
        times = [row["wall_s"] for row in own]
        line += [str(len(own)), figures.percent(share), figures.percent(sum(row["certified"] for row in own) / len(own))]
        line += [figures.number(float(np.median(times)), 2), figures.number(max(times), 2)]
    return line


def contradictions(rows: Sequence[Row]) -> list[str]:
    """Return the cases in which a bound is above a makespan."""
    known: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        known.setdefault(tuple(row[key] for key in ("kind", "n", "processors", "ccr", "seed")), []).append(row)
    return [
        str(key) for key, same in known.items() if max(row["bound"] for row in same) > min(row["makespan"] for row in same) * (1 + 1e-6)
    ]


def text(results: Results, limit: float) -> str:
    """Return the text for the page."""
    rows = results.rows(lambda case: case["limit"] == limit)
    taken = results.taken(lambda case: case["limit"] == limit)
    seeds = cases.spans({row["seed"] for row in rows})
    said = f"Taken on: {taken}. {limit:g} s for a solve, as many for a certificate, in one process; seeds {seeds}."
    left = [_named(row) for row in rows if not row["proven"] and row["method"] == "auto"]
    parts = [said, table(rows), f"The target is {figures.percent(TARGET)} proven by `auto`."]
    return "\n\n".join([*parts, *([f"Not proven by `auto`: {', '.join(left)}."] if left else [])])


def _named(row: Row) -> str:
    return f"{row['kind']} {row['n']} on {row['processors']}{' with transfers' * bool(row['ccr'])}, seed {row['seed']}"


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = figures.parser(__doc__)
    parser.add_argument("--data", type=Path, default=instances.DATA, help="folder with stg/ (default: %(default)s)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1], help="default: 0 1")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--time-limit", type=float, help="seconds for one case (default: 5, with --quick 1)")
    cases.options(parser, REGION)
    arguments = cases.parse(parser, words, region=REGION)
    arguments.time_limit = arguments.time_limit or (1.0 if arguments.quick else 5.0)
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measure the requested cases and publish all results."""
    arguments = options(words)
    quick = arguments.quick
    requested: list[Case] = [
        {"kind": kind, "ccr": ccr, "n": n, "processors": k, "seed": seed, "method": method, "limit": arguments.time_limit}
        for seed in arguments.seeds[: 1 if quick else None]
        for kind in instances.KINDS[1 if quick else 0 : 2 if quick else None]
        for ccr in RATIOS
        if not (ccr and kind == "independent")
        for n in SIZES[: 1 if quick else None]
        for k in PROCESSORS[: 1 if quick else None]
        for method in arguments.methods
    ]
    results = Results(arguments.results)
    cases.measure(requested, partial(solve, arguments.data), results, jobs=arguments.jobs, fresh=arguments.fresh)
    rows = results.rows(lambda case: case["limit"] == arguments.time_limit)
    figures.publish(arguments, REGION, text(results, arguments.time_limit), rows)
    if wrong := contradictions(rows):
        raise SystemExit("\n".join(["A bound is above a schedule:", *wrong]))


if __name__ == "__main__":
    import identical  # whose functions other processes can import

    identical.main()
