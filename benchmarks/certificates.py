"""Certificates of optima: CPU seconds to make and to check, and their sizes.

    python benchmarks/certificates.py [--quick] [--docs FOLDER] [--time-limit SECONDS] [INSTANCE ...]

The instances are those of the registry; their files are not in the repository.
"""

from __future__ import annotations

import gzip
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import exact
import figures
from instances import DATA

import hetsched as hs
from hetsched.instances.files import FOLDERS

REGION = "certificates"
INSTANCES = ("topcuoglu2002", "arabnejad2014", "yfjs03", "yfjs04", "dafjs01", "fattahi16")
MODULES = (1, 3, 10, 20)
"""Modules in a row of the generated stacks."""


def stack(modules: int) -> hs.Problem:
    """Return a stack of modules of ten tasks."""
    graph = hs.workloads.rwnn("er", 10, modules=modules, seed=0)
    return hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline())


def seconds(value: float) -> str:
    """Return seconds as text."""
    return f"{figures.number(value)} s"


def measured(name: str, problem: hs.Problem, makespan: float, limit: float) -> dict[str, Any]:
    """Certify a makespan and check the certificate; return a row of figures, with `claim` None if there is no certificate."""
    started = time.process_time()
    certificate = hs.certify(problem, makespan, time_limit=limit)
    row = {"instance": name, "makespan": makespan, "claim": None, "made_cpu_s": time.process_time() - started}
    if certificate is not None:
        started = time.process_time()
        row["claim"] = certificate.check(problem).value
        row["checked_cpu_s"] = time.process_time() - started
        data = hs.documents.encode(certificate)
        row |= {"lemmas": len(certificate.lemmas), "nodes": certificate.nodes, "bytes": len(data), "gzip": len(gzip.compress(data))}
    print(row, flush=True)
    return row


def shown(problem: hs.Problem, row: dict[str, Any]) -> list[str]:
    """Return the cells of the table for a row of figures."""
    cells = [row["instance"], f"{problem.n_tasks}, {problem.n_devices}", f"{row['makespan']:.9g}"]
    made = seconds(row["made_cpu_s"])
    if row["claim"] is None:
        return [*cells, "not certified", made, "", "", "", ""]
    gap = f"{1 - row['claim'] / row['makespan']:.1g}" if row["claim"] < row["makespan"] else "equal"
    sizes = [str(row["lemmas"]), f"{row['nodes']:,}", f"{row['bytes']:,} ({row['gzip']:,})"]
    return [*cells, gap, made, seconds(row["checked_cpu_s"]), *sizes]


def single_modules(n: int, count: int | None, limit: float) -> tuple[list[str], list[dict[str, Any]]]:
    """Certify the makespans that CP-SAT proves of the first `count` modules of `n` tasks; return cells of the table, and all figures."""
    rows, problems = [], {name: build() for name, build in list(exact.modules(n).items())[:count]}
    for name, problem in problems.items():
        solution = hs.solve(problem, "cpsat", time_limit=limit)
        if solution.status == hs.Status.OPTIMAL:
            rows.append(measured(name, problem, solution.makespan, limit))
    certified = [row for row in rows if row["claim"] is not None]
    cells = [f"{n}", f"{len(problems)}", f"{len(rows)}", f"{len(certified)}"]
    count_of = "{:,.0f}".format
    for field, text in (("made_cpu_s", seconds), ("checked_cpu_s", seconds), ("nodes", count_of), ("bytes", count_of)):
        values = [row[field] for row in certified]
        cells.append(f"{text(statistics.median(values))} / {text(max(values))}" if values else "")
    return cells, rows


def main(words: Sequence[str] | None = None) -> None:
    """Make and check the certificates and publish the tables."""
    parser = figures.parser(__doc__)
    parser.add_argument("instances", nargs="*", metavar="INSTANCE", help="default: those of the table")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with fjsp/")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for a certificate")
    arguments = figures.parse(parser, words, region=REGION)
    os.environ.setdefault(FOLDERS, str(arguments.data / "fjsp"))
    names, limit = arguments.instances or INSTANCES[: 2 if arguments.quick else None], arguments.time_limit
    problems = {f"`{name}`": hs.instances.load(name) for name in names}
    problems |= {f"{count} modules of 10 tasks": stack(count) for count in (MODULES[:1] if arguments.quick else MODULES)}
    rows = {
        name: measured(name, problem, hs.solve(problem, "split", time_limit=limit).makespan, limit) for name, problem in problems.items()
    }
    singles = {n: single_modules(n, 2 if arguments.quick else None, limit) for n in exact.SIZES[: 1 if arguments.quick else None]}
    head = ["instance", "tasks, devices", "makespan, s", "gap", "made", "checked", "lemmas", "nodes", "bytes (gzip)"]
    single = ["tasks of a module", "modules", "proven by `cpsat`", "certified", "made: median / most", "checked", "nodes", "bytes"]
    text = [
        f"Taken on: {figures.machine()}. CPU time.",
        figures.table(head, [shown(problems[name], row) for name, row in rows.items()]),
        f"Single modules of the table of exact methods, {limit:g} s for a proof by `cpsat` and as many for a certificate:",
        figures.table(single, [cells for cells, _ in singles.values()]),
    ]
    results = {"instances": list(rows.values()), "modules": {n: every for n, (_, every) in singles.items()}}
    figures.publish(arguments, REGION, "\n\n".join(text), results)


if __name__ == "__main__":
    main()
