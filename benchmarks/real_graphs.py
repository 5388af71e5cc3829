"""Makespans on Moirai's profiled graphs without contention, with one transfer per channel, and with one per port.

    python benchmarks/real_graphs.py [--quick]

Every method on every graph and communication model, the best lower bound found in a time limit, and the
gap between the two.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import figures
import instances

import hetsched as hs

REGION = "real_graphs"
GRAPHS = ("GoogLeNet", "transformer", "example-1")
COMMUNICATIONS = ("delay", "channel", "port")
METHODS = (*instances.list_schedulers(), "auto")


@dataclass
class Race:
    """The results of all methods on one graph."""

    size: str
    makespans: dict[str, dict[str, float]] = field(default_factory=dict)
    """By communication model and method, inf where a method found no schedule."""
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    bounds: dict[str, hs.Bound] = field(default_factory=dict)
    """By communication model."""

    def best(self, communication: str) -> float:
        """Return the least makespan."""
        return min(self.makespans[communication].values())

    def table(self) -> str:
        """Return the table of makespans: a row for each method, a column for each communication model."""
        rows = [[name, *(cell(self.makespans[model][name], self.best(model)) for model in self.makespans)] for name in METHODS]
        rows.append(["lower bound", *(f"{self.bounds[model].value:.3f} ({self.bounds[model].name})" for model in self.makespans)])
        rows.append(["gap", *(gap(self.best(model), self.bounds[model].value) for model in self.makespans)])
        rows.append(["seconds of `auto`", *(figures.number(self.seconds[model]["auto"], 2) for model in self.makespans)])
        return figures.table(["method", *self.makespans], rows)


def cell(makespan: float, best: float) -> str:
    """Return a makespan for a table, the best one bold."""
    if math.isinf(makespan):
        return "-"
    return f"**{makespan:.3f}**" if makespan <= best * (1 + 1e-9) else f"{makespan:.3f}"


def gap(makespan: float, bound: float) -> str:
    """Return the relative gap in percent."""
    return "-" if math.isinf(makespan) else f"{max(0.0, 1 - bound / makespan) * 100:.1f} %"


def run(path: Path, limit: float) -> Race:
    """Run all methods on a graph."""
    problem = instances.read(path)
    race = Race(f"{problem.n_tasks} tasks, {problem.graph.n_edges} edges, {problem.n_devices} devices")
    for communication in COMMUNICATIONS:
        variant = problem.replace(communication=communication)
        race.makespans[communication], race.seconds[communication] = {}, {}
        for name in METHODS:
            started = time.perf_counter()
            race.makespans[communication][name] = hs.solve(variant, name, time_limit=limit if name == "auto" else None).makespan
            race.seconds[communication][name] = time.perf_counter() - started
        race.bounds[communication] = hs.bound(variant, time_limit=limit)
        text = f"best {race.best(communication):.3f}, bound {race.bounds[communication].value:.3f}"
        print(f"{path.stem}, {communication}: {text}", flush=True)
    return race


def plot(races: dict[str, Race], path: Path) -> None:
    """Draw makespans over that of the best device, where there is one, and the bounds, dotted."""
    import matplotlib.pyplot as plt

    drawn = {name: race for name, race in races.items() if math.isfinite(race.makespans[COMMUNICATIONS[0]]["best-device"])}
    figure, axes = plt.subplots(1, len(drawn), figsize=(1 + 4.5 * len(drawn), 5.5), sharey=True, squeeze=False)
    for ax, (name, race) in zip(axes[0], drawn.items(), strict=True):
        series = []
        for communication, makespans in race.makespans.items():
            unit = makespans["best-device"]
            series.append((communication, {row: value / unit for row, value in makespans.items() if math.isfinite(value)}))
            label = "lower bound" if communication == COMMUNICATIONS[-1] else None
            ax.axvline(race.bounds[communication].value / unit, color="0.3", linestyle=":", linewidth=1, label=label)
        figures.dots(ax, METHODS, series, beyond=lambda name, row: False)
        ax.axvline(1, color="0.4", linewidth=1, zorder=0)
        figures.log_ticks(ax, (0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 40))
        ax.set_title(name)
        ax.set_xlabel("makespan over that of the best device")
    figures.legend_below(figure, axes[0][0])
    figures.save(figure, path)
    plt.close(figure)


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = figures.parser(__doc__)
    parser.add_argument("--data", type=Path, default=instances.DATA / "moirai", help="folder of the graphs (default: %(default)s)")
    parser.add_argument("--bound-limit", type=float, help="seconds for a lower bound (default: 10, with --quick 0.5)")
    arguments = figures.parse(parser, words, region=REGION, plot=True)
    arguments.bound_limit = arguments.bound_limit or (0.5 if arguments.quick else 10.0)
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Run all methods on all graphs and publish the tables."""
    arguments = options(words)
    started = time.perf_counter()
    graphs = GRAPHS[: 1 if arguments.quick else None]
    races = {name: run(arguments.data / f"{name}.json", arguments.bound_limit) for name in graphs}
    parts = [f"Taken on: {figures.machine()}. Lower bounds: {arguments.bound_limit:g} s each."]
    parts.append(f"![Makespan of every method over that of the best device, for each graph](images/{REGION}.svg)")
    for name, race in races.items():
        parts += [f"### {name}: {race.size}", race.table()]
    if arguments.docs is not None:
        plot(races, arguments.docs / "images" / f"{REGION}.svg")
    results = {
        name: {
            model: {"makespans": race.makespans[model], "seconds": race.seconds[model], "bound": race.bounds[model].value}
            for model in race.makespans
        }
        for name, race in races.items()
    }
    figures.publish(arguments, REGION, "\n\n".join(parts), results)
    print(f"took {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
