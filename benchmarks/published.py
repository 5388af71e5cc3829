"""Instances with a published optimum, or published bounds on it: schedules and proofs of `auto` within a time limit.

    python benchmarks/published.py [--quick] [--sets mk stg]

Results are stored, so that a run may be interrupted and continued. The page shows all results with the given time
limits, also those of earlier runs. Ends with 1 if one contradicts a published value.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

REGION = "published"
SETS = {
    "papers": ("examples of the HEFT and PEFT papers", 60.0),
    "moirai": ("Moirai's `example-1`", 60.0),
    "fattahi": ("flexible job shops: fattahi", 60.0),
    "kacem": ("flexible job shops: kacem", 60.0),
    "mk": ("flexible job shops: mk", 60.0),
    "dafjs": ("flexible job shops: dafjs, with DAGs", 60.0),
    "yfjs": ("flexible job shops: yfjs, with DAGs", 60.0),
    "stg": ("Standard Task Graphs", 10.0),
}
"""Description of each set, and the seconds for an instance."""
HARD = ("mk10", "mk12")
"""Instances that need not be reached."""
TARGETS = {"mk": f"all but {', '.join(HARD)}", "stg": "all"}
COMMUNICATIONS = ("delay", "channel", "port")
METHOD = "auto"
SLACK = 1e-6
"""Relative tolerance of comparisons with published values."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Known:
    """An instance and its published values."""

    group: str
    name: str
    lower: float
    upper: float
    build: Callable[[], hs.Problem]


@functools.cache
def known(data: Path) -> dict[tuple[str, str], Known]:
    """Return every instance by set and name."""
    records = [Known("papers", "topcuoglu", 73, 73, instances.topcuoglu), Known("papers", "arabnejad", 113, 113, instances.arabnejad)]
    example = data / "moirai" / "example-1.json"
    records += [Known("moirai", f"example-1, {record}", 30, 30, partial(_contended, example, record)) for record in COMMUNICATIONS]
    records.append(Known("moirai", "example-1, delay, without memory", 28, 28, partial(_roomy, example)))
    for row in instances.rows(data / "fjsp"):
        name = row["instance"]
        build = partial(instances.read, data / "fjsp" / f"{name}.json")
        records.append(Known(name.rstrip("0123456789"), name, float(row["lower"]), float(row["upper"]), build))
    for row in instances.rows(data / "stg"):
        optimum, processors = float(row["optimum"]), int(row["processors"])
        build = partial(instances.read, data / "stg" / row["file"], processors=processors)
        records.append(Known("stg", f"{row['file']} on {processors}", optimum, optimum, build))
    return {(record.group, record.name): record for record in records}


def _contended(path: Path, communication: str) -> hs.Problem:
    return instances.read(path).replace(communication=communication)


def _roomy(path: Path) -> hs.Problem:
    problem = instances.read(path)
    return problem.replace(cluster=problem.cluster.replace(devices=problem.cluster.names))


def solve(data: Path, case: Case) -> Row:
    """Measure one case."""
    instance = known(data)[case["set"], case["name"]]
    problem = instance.build()
    prepare()
    solution, spent = timed(lambda: hs.solve(problem, case["method"], time_limit=case["limit"]))
    if solution.schedule is not None:
        broken = hs.verify(problem, solution.schedule)
        assert not broken, broken[0].message
    makespan = None if solution.schedule is None else solution.makespan
    row = {"makespan": makespan, "bound": solution.bound, "proven": solution.status == hs.Status.OPTIMAL, **spent}
    reached = "reached" if is_reached(row, instance) else "MISSED"
    return {**row, "says": f"{reached}: {describe(row, instance)}, {spent['wall_s']:.2f} s"}


@functools.cache
def prepare() -> None:
    """Import modules and compile kernels before the first measurement."""
    for communication in COMMUNICATIONS:
        hs.solve(instances.topcuoglu().replace(communication=communication), METHOD, time_limit=10)


def is_reached(row: Row, instance: Known) -> bool:
    """Return whether the schedule is as short as the best published one."""
    return row["makespan"] is not None and row["makespan"] <= instance.upper * (1 + SLACK)


def describe(row: Row, instance: Known) -> str:
    """Return the result and the published values as text."""
    makespan = "no schedule" if row["makespan"] is None else f"makespan {row['makespan']:.6g}"
    published = f"{instance.upper:g}" if instance.lower == instance.upper else f"{instance.lower:g} to {instance.upper:g}"
    return f"{makespan}, published {published}, bound {row['bound']:.6g}"


def contradiction(row: Row, instance: Known) -> str:
    """Return the contradiction to a published value, or an empty text."""
    if row["bound"] > instance.upper * (1 + SLACK):
        return f"{instance.name}: the bound {row['bound']!r} is above the published upper bound {instance.upper:g}"
    if row["makespan"] is not None and row["makespan"] < instance.lower * (1 - SLACK):
        return f"{instance.name}: the makespan {row['makespan']!r} is below the published lower bound {instance.lower:g}"
    return ""


class Report:
    """The report on the results with the requested time limits."""

    def __init__(self, results: Results, every: dict[tuple[str, str], Known], limits: dict[str, float]) -> None:
        self.every, self.limits = every, limits
        self.rows = sorted(results.rows(self.counts), key=lambda row: row["name"])
        self.taken = results.taken(self.counts)

    def counts(self, case: Case) -> bool:
        """Return whether a case is one of this report."""
        return (case["set"], case["name"]) in self.every and case.get("method") == METHOD and case["limit"] == self.limits[case["set"]]

    def of(self, row: Row) -> Known:
        """Return the instance of a row."""
        return self.every[row["set"], row["name"]]

    @property
    def contradictions(self) -> list[str]:
        """The contradictions to published values."""
        return [text for row in self.rows if (text := contradiction(row, self.of(row)))]

    def table(self) -> str:
        """Return a line for each set with a measurement, and one for all."""
        head = ["set", "instances", "limit, s", "reached", "to reach", "proven optimal", "median time, s", "longest time, s"]
        lines = [self._line(name, rows) for name in SETS if (rows := [row for row in self.rows if row["set"] == name])]
        reached, proven = len(self.rows) - len(self.missed), sum(row["proven"] for row in self.rows)
        lines.append(["all", _count(self.rows, len(self.every)), "", str(reached), "", str(proven), "", ""])
        return figures.table(head, lines)

    def _line(self, group: str, rows: Sequence[Row]) -> list[str]:
        missed = [row["name"] for row in self.missed if row["set"] == group]
        reached = str(len(rows) - len(missed))
        if group in TARGETS and set(missed) - set(HARD):
            reached = f"**{reached}**"
        times = [row["wall_s"] for row in rows]
        return [
            SETS[group][0],
            _count(rows, sum(name == group for name, _ in self.every)),
            f"{self.limits[group]:g}",
            reached,
            TARGETS.get(group, ""),
            str(sum(row["proven"] for row in rows)),
            figures.number(float(np.median(times)), 2),
            figures.number(max(times), 2),
        ]

    @property
    def missed(self) -> list[Row]:
        """The schedules that are longer than the best published ones."""
        return [row for row in self.rows if not is_reached(row, self.of(row))]

    def lists(self) -> list[str]:
        """Return by name the instances that were not reached, those reached but not proven, and those better than published."""
        unproven = [row["name"] for row in self.rows if not row["proven"] and row not in self.missed]
        better = [row for row in self.rows if row not in self.missed and row["makespan"] < self.of(row).upper * (1 - SLACK)]
        parts = [
            self._names("Not reached", self.missed),
            self._names("Better than published", better),
            f"Reached but not proven: {', '.join(unproven)}." if unproven else "",
        ]
        return [part for part in parts if part]

    def _names(self, what: str, rows: Sequence[Row]) -> str:
        lines = [f"- {row['name']}: {describe(row, self.of(row))}" for row in rows]
        return "\n".join([f"{what}:", "", *lines]) if lines else ""

    def scope(self) -> str:
        """Return the instances that a reduced run has omitted."""
        absent = [name for name in SETS if not any(row["set"] == name for row in self.rows)]
        less = [f"{name} {limit:g} s" for name, (_, limit) in SETS.items() if self.limits[name] != limit and name not in absent]
        text = f" Not measured: {', '.join(absent)}." if absent else ""
        return text + (f" In full the limits are: {', '.join(less)}." if less else "")

    def text(self) -> str:
        """Return the text for the page."""
        parts = [f"Taken on: {self.taken}.{self.scope()}", self.table(), *self.lists()]
        if self.contradictions:
            parts.insert(1, "\n".join(["**These contradict what is published:**", "", *(f"- {text}" for text in self.contradictions)]))
        return "\n\n".join(parts)


def _count(rows: Sequence[Row], every: int) -> str:
    return str(every) if len(rows) == every else f"{len(rows)} of {every}"


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = figures.parser(__doc__)
    parser.add_argument("--data", type=Path, default=instances.DATA, help="folder of the sets (default: %(default)s)")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="default: all")
    parser.add_argument("--time-limit", type=float, help="seconds for one instance (default: 60, of stg 10; with --quick 2)")
    cases.options(parser, REGION)
    arguments = cases.parse(parser, words, region=REGION)
    limit = arguments.time_limit or (2.0 if arguments.quick else None)
    arguments.limits = {name: limit or usual for name, (_, usual) in SETS.items()}
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measure the requested cases and publish all results."""
    arguments = options(words)
    every = known(arguments.data)
    requested: list[Case] = []
    for group in arguments.sets:
        names = [name for other, name in every if other == group][: 2 if arguments.quick else None]
        requested += [{"set": group, "name": name, "method": METHOD, "limit": arguments.limits[group]} for name in names]
    results = Results(arguments.results)
    cases.measure(requested, partial(solve, arguments.data), results, jobs=arguments.jobs, fresh=arguments.fresh)
    report = Report(results, every, arguments.limits)
    figures.publish(arguments, REGION, report.text(), report.rows)
    if report.contradictions:
        raise SystemExit("\n".join(["CONTRADICTIONS of what is published:", *report.contradictions]))


if __name__ == "__main__":
    import published  # whose functions other processes can import

    published.main()
