"""Lower bounds on random modules and stacks of them.

    python benchmarks/bounds.py [--quick]

Each bound's value, the gap to the best list schedule, and wall times once compiled; and on stacks of
modules joined by several channels the gaps to the best schedule of a search.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import figures
import instances

import hetsched as hs
from hetsched.bounds import best, combinatorial
from hetsched.bounds.destructive import destructive
from hetsched.compiled import interpreter
from hetsched.papers.diviml.stacks import KINDS
from hetsched.portfolio.prepare import prepare_bounds
from hetsched.problem.graph import plural

REGION = "bounds"
INSTANCES = ("rwnn1x10", "rwnn1x10u", "rwnn1x32", "rwnn1x32u", "rwnn10x32", "rwnn10x32u")
OPTIMA = {"rwnn10x32": 4280.9, "rwnn10x32u": 4909.2}
"""Optima by decomposition of the stacks, durations rounded to 0.1."""
BOUNDS = ("critical path", "load", "head-tail load", "modular", "destructive")


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result and the wall-clock time of the second of two calls; the first compiles."""
    call()
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def measure(problem: hs.Problem) -> dict[str, Any]:
    """Return each bound's best value, the wall time of all quick ones and of all, and the best list schedule."""
    _, quick = timed(lambda: list(best.quick(problem)))
    computed, every = timed(lambda: list(best.every(problem)))
    values: dict[str, float] = {}
    for bound in computed:
        values[bound.name] = max(bound.value, values.get(bound.name, 0.0))
    return {"bounds": values, "quick_s": quick, "every_s": every, "makespan": hs.solve(problem, instances.list_schedulers()).makespan}


def row(name: str, figures_of_row: dict[str, Any]) -> list[str]:
    """Return the line of one instance."""
    values, makespan, optimum = figures_of_row["bounds"], figures_of_row["makespan"], OPTIMA.get(name)
    value = max(values.values())
    below = "" if optimum is None else f"{(1 - value / optimum) * 100:.1f} %"
    cells = [f"{values[bound]:.1f}" if bound in values else "" for bound in BOUNDS]
    times = [f"{figures.number(figures_of_row[key] * 1e3, 2)}" for key in ("quick_s", "every_s")]
    return [name, *cells, f"{makespan:.1f}", f"{max(0.0, 1 - value / makespan) * 100:.1f} %", below, *times]


def measure_stack(problem: hs.Problem, seconds: float) -> dict[str, float]:
    """Return the makespan of a search of `seconds`, and bounds: the old ones, without a limit, and within `seconds`."""
    makespan = hs.solve(problem, "annealing", time_limit=seconds).makespan
    started = time.perf_counter()
    unlimited = hs.bound(problem).value
    spent = time.perf_counter() - started
    return {
        "makespan": makespan,
        "head-tail load": combinatorial.head_tail_load(problem).value,
        "destructive": destructive(problem).value,
        "bound": unlimited,
        "bound_s": spent,
        "longer": hs.bound(problem, time_limit=seconds).value,
    }


def stack_row(kind: tuple[str, int], results: Sequence[dict[str, float]]) -> list[str]:
    """Return the line of one kind of stack: mean gaps over its instances."""
    gaps = [
        figures.percent(sum(1 - result[name] / result["makespan"] for result in results) / len(results))
        for name in ("head-tail load", "destructive", "bound", "longer")
    ]
    spent = figures.number(max(result["bound_s"] for result in results), 2)
    return [f"{kind[0]}, {plural(kind[1], 'channel')}", *gaps, spent]


def main(words: Sequence[str] | None = None) -> None:
    """Bound every instance and publish the table."""
    parser = figures.parser(__doc__)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of the search, and of the longer bound, for stacks (default: %(default)s)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="stacks of each kind (default: %(default)s)")
    parser.add_argument("--data", type=Path, default=instances.DATA / "peer", help="folder of the instances (default: %(default)s)")
    arguments = figures.parse(parser, words, region=REGION)
    modules = {}
    for name in INSTANCES[: 2 if arguments.quick else None]:
        modules[name] = measure(instances.peer(json.loads((arguments.data / f"{name}.json").read_text())))
        print(f"{name}: {modules[name]['bounds']}", flush=True)
    head = ["instance", *BOUNDS, "best list schedule", "gap", "below the optimum", "`quick`, ms", "`every`, ms"]
    text = f"Taken on: {figures.machine()}.\n\n{figures.table(head, [row(*pair) for pair in modules.items()])}"
    stacks: dict[tuple[str, int], list[dict[str, float]]] = {}
    with interpreter(on=False):
        prepare_bounds()
    for kind in KINDS[: 1 if arguments.quick else None]:
        stacks[kind] = []
        for seed in range(1 if arguments.quick else arguments.seeds):
            stacks[kind].append(
                measure_stack(
                    instances.stack("er", 10, 10, channels=kind[1], dependence=kind[0], seed=seed),
                    0.5 if arguments.quick else arguments.seconds,
                )
            )
            print(f"{kind}, seed {seed}: {stacks[kind][-1]}", flush=True)
    longer = f"`bound`, {figures.number(0.5 if arguments.quick else arguments.seconds, 2)} s"
    head = ["ten modules of ten tasks", "head-tail load", "destructive", "`bound`", longer, "`bound` takes, s"]
    text += f"\n\n{figures.table(head, [stack_row(*pair) for pair in stacks.items()])}"
    numbers = {"modules": modules, "stacks": {f"{kind} {channels}": results for (kind, channels), results in stacks.items()}}
    figures.publish(arguments, REGION, text, numbers)


if __name__ == "__main__":
    main()
