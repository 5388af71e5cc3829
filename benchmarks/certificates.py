"""Certificates of optima: CPU seconds to make and to check, and their sizes.

    python benchmarks/certificates.py [--quick] [--docs FOLDER] [--time-limit SECONDS] [INSTANCE ...]

The instances are those of the registry; their files are not in the repository.
"""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Sequence
from pathlib import Path

import figures
from instances import DATA

import hetsched as hs
from hetsched.instances.files import FOLDERS

REGION = "certificates"
INSTANCES = ("topcuoglu2002", "arabnejad2014", "yfjs03", "yfjs04", "dafjs01", "fattahi16")
MODULES = (1, 3, 10)
"""Modules in a row of the generated stacks."""


def stack(modules: int) -> hs.Problem:
    """Return a stack of modules of ten tasks."""
    graph = hs.workloads.rwnn("er", 10, modules=modules, seed=0)
    return hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline())


def main(words: Sequence[str] | None = None) -> None:
    """Make and check the certificates and publish the table."""
    parser = figures.parser(__doc__)
    parser.add_argument("instances", nargs="*", metavar="INSTANCE", help="default: those of the table")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with fjsp/")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for a certificate")
    arguments = figures.parse(parser, words, region=REGION)
    os.environ.setdefault(FOLDERS, str(arguments.data / "fjsp"))
    names = arguments.instances or INSTANCES[: 2 if arguments.quick else None]
    problems = {f"`{name}`": hs.instances.load(name) for name in names}
    problems |= {f"{count} modules of 10 tasks": stack(count) for count in (MODULES[:1] if arguments.quick else MODULES)}
    rows, results = [], {}
    for name, problem in problems.items():
        solution = hs.solve(problem, "split", time_limit=arguments.time_limit)
        started = time.process_time()
        certificate = hs.certify(problem, solution.makespan, time_limit=arguments.time_limit)
        made = time.process_time() - started
        row = [name, f"{problem.n_tasks}, {problem.n_devices}", f"{solution.makespan:.9g}"]
        if certificate is None:
            rows.append([*row, "not certified", f"{figures.number(made)} s", "", "", "", ""])
            continue
        started = time.process_time()
        bound = certificate.check(problem)
        checked = time.process_time() - started
        data = hs.documents.encode(certificate)
        sizes = [str(len(certificate.lemmas)), f"{certificate.nodes:,}", f"{len(data):,} ({len(gzip.compress(data)):,})"]
        gap = f"{1 - bound.value / solution.makespan:.1g}" if bound.value < solution.makespan else "equal"
        rows.append([*row, gap, f"{figures.number(made)} s", f"{figures.number(checked)} s", *sizes])
        results[name] = {
            "makespan": solution.makespan,
            "bound": bound.value,
            "made_cpu_s": made,
            "checked_cpu_s": checked,
            "bytes": len(data),
        }
        print(rows[-1], flush=True)
    head = ["instance", "tasks, devices", "makespan, s", "gap", "made", "checked", "lemmas", "nodes", "bytes (gzip)"]
    figures.publish(arguments, REGION, f"Taken on: {figures.machine()}. CPU time.\n\n{figures.table(head, rows)}", results)


if __name__ == "__main__":
    main()
