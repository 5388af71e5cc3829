"""Loads of profiled networks with a stream of inputs: results of the methods for the period, and bounds.

    python benchmarks/period.py [--quick]

The networks of msr-fiddle/dnn-partitioning under the authors' objective, max-load, and under the period. Every
schedule is verified. Ends with 1 if a bound is above the best value.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import figures
import instances

import hetsched as hs

REGION = "period"
KNOWN = {
    "layer/bert24_inference": 17.778,
    "layer/gnmt_inference": 31.783,
    "layer/gnmt_training": 90.948,
    "layer/resnet50_inference": 33.775,
    "operator/bert_l-3_inference": 27.919,
    "operator/bert_l-6_inference": 29.580,
    "operator/bert_l-3_training": 65.303,
}
"""The least published max-load of each network, with three decimals."""
METHODS = ("contiguous", "load-search", "load-milp")
OBJECTIVES = ("max-load", "period")
SLACK = 5e-4
"""Absolute tolerance, because the published values are rounded."""


def run(problem: hs.Problem, objective: str, limit: float) -> dict[str, Any]:
    """Minimise an objective by every method; return values and seconds by method, and the best bound."""
    results: dict[str, Any] = {"values": {}, "seconds": {}, "bound": 0.0, "by": ""}
    bounds = [hs.bound(problem, objective=objective)]
    for name in METHODS:
        started = time.perf_counter()
        solution = hs.solve(problem, name, objective=objective, time_limit=limit)
        results["seconds"][name] = time.perf_counter() - started
        results["values"][name] = solution.value
        bounds.append(solution.proof)
        if solution.schedule is not None:
            broken = hs.verify(problem, solution.schedule)
            assert not broken, broken[0].message
    best = max(bounds, key=lambda bound: bound.value)
    return {**results, "bound": best.value, "by": best.name}


def table(objective: str, races: dict[str, dict[str, Any]]) -> str:
    """Return the table of one objective: a row for each network."""
    known_values = ["known"] if objective == "max-load" else []
    head = ["network", *known_values, *METHODS, "bound", "gap"]
    rows = []
    for name, race in races.items():
        results = race[objective]
        best = min(results["values"].values())
        before = [f"{KNOWN[name]:.3f}"] if known_values else []
        cells = [cell(results["values"][method], best, results["seconds"][method]) for method in METHODS]
        rows.append([name.partition("/")[2], *before, *cells, f"{results['bound']:.3f} ({results['by']})", gap(best, results["bound"])])
    return figures.table(head, rows)


def cell(value: float, best: float, seconds: float) -> str:
    """Return a value and its seconds for a table, the best value bold."""
    if math.isinf(value):
        return f"- ({seconds:.1f} s)"
    text = f"**{value:.3f}**" if value <= best * (1 + 1e-6) else f"{value:.3f}"
    return f"{text} ({seconds:.1f} s)"


def gap(value: float, bound: float) -> str:
    """Return the relative gap in percent."""
    return "-" if math.isinf(value) else f"{max(0.0, 1 - bound / value) * 100:.1f} %"


def contradictions(races: dict[str, dict[str, Any]]) -> list[str]:
    """Return the contradictions: bounds above published values."""
    return [
        f"{name}: the bound {race['max-load']['bound']!r} is above the known value {KNOWN[name]}"
        for name, race in races.items()
        if race["max-load"]["bound"] > KNOWN[name] + SLACK
    ]


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = figures.parser(__doc__)
    data = instances.DATA / "msr-dnn-partitioning"
    parser.add_argument("--data", type=Path, default=data, help="folder of the networks (default: %(default)s)")
    parser.add_argument("--time-limit", type=float, help="seconds of a method (default: 20, with --quick 1)")
    arguments = figures.parse(parser, words, region=REGION)
    arguments.time_limit = arguments.time_limit or (1.0 if arguments.quick else 20.0)
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Run all methods on all networks and publish the tables."""
    arguments = options(words)
    races: dict[str, dict[str, Any]] = {}
    for name in list(KNOWN)[: 2 if arguments.quick else None]:
        problem = instances.read(arguments.data / f"{name}.json")
        for objective in OBJECTIVES:  # compile and import what is to be
            hs.solve(problem, METHODS[:2], objective=objective, evaluations=10, time_limit=10)
        races[name] = {objective: run(problem, objective, arguments.time_limit) for objective in OBJECTIVES}
        messages = [f"{objective} {min(race['values'].values()):.3f} >= {race['bound']:.3f}" for objective, race in races[name].items()]
        print(f"{name}: {', '.join(messages)}", flush=True)
    reached = sum(min(race["max-load"]["values"].values()) <= KNOWN[name] + SLACK for name, race in races.items())
    parts = [
        f"Taken on: {figures.machine()}. {arguments.time_limit:g} s a method.",
        f"What was known is reached or bettered on {reached} of {len(races)} networks.",
    ]
    for objective in OBJECTIVES:
        parts += [f"### Objective {objective}", table(objective, races)]
    wrong = contradictions(races)
    figures.publish(arguments, REGION, "\n\n".join(parts), races)
    if wrong:
        raise SystemExit("\n".join(["CONTRADICTIONS of what is known:", *wrong]))


if __name__ == "__main__":
    main()
