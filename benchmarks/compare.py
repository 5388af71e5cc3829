"""Comparison of two checkouts of hetsched on the same work: CPU time of each call, and equality of the answers to the bit.

    python benchmarks/compare.py BEFORE [--rounds 5] [--rows annealing period]

BEFORE is the folder of another checkout; "after" is the one of this script. Each round runs both in separate
processes, one after the other, on one thread; in each process every row runs once for the kernels and is then
timed. A row's figure is the least CPU time of its process; the table shows the median over the rounds, the ratio of
the least of all rounds, and the range of the rounds' ratios. A difference smaller than that range is not significant. Searches
have a limit of evaluations instead of time, so that both do the same work.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
LISTS = ("heft", "peft", "lookahead", "etf", "dls", "mct", "min-min", "dsc", "celeritas")
SEARCHES = {"annealing": 20_000, "tabu": 2_000, "evolution": 5_000, "sa": 10_000}
"""Evaluations of each search."""
LOADS = {"load-search": 20_000, "contiguous": 1}
MODELS = ("delay", "channel", "port")


def rows() -> dict[str, Callable[[], tuple[float, object]]]:
    """Return the calls by name; each returns its CPU seconds and its answer."""
    import hetsched as hs

    @functools.cache
    def problem(communication: str, inputs: int = 1, explicit: bool = False) -> Any:
        graph = hs.workloads.rwnn("ws", seed=1)  # 320 tasks
        rng = np.random.default_rng(0)
        durations = rng.uniform(1, 10, (graph.n_tasks, 4))
        cluster = hs.Cluster([f"d{k}" for k in range(4)], bandwidth=rng.uniform(2e4, 1e5, (4, 4)), latency=0.01)
        seconds = rng.uniform(0, 20, (graph.n_edges, 4, 4)) * (1 - np.eye(4)) if explicit else None
        return hs.Problem(graph, cluster, durations=durations, transfers=seconds, communication=communication, inputs=inputs)

    def solved(instance: Any, method: str, **limits: Any) -> tuple[float, object]:
        begin = time.process_time()
        solution = hs.solve(instance, method, seed=0, **limits)
        return time.process_time() - begin, solution.value.hex()

    def simulated(instance: Any) -> tuple[float, object]:
        decision = hs.solve(instance, "heft" if instance.inputs == 1 else "bheft").schedule.decision
        begin = time.process_time()
        for _ in range(20):
            makespan = hs.simulate(instance, decision).makespan
        return time.process_time() - begin, makespan.hex()

    calls: dict[str, Callable[[], tuple[float, object]]] = {}
    for communication in MODELS:
        for method in LISTS:
            calls[f"{method} {communication}"] = lambda c=communication, m=method: solved(problem(c), m)
        for method, count in SEARCHES.items():
            calls[f"{method} {communication}"] = lambda c=communication, m=method, n=count: solved(problem(c), m, evaluations=n)
        for method, count in LOADS.items():
            calls[f"{method} period {communication}"] = lambda c=communication, m=method, n=count: solved(
                problem(c), m, objective="period", evaluations=n
            )
        calls[f"annealing 4 inputs {communication}"] = lambda c=communication: solved(problem(c, 4), "annealing", evaluations=10_000)
        calls[f"bheft 4 inputs {communication}"] = lambda c=communication: solved(problem(c, 4), "bheft")
        calls[f"simulate {communication}"] = lambda c=communication: simulated(problem(c))
    calls["heft explicit transfers"] = lambda: solved(problem("delay", explicit=True), "heft")
    calls["annealing explicit transfers"] = lambda: solved(problem("delay", explicit=True), "annealing", evaluations=20_000)
    return calls


def measure(chosen: list[str], seconds: float) -> dict[str, Any]:
    """Return CPU seconds and answer of each chosen row, of the hetsched on the path."""
    results = {}
    for name, call in rows().items():
        if not chosen or any(word in name.split() for word in chosen):
            _, first = call()
            times: list[float] = []
            while sum(times) < seconds or len(times) < 3:
                spent, again = call()
                times.append(spent)
                assert again == first, f"{name} gave {first}, then {again}"
            results[name] = (min(times), first)
    return results


def run(checkout: Path, options: list[str]) -> dict[str, Any]:
    """Measure the hetsched of a checkout in a separate process."""
    env = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(checkout), "--measure", *options]
    printed = subprocess.run(command, env=env, cwd=checkout, stdout=subprocess.PIPE, check=True, text=True).stdout
    return dict(json.loads(printed.splitlines()[-1]))


def main(words: list[str] | None = None) -> int:
    """Compare, print the table, return 1 if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--rows", nargs="+", default=[], metavar="WORD", help="only rows with one of these words in their names")
    parser.add_argument("--seconds", type=float, default=0.3, help="CPU seconds of a row in a process, at least (default: %(default)s)")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.measure:
        print(json.dumps(measure(arguments.rows, arguments.seconds)))
        return 0
    if not (arguments.before / "hetsched" / "__init__.py").is_file():
        parser.error(f"{arguments.before} is no checkout of hetsched; give its folder, such as one made by git worktree add")
    options = ["--seconds", str(arguments.seconds), *(["--rows", *arguments.rows] if arguments.rows else [])]
    sides = (arguments.before.resolve(), HERE.parent)
    for side in sides:  # compiles kernels that are not in its cache
        run(side, ["--seconds", "0", *options[2:]])
    rounds = []
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
        order = sides if number % 2 == 0 else sides[::-1]
        both = {side: run(side, options) for side in order}
        rounds.append([both[side] for side in sides])
    print(f"{'row':34}{'before ms':>11}{'after ms':>11}{'ratio':>8}{'range':>16}  answer")
    differ = 0
    for name in rounds[0][0]:
        before, after = ([pair[x][name][0] for pair in rounds] for x in (0, 1))
        ratios = sorted(b / a for a, b in zip(before, after, strict=True))
        same = rounds[0][0][name][1] == rounds[0][1][name][1]
        differ += not same
        print(
            f"{name:34}{1e3 * statistics.median(before):11.3f}{1e3 * statistics.median(after):11.3f}"
            f"{min(after) / min(before):8.3f}{ratios[0]:8.3f}{ratios[-1]:8.3f}  {'same' if same else 'DIFFERENT'}"
        )
    return int(differ > 0)


if __name__ == "__main__":
    raise SystemExit(main())
