"""Search methods on instances with a reference: quality of the best schedule after 1, 10 and 60 seconds.

    python benchmarks/search.py [--quick] [--jobs 2] [--methods annealing tabu] [--instances mk10] [--time-limit 10]

Each case is one method on one instance with one seed; the time from the problem to each better schedule is stored,
so that one run has the quality at all times up to its limit. The complete set takes hours; results are stored, so
that a run may be interrupted and continued. The page shows all results with the given time limit.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
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
from hetsched.experiments.runner import improvements, timed

REGION = "search"
METHODS = ("annealing", "tabu", "evolution", "sa", "ea", "random-heft", "auto")
CHECKPOINTS = (1.0, 10.0, 60.0)
"""Seconds at which the quality is reported."""
LIMIT, SEEDS = 60.0, tuple(range(10))
RATE = 400_000.0
"""Target of changes per second."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Known:
    """An instance, and a reference makespan, published or proven."""

    name: str
    reference: float
    what: str
    """The source of the reference."""
    build: Callable[[], hs.Problem]
    drawn: bool = False
    """Whether the plot shows it."""


@functools.cache
def known(data: Path) -> dict[str, Known]:
    """Return every instance by name."""
    peer, proved = "proven optimum, inputs rounded to 0.1", "proven optimum"
    records = [
        Known("rwnn10x32", 4280.9, peer, partial(_peer, data, "rwnn10x32"), drawn=True),
        Known("rwnn10x32u", 4909.2, peer, partial(_peer, data, "rwnn10x32u")),
    ]
    for network, communication, reference in (
        ("GoogLeNet", "delay", 1.314),
        ("GoogLeNet", "port", 1.444),
        ("transformer", "delay", 20.04),
        ("transformer", "port", 22.40),
    ):
        build = partial(_moirai, data / "moirai" / f"{network}.json", communication)
        records.append(
            Known(f"{network}, {communication}", reference, "best of an earlier local search", build, drawn=communication == "port")
        )
    for row in instances.rows(data / "fjsp"):
        name = row["instance"]
        if name.startswith("mk"):
            what = proved if row["lower"] == row["upper"] else "best published"
            build = partial(instances.read, data / "fjsp" / f"{name}.json")
            records.append(Known(name, float(row["upper"]), what, build, drawn=name == "mk10"))
    for row in instances.rows(data / "stg"):
        if row["file"] in ("100-rand0088.stg", "50-rand0111.stg", "50-rand0114.stg"):  # those CP-SAT misses in 10 s
            processors = int(row["processors"])
            build = partial(instances.read, data / "stg" / row["file"], processors=processors)
            records.append(Known(f"{row['file']} on {processors}", float(row["optimum"]), proved, build))
    return {record.name: record for record in records}


def _moirai(path: Path, communication: str) -> hs.Problem:
    """Read one of Moirai's graphs."""
    return instances.read(path).replace(communication=communication)


def _peer(data: Path, name: str) -> hs.Problem:
    return instances.peer(json.loads((data / "peer" / f"{name}.json").read_text()))


def solve(data: Path, case: Case) -> Row:
    """Measure one case."""
    instance = known(data)[case["instance"]]
    problem = instance.build()
    prepare(case["method"], problem.communication)
    solution, spent = timed(lambda: hs.solve(problem, case["method"], time_limit=case["limit"], seed=case["seed"]))
    assert solution.schedule is not None, f"no schedule: {solution.messages}"
    broken = hs.verify(problem, solution.schedule)
    assert not broken, broken[0].message
    history = improvements(solution)
    excess = figures.percent(solution.makespan / instance.reference - 1)
    return {
        "history": history,
        "makespan": solution.makespan,
        "bound": solution.bound,
        **spent,
        "says": f"{solution.makespan:.6g}, {excess} above",
    }


def limit(case: Case) -> float:
    """Return the limit of a case in seconds."""
    return float(case["limit"])


@functools.cache
def prepare(method: str, communication: str) -> None:
    """Import modules and compile kernels before the first measurement."""
    problem = instances.topcuoglu().replace(communication=communication)
    hs.solve(problem, method, evaluations=200)  # a time limit would end before the compilation


def after(row: Row, seconds: float) -> float:
    """Return the makespan of the best schedule after `seconds`, inf before the first."""
    return min((value for time, value in row["history"] if time <= seconds), default=np.inf)


def rates(data: Path, names: Sequence[str], evaluations: int) -> dict[str, float]:
    """Return the changes that `annealing` tries per second of CPU time, including list schedulers and bounds."""
    per_second = {}
    for name in names:
        problem = known(data)[name].build()
        prepare("annealing", problem.communication)
        start = time.process_time()
        hs.solve(problem, "annealing", evaluations=evaluations)
        per_second[name] = evaluations / (time.process_time() - start)
    return per_second


class Report:
    """The report on the results with the requested time limit."""

    def __init__(self, results: Results, every: dict[str, Known], limit: float, rates: dict[str, float] | None = None) -> None:
        self.every, self.limit, self.rates = every, limit, rates or {}
        self.rows = results.rows(self.counts)
        self.taken = results.taken(self.counts)
        self.methods = [name for name in METHODS if any(row["method"] == name for row in self.rows)]
        self.methods += sorted({row["method"] for row in self.rows} - set(METHODS))
        self.instances = [name for name in every if any(row["instance"] == name for row in self.rows)]
        self.checkpoints = [*(seconds for seconds in CHECKPOINTS if seconds < limit), limit]

    def counts(self, case: Case) -> bool:
        """Return whether a case is one of this report."""
        return case["instance"] in self.every and case["limit"] == self.limit

    def excess(self, instance: str, method: str, seconds: float) -> list[float]:
        """Return the relative excess of each seed's best schedule after `seconds` over the reference."""
        reference = self.every[instance].reference
        rows = [row for row in self.rows if (row["instance"], row["method"]) == (instance, method)]
        return [after(row, seconds) / reference - 1 for row in rows]

    def table(self, seconds: float) -> str:
        """Return the median excess of each method on each instance after `seconds`."""
        lines = []
        for name in self.instances:
            cells = [float(np.median(excess)) if (excess := self.excess(name, method, seconds)) else np.nan for method in self.methods]
            best = np.nanmin(cells)
            texts = ["" if np.isnan(cell) else "none" if np.isinf(cell) else figures.percent(cell) for cell in cells]
            shown = [f"**{text}**" if cell <= best + 5e-4 else text for text, cell in zip(texts, cells, strict=True)]
            lines.append([name, f"{self.every[name].reference:g}", *shown])
        return figures.table(["instance", "reference", *self.methods], lines)

    def text(self) -> str:
        """Return the text for the page."""
        seeds = cases.spans(row["seed"] for row in self.rows)
        head = (
            f"Taken on: {self.taken}. {len(self.rows)} runs of {self.limit:g} s, seeds {seeds}. Cells are the median over the seeds of "
            "`makespan / reference - 1`; the best of a line are bold, and what is below the reference is negative."
        )
        tables = [f"After {seconds:g} s:\n\n{self.table(seconds)}" for seconds in self.checkpoints]
        sources: dict[str, list[str]] = {}
        for name in self.instances:
            sources.setdefault(self.every[name].what, []).append(name)
        picture = f"![How much longer than the reference the best schedule is over time: median, worst and best seed](images/{REGION}.svg)"
        parts = [head, picture, *tables, "References: " + "; ".join(f"{what}: {', '.join(names)}" for what, names in sources.items()) + "."]
        if self.rates:
            rates = ", ".join(f"{name} {figures.number(rate)}" for name, rate in self.rates.items())
            target = f"target: {figures.number(RATE)} on rwnn10x32"
            parts.append(f"Changes that `annealing` tries in a second of CPU time, on one core: {rates} ({target}).")
        return "\n\n".join(parts)

    def plot(self, path: Path) -> None:
        """Draw the excess over time on the drawn instances: median over the seeds, and between the worst and the best."""
        import matplotlib.pyplot as plt
        from matplotlib.lines import Line2D

        drawn = [name for name in self.instances if self.every[name].drawn] or self.instances[:4]
        times = np.geomspace(0.05, self.limit, 200)
        figure, axes = plt.subplots(1, len(drawn), figsize=(1 + 3.1 * len(drawn), 3.2), squeeze=False)
        for ax, name in zip(axes[0], drawn, strict=True):
            highest, lowest = [], []
            for method, colour in zip(self.methods, figures.COLOURS, strict=False):
                curves = 100 * np.array([self.excess(name, method, seconds) for seconds in times])
                if not curves.size:
                    continue
                middle = np.median(curves, axis=1)
                ax.plot(times, np.where(np.isfinite(middle), middle, np.nan), color=colour, linewidth=1.3)
                shown = np.isfinite(curves).all(axis=1)
                ax.fill_between(times[shown], curves[shown].min(axis=1), curves[shown].max(axis=1), color=colour, alpha=0.15, linewidth=0)
                highest.append(middle[np.isfinite(middle)].max(initial=0))
                lowest.append(curves[np.isfinite(curves)].min(initial=0))
            ax.set_xlim(times[0], times[-1])
            ax.set_ylim(min(lowest) - 0.5, min(max(highest), 40) * 1.05 + 0.5)
            figures.log_ticks(ax, (0.1, 1, 10, 60))
            ax.yaxis.set_major_formatter("{x:g} %")
            ax.set_title(name, loc="left", fontsize=10)
            ax.set_xlabel("seconds")
            ax.spines[["top", "right"]].set_visible(False)
        axes[0][0].set_ylabel("longer than the reference")
        lines = [Line2D([], [], color=colour, label=name) for name, colour in zip(self.methods, figures.COLOURS, strict=False)]
        figure.legend(handles=lines, loc="upper center", ncols=len(lines), bbox_to_anchor=(0.5, 0.0), frameon=False)
        figure.tight_layout()
        figures.save(figure, path)
        plt.close(figure)


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = figures.parser(__doc__)
    parser.add_argument("--data", type=Path, default=instances.DATA, help="folder of the sets (default: %(default)s)")
    parser.add_argument("--methods", nargs="+", choices=sorted(hs.methods()), default=list(METHODS), help="default: %(default)s")
    parser.add_argument("--instances", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="default: %(default)s")
    parser.add_argument("--time-limit", type=float, help=f"seconds for one case (default: {LIMIT:g}; with --quick 1)")
    cases.options(parser, REGION)
    arguments = cases.parse(parser, words, region=REGION, plot=True)
    arguments.time_limit = arguments.time_limit or (1.0 if arguments.quick else LIMIT)
    every = known(arguments.data)
    unknown = sorted(set(arguments.instances or ()) - set(every))
    if unknown:
        parser.error(f"unknown instance {unknown[0]!r}; choose from {', '.join(map(repr, every))}")
    if arguments.quick:
        arguments.seeds = arguments.seeds[:2]
        arguments.instances = arguments.instances or list(every)[:2]
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measure the requested cases and publish all results."""
    arguments = options(words)
    every = known(arguments.data)
    requested: list[Case] = [
        {"instance": name, "method": method, "seed": seed, "limit": arguments.time_limit}
        for seed in arguments.seeds
        for name in arguments.instances or every
        for method in arguments.methods
    ]
    results = Results(arguments.results)
    cases.measure(requested, partial(solve, arguments.data), results, jobs=arguments.jobs, fresh=arguments.fresh, limit=limit)
    speed = rates(arguments.data, ("rwnn10x32", "mk10", "GoogLeNet, port"), 10_000 if arguments.quick else 400_000)
    report = Report(results, every, arguments.time_limit, speed)
    if arguments.docs is not None:
        report.plot(arguments.docs / "images" / "search.svg")
    figures.publish(arguments, REGION, report.text(), report.rows)


if __name__ == "__main__":
    import search  # whose functions other processes can import

    search.main()
