"""List schedulers: CPU time per call and makespan, against anrg-saga in the same run.

    python benchmarks/list_scheduling.py [--saga PYTHON] [--data DIR] [--rounds N]

`--saga` names the Python of a venv with anrg-saga (pip install anrg-saga==2.0.2); without it only
our own times are printed. Rounds alternate between the two, so that a noisy machine is noisy for
both. Times are the least over all rounds. Ours are of the heuristic on a built problem (priorities,
order, placement), neither simulation nor verification around it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import hetsched as hs
from hetsched.heuristics.list_scheduling import place_heft
from hetsched.heuristics.offering import memory_needs
from hetsched.search import Monitor, find_method

INSTANCES = ("layered100", "rwnn10x32", "layered1000")
METHODS = ("heft", "cpop", "etf", "min-min", "max-min", "sufferage", "peft", "dls", "bil", "mcp", "hlfet")
PEERS = ("heft", "cpop", "etf", "min-min", "max-min", "sufferage")


class Deaf(Monitor):
    """A monitor that accepts every offer unheard, to time the heuristic alone."""

    def offer(self, decision: hs.Decision) -> float:
        return 0.0


def read(path: Path) -> hs.Problem:
    """Return the problem in one of the peer instances."""
    data = json.loads(path.read_text())
    graph = hs.TaskGraph([f"t{i}" for i in range(data["n"])], np.array(data["edges"]), edge_bytes=data["size"])
    return hs.Problem(graph, hs.Cluster([f"d{k}" for k in range(data["m"])], bandwidth=data["bw"]), durations=data["exec"])


def layered(n: int, width: int, n_devices: int, seed: int = 0) -> hs.Problem:
    """Return layers of `width` tasks, each task with up to three parents in the layer before."""
    rng = np.random.default_rng(seed)
    target = np.arange(width, n).repeat(3)
    source = (target // width - 1) * width + rng.integers(0, width, len(target))
    edges = np.unique(np.column_stack([source, target]), axis=0)
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges, edge_bytes=rng.random(len(edges)))
    cluster = hs.Cluster([f"d{k}" for k in range(n_devices)], bandwidth=1.0)
    return hs.Problem(graph, cluster, durations=rng.random((n, n_devices)) + 0.5)


def least(call: Callable[[], object], seconds: float = 0.2) -> float:
    """Return the least CPU time of calls repeated for some time, after one to compile and warm up."""
    call()
    times, started = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - started < seconds:
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return min(times)


def ours(problem: hs.Problem) -> dict[str, dict[str, float]]:
    """Return seconds per call and makespan of each of our methods."""
    hs.methods()
    need = next(memory_needs(problem))
    result = {}
    for name in METHODS:
        options = {"mean_communication": "saga"} if name == "heft" else {}
        monitor, deaf = Monitor(problem), Deaf(problem)
        monitor.run(name, options)
        function = find_method(name).function
        seconds = least(
            (lambda: place_heft(problem, need, "saga"))
            if name == "heft"
            else (lambda function=function, deaf=deaf: function(problem, deaf))
        )
        result[name] = {"cpu_s": seconds, "makespan": monitor.incumbent}
    return result


def main() -> None:
    """Print one table an instance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saga", help="Python of a venv with anrg-saga")
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data" / "peer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    figures: dict[str, object] = {}
    for name in INSTANCES:
        path = arguments.data / f"{name}.json"
        problem = read(path)
        mine: dict[str, dict[str, float]] = {}
        peer: dict[str, dict[str, float]] = {}
        for _ in range(arguments.rounds):
            rounds = [(mine, ours(problem))]
            if arguments.saga:
                command = [arguments.saga, str(Path(__file__).with_name("saga_peer.py")), str(path), "1", *PEERS]
                rounds.append((peer, json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)))
            for kept, new in rounds:
                for method, row in new.items():
                    if method not in kept or row["cpu_s"] < kept[method]["cpu_s"]:
                        kept[method] = row
        print(f"\n{name}: {problem.n_tasks} tasks, {problem.graph.n_edges} edges, {problem.n_devices} devices")
        print(f"{'method':<12}{'us/call':>10}{'makespan':>12}{'SAGA us':>12}{'SAGA makespan':>15}{'ratio':>8}")
        for method in METHODS:
            row = mine[method]
            line = f"{method:<12}{row['cpu_s'] * 1e6:>10.1f}{row['makespan']:>12.3f}"
            if method in peer:
                other = peer[method]
                line += f"{other['cpu_s'] * 1e6:>12.0f}{other['makespan']:>15.3f}{other['cpu_s'] / row['cpu_s']:>8.0f}"
            print(line)
        figures[name] = {"ours": mine, "saga": peer}
    print("\nHEFT per edge and device")
    for n, width, n_devices in ((1_000, 20, 3), (10_000, 50, 3), (50_000, 50, 3), (50_000, 500, 4)):
        problem = layered(n, width, n_devices)
        need = next(memory_needs(problem))
        seconds = least(lambda problem=problem, need=need: place_heft(problem, need), 0.5)
        each = seconds / problem.graph.n_edges / n_devices
        size = f"{n:>7} tasks in layers of {width:>3}, {problem.graph.n_edges:>7} edges, {n_devices} devices"
        print(f"{size}: {seconds * 1e3:8.2f} ms, {each * 1e9:5.1f} ns")
        figures[f"layered {n} {width} {n_devices}"] = {"seconds": seconds, "ns_per_edge_and_device": each * 1e9}
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
