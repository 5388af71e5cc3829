"""Lower bounds without search on random modules and stacks of them.

    python benchmarks/bounds.py [--quick]

Each bound's value, the gap to the best list schedule, and wall times once compiled.
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
from hetsched.bounds import best
from hetsched.members import LIST_SCHEDULERS

REGION = "bounds"
INSTANCES = ("rwnn1x10", "rwnn1x10u", "rwnn1x32", "rwnn1x32u", "rwnn10x32", "rwnn10x32u")
OPTIMA = {"rwnn10x32": 4280.9, "rwnn10x32u": 4909.2}
"""Found by cutting the stacks apart, durations rounded to 0.1."""
BOUNDS = ("critical path", "load", "head-tail load", "series", "destructive")


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return what the second of two calls returns and its wall time; the first compiles."""
    call()
    started = time.perf_counter()
    found = call()
    return found, time.perf_counter() - started


def measure(problem: hs.Problem) -> dict[str, Any]:
    """Return each bound's best value, the wall time of all quick ones and of all, and the best list schedule."""
    _, quick = timed(lambda: list(best.quick(problem)))
    found, every = timed(lambda: list(best.every(problem)))
    values: dict[str, float] = {}
    for bound in found:
        values[bound.name] = max(bound.value, values.get(bound.name, 0.0))
    return {"bounds": values, "quick_s": quick, "every_s": every, "makespan": hs.solve(problem, LIST_SCHEDULERS).makespan}


def row(name: str, found: dict[str, Any]) -> list[str]:
    """Return the line of one instance."""
    values, makespan, optimum = found["bounds"], found["makespan"], OPTIMA.get(name)
    value = max(values.values())
    below = "" if optimum is None else f"{(1 - value / optimum) * 100:.1f} %"
    cells = [f"{values[bound]:.1f}" if bound in values else "" for bound in BOUNDS]
    times = [f"{figures.number(found[key] * 1e3, 2)}" for key in ("quick_s", "every_s")]
    return [name, *cells, f"{makespan:.1f}", f"{max(0.0, 1 - value / makespan) * 100:.1f} %", below, *times]


def main(words: Sequence[str] | None = None) -> None:
    """Bound every instance and publish the table."""
    parser = figures.parser(__doc__)
    parser.add_argument("--data", type=Path, default=instances.DATA / "peer", help="folder of the instances (default: %(default)s)")
    arguments = figures.parse(parser, words, region=REGION)
    found = {}
    for name in INSTANCES[: 2 if arguments.quick else None]:
        found[name] = measure(instances.peer(json.loads((arguments.data / f"{name}.json").read_text())))
        print(f"{name}: {found[name]['bounds']}", flush=True)
    head = ["instance", *BOUNDS, "best list schedule", "gap", "below the optimum", "`quick`, ms", "`every`, ms"]
    table = figures.table(head, [row(*pair) for pair in found.items()])
    figures.publish(arguments, REGION, f"Taken on: {figures.machine()}.\n\n{table}", found)


if __name__ == "__main__":
    main()
