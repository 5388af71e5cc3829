"""Serving on unequal devices: Helix's layer placements, with value, bound and seconds beside what was published.

    python benchmarks/serving.py [--quick] [--write] [--data FILE] [--time-limit SECONDS]

The instances are not in the repository: throughput of a node by the number of layers that it holds, from the linear programs that Helix
(Mei et al., ASPLOS 2025) publishes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import figures
from instances import DATA

import hetsched as hs

REGION = "serving"
GUROBI = {"quality": "3,803 s"}
"""Seconds of the published proofs, by Gurobi with 20 threads."""


class Instance(NamedTuple):
    """A serving problem, and the objective that was published for it."""

    problem: hs.chain.ServingProblem
    published: float


def instances(path: Path) -> dict[str, Instance]:
    """Read instances by name from a JSON file: layers, and of each type the count and the throughput by layers.

    Links that carry more than any device passes on are left out; an instance with others has a matrix ``links`` [m + 1, m + 1].
    """
    found = {}
    for name, row in json.loads(path.read_text()).items():
        types = row["types"]
        problem = hs.chain.ServingProblem(
            row["layers"],
            [str(kind.get("name", f"type {k}")) for k, kind in enumerate(types)],
            [kind["count"] for kind in types],
            [kind["throughput_by_layers"] for kind in types],
            links=row.get("links"),
        )
        if "links" not in row and row.get("least_pair_capacity", float("inf")) < row["published_objective"]:
            raise ValueError(f"{name}: links of {row['least_pair_capacity']} tokens/s may bind; give them as a matrix 'links'")
        found[name] = Instance(problem, row["published_objective"])
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Solve the instances and publish the table."""
    parser = figures.parser(__doc__)
    parser.add_argument("--data", type=Path, default=DATA / "helix" / "open.json", help="the file of instances")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for an instance")
    arguments = figures.parse(parser, words, region=REGION)
    rows, results = [], {}
    hs.planning.most_throughput(hs.chain.ServingProblem(2, ["a"], [2], [[2.0, 1.0]]))  # loads the kernels
    for name, instance in instances(arguments.data).items():
        started = time.perf_counter()
        plan = hs.planning.most_throughput(instance.problem, time_limit=1.0 if arguments.quick else arguments.time_limit)
        seconds = time.perf_counter() - started
        nodes = ", ".join(map(str, instance.problem.counts.tolist()))
        rows.append(
            [
                f"`{name}`: {instance.problem.n_items} layers, {nodes} nodes",
                f"{instance.published:.4f}",
                f"{plan.value:.4f}",
                f"{plan.bound:.4f}",
                f"{100 * plan.gap:.2g} %" if plan.status != "optimal" else "proven",
                plan.proof.name,
                f"{figures.number(seconds)} s",
                GUROBI.get(name, "no log"),
            ]
        )
        results[name] = {"value": plan.value, "bound": plan.bound, "wall_s": seconds, "published": instance.published}
    head = ["instance", "published", "tokens/s", "bound", "gap", "bound by", "wall time", "published proof"]
    figures.publish(arguments, REGION, f"Taken on: {figures.machine()}.\n\n{figures.table(head, rows)}", results)


if __name__ == "__main__":
    main()
