"""League table of the list schedulers: CPU time per call and makespan, against anrg-saga in the same run.

    python benchmarks/list_scheduling.py [--quick] [--no-saga] [--peer-python PYTHON [--saga-version VERSION]]

anrg-saga 2.0.2 is installed into its own venv below --peers at first use, with --peer-python also a second
version on that Python. Rounds of hetsched and SAGA alternate, so that other load affects both; times are the
least CPU time over all calls. Those of hetsched are of a method on a built problem, from ranks to decision,
without simulation and verification, except for "heft, whole call", which is `hs.solve(problem, "heft")`; those of SAGA are of
`schedule()`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import figures
import instances
import peers

import hetsched as hs
from hetsched.heuristics.list_scheduling.static import place_heft
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.search import Monitor, find_method

REGION = "list_scheduling"
PEER_INSTANCES = ("layered100", "rwnn10x32", "layered1000")
LARGER = {"layers2000": (2_000, 50), "layers5000": (5_000, 100)}
"""Tasks and width of generated graphs."""
PLACING, WHOLE = "heft, placing only", "heft, whole call"
ROWS = (PLACING, WHOLE, *instances.list_schedulers())
SAGA = {
    PLACING: "HeftScheduler",
    WHOLE: "HeftScheduler",
    "best-device": "FastestNodeScheduler",
    "heft": "HeftScheduler",
    "peft": "PEFTScheduler",
    "cpop": "CpopScheduler",
    "etf": "ETFScheduler",
    "bil": "BILScheduler",
    "met": "METScheduler",
    "mct": "MCTScheduler",
    "olb": "OLBScheduler",
    "min-min": "MinMinScheduler",
    "max-min": "MaxMinScheduler",
    "sufferage": "SufferageScheduler",
}
"""SAGA's class for each row. Its GDL is not DLS: it selects the least dynamic level, the paper the greatest."""
TARGETS = dict.fromkeys(("peft", "cpop", "etf", "min-min", "max-min", "sufferage"), 300) | {WHOLE: 100}
LEAST_TASKS = 320
"""The least number of tasks for those targets; HEFT's hold for all."""
HEFT_TARGETS = {"2.0.2": 1000, "2.1.0": 500}
BUILDING = "build from lists, then heft's placing"
PATIENCE = 5.0
"""The most seconds of calls of SAGA, or of building its graph, that are repeated in later rounds."""


def target(saga: peers.Saga, row: str) -> int | None:
    """Return the target ratio of a scheduler for this version of SAGA."""
    return HEFT_TARGETS.get(saga.version) if row == PLACING else TARGETS.get(row)


class IgnoringMonitor(Monitor):
    """A monitor that ignores offers, to time the heuristic alone."""

    def offer(self, decision: hs.Decision) -> float:
        return 0.0


class League:
    """The figures of hetsched and of the versions of SAGA, by (instance, row)."""

    def __init__(self, sagas: list[peers.Saga], limit: float, seconds: float) -> None:
        self.sagas, self.limit, self.each = sagas, limit, seconds
        self.sizes: dict[str, str] = {}
        self.tasks: dict[str, int] = {}
        self.seconds: dict[tuple[str, str], float] = {}
        self.makespans: dict[tuple[str, str], float] = {}

    def play(self, instance: str, data: dict[str, Any], path: Path, rounds: int) -> None:
        """Run all on an instance, in alternating rounds."""
        problem = instances.peer(data)
        self.tasks[instance] = problem.n_tasks
        self.sizes[instance] = f"{problem.n_tasks} tasks, {problem.graph.n_edges} edges, {problem.n_devices} devices"
        for turn in range(rounds):
            print(f"{instance}: {self.sizes[instance]}, round {turn + 1} of {rounds}", flush=True)
            self._ours(instance, data, problem)
            for saga in self.sagas:
                saga.run(instance, path, self.limit, list(dict.fromkeys(SAGA.values())), patience=PATIENCE)

    def _ours(self, instance: str, data: dict[str, Any], problem: hs.Problem) -> None:
        need, ignoring = next(memory_needs(problem)), IgnoringMonitor(problem)
        calls: dict[str, Callable[[], object]] = {
            name: partial(find_method(name).function, problem, ignoring) for name in instances.list_schedulers()
        }
        calls[PLACING] = lambda: place_heft(problem, need, "saga")
        calls[WHOLE] = lambda: hs.solve(problem, "heft")
        calls[BUILDING] = lambda: place_heft(instances.peer(data), need)
        for row, call in calls.items():
            seconds = figures.least(call, self.each)
            self.seconds[instance, row] = min(seconds, self.seconds.get((instance, row), seconds))
        for row in ROWS:
            monitor = Monitor(problem)
            monitor.run("heft" if row in (PLACING, WHOLE) else row, {"mean_communication": "saga"} if row == PLACING else {})
            self.makespans[instance, row] = monitor.incumbent

    def ratio(self, saga: peers.Saga, instance: str, row: str) -> float | None:
        """Return the ratio of SAGA's time (a lower bound if it ran out of time), or None if it has no such scheduler."""
        peer_seconds = saga.seconds.get((instance, SAGA.get(row, "")))
        return None if peer_seconds is None else peer_seconds / self.seconds[instance, row]

    def timed_out(self, saga: peers.Saga, instance: str, row: str) -> bool:
        """Whether SAGA ran out of time."""
        return saga.makespans.get((instance, SAGA.get(row, "")), 0.0) is None

    def table(self, instance: str) -> str:
        """Return the table of one instance."""
        head = ["scheduler", "us", "makespan"]
        for saga in self.sagas:
            head += [f"{saga.title}, us", "makespan", "ratio"]
        return figures.table(head, [self._row(instance, row) for row in ROWS])

    def _row(self, instance: str, row: str) -> list[str]:
        cells = [row, figures.number(self.seconds[instance, row] * 1e6), f"{self.makespans[instance, row]:.3f}"]
        for saga in self.sagas:
            ratio = self.ratio(saga, instance, row)
            if ratio is None:
                cells += ["", "", ""]
            elif self.timed_out(saga, instance, row):
                cells += [f"> {figures.number(self.limit * 1e6)}", "", f"> {figures.number(ratio)}"]
            else:
                key = (instance, SAGA[row])
                cells += [figures.number(saga.seconds[key] * 1e6), f"{saga.makespans[key]:.3f}", figures.number(ratio)]
        return cells

    def ratios(self, saga: peers.Saga) -> str:
        """Return the table of one version's ratios on all instances; those that miss their target are bold."""
        rows = []
        for row in ROWS:
            values = {name: ratio for name in self.sizes if (ratio := self.ratio(saga, name, row)) is not None}
            if not values:
                continue
            cells = [row, "" if target(saga, row) is None else str(target(saga, row))]
            for name in self.sizes:
                goal = target(saga, row) if row == PLACING or self.tasks[name] >= LEAST_TASKS else None
                cell = "> " * self.timed_out(saga, name, row) + figures.number(values[name])
                cells.append(f"**{cell}**" if goal is not None and values[name] < goal else cell)
            rows.append(cells)
        return figures.table(["scheduler", "target", *self.sizes], rows)

    def equal_makespans(self) -> str:
        """Return sentences on the instances on which HEFT with SAGA's mean has SAGA's makespan."""
        lines = []
        for saga in self.sagas:
            peer_makespans = {name: value for name in self.sizes if (value := saga.makespans.get((name, SAGA[PLACING]))) is not None}
            off = [name for name, value in peer_makespans.items() if abs(value - self.makespans[name, PLACING]) > 1e-9 * value]
            where = f"not on {', '.join(off)}" if off else "on all of them"
            lines.append(f"{saga.title} finished HEFT on {len(peer_makespans)} instances; `{PLACING}` makes its makespan {where}.")
        return "\n".join(lines)

    def building(self) -> str:
        """Return the table of building a problem from Python lists and placing it with HEFT."""
        head = ["instance", "ms", *(cell for saga in self.sagas for cell in (f"{saga.title}, ms", "ratio"))]
        rows = []
        for name in self.sizes:
            own_seconds = self.seconds[name, BUILDING]
            cells = [name, figures.number(own_seconds * 1e3)]
            for saga in self.sagas:
                peer_seconds = saga.seconds[name, "build"] + saga.seconds[name, SAGA["heft"]]
                more = "> " * self.timed_out(saga, name, "heft")
                cells += [f"{more}{figures.number(peer_seconds * 1e3)}", f"{more}{figures.number(peer_seconds / own_seconds)}"]
            rows.append(cells)
        return figures.table(head, rows)

    def plot(self, path: Path) -> None:
        """Draw the ratios: a panel for each version of SAGA, a line for each scheduler, a dot for each instance."""
        import matplotlib.pyplot as plt

        rows = [row for row in ROWS if row in SAGA]
        figure, axes = plt.subplots(1, len(self.sagas), figsize=(1 + 4.5 * len(self.sagas), 5.5), sharex=True, sharey=True, squeeze=False)
        for ax, saga in zip(axes[0], self.sagas, strict=True):
            every = {name: {row: self.ratio(saga, name, row) for row in rows} for name in self.sizes}
            series = [(name, {row: ratio for row, ratio in values.items() if ratio is not None}) for name, values in every.items()]
            figures.dots(ax, rows, series, beyond=lambda name, row, saga=saga: self.timed_out(saga, name, row))
            for y, row in enumerate(rows):
                goal = target(saga, row)
                if goal is not None:
                    ax.plot([goal, goal], [y - 0.4, y + 0.4], color="0.4", linewidth=1.5)
            figures.log_ticks(ax, (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000))
            ax.set_title(saga.title)
            ax.set_xlabel("times the CPU time of hetsched")
        figures.legend_below(figure, axes[0][0])
        figures.save(figure, path)
        plt.close(figure)

    def json(self) -> dict[str, Any]:
        """Return the figures for the JSON file."""
        result: dict[str, Any] = {}
        for name in self.sizes:
            own = {row: {"cpu_s": self.seconds[name, row], "makespan": self.makespans.get((name, row))} for row in (*ROWS, BUILDING)}
            result[name] = {"size": self.sizes[name], "hetsched": own}
            for saga in self.sagas:
                keys = [key for key in saga.seconds if key[0] == name]
                result[name][saga.title] = {key[1]: {"cpu_s": saga.seconds[key], "makespan": saga.makespans[key]} for key in keys}
        return result


def per_edge(sizes: Sequence[tuple[int, int, int]], seconds: float) -> tuple[str, dict[str, float]]:
    """Return the table of HEFT's placing per edge and device, and the figures."""
    rows, values = [], {}
    for n, width, n_devices in sizes:
        problem = instances.peer(instances.layered(n, width, speeds=(1.0, 1.5, 2.0, 3.0)[:n_devices]))
        need = next(memory_needs(problem))
        spent = figures.least(lambda problem=problem, need=need: place_heft(problem, need), seconds)
        nanoseconds, goal = spent / problem.graph.n_edges / n_devices * 1e9, 15 if n <= 10_000 else 20
        values[f"{n} in {width}, {n_devices} devices"] = nanoseconds
        shown = f"{nanoseconds:.1f}" if nanoseconds <= goal else f"**{nanoseconds:.1f}**"
        rows.append([f"{n} in {width}", str(problem.graph.n_edges), str(n_devices), figures.number(spent * 1e3), shown, str(goal)])
    return figures.table(["tasks in layers of", "edges", "devices", "ms", "ns per edge and device", "target"], rows), values


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = figures.parser(__doc__)
    parser.add_argument("--data", type=Path, default=instances.DATA / "peer", help="folder of the peer instances (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help="alternating rounds (default: 3, with --quick 1)")
    parser.add_argument("--limit", type=float, help="seconds of CPU time for a call of SAGA (default: 60, with --quick 5)")
    parser.add_argument("--no-saga", action="store_true", help="only our own figures")
    parser.add_argument("--peers", type=Path, default=peers.CACHE, help="folder for the venvs (default: %(default)s)")
    parser.add_argument("--peer-python", metavar="PYTHON", help="another Python, for a second version of anrg-saga")
    parser.add_argument("--saga-version", default="2.1.0", metavar="VERSION", help="that second version (default: %(default)s)")
    arguments = figures.parse(parser, words, region=REGION, plot=True)
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 3)
    arguments.limit = arguments.limit or (5.0 if arguments.quick else 60.0)
    return arguments


def text(league: League, edges: str) -> str:
    """Return the text for the page."""
    parts = [f"Taken on: {figures.machine()}."]
    for saga in league.sagas:
        parts += [f"### Times the CPU time of hetsched: {saga.title}", league.ratios(saga)]
    if league.sagas:
        parts += [
            league.equal_makespans(),
            f"![CPU time of SAGA over that of hetsched, for each scheduler and instance](images/{REGION}.svg)",
            f"Grey bars are targets. Calls were broken off after {league.limit:g} s of CPU time (`>`, an arrowhead): the ratio is larger.",
        ]
    for name, size in league.sizes.items():
        parts += [f"### {name}: {size}", league.table(name)]
    return "\n\n".join([*parts, "### Building included", league.building(), "### HEFT per edge and device", edges])


def main(words: Sequence[str] | None = None) -> None:
    """Run the league and publish its tables."""
    arguments = options(words)
    started = time.perf_counter()
    hs.methods()
    sagas = [] if arguments.no_saga else [peers.saga("2.0.2", peers.RUNNING, arguments.peers)]
    if arguments.peer_python and not arguments.no_saga:
        sagas.append(peers.saga(arguments.saga_version, arguments.peer_python, arguments.peers))
    league = League(sagas, arguments.limit, 0.02 if arguments.quick else 0.2)
    for name in PEER_INSTANCES[: 2 if arguments.quick else None]:
        path = arguments.data / f"{name}.json"
        league.play(name, json.loads(path.read_text()), path, arguments.rounds)
    with tempfile.TemporaryDirectory() as folder:
        for name, (n, width) in ({"layers500": (500, 20)} if arguments.quick else LARGER).items():
            path = Path(folder) / f"{name}.json"
            data = instances.layered(n, width)
            path.write_text(json.dumps(data))
            league.play(name, data, path, arguments.rounds)
    sizes = ((1_000, 20, 3), (10_000, 50, 3), (50_000, 50, 3), (50_000, 500, 4))
    edges, per_edge_ns = per_edge(sizes[: 1 if arguments.quick else None], 0.5)
    if league.sagas and arguments.docs is not None:
        league.plot(arguments.docs / "images" / f"{REGION}.svg")
    figures.publish(arguments, REGION, text(league, edges), {**league.json(), "heft_ns_per_edge_and_device": per_edge_ns})
    print(f"took {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
